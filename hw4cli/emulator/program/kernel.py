"""One kernel of a CUDA file, executed on the CPU on NumPy arrays: what it computes, and what is wrong with it.

A program is made of the file and a few lines that launch the kernel (kernels/emulator/program/one_kernel.h), and run as
any other program is: compiled once, in a process of its own, in the sandbox where there is one.
"""

import re
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from hw4cli.emulator.build import digest, is_kept, keep, place_of
from hw4cli.emulator.library import FORWARD, ORDERS, Schedule
from hw4cli.emulator.program.execute import ENDED, SECONDS, Execution, execute
from hw4cli.emulator.report import Finding
from hw4cli.errors import InputError
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, DeviceProperties
from hw4cli.problem.workload import is_whole
from hw4cli.resources import data_path

GPUS = {**{f"{cc / 10:.1f}": props for cc, props in DEVICES.items()}, **AMD_DEVICES}
REFUSED = 64  # the exit status of the program where arguments do not fit the kernel
NAME = re.compile(r"[A-Za-z_][\w:]*\s*(?:<[^;{}\"\\]*>)?")
_DRIVER = """#define main hw4_main_of_the_file
#include "{source}"
#undef main
#line 1 "emulate"
#include "{header}"
namespace {{
template <class... P, size_t... I>
void launch(void (*)(P...), std::vector<hw4::Argument>& all, dim3 grid, dim3 block, size_t shared,
            std::index_sequence<I...>) {{
    hw4::check_number(sizeof...(P), all.size(), "{shown}");
    std::tuple<typename std::remove_cv<P>::type...> values{{hw4::value_of<P>(all[I], I, "{shown}")...}};
    if (shared > 48 << 10) cudaFuncSetAttribute({kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    {kernel}<<<grid, block, shared>>>(std::get<I>(values)...);
}}
template <class... P> constexpr size_t parameters(void (*)(P...)) {{ return sizeof...(P); }}
}}
int main(int, char** words) {{
    std::vector<hw4::Argument> all = hw4::read_arguments(words[1]);
    unsigned n[7];
    for (int i = 0; i < 7; i++) n[i] = (unsigned)atoi(words[2 + i]);
    launch({kernel}, all, dim3(n[0], n[1], n[2]), dim3(n[3], n[4], n[5]), n[6],
           std::make_index_sequence<parameters({kernel})>());
    const cudaError_t error = cudaDeviceSynchronize();
    hw4::write_back(words[9], all);
    return error != cudaSuccess;
}}
"""


@dataclass(frozen=True)
class Emulation:
    """How a kernel ran on the CPU.

    `findings` are its mistakes, causes first, `notes` what is worth knowing and changes no answer: each has a `kind`,
    such as "race", and a `sentence` with lines of the file. `end` is "ended", "too slow", "hangs", "crash" or "killed",
    and `why` a sentence unless it is "ended". `output` is what printf wrote; `seconds` are the processor's.

    >>> done = Emulation([], [], "too slow", "it was ended after 30 s", "", 30.0)
    >>> done.right, str(done)
    (False, 'too slow: it was ended after 30 s')
    """

    findings: list[Finding]
    notes: list[Finding]
    end: str
    why: str
    output: str
    seconds: float

    @property
    def right(self) -> bool:
        """Whether it came to its end without a finding."""
        return self.end == ENDED and not self.findings

    def __str__(self) -> str:
        """A line for each mistake; "no mistake found" if there is none."""
        lines = [*map(str, self.findings), *([f"{self.end}: {self.why}"] if self.end != ENDED else [])]
        return "\n".join(lines) or "no mistake found"


def emulate(
    source: str | Path,
    kernel: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    arguments: Sequence[Any],
    *,
    shared: int = 0,
    gpu: str = "8.0",
    unwritten: Sequence[int] = (),
    order: str = FORWARD,
    seed: int = 0,
    include: Sequence[str | Path] = (),
    define: Sequence[str] = (),
    seconds: float = SECONDS,
    watched: bool = True,
) -> Emulation:
    """Execute a kernel of a CUDA C++ file on the CPU; every load and store is watched, and no GPU is needed.

    `source` is the file, `kernel` the name of a __global__ function in it, with template arguments if it has some
    ("scale<float, 4>"); a `main` of the file is not run. `grid` and `block` are numbers or tuples of up to three.

    `arguments` are those of the kernel, in their order: C-contiguous NumPy arrays for pointers, whose elements have the
    size of what is pointed to (uint16 or float16 for __half), or None for a null pointer; Python's or NumPy's numbers;
    bytes, or a NumPy record, for a struct. As on a GPU, what the kernel writes is in the arrays afterwards: in those
    whose pointer is not const. Arrays at the places `unwritten` (from 0 on) hold nothing yet: to read what the kernel
    has not written there is found.

    `shared` are bytes of dynamic shared memory, `gpu` a compute capability such as "9.0" or an architecture of AMD's
    such as "gfx90a", `order` that in which threads take turns: "forward", "reverse" or "random", by a `seed`. `include`
    are folders of headers, `define` macros as "NAME" or "NAME=VALUE". `seconds` of processor time are allowed; without
    `watched` it is faster, and only answers, crashes and deadlocks are known.

    Raises InputError if the file does not compile, has no such kernel, needs what is not there on the CPU, or if the
    arguments do not fit; MachineError if there is no C++ compiler.

    >>> text = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"
    >>> _ = Path("twice.cu").write_text(text)
    >>> x = np.arange(32, dtype=np.float32)
    >>> print(emulate("twice.cu", "twice", 1, 32, [x]))
    no mistake found
    >>> x[:3].tolist()
    [0.0, 2.0, 4.0]
    >>> emulate("twice.cu", "twice", 2, 32, [x]).findings[0].kind
    'race'
    """
    path = Path(source).absolute()
    name = " ".join(kernel.split()) if isinstance(kernel, str) else ""
    if not NAME.fullmatch(name):
        raise InputError(f"kernel is {kernel!r}: give a function's name, as in 'add' or 'add<float>'")
    if not path.is_file():
        raise InputError(f"there is no file {source}")
    if order not in ORDERS:
        raise InputError(f"order is {order!r}: choose from {', '.join(ORDERS)}")
    sizes = [*_three("grid", grid), *_three("block", block), _whole("shared", shared)]
    packed = _packed(arguments, unwritten)
    with tempfile.TemporaryDirectory(prefix="hw4-") as folder:
        given, made = Path(folder, "arguments.bin"), Path(folder, "arrays.bin")
        given.write_bytes(packed)
        done = execute(
            [_driver(path, name)],
            [str(given), *map(str, sizes), made.name],
            gpu=_props(gpu),
            watched=watched,
            seconds=seconds,
            schedule=Schedule(order, seed),
            include=[path.parent, *map(Path, include)],
            define=define,
            folder=Path(folder),
        )
        _check_refused(done)
        if made.is_file():
            _take(made.read_bytes(), arguments)
    return Emulation([*done.findings], [*done.notes], done.end, done.why, done.output, done.seconds)


