"""What a kernel's launches do, counted where the CPU executes it: bytes of every level, requests, products, barriers.

The runtime counts what the lanes of a warp ask for together, and how often each piece of straight code runs
(kernels/emulator/counts.cpp). What the instructions of a piece are is read in the machine code: an addition,
multiplication or division of the processor's is one of the GPU's, a fused one two; a call of exp2f is an exponential.
What else is neither a move nor a load or store counts as an instruction, too.
"""

import ctypes
import functools
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from hw4cli.emulator.report import frames_of, is_runtime
from hw4cli.errors import MachineError

REQUEST = 32  # lanes, of AMD's wavefronts a half
SECTOR, WAVEFRONT = 32, 128  # bytes: of global memory, in one piece; of shared memory, at a time
CODE, INSTRUCTIONS = "code", "instructions"
NOT_MEETINGS = (CODE, INSTRUCTIONS)  # of what has neither bytes nor an amount
TRACE, CUDA = "__sanitizer_cov_trace_pc", "/language.h:"  # what the runtime has of CUDA's own functions
# What instructions of x86 stand for: by the begin of their names, operations of a thread and how many each counts.
FP32, FP64, EXPONENTIALS, LOGARITHMS, FP64_FUNCTIONS, DIVISIONS, CONVERSIONS = (
    *("fp32 FLOP", "fp64 FLOP", "exponentials", "logarithms", "fp64 exponentials and logarithms"),
    *("divisions and roots", "conversions"),
)
OPERATIONS = (FP32, FP64, EXPONENTIALS, LOGARITHMS, FP64_FUNCTIONS, DIVISIONS, CONVERSIONS)
ADD, MULTIPLY, FUSED = "add", "multiply", "fma"
_OPERATION = re.compile(r"v?(?:(f)n?m(?:add|sub)\d{3}|(add|sub)|mul|(div)|(sqrt)|(rcp|rsqrt))(ss|sd)$")
_FLOAT = re.compile(
    r"v?(?:fn?m(?:add|sub)\d{3}|add|sub|mul|div|r?sqrt|rcp|min|max|u?comi|cmp\w*|and|or|xor|round|blendv?)[sp][sd]$"
)
# Integer arithmetic. What steps through a loop or finds an address, which CUDA's compiler mostly unrolls or has in the
# loads themselves, is none: additions of constants, comparisons, branches, lea.
_INTEGER = re.compile(
    r"(?:i?mul|shl|shr|sar|rol|ror|and|or|xor|not|neg|add|sub|i?div|adc|sbb|popcnt|[bt]zcnt|bs[fr]|set\w+|cmov\w+)[bwlq]?$"
)
_CONVERSION = re.compile(r"v?cvt\w+$")
_CALLS = {"exp2f": EXPONENTIALS, "expf": EXPONENTIALS, "logf": LOGARITHMS, "log2f": LOGARITHMS}
_CALLS |= dict.fromkeys(("exp", "exp2", "log", "log2"), FP64_FUNCTIONS)
# Functions of the runtime that are not inlined: what an atomic does to its word.
_RUNTIME = re.compile(r"_Z+(?:N3emu|\d+atomic[A-Z])")
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
    or lines of 128 bytes of global memory, and the fewest that such requests take; `amount`: operations; of atomics,
    how many lanes of a request share a word at most."""

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


NUMBERS = tuple(one.name for one in fields(Line))[2:]
TIMES = 16  # kinds of times from a request for a sector to the next one
TOTALS = 7 + TIMES + 2  # numbers of a launch beside those of its lines


@dataclass(frozen=True)
class Counts:
    """What launches that are alike do, most often one: their lines; bytes of global memory that are read once each, but
    for those that the launch has written itself; that are written once each; and both of each block by itself.

    Of the sectors that loads ask for: how many nobody has asked for before; another block alone, one that began a short
    while ago (`near_block`) or longer; the same block, by how many accesses of global memory a thread had made
    meanwhile (`again`: 0, 1, 2 to 3, 4 to 7, ...). How often warps wait for loads of global and of shared memory, with
    eight under way at a time; and the instructions of warps beside loads and stores, of floating-point numbers and
    others. `width`: the lanes of a warp, 64 in a HIP program, whose requests are counted in halves of 32.
    """

    symbol: str
    grid: int
    threads: int
    lines: tuple[Line, ...]
    first_read: int
    written: int
    block_read: int
    block_written: int
    first: int = 0
    near_block: int = 0
    far_block: int = 0
    again: tuple[int, ...] = ()
    waits_global: int = 0
    waits_shared: int = 0
    floats: int = 0
    others: int = 0
    width: int = 32

    def __add__(self, other: "Counts") -> "Counts":
        lines: dict[tuple[str, str], Line] = {}
        for line in (*self.lines, *other.lines):
            key = line.where, line.what
            lines[key] = lines[key] + line if key in lines else line
        again = tuple(map(sum, zip(self.again, other.again, strict=True)))
        numbers = {
            one.name: getattr(self, one.name) + getattr(other, one.name)
            for one in fields(Counts)
            if one.name not in ("symbol", "threads", "lines", "again", "width")
        }
        own = {"threads": self.threads, "width": self.width}
        return Counts(self.symbol, lines=tuple(lines.values()), again=again, **own, **numbers)

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
    def requests(self) -> int:
        """Loads, stores and atomics of warps, of global memory."""
        return sum(line.times for line in self.lines if line.sectors)

    @property
    def active_lanes(self) -> float:
        """Of a warp's lanes, the share that takes part, on average over all instructions that it executes."""
        code = [line for line in self.lines if line.what == INSTRUCTIONS]
        warps = sum(line.times for line in code)
        return sum(line.lanes for line in code) / (self.width * warps) if warps else 1.0

    def lanes_of(self, line: Line) -> float | None:
        """Of the lanes that a line's requests or executions have, the share that takes part; None where they are none
        of a warp's."""
        most = line.times * (REQUEST if line.bytes else self.width)
        return line.lanes / most if most > 0 and line.lanes <= most else None


