"""What a kernel's launches do, counted where the CPU executes it: bytes of every level, requests, products, barriers.

The runtime counts what the lanes of a warp ask for together, and how often each piece of straight code runs
(kernels/emulator/counts.cpp). What the instructions of a piece are is read in the machine code: an addition,
multiplication or division of the processor's is one of the GPU's, a fused one two; a call of exp2f is an exponential.
"""

import ctypes
import functools
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hw4cli.emulator.report import frames_of, is_runtime
from hw4cli.errors import MachineError

SECTOR, WAVEFRONT = 32, 128  # bytes: of global memory, in one piece; of shared memory, at a time
CODE = "code"
TRACE, CUDA = "__sanitizer_cov_trace_pc", "/language.h:"  # what the runtime has of CUDA's own functions
# What instructions of x86 stand for: by the begin of their names, operations of a thread and how many each counts.
FP32, FP64, EXPONENTIALS, LOGARITHMS, FP64_FUNCTIONS, DIVISIONS, CONVERSIONS = (
    *("fp32 FLOP", "fp64 FLOP", "exponentials", "logarithms", "fp64 exponentials and logarithms"),
    *("divisions and roots", "conversions"),
)
OPERATIONS = (FP32, FP64, EXPONENTIALS, LOGARITHMS, FP64_FUNCTIONS, DIVISIONS, CONVERSIONS)
_OPERATION = re.compile(r"v?(?:(f)n?m(?:add|sub)\d{3}|add|sub|mul|(div)|(sqrt)|(rcp|rsqrt))(ss|sd)$")
_CONVERSION = re.compile(r"v?cvt\w+$")
_CALLS = {"exp2f": EXPONENTIALS, "expf": EXPONENTIALS, "logf": LOGARITHMS, "log2f": LOGARITHMS}
_CALLS |= dict.fromkeys(("exp", "exp2", "log", "log2"), FP64_FUNCTIONS)
_LINE = re.compile(r"^\s*([0-9a-f]+):\t(\S+)\s*(.*)$")
_CALLED = re.compile(r"<(\w+)(?:@plt)?>")