def _check_refused(done: Execution) -> None:
    if done.status == REFUSED and (said := re.search(r"^refused: (.*)$", done.errors, re.MULTILINE)):
        raise InputError(said[1])


def _driver(source: Path, kernel: str) -> Path:
    """The program's file, which stays where it is: its compiled form is kept by its text."""
    header = data_path("kernels/emulator/program/one_kernel.h")
    shown = kernel.replace('"', "'")
    text = _DRIVER.format(source=source, header=header, kernel=kernel, shown=shown)
    target = place_of(f"hw4-kernel-{digest(text)}.cu")
    if not is_kept(target):
        with tempfile.TemporaryDirectory(prefix="hw4-") as folder:
            made = Path(folder, "driver.cu")
            made.write_text(text, encoding="utf-8")
            return keep(made, target)
    return target


def _three(what: str, size: int | tuple[int, ...]) -> tuple[int, int, int]:
    """One to three numbers as three."""
    numbers = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if not 1 <= len(numbers) <= 3:
        raise InputError(f"{what} has {len(numbers)} numbers: give one to three")
    x, y, z = [_whole(what, n) for n in numbers] + [1] * (3 - len(numbers))
    return x, y, z


def _whole(what: str, number: Any) -> int:
    if not is_whole(number) or not 0 <= index(number) < 2**31:
        raise InputError(f"{what} is {number!r}: give an integer from 0 to 2^31 - 1")
    return index(number)


def _props(gpu: str) -> DeviceProperties:
    if str(gpu) not in GPUS:
        raise InputError(f"gpu is {gpu!r}: choose from {', '.join(GPUS)}")
    return GPUS[str(gpu)]


def _packed(arguments: Sequence[Any], unwritten: Sequence[int]) -> bytes:
    """The arguments as one_kernel.h reads them."""
    for place in unwritten:
        if not is_whole(place) or not 0 <= index(place) < len(arguments) or not _is_array(arguments[place]):
            raise InputError(f"unwritten has {place!r}: give places of arrays among the {len(arguments)} arguments")
    pieces = [struct.pack("<Q", len(arguments))]
    for place, argument in enumerate(arguments):
        kind, type_, item, data = _described(place, argument)
        given = place not in unwritten
        pieces.append(struct.pack("<5Q", ord(kind), ord(type_), given, item, len(data)))
        pieces.append(data if given else b"")
    return b"".join(pieces)


def _is_array(argument: Any) -> bool:
    return isinstance(argument, np.ndarray)


def _described(place: int, argument: Any) -> tuple[str, str, int, bytes]:
    """An argument's kind, its elements' kind and size, its bytes. Raises InputError if it is of another type."""
    what = f"argument {place + 1}"
    if argument is None:
        return "0", "V", 0, b""
    if isinstance(argument, np.ndarray):
        if argument.dtype.hasobject or argument.dtype.kind not in "fiubcV":
            raise InputError(f"{what} is an array of {argument.dtype}: no kernel computes with these")
        if not argument.flags.c_contiguous:
            raise InputError(f"{what} is not contiguous: give numpy.ascontiguousarray of it")
        return "a", argument.dtype.kind, argument.itemsize, argument.tobytes()
    if isinstance(argument, (bytes, bytearray, np.void)):
        data = argument.tobytes() if isinstance(argument, np.void) else bytes(argument)
        return "s", "V", len(data), data
    if isinstance(argument, (bool, np.bool_)) or is_whole(argument):
        number = int(argument)
        if not -(2**63) <= number < 2**64:
            raise InputError(f"{what} is {number}: no integer has so many bits")
        return "i", "i", 8, struct.pack("<Q", number % 2**64)
    if isinstance(argument, (float, np.floating)):
        return "f", "f", 8, struct.pack("<d", float(argument))
    raise InputError(f"{what} is a {type(argument).__name__}: give an array, a number, bytes of a struct, or None")


def _take(data: bytes, arguments: Sequence[Any]) -> None:
    """Put what the kernel has changed into the arrays."""
    at = 0
    for argument in arguments:
        (size,) = struct.unpack_from("<Q", data, at)
        at += 8
        if size and argument.flags.writeable:
            argument[...] = np.frombuffer(data, argument.dtype, argument.size, at).reshape(argument.shape)
        at += size
