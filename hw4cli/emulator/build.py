"""Kernels compiled for the CPU, as shared objects that are kept beside the GPU's machine code.

A kernel's own text is compiled, against kernels/emulator/language.h; a header of single instructions such as ptx.cuh is
replaced by the one of that name in kernels/emulator/headers. Four builds: `plain` is for the answer alone, `race` has
the compiler's hooks before every load and store, and checks of undefined behaviour, `asan` has AddressSanitizer's
checks, which know where each local array ends, and `counts` has hooks before loads and stores, and at the begin of each
piece of straight code.
"""

import functools
import hashlib
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw4cli.device.machinecode import kernel_cache, spare_folder
from hw4cli.device.ownkernel import COMMENT, check_symbols
from hw4cli.errors import DISK_FAULTS, SHORTAGES, InputError, MachineError, ShortageError
from hw4cli.problem.cpu import workers
from hw4cli.resources import data_path, spliced

PLAIN, RACE, ASAN, COUNTS = "plain", "race", "asan", "counts"
BUILDS = (PLAIN, RACE, ASAN, COUNTS)
LANES = (32, 64)  # of a warp: NVIDIA's, and those of AMD's data-centre GPUs
SECONDS = 300.0  # that a compilation may take
# A line of a compiler, linker or objcopy that blames the machine, and neither one of the source that it quotes nor one
# about a line of it, as of #error.
_WANT = re.compile(
    rf"^(?!\s*\d*\s*\||.*:\d+:).*(?:: (?:{'|'.join(map(os.strerror, SHORTAGES | DISK_FAULTS))})|"
    r"Killed signal terminated program \w+|out of memory allocating \d+ bytes.*)$",
    re.M,
)
# Vectors of float are read as floats and the other way round, as CUDA's compilers allow. A product that is added is
# fused with the sum, also in loops that could be vectorized, where GCC would round it first.
LANGUAGE = (
    "-std=c++17",
    "-fPIC",
    "-w",
    "-fno-strict-aliasing",
    "-ffp-contract=fast",
    "-fno-tree-vectorize",
    "-fno-finite-loops",
)
# How far a kernel is optimised where nothing is counted: by GCC's -O1 it takes twice as long to compile, by -O2 three
# times as long, and it runs no faster.
LITTLE = "-Og"
LINES = "-g1"  # of a kernel, for what is found; the runtime is not asked for its own
KERNELS_ALONE = "-nostdinc++"  # as with NVRTC, they have no standard library of C++; it takes longest to compile
# What is counted keeps the loads of vectors whole, and each piece of straight code by itself.
WHOLE_LOADS = ("-fno-tree-sra", "-fno-crossjumping", "-fno-if-conversion", "-fno-if-conversion2", "-fno-ipa-icf")
FUNCTIONS_ALONE = "tsan-instrument-func-entry-exit=0"
_QUIET = (f"--param={FUNCTIONS_ALONE}", "--param=tsan-distinguish-volatile=1")
UNDEFINED = "-fsanitize=alignment,bounds,null,shift,integer-divide-by-zero,signed-integer-overflow,return,unreachable"
# A kernel's declaration: what is behind __global__ up to its body, without the bounds of its launches.
GLOBAL = re.compile(r"__global__\b([^;{]*)")
BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
KERNEL = re.compile(r"\b(\w+)\s*\(")
# The runtime's sources that are compiled as one: what is the same in all builds, or in
# all but COUNTS, stands together.
UNITS = {
    "watching": ("order", "polling", "publication", "shadow"),
    "launching": ("asynchronous", "findings", "grid", "launch", "meetings", "memory", "registers", "schedule"),
    "hopper": ("bulk", "wgmma"),
    "stacks": ("fibers", "sanitizers"),
}
# Units optimised less, in the runtime of kernels and that of programs: GCC's -O2 takes half as long again to compile
# them, and they run no faster.
LITTLE_OPTIMISED = {"emulator": ("watching",), "program": ("watching", "launching", "program")}
DYNAMIC_SYMBOLS = 11  # the type of a section of an ELF file
Run = Callable[..., "subprocess.CompletedProcess[Any]"]  # subprocess.run, or what takes the same
ONE_AT_A_TIME = threading.Lock()  # who compiles the runtime


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler, and what kind it is."""

    path: str
    version: str

    @property
    def clang(self) -> bool:
        """Whether it takes Clang's options."""
        return "clang" in self.version

    def options(self, build: str, optimised: str = LITTLE) -> tuple[str, ...]:
        """What a kernel is compiled with, `optimised` so far where nothing is counted."""
        # What the tensor cores still add to keeps its place on the stack, as a register would.
        kept = ("-mllvm", "-no-stack-coloring") if self.clang else ("-fstack-reuse=none",)
        # GCC would let all shared objects of a process have one array, the first one's, for a template's static one.
        own = () if self.clang else ("-fno-gnu-unique",)
        return (*kept, *own, *self._checks(build, optimised))

    def _checks(self, build: str, optimised: str) -> tuple[str, ...]:
        if build == PLAIN:
            return (optimised,)
        if build == ASAN:
            return (optimised, "-DEMU_ASAN", "-fsanitize=address", "-fsanitize-recover=address")
        if build == COUNTS:
            return ("-O2", *WHOLE_LOADS, "-DEMU_COUNTS", "-fsanitize=thread", "-fsanitize-coverage=trace-pc", *_QUIET)
        own = (FUNCTIONS_ALONE, "tsan-distinguish-volatile=1")
        prefix = ["-mllvm", "-"] if self.clang else ["--param="]
        hooks = [word for option in own for word in (*prefix[:-1], prefix[-1] + option)]
        return (optimised, "-fsanitize=thread", *hooks, UNDEFINED)

    def sanitizer_library(self) -> str:
        """AddressSanitizer's library, which must be loaded before all others."""
        name = "libclang_rt.asan-x86_64.so" if self.clang else "libasan.so"
        found = subprocess.run([self.path, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
        path = found.stdout.strip()
        if not Path(path).is_absolute():
            raise MachineError(f"{self.path} has no {name}, which the build {ASAN} needs")
        return path


@functools.cache
def find_compiler() -> Compiler:
    """The C++ compiler that CXX names, or g++, or clang++. Raises MachineError if there is none."""
    named = os.environ.get("CXX")
    for name in (named,) if named else ("g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            return Compiler(path, version)
    wanted = f"{named}, which CXX names," if named else "g++ or clang++"
    raise MachineError(f"kernels run on the CPU only where there is a C++ compiler: {wanted} is not installed")


def check_counting() -> None:
    """Raise MachineError where nothing is counted: without g++, whose loads of vectors stay whole."""
    if find_compiler().clang:
        raise MachineError("counts need g++: clang++ takes loads of vectors apart")


def checking_builds() -> tuple[str, ...]:
    """The builds that look for mistakes, as far as the compiler has what they need.

    Debian's clang++ comes without AddressSanitizer (libclang-rt-dev). Raises MachineError if there is no compiler.
    """
    try:
        find_compiler().sanitizer_library()
    except MachineError:
        find_compiler()
        return (RACE,)
    return (RACE, ASAN)


def shared_object(
    source: Path, macros: Mapping[str, int | str], cc: int, lanes: int, build: str, run: Run = subprocess.run
) -> Path:
    """A kernel's file as a shared object for a compute capability and a width of warps; kept, if there is a place.

    `run` starts the compiler and waits for it. Raises InputError if the source does not compile, and MachineError if
    there is no compiler.
    """
    compiler = find_compiler()
    headers = data_path("kernels/emulator")
    text = spliced(source, (headers / "headers", source.resolve().parent, data_path("kernels")))
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    defines += [f"-D__CUDA_ARCH__={cc * 10}", *(["-D__HIP__=1"] if lanes == 64 else [])]
    options = [*LANGUAGE, LINES, KERNELS_ALONE, *processor(), *compiler.options(build), *defines]
    name = digest(text, options, compiler.version, *texts(headers))
    target = place_of(f"hw4-emulator-{source.stem}-{build}-{name}.so")
    if is_kept(target):
        return target
    runtime = _runtime(compiler, build, headers, run)
    with tempfile.TemporaryDirectory(prefix="hw4-") as folder:
        cpp, made = Path(folder, f"{source.stem}.cpp"), Path(folder, "made.so")
        cpp.write_text(text, encoding="utf-8")
        command = [compiler.path, *options, f"-I{headers}", f"-I{source.resolve().parent}", f"-I{data_path('kernels')}"]
        _run([*command, "-include", "language.h", "-c", str(cpp), "-o", f"{cpp}.o"], source.name, folder, run)
        if compiler.clang and build == RACE:  # until 14, its hook for copies of structs is the C library's function
            renamed = [f"--redefine-sym={name}=__tsan_{name}" for name in ("memcpy", "memmove", "memset")]
            _run(["objcopy", *renamed, f"{cpp}.o"], source.name, folder, run)
        # What a kernel declares as dynamic shared memory, under whatever name, is the runtime's window.
        windows = dict.fromkeys(re.findall(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]\s*;", text))
        window = [f"-Wl,--defsym={name}=hw4_window" for name in windows]
        sanitizer = ["-fsanitize=address", *(["-shared-libasan"] if compiler.clang else [])] if build == ASAN else []
        objects = [f"{cpp}.o", *map(str, runtime)]
        linked = [compiler.path, "-shared", "-Wl,-Bsymbolic", *sanitizer, *window, *objects, "-o", str(made)]
        _run(linked, source.name, folder, run)
        return keep(made, target)


def check_kernels(variant: str, source: Path, made: Path, symbols: Sequence[str]) -> None:
    """Raise KernelError, as a GPU does, if the shared object of a user's kernel lacks a function that will be
    launched."""
    text = spliced(source, (source.resolve().parent, data_path("kernels")))
    declared = [KERNEL.search(BOUNDS.sub("", words)) for words in GLOBAL.findall(COMMENT.sub(" ", text))]
    kernels = {found[1] for found in declared if found}
    there = [name for name in dynamic_names(made) if name in kernels or _unmangled(name) in kernels]
    check_symbols(variant, there, symbols)


def dynamic_names(made: Path) -> list[str]:
    """The names that a shared object offers or asks for, C++ names as the compiler mangles them."""
    code = made.read_bytes()
    (at,), (size, number) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQI", code, at + size * place) for place in range(number)]
    links = [section[6] for section in sections if section[1] == DYNAMIC_SYMBOLS]
    return [name.decode() for link in links for name in code[sections[link][4] :][: sections[link][5]].split(b"\0")]


def _unmangled(name: str) -> str:
    """The name of a function in a C++ name, "" in any other."""
    found = re.match(r"_Z(\d+)", name)
    return name[found.end() :][: int(found[1])] if found else ""


def _runtime(compiler: Compiler, build: str, headers: Path, run: Run) -> list[Path]:
    """The runtime of kernels, compiled."""
    folder_texts = texts(headers)
    return compile_runtime(compiler, build, LANGUAGE, units_of(headers), folder_texts, "emulator", run)


def units_of(headers: Path, without: str = "") -> dict[str, tuple[Path, ...]]:
    """The runtime's sources in a folder by the units that they are compiled in, but one: each unit reads the standard
    library's headers once, which would take half of the compiler's time."""
    left = {path.stem: path for path in sorted(headers.glob("*.cpp"))}
    found = {unit: tuple(left.pop(stem) for stem in stems) for unit, stems in UNITS.items()}
    return {unit: files for unit, files in found.items() if unit != without} | {x: (path,) for x, path in left.items()}


def compile_runtime(
    compiler: Compiler,
    build: str,
    options: Sequence[str],
    units: Mapping[str, Sequence[Path]],
    known: Sequence[str],
    kind: str,
    run: Run,
) -> list[Path]:
    """Objects of the runtime's units, kept under a name with this kind of them, made by as many compilers as there are
    processors. What all builds share is compiled once; `known` are the texts that all depend on."""
    of_build = {PLAIN: [], RACE: ["-DEMU_HOOKS"], ASAN: ["-DEMU_ASAN"], COUNTS: ["-DEMU_COUNTS"]}[build]

    def options_of(unit: str) -> list[str]:
        text = "".join(path.read_text(encoding="utf-8") for path in units[unit])  # which has the macro, or EMU_COUNT()
        own = of_build if any(word[2:].removesuffix("S") in text for word in of_build) else []
        return [*options, "-O1" if unit in LITTLE_OPTIMISED[kind] else "-O2", *own]

    targets = {
        unit: place_of(f"hw4-{kind}-{unit}-{digest(options_of(unit), compiler.version, *known)}.o") for unit in units
    }

    def compile_one(unit: str) -> None:
        with tempfile.TemporaryDirectory(prefix="hw4-") as folder:
            source, made = Path(folder, f"{unit}.cpp"), Path(folder, "made.o")
            source.write_text("".join(f'#include "{path}"\n' for path in units[unit]), encoding="utf-8")
            command = [compiler.path, *options_of(unit), "-c", str(source), "-o", str(made)]
            _run(command, source.name, folder, run)
            targets[unit] = keep(made, targets[unit])

    if all(map(is_kept, targets.values())):  # who needs none does not wait for who compiles another
        return [*targets.values()]
    with ONE_AT_A_TIME, ThreadPoolExecutor(workers()) as pool:
        missing = [unit for unit, target in targets.items() if not is_kept(target)]
        missing.sort(key=lambda unit: -sum(path.stat().st_size for path in units[unit]))  # what takes longest first
        list(pool.map(compile_one, missing))
    return [*targets.values()]


def _run(command: list[str], name: str, temporary: str, run: Run) -> None:
    """Run a compiler; InputError with its first error if it fails."""
    done = compiler_run(command, name, temporary, run)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined reference" in line]
        raise InputError(f"{name} does not compile for the CPU: {(lines or done.stderr.splitlines() or ['?'])[0]}")


def compiler_run(command: Sequence[str], name: str, temporary: str, run: Run) -> "subprocess.CompletedProcess[Any]":
    """Run a compiler on the file of this name; its own temporary files go to the folder `temporary`: it removes none if
    it is killed. Raises MachineError if it is missing or takes too long, ShortageError if it fails for want of space or
    memory."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {**os.environ, "TMPDIR": temporary, "LC_ALL": "C.UTF-8"}  # errors are looked for in English
    try:
        done = run(command, **streams, text=True, errors="replace", timeout=SECONDS, env=env)
    except subprocess.TimeoutExpired:
        raise MachineError(f"{name} takes longer than {SECONDS:.0f} s to compile for the CPU") from None
    except FileNotFoundError:
        raise MachineError(f"{command[0]} is not installed, and {name} cannot be compiled without it") from None
    if done.returncode and (want := _WANT.search(done.stderr)):
        where = Path(temporary).parent
        raise ShortageError(f"{name} could not be compiled for the CPU: {want[0].strip()} (temporary files: {where})")
    return done


def place_of(name: str) -> Path:
    """Where what is compiled under a name is kept, or will be: in the cache, or in the private folder if it is there,
    as the cache had no room, or has another user's."""
    wanted, spare = cache_folder() / name, spare_folder()
    return spare / name if spare and not is_kept(wanted) and is_kept(spare / name) else wanted


def is_kept(path: Path) -> bool:
    """Whether a file is there that this process can read to its end: an object ends with a table of its sections."""
    try:
        with path.open("rb") as file:
            head, size = file.read(64), os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if len(head) < 64 or not head.startswith(b"\x7fELF"):
        return size > 0
    (at,), (each, number) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<HH", head, 58)
    return bool(size >= at + each * number)


def keep(made: Path, target: Path) -> Path:
    """Put a file where it appears when it is whole: there, or in the private folder, if that cannot be. Raises
    MachineError if neither can be."""
    try:
        return put(made, target)
    except OSError as error:
        with suppress(OSError):
            if spare := spare_folder(make=True):
                return put(made, spare / target.name)
        raise MachineError(f"cannot write {target}: {error.strerror}") from None


def put(made: Path, target: Path) -> Path:
    """Put a file where it appears when it is whole. Raises OSError."""
    part = target.with_suffix(f".{os.getpid()}")
    try:
        shutil.copy(made, part)
        part.replace(target)
        return target
    finally:
        part.unlink(missing_ok=True)


@functools.cache
def _private_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="hw4-emulator-"))


def cache_folder() -> Path:
    """Where what is compiled for the CPU is kept."""
    return kernel_cache() or _private_folder()


def folders_of_builds() -> list[Path]:
    """Where what is compiled for the CPU may lie: the cache, and the private folder, which is made if it can be."""
    return [folder for folder in (cache_folder(), spare_folder(make=True)) if folder]


@functools.cache
def texts(headers: Path) -> tuple[str, ...]:
    """The sources in a folder: a change of one makes all that is compiled with them anew."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted(headers.iterdir()) if path.is_file())


def digest(*parts: object) -> str:
    """A short name for the content of something."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


@functools.cache
def processor() -> tuple[str, ...]:
    """The instructions that GPUs have too, where this processor has them: fused multiplication, halves."""
    try:
        flags = set(re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
    except (OSError, IndexError):
        return ()
    return tuple(f"-m{name}" for name in ("fma", "f16c") if name in flags)
