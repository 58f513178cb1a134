"""A kernel for the CPU, loaded: launches with the arguments that a GPU gets, and what was found meanwhile."""

import ctypes
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli.emulator.counts import Counts, read_counts
from hw4cli.emulator.report import NO_BLOCK, Finding, Raw, findings_of
from hw4cli.errors import MachineError
from hw4cli.plans.launch import ABSMAX_BYTES, Matrix, absmax_arguments, absmax_launch, arguments
from hw4cli.plans.plan import Launch, Plan
from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.problem.workload import Workload

FORWARD, REVERSE, RANDOM, LOCKSTEP = "forward", "reverse", "random", "lockstep"
ORDERS = (FORWARD, REVERSE, RANDOM, LOCKSTEP)
GAP = 64 << 10  # bytes that nobody may touch, behind every matrix that is watched
FAR_GAP = 9 << 30  # so many that two batches of O lie more than 2^31 elements apart
ALIGNMENT = 512  # of a GPU's memory
MAP_NORESERVE = 0x4000  # of Linux; Python 3.11 has no name for it
MOST_FINDINGS = 100
WORDS = 256  # of the one argument of a kernel, at most (kernels/emulator/internal.h)


class _Array(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("written", ctypes.c_uint32),
        ("name", ctypes.c_char * 160),
    ]


class _Finding(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char * 32),
        ("text", ctypes.c_char * 480),
        ("story", ctypes.c_char * 800),
        ("pc", ctypes.c_uint64 * 2),
        ("times", ctypes.c_uint32),
        ("block", ctypes.c_uint32),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("grid", "block", "shared", "lanes", "order", "seed", "few")),
        ("params", ctypes.c_uint64 * WORDS),
    ]


@dataclass(frozen=True)
class Schedule:
    """The order in which threads take turns."""

    order: str = FORWARD
    seed: int = 0


FORWARDS = Schedule()