class Raw(ctypes.Structure):
    """An entry as the runtime has it (EmuCount in kernels/emulator/counts.cpp)."""

    _fields_ = [
        ("pc", ctypes.c_uint64),
        ("what", ctypes.c_char * 32),
        ("file", ctypes.c_char * 128),
        ("line", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        *(
            (name, ctypes.c_uint64)
            for name in ("times", "lanes", "bytes", "distinct", "sectors", "wavefronts", "least", "amount")
        ),
    ]


@dataclass(frozen=True)
class Line:
    """What happens at one place of a kernel, all threads together: `what` is "load, global", "__syncthreads", "fp32
    FLOP" and so on. `times`: requests of warps, or executions by warps; `lanes`: threads that took part; `bytes` that
    they ask for, `distinct` where each byte of a request counts once; sectors of 32 bytes; wavefronts of shared memory,
    and the fewest that such requests take; `amount`: operations."""

    where: str
    what: str
    times: int = 0
    lanes: int = 0
    bytes: int = 0
    distinct: int = 0
    sectors: int = 0
    wavefronts: int = 0
    least: int = 0
    amount: int = 0

    def __add__(self, other: "Line") -> "Line":
        numbers = (getattr(self, name) + getattr(other, name) for name in NUMBERS)
        return Line(self.where, self.what, *numbers)


NUMBERS = tuple(field.name for field in fields(Line))[2:]


@dataclass(frozen=True)
class Counts:
    """What one launch does: its lines; bytes of global memory that are read once each, but for those that the launch
    has written itself; that are written once each; and both of each block by itself."""

    symbol: str
    grid: int
    threads: int
    lines: tuple[Line, ...]
    first_read: int
    written: int
    block_read: int
    block_written: int

    def total(self, name: str, *what: str) -> int:
        """The sum of a number over all lines of these kinds: a whole one, or its first words up to a comma."""
        wanted = [line for line in self.lines if line.what in what or line.what.partition(",")[0] in what]
        return sum(getattr(line, name) for line in wanted)

    @property
    def global_read(self) -> tuple[int, int]:
        """Bytes that requests and copies ask of global memory, each byte of a request once; and those of sectors."""
        return self._of_global("load", "copy in", "atomic")

    @property
    def global_written(self) -> tuple[int, int]:
        """The same, of what is written."""
        return self._of_global("store", "copy out", "atomic")

    def _of_global(self, *kinds: str) -> tuple[int, int]:
        lines = [line for line in self.lines if line.what in {f"{kind}, global" for kind in kinds}]
        return sum(line.distinct for line in lines), sum(SECTOR * line.sectors or line.distinct for line in lines)

    @property
    def shared_wavefronts(self) -> tuple[int, int]:
        """Wavefronts of threads' loads and stores of shared memory, and the fewest that such requests take."""
        kinds = ("load, shared", "store, shared", "atomic, shared")
        return self.total("wavefronts", *kinds), self.total("least", *kinds)

    @property
    def operand_bytes(self) -> int:
        """Bytes of shared memory that tensor cores read by themselves."""
        return self.total("bytes", "product")

    @property
    def products(self) -> Mapping[str, int]:
        """Operations of tensor cores, by the type of what they multiply."""
        found: Counter[str] = Counter()
        for line in self.lines:
            kind, _, kind_of = line.what.partition(", ")
            if kind == "product":
                found[kind_of] += line.amount
        return found

    @property
    def active_lanes(self) -> float:
        """Of a warp's lanes, the share that takes part, on average over all pieces of code that it runs."""
        code = [line for line in self.lines if line.what == CODE]
        warps = sum(line.times for line in code)
        return sum(line.lanes for line in code) / (32 * warps) if warps else 1.0


def read_counts(library: Any, path: Path, symbol: str, grid: int, threads: int) -> Counts:
    """What the last launch of a shared object of the build "counts" did. Raises MachineError without objdump."""
    most, totals = 1 << 16, (ctypes.c_uint64 * 4)()
    raw: Any = (Raw * most)()
    number = library.hw4_counts(raw, most, totals)
    return counts_of(path, list(raw[: min(number, most)]), [*totals], symbol, grid, threads)


def counts_of(path: Path, raw: Iterable[Raw], totals: list[int], symbol: str, grid: int, threads: int) -> Counts:
    """The same, of entries of a file of machine code."""
    code = instructions(path)
    found: dict[tuple[str, str], Line] = {}

    def add(line: Line) -> None:
        key = line.where, line.what
        found[key] = found[key] + line if key in found else line

    lines = lines_of(path)
    for entry in raw:
        what = entry.what.decode()
        if what == CODE:
            for kind, where, each in code.get(entry.pc, ()):
                add(Line(where, kind, entry.times, entry.lanes, amount=each * entry.lanes))
        where = lines.get(entry.pc, "?") if entry.pc else f"{entry.file.decode()}:{entry.line}"
        add(Line(where, what, *(getattr(entry, name) for name in NUMBERS)))
    return Counts(symbol, grid, threads, tuple(found.values()), *totals)


@functools.cache
def _disassembled(path: Path) -> list[tuple[int, str, str]]:
    """Address, name and operands of each instruction; ("", "") where a function begins."""
    try:
        words = ["objdump", "--disassemble", "--no-show-raw-insn", "--section=.text", str(path)]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise MachineError("counts need objdump, of binutils") from None
    found = []
    for line in text.splitlines():
        if match := _LINE.match(line):
            found.append((int(match[1], 16), match[2], match[3]))
        elif line.endswith(">:"):
            found.append((0, "", ""))
    return found


def _operation(name: str, operands: str) -> tuple[str, int] | None:
    """What an instruction counts as."""
    if match := _OPERATION.match(name):
        fused, division, root, reciprocal, kind = match.groups()
        if division or root or reciprocal:
            return DIVISIONS, 1
        return (FP32 if kind == "ss" else FP64), 2 if fused else 1
    if _CONVERSION.match(name):
        return CONVERSIONS, 1
    if name == "call" and (called := _CALLED.search(operands)) and called[1] in _CALLS:
        return _CALLS[called[1]], 1
    return None


@functools.cache
def instructions(path: Path) -> dict[int, list[tuple[str, str, int]]]:
    """Of each piece of straight code, by where the call at its begin returns to: what its instructions are, with their
    lines, and how much each counts. What stands in the emulator's headers, but for CUDA's own functions, is no
    instruction of the kernel's."""
    found: dict[int, list[tuple[int, str, int]]] = {}
    piece, begins = None, False
    for address, name, operands in _disassembled(path):
        if begins:
            piece, begins = found.setdefault(address, []), False
        if not name:
            piece = None
        elif name == "call" and TRACE in operands:
            begins = True
        elif piece is not None and (operation := _operation(name, operands)):
            piece.append((address, *operation))
    frames = frames_of(path, {address + 1 for some in found.values() for address, _, _ in some})
    return {
        at: [
            (kind, own_line(frames[address + 1]), each)
            for address, kind, each in some
            if address + 1 in frames and is_own(frames[address + 1], kind)
        ]
        for at, some in found.items()
    }


def own_line(frames: Sequence[str]) -> str:
    """The innermost line that is the kernel's own, as "flash.cu:117"."""
    frame = next((frame for frame in frames if not is_runtime(frame)), frames[0] if frames else "?")
    return frame.rsplit("/", 1)[-1].partition(" ")[0]


def is_own(frames: Sequence[str], kind: str) -> bool:
    """Whether an instruction stands for one of the kernel's: it is in its text, or in one of CUDA's functions."""
    return kind in _CALLS.values() or not is_runtime(frames[0]) or CUDA in frames[0]


@functools.cache
def lines_of(path: Path) -> dict[int, str]:
    """The lines of all that calls a hook, by where the call returns to."""
    wanted, before = set(), ""
    for address, name, _ in _disassembled(path):
        if before == "call":
            wanted.add(address)
        before = name
    return {address: own_line(frames) for address, frames in frames_of(path, wanted).items()}