class Entry(NamedTuple):
    """What happened at an offset in the code, or at 0: then the line says where."""

    pc: int
    line: Line


def _entry(raw: Raw) -> Entry:
    numbers = (getattr(raw, name) for name in NUMBERS)
    return Entry(raw.pc, Line(f"{raw.file.decode(errors='replace')}:{raw.line}", raw.what.decode(), *numbers))


def read_counts(library: Any, path: Path, symbol: str, grid: int, threads: int) -> Counts:
    """What the last launch of a shared object of the build "counts" did. Raises MachineError without objdump."""
    most, totals = 1 << 16, (ctypes.c_uint64 * TOTALS)()
    raw: Any = (Raw * most)()
    number = library.hw4_counts(raw, most, totals)
    return counts_of(path, [*map(_entry, raw[: min(number, most)])], [*totals], symbol, grid, threads)


def counts_of(
    path: Path, entries: Sequence[Entry], totals: Sequence[int], symbol: str, grid: int, threads: int
) -> Counts:
    """The same, of entries of a file of machine code."""
    code, lines = instructions(path), lines_of(path)
    found: dict[tuple[str, str], Line] = {}

    def add(line: Line) -> None:
        key = line.where, line.what
        found[key] = found[key] + line if key in found else line

    floats = others = 0
    for pc, line in entries:
        if line.what == CODE and pc not in code:
            continue
        where = lines.get(pc, "?") if pc else line.where
        add(replace(line, where=where))
        if line.what != CODE:
            continue
        piece = code[pc]
        for kind, at, each in piece.operations:
            add(Line(at, kind, line.times, line.lanes, amount=each * line.lanes))
        number = piece.floats + piece.others
        add(Line(where, INSTRUCTIONS, number * line.times, number * line.lanes))
        floats += piece.floats * line.times
        others += piece.others * line.times
    read, written, block_read, block_written, first, near_block, far_block, *again, waits_global, waits_shared = totals
    return Counts(
        *(symbol, grid, threads, tuple(found.values())),
        *(read, written, block_read, block_written, first, near_block, far_block),
        tuple(again),
        *(waits_global, waits_shared, floats, others),
    )


@functools.cache
def _disassembled(path: Path) -> list[tuple[int, str, str]]:
    """Address, name and operands of each instruction; where a function begins, 0, "" and its name."""
    try:
        words = ["objdump", "--disassemble", "--no-show-raw-insn", "--section=.text", str(path)]
        text = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise MachineError("counts need objdump, of binutils") from None
    found = []
    for line in text.splitlines():
        if match := _LINE.match(line):
            found.append((int(match[1], 16), match[2], match[3]))
        elif line.endswith(">:"):
            found.append((0, "", line.partition("<")[2][:-2]))
    return found


def _operation(name: str, operands: str) -> tuple[str, int] | None:
    """What an instruction counts as."""
    if match := _OPERATION.match(name):
        fused, added, division, root, reciprocal, kind = match.groups()
        if division or root or reciprocal:
            return DIVISIONS, 1
        what = FUSED if fused else ADD if added else MULTIPLY
        return f"{FP32 if kind == 'ss' else FP64}, {what}", 2 if fused else 1
    if _CONVERSION.match(name):
        return CONVERSIONS, 1
    if name == "call" and (called := _CALLED.search(operands)) and called[1] in _CALLS:
        return _CALLS[called[1]], 1
    return None


@dataclass(frozen=True)
class Piece:
    """A piece of straight code: what its operations are, with their lines, and how much each counts; how many of its
    instructions compute with floating-point numbers, and how many with integers."""

    operations: tuple[tuple[str, str, int], ...]
    floats: int
    others: int


@functools.cache
def instructions(path: Path) -> dict[int, Piece]:
    """The pieces of straight code, by where the call at their begin returns to. Functions of the runtime have none, and
    operations in the emulator's headers, but for CUDA's own functions, are no operations of the kernel's."""
    found: dict[int, list[tuple[int, str, int]]] = {}
    numbers: dict[int, list[int]] = {}
    at, begins, own = 0, False, True
    for address, name, operands in _disassembled(path):
        if begins and name:
            at, begins = address, False
            found.setdefault(at, []), numbers.setdefault(at, [0, 0])
        if not name:
            at, own = 0, not _RUNTIME.match(operands)
        elif name == "call" and TRACE in operands:
            begins = own
        elif at:
            if operation := _operation(name, operands):
                found[at].append((address, *operation))
            registers = operands.split(",")
            if len(registers) > 1 and len({*registers}) == 1:  # of a register with itself: a zero
                continue
            if _FLOAT.match(name):
                numbers[at][0] += 1
            elif _INTEGER.match(name) and not operands.startswith("$"):
                numbers[at][1] += 1
    frames = frames_of(path, {address + 1 for some in found.values() for address, _, _ in some})
    return {
        at: Piece(
            tuple(
                (kind, own_line(frames[address + 1]), each)
                for address, kind, each in some
                if address + 1 in frames and is_own(frames[address + 1], kind)
            ),
            *numbers[at],
        )
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