@dataclass(frozen=True)
class Watched:
    """Memory that a kernel may touch: where it lies, how many bytes, whether it may be written; its name; and whether
    it has been written, as what cannot be is."""

    address: int
    size: int
    writable: bool
    name: str
    written: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a plan has computed, NaN where nothing was written; what was found; and whether it came to its end.

    `lse` is (n, N), each row's log of the sum of exp(score), where it was asked for. `largest` is what the kernel found
    in Q, K and V, for `launch.magnitudes`, if it looks for that. `counts`: what each launch did, in the build counts.
    `switches` and `exchanged` are as of an `Ordered` (story.py).
    """

    o: Floats
    findings: tuple[Finding, ...]
    finished: bool
    lse: Floats | None = None
    largest: Floats | None = None
    counts: tuple[Counts, ...] = ()
    switches: tuple[str, ...] = ()
    exchanged: tuple[str, ...] = ()


class Memory:
    """Arrays as a GPU has them: O, scratch and LSE, and Q, K and V of each batch; watched, with gaps between them."""

    def __init__(self, inputs: Floats, plan: Plan, watched: bool, lse: bool = False, far: bool = False) -> None:
        self.n, _, self.N, given = inputs.shape
        self.d = plan.d
        inputs = np.pad(inputs, ((0, 0), (0, 0), (0, 0), (0, self.d - given)))  # as kernels/columns.cu does
        gap, matrix = GAP if watched else 0, self.N * self.d * 4
        step = matrix + (FAR_GAP if far else gap)
        sizes = [3 * self.n * step, self.n * step, plan.scratch, 4 * self.n * self.N if lse else 0]
        self._buffer, starts = space(sizes, gap, sparse=far)
        inputs_at, outputs_at, self.scratch, lse_at = (self._buffer.ctypes.data + start for start in starts[:4])
        for index, array in enumerate(inputs.reshape(3 * self.n, -1)):
            at = starts[0] + index * step
            self._buffer[at : at + matrix] = np.ascontiguousarray(array, FLOAT32).view(np.uint8)
        known = ABSMAX_BYTES if plan.finds_absmax else 0
        self._buffer[starts[2] : starts[2] + known] = 0
        self.lse = lse_at if lse else 0
        self._lse = self._buffer[starts[3] : starts[3] + sizes[3]]
        self._largest = self._buffer[starts[2] : starts[2] + known]
        self._outputs = self._buffer[starts[1] : starts[1] + sizes[1]].reshape(self.n, step)[:, :matrix]
        if far:  # the rest of it is zeros that take no memory
            self._outputs[:] = 0xFF
            self._buffer[starts[2] + known : starts[2] + sizes[2]] = 0xFF
        q, k, v = (Matrix(inputs_at + part * step, 3 * step // 4, 3 * step // 4, self.d) for part in range(3))
        self.matrices = q, k, v, Matrix(outputs_at, step // 4, step // 4, self.d)
        names = [f"{name} of batch {batch}" for batch in range(self.n) for name in "QKV"]
        arrays = [(inputs_at + i * step, matrix, False, True, name) for i, name in enumerate(names)]
        arrays += [(outputs_at + i * step, matrix, True, False, f"O of batch {i}") for i in range(self.n)]
        arrays += [(self.scratch, known, True, True, "absmax in scratch")] if known else []
        arrays += [(self.scratch + known, plan.scratch - known, True, False, "scratch")] if plan.scratch > known else []
        arrays += [(lse_at, sizes[3], True, False, "LSE")] if lse else []
        self.arrays = (
            [_Array(at, size, may, was, name.encode()) for at, size, may, was, name in arrays] if watched else []
        )

    def all(self) -> bytes:
        """All bytes, copied: of the arrays, and between them."""
        return self._buffer.tobytes()

    def outputs(self) -> Floats:
        """O of all batches, copied."""
        return np.ascontiguousarray(self._outputs).view(FLOAT32).reshape(self.n, self.N, self.d)

    def largest(self) -> Floats | None:
        """What the kernel found, copied, if it looks for it."""
        return self._largest.copy().view(FLOAT32) if len(self._largest) else None

    def log_sums(self) -> Floats | None:
        """LSE of all batches, copied, if it was asked for."""
        return self._lse.copy().view(FLOAT32).reshape(self.n, self.N) if self.lse else None


def space(sizes: Sequence[int], gap: int, sparse: bool = False) -> tuple[NDArray[np.uint8], list[int]]:
    """One piece of memory, full of NaN, and where in it arrays of these bytes begin, with gaps before and behind.

    `sparse`: it is full of zeros, which take no memory until they are written. Raises MachineError if this system does
    not give so many addresses."""
    starts = [gap]
    for size in sizes:
        starts.append(-(-(starts[-1] + size) // ALIGNMENT) * ALIGNMENT + gap)
    total = starts[-1] + ALIGNMENT
    if sparse:
        try:
            kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
            buffer = np.frombuffer(mmap.mmap(-1, total, kind), np.uint8)
        except OSError as error:
            raise MachineError(f"no {total >> 30} GB of addresses: {error.strerror}") from None
    else:
        buffer = np.full(total, 0xFF, np.uint8)
    return buffer[-buffer.ctypes.data % ALIGNMENT :], starts


def _lines(finding: _Finding) -> tuple[str, ...]:
    return tuple(finding.story.decode(errors="replace").splitlines())


def _words(params: bytes) -> Any:
    """A struct in the bytes that a launch has for it."""
    return (ctypes.c_uint64 * WORDS).from_buffer_copy(params.ljust(8 * WORDS, b"\0"))


class Library:
    """A shared object that `build.shared_object` has made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._stop = ctypes.c_int.in_dll(self._library, "hw4_stop")
        # Variables of the runtime's namespace `emu`, by the names that C++ compilers give them.
        self._events = ctypes.c_uint64.in_dll(self._library, "_ZN3emu6eventsE")
        self._block = ctypes.c_uint.in_dll(self._library, "_ZN3emu13block_of_gridE")
        self._thread = ctypes.c_int.in_dll(self._library, "_ZN3emu7currentE")
        self._counts = hasattr(self._library, "hw4_counts")
        self.counts: list[Counts] = []  # of the launches so far, in the build that counts

    def add_as(self, cc: int) -> None:
        """Let tensor cores add as those of a compute capability do, cutting off (docs/accuracy.md); 0, exactly."""
        self._library.hw4_adder(cc)

    def run(
        self,
        plan: Plan,
        inputs: Floats,
        lanes: int = 32,
        schedule: Schedule = FORWARDS,
        watched: bool = True,
        lse: bool = False,
        rows: tuple[int, int] | None = None,
        far: bool = False,
        record: bool = False,
        replay: Sequence[str] | None = None,
        window: int = 0,
    ) -> Outcome:
        """Run a plan's launches on inputs (n, 3, N, d); `watched`, with all the checks that the build has.

        `lse` asks for each row's log of the sum of exp(score), too. `rows`: so many rows from one on are computed.
        `far`: batches lie more than 2^31 elements apart, at addresses of which most take no memory. `record`: the
        switches between threads; `replay`: with these, in place of a schedule.
        `window`: of the keys that a row sees, the last so many, for a causal plan.
        """
        memory = Memory(inputs, plan, watched, lse, far)
        self._watch(memory.arrays)
        self.counts.clear()
        first, count = rows or (0, memory.N)
        shape = replace(Workload.one_head(memory.n, memory.N, inputs.shape[3], Nq=count), window=window)
        q, k, v, o = memory.matrices
        q, o = (m._replace(data=m.data + 4 * first * memory.d) for m in (q, o))
        params = _words(arguments(plan, shape, (q, k, v, o), memory.scratch, memory.lse, first))
        finished = True
        self._library.hw4_schedule(record, "\n".join(replay).encode() if replay is not None else None)
        for step in plan.launches:
            finished = self._launch(step, params, lanes, schedule)
            if not finished:
                break
        answer = memory.outputs()[..., : shape.d]
        findings, switches, exchanged = self._findings(), self._text("hw4_switches"), self._text("hw4_exchanged")
        self._library.hw4_schedule(0, None)
        if exchanged:
            exchanged = findings_of(self.path, [Raw("exchanged", "", (0, 0), 1, NO_BLOCK, exchanged)])[0].story
        counts = tuple(self.counts)
        return Outcome(answer, findings, finished, memory.log_sums(), memory.largest(), counts, switches, exchanged)

    def find_absmax(
        self, inputs: Floats, lanes: int = 32, schedule: Schedule = FORWARDS, first: int = 0
    ) -> tuple[Floats, tuple[Finding, ...]]:
        """What kernels/absmax.cu leaves for inputs (..., N, d), for `launch.magnitudes`; and what was found. The inputs
        are Q, K and V in turn, from the `first` (0: Q) on."""
        *parts, N, d = inputs.shape
        buffer, starts = space([inputs.nbytes, ABSMAX_BYTES], GAP)
        elements_at, largest_at = (buffer.ctypes.data + start for start in starts[:2])
        buffer[starts[0] : starts[0] + inputs.nbytes] = np.ascontiguousarray(inputs).view(np.uint8).reshape(-1)
        largest = buffer[starts[1] : starts[1] + ABSMAX_BYTES]
        largest[:] = 0
        elements = _Array(elements_at, inputs.nbytes, False, True, b"the elements")
        self._watch([elements, _Array(largest_at, ABSMAX_BYTES, True, True, b"the maxima")])
        step = absmax_launch(math.prod(parts), N, d)
        self._launch(step, _words(absmax_arguments(elements_at, largest_at, N, d, first)), lanes, schedule)
        return largest.view(FLOAT32).copy(), self._findings()

    def _watch(self, arrays: Sequence[_Array]) -> None:
        self._library.hw4_watch((_Array * len(arrays))(*arrays), len(arrays))

    def _launch(self, step: Launch, params: Any, lanes: int, schedule: Schedule, few: bool = False) -> bool:
        """Run one launch, or the first, the middle and the last of its blocks; return whether it came to its end."""
        kernel = ctypes.cast(getattr(self._library, step.symbol), ctypes.c_void_p)
        order = ORDERS.index(schedule.order)
        launch = _Launch(kernel, step.grid, step.block, step.shared, lanes, order, schedule.seed, few, params)
        status: int = self._library.hw4_launch(ctypes.byref(launch))
        if status == 3:
            raise MemoryError
        if self._counts:
            self.counts.append(read_counts(self._library, self.path, step.symbol, step.grid, step.block))
        return status == 0

    def launch(
        self,
        step: Launch,
        params: bytes,
        watched: Sequence[Watched],
        schedule: Schedule = FORWARDS,
        grid: int = 0,
        lanes: int = 32,
    ) -> tuple[bool, tuple[Finding, ...]]:
        """One launch with its argument's bytes, `grid` blocks if it is not 0; whether it ended, and what was found."""
        return self.launches([step._replace(grid=grid or step.grid)], params, watched, schedule, lanes)

    def launches(
        self,
        steps: Sequence[Launch],
        params: bytes,
        watched: Sequence[Watched],
        schedule: Schedule = FORWARDS,
        lanes: int = 32,
        few: bool = False,
    ) -> tuple[bool, tuple[Finding, ...]]:
        """Launches with one argument's bytes, one after the other: whether they ended, and what was found. `few`: of
        each grid the first, the middle and the last block run.

        What is watched should lie in one piece of memory (see `space`): what is between is nobody's.
        """
        self.counts.clear()
        ordered = sorted(watched, key=lambda memory: memory.address)
        self._watch(
            [_Array(x.address, x.size, x.writable, x.written or not x.writable, x.name.encode()) for x in ordered]
        )
        finished = all(self._launch(step, _words(params), lanes, schedule, few=few) for step in steps)
        return finished, self._findings()

    @property
    def events(self) -> int:
        """How often threads have ended, or have met others, in all launches: the progress of the one that runs in
        another thread of this process."""
        return self._events.value

    @property
    def running(self) -> tuple[int, int]:
        """The block and the thread that run there now."""
        return self._block.value, self._thread.value

    def stop(self) -> None:
        """End a launch that runs in another thread before its next block."""
        self._stop.value = 1

    def _text(self, function: str) -> tuple[str, ...]:
        """What a function of the runtime returns, in lines."""
        call = getattr(self._library, function)
        call.restype = ctypes.c_char_p
        return tuple(call().decode().splitlines())

    def _findings(self) -> tuple[Finding, ...]:
        found: Any = (_Finding * MOST_FINDINGS)()
        count = self._library.hw4_findings(found, MOST_FINDINGS)
        raw = [
            Raw(x.kind.decode(), x.text.decode(errors="replace"), tuple(x.pc), x.times, x.block, _lines(x))
            for x in found[:count]
        ]
        return findings_of(self.path, raw)
