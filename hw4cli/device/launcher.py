"""The launcher of all kernels that plans name. `enqueue` launches once, which is how parts of files are computed, of
which few are alike. For arrays, what a launch needs is prepared once for a shape, strides and options (`Prepared`);
each call fills in where they lie, and on which stream.

A kernel is passed one struct, with tensor maps in it for some. Whatever a family's struct looks like, addresses stand
in it as whole words: `Argument` finds these by asking for the struct's bytes of two sets of addresses, where nothing
else may differ. So a tensor map is encoded for a shape, and gets another address by another word.
"""

import ctypes
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hw4cli.device.driver import LOST, driver
from hw4cli.errors import LostGpuError, MachineError
from hw4cli.plans import tables
from hw4cli.plans.plan import DeviceProperties, Launch

Addresses = tuple[int, ...]
Make = Callable[[Addresses], bytes]

WORD = 8
# Addresses that no array has, each of them and what lies behind it in a range of its own, and others.
FIRST, REACH = 0x2000_0000_0000, 40  # bits of the bytes from an address in which what follows from it lies
SAMPLES = tuple(FIRST + (n << REACH) for n in range(16))
OTHERS = tuple(0x5A5A_0000_0000 + (n << 38) + (0x9E3779B0 * (n + 1) >> 8 << 8) for n in range(16))

_WORD = struct.Struct("<Q")
_LIKE_SAMPLES = re.compile(b"[\x20-\x2f]")  # the byte of a word that tells SAMPLES apart

PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
EARLY_CC = 90  # from which a launch can begin before the one in front of it has ended
INVALID_CONTEXT = 201  # this thread has called nothing of CUDA's runtime yet
STREAMS = 64  # of a prepared call whose configurations are kept
REMEMBERED = 256  # forms of structs
AGAIN = 128  # sets of addresses of an argument whose bytes are kept
MOST_PACKED = 30  # values of a call, which CPython keeps on its stack
CAPTURED = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE

_bytes, _at = ctypes.c_char_p, ctypes.byref  # a launch's arguments: where the bytes of the one lie


class Argument:
    """A struct for arrays at any addresses: `filled`, called with each of them, gives the bytes, and `passed` what a
    launch is given for these, which is kept: in a training loop arrays lie where they lay a step before.

    `make` gives them, too, in as many microseconds as ten: it is called for all that are new where addresses enter the
    struct in another way than by standing in it. Other numbers that change from call to call may be among the
    addresses, such as strides, if each is a word of the struct."""

    __slots__ = ("filled", "is_filled", "passed", "places")

    def __init__(self, make: Make, count: int, places: "Places | None" = None) -> None:
        """For so many addresses. `places`: of another argument of the same struct, which differs in sizes."""
        template = make(SAMPLES[:count])
        holes = _candidates(template, count) if places is not None else None
        if holes is None or _places(holes) != places:
            holes = _holes(template, make(OTHERS[:count]), count)
        self.is_filled = holes is not None  # addresses stand in the struct, and nothing else depends on them
        self.filled = filled = _each(make) if holes is None else _filling(holes, template, count)
        self.passed = lru_cache(AGAIN)(lambda *addresses: _at(_bytes(filled(*addresses))))
        self.places = None if holes is None else _places(holes)


def _places(holes: "Sequence[Hole]") -> "Places":
    return frozenset([hole[:2] for hole in holes])


def _each(make: Make) -> Callable[..., bytes]:
    return lambda *addresses: make(addresses)


Hole = tuple[int, int, int]  # which word, which address stands there, and what is added to it
Places = frozenset[tuple[int, int]]  # which word, and which address stands there


def _filling(holes: Sequence[Hole], template: bytes, count: int) -> Callable[..., bytes]:
    """A function of so many addresses that gives the bytes, those of the template between the holes."""
    parts, made = _form(tuple([(place, n, more != 0) for place, n, more in holes]), len(template) // WORD, count)
    return made(*[template[part] for part in parts], *[more for _, _, more in holes if more])


@lru_cache(REMEMBERED)
def _form(
    holes: tuple[tuple[int, int, bool], ...], words: int, count: int
) -> tuple[tuple[slice, ...], Callable[..., Callable[..., bytes]]]:
    """Of structs of so many words with these holes, to whose addresses something is added or not: the parts that stay,
    and what makes a function of so many addresses, for these parts, and what is added.

    It is written out as an expression, as a list of what is packed would take twice as long to make as to pack; of more
    than MOST_PACKED values Python itself would make such a list."""
    packed: list[tuple[str, str]] = []  # codes of Python's struct module, and what stands there
    parts: list[slice] = []
    added = end = 0
    for place, n, adds in (*holes, (words, None, False)):
        if place > end:
            packed.append((f"{WORD * (place - end)}s", f"part{len(parts)}"))
            parts.append(slice(WORD * end, WORD * place))
        if n is not None:
            packed.append(("Q", f"at{n} + more{added}" if adds else f"at{n}"))
            added += adds
        end = place + 1
    lists = ("part", len(parts)), ("more", added), ("at", count)
    part, more, at = (", ".join(f"{name}{n}" for n in range(size)) for name, size in lists)
    given = ", ".join(filter(None, (part, more)))
    pieces = [packed[n : n + MOST_PACKED] for n in range(0, len(packed), MOST_PACKED)]
    packs = {f"pack{n}": struct.Struct("<" + "".join(code for code, _ in one)).pack for n, one in enumerate(pieces)}
    calls = (f"{name}({', '.join(value for _, value in one)})" for name, one in zip(packs, pieces, strict=True))
    made = eval(f"lambda {given}: lambda {at}: {' + '.join(calls)}", packs)
    return tuple(parts), made


def _candidates(template: bytes, count: int) -> list[Hole] | None:
    """The words of a struct of SAMPLES in which their addresses can stand, or numbers that look like them. None where
    the struct is none of words."""
    if len(template) % WORD:
        return None
    found = []
    for match in _LIKE_SAMPLES.finditer(template[REACH // 8 :: WORD]):
        word: int = _WORD.unpack_from(template, WORD * match.start())[0]
        if 0 <= (n := (word - FIRST) >> REACH) < count:
            found.append((match.start(), n, word - SAMPLES[n]))
    return found


def _holes(template: bytes, other: bytes, count: int) -> list[Hole] | None:
    """The words that differ between a struct of SAMPLES and one of OTHERS. None where a difference is no address."""
    found = _candidates(template, count)
    if found is None or len(other) != len(template):
        return None
    holes, same = [], bytearray(other)
    for place, n, more in found:
        if _WORD.unpack_from(other, WORD * place)[0] == OTHERS[n] + more:
            _WORD.pack_into(same, WORD * place, SAMPLES[n] + more)
            holes.append((place, n, more))
    return holes if same == template else None


class Step(NamedTuple):
    """Launches that are passed the same argument; before them, so many bytes at the last address become 0, and a table
    is written so far behind it: copied from the host's memory, or, while a CUDA graph is captured, which is replayed
    when that is gone, by launches that are passed it."""

    argument: Argument
    functions: Sequence[Any]  # compiled, of cupy's
    launches: Sequence[Launch]
    cleared: int = 0
    table: bytes = b""
    table_at: int = 0


# What comes before launches, each None if there is none: how many bytes are cleared, on which stream; and a table, how
# far behind the last address it is written, how many bytes, on which stream, and the driver's functions that copy, of
# bytes that it takes before it returns, and that say whether a CUDA graph is captured, to an integer of the stream's.
Before = tuple[tuple[Any, Any] | None, tuple[bytes, int, Any, Any, Any, Any, Any, Any] | None]
# A step on a stream: `passed` of its argument, what comes before, or None, and configuration, function and symbol of
# each launch.
OnStream = tuple[Callable[..., Any], Before | None, tuple[tuple[Any, Any, str], ...]]


def _on_stream(step: Step, stream: int, props: DeviceProperties) -> OnStream:
    """A step but for addresses, on a stream by its address."""
    on, clear, table = ctypes.c_void_p(stream), None, None
    if step.cleared:
        clear = ctypes.c_size_t(step.cleared), on
    if step.table:
        cuda, size, state = driver(), ctypes.c_size_t(len(step.table)), ctypes.c_int()
        copy, is_capturing = cuda.cuMemcpyHtoDAsync_v2, cuda.cuStreamIsCapturing
        table = step.table, step.table_at, size, on, copy, is_capturing, state, _at(state)
    launches = tuple(
        (_config(launch, stream, props), ctypes.c_void_p(function.kernel.ptr), launch.symbol)
        for function, launch in zip(step.functions, step.launches, strict=True)
    )
    return step.argument.passed, (clear, table) if clear or table else None, launches


class Prepared:
    """All launches of a call but for addresses and the stream. Any thread may use it at any time: what changes is a
    table by streams, whose entries are made whole."""

    __slots__ = (
        *("_by_stream", "_clear", "_context", "_fill", "_launch", "_props", "_steps", "_writer"),
        *("is_filled", "scratch"),
    )

    def __init__(self, gpu: Any, steps: Iterable[Step], scratch: int = 0) -> None:
        """On a Gpu, which is the current one now. `scratch`: bytes at the last of the addresses."""
        self._steps = tuple(steps)
        self._props, self.scratch = gpu.props, scratch
        self._by_stream: dict[int, tuple[OnStream, ...]] = {}
        self.is_filled = all(step.argument.is_filled for step in self._steps)  # by addresses alone
        self._writer = _writer(gpu, self._steps)
        cuda = driver()
        self._launch, self._clear, self._fill = cuda.cuLaunchKernelEx, cuda.cuMemsetD8Async, cuda.cuMemsetD32Async
        self._context = ctypes.c_void_p()
        cuda.cuCtxGetCurrent(ctypes.byref(self._context))

    def enqueue(self, addresses: Addresses, stream: int, table: bytes = b"") -> None:
        """Enqueue the launches on a stream of the current GPU, by its address; does not wait. `table`: one of the same
        size in the place of that of the one step.

        Raises LostGpuError where the GPU refuses all further work, MachineError where it refuses this."""
        launch = self._launch
        for passed_at, before, launches in self._by_stream.get(stream) or self._on(stream):
            if before is not None:
                self._begin(before, addresses[-1], table)
            passed = passed_at(*addresses)
            for config, function, symbol in launches:
                if status := launch(config, function, passed, None):
                    self._again(status, launch, (config, function, passed, None), symbol)

    def _on(self, stream: int) -> tuple[OnStream, ...]:
        """All steps on a stream, which are kept."""
        made = tuple(_on_stream(step, stream, self._props) for step in self._steps)
        if len(self._by_stream) >= STREAMS:
            self._by_stream = {}
        self._by_stream[stream] = made
        return made

    def fill(self, address: int, size: int, word: int, stream: int) -> None:
        """Enqueue that so many bytes, whole words of 4, become this word again and again; as `enqueue`, and raises what
        that does."""
        arguments = ctypes.c_void_p(address), word, ctypes.c_size_t(size // 4), ctypes.c_void_p(stream)
        if status := self._fill(*arguments):
            self._again(status, self._fill, arguments, "a memset")

    def _begin(self, before: "Before", scratch: int, other: bytes) -> None:
        """Enqueue what comes before a step's launches, with the other table, if it is one."""
        clear, table = before
        if clear is not None and (status := self._clear(ctypes.c_void_p(scratch), 0, *clear)):
            self._again(status, self._clear, (ctypes.c_void_p(scratch), 0, *clear), "a memset")
        if table is None:
            return
        own, at, size, on, copy, is_capturing, state, state_at = table
        content = other or own
        if not is_capturing(on, state_at) and state.value == CAPTURED:
            self._write(content, scratch + at, on.value or 0)
            return
        arguments = ctypes.c_void_p(scratch + at), content, size, on
        if status := copy(*arguments):
            self._again(status, copy, arguments, "a copy")

    def _write(self, content: bytes, address: int, stream: int) -> None:
        """Launches that write a table."""
        config, function = _config(tables.LAUNCH, stream, self._props), ctypes.c_void_p(self._writer.kernel.ptr)
        for part in tables.written(content, address):
            arguments = config, function, _at(_bytes(part)), None
            if status := self._launch(*arguments):
                self._again(status, self._launch, arguments, tables.LAUNCH.symbol)

    def _again(self, status: int, call: Any, arguments: tuple[Any, ...], what: str) -> None:
        """What the driver has refused once more, in the GPU's context, if this thread has none."""
        if status == INVALID_CONTEXT:
            driver().cuCtxSetCurrent(self._context)
            status = call(*arguments)
        if status:
            forget()
            kind, then = (LostGpuError, ": start a new process") if status in LOST else (MachineError, "")
            raise kind(f"the driver refuses to launch {what} (error {status}){then}")


class PreparedByCupy(Prepared):
    """The same by cupy's own launches, which AMD's GPUs take."""

    __slots__ = ("_cupy",)

    def __init__(self, gpu: Any, steps: Iterable[Step], scratch: int = 0) -> None:
        self._cupy, self._steps, self.scratch = gpu.cupy, tuple(steps), scratch
        self._writer = _writer(gpu, self._steps)
        self.is_filled = False  # a repeated call would need the driver

    def enqueue(self, addresses: Addresses, stream: int, table: bytes = b"") -> None:
        """Raises what cupy does."""
        with self._cupy.cuda.ExternalStream(stream):
            for argument, functions, launches, cleared, own, table_at in self._steps:
                if cleared:
                    self._cupy.cuda.runtime.memsetAsync(addresses[-1], 0, cleared, stream)
                runtime, content = self._cupy.cuda.runtime, (own and table) or own
                if content and runtime.streamIsCapturing(stream):
                    for part in tables.written(content, addresses[-1] + table_at):
                        by_cupy(self._writer, tables.LAUNCH, (by_value(part),))
                elif content:
                    source = np.frombuffer(content, np.uint8).ctypes.data
                    runtime.memcpyAsync(
                        addresses[-1] + table_at, source, len(content), runtime.memcpyHostToDevice, stream
                    )
                passed = argument.filled(*addresses)
                for function, launch in zip(functions, launches, strict=True):
                    by_cupy(function, launch, (by_value(passed),))


def prepared(gpu: Any, steps: Iterable[Step], scratch: int = 0) -> Prepared:
    """Launches on a Gpu, which is the current one now."""
    return (PreparedByCupy if gpu.props.gfx else Prepared)(gpu, steps, scratch)


def enqueue(function: Any, launch: Launch, passed: bytes, stream: Any, props: DeviceProperties) -> None:
    """Enqueue a launch, of one argument, on a stream of cupy's, which is the current one. Raises what cupy does, or
    MachineError."""
    if not (launch.early and props.cc >= EARLY_CC):
        by_cupy(function, launch, (by_value(passed),))
        return
    config, compiled = _config(launch, stream.ptr, props), ctypes.c_void_p(function.kernel.ptr)
    if status := driver().cuLaunchKernelEx(config, compiled, _at(_bytes(passed)), None):  # which cupy has no call for
        raise MachineError(f"the driver refuses to launch {launch.symbol} (error {status})")


def by_cupy(function: Any, launch: Launch, arguments: tuple[Any, ...]) -> None:
    """Enqueue a launch on cupy's current stream. Raises what cupy does."""
    function((launch.grid,), (launch.block,), arguments, shared_mem=launch.shared)


def by_value(passed: bytes) -> Any:
    """A struct as cupy's functions take it: an array of one element is passed by value."""
    return np.frombuffer(passed, f"V{len(passed)}")


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, of a value that is an int."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class Config(ctypes.Structure):
    """CUlaunchConfig: blocks and threads in three dimensions, shared bytes, the stream, attributes."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


_EARLY = ctypes.pointer(Attribute(PROGRAMMATIC, 0, 1))


def _writer(gpu: Any, steps: Sequence[Step]) -> Any:
    """What writes tables while a CUDA graph is captured, when nothing could be compiled; None where there are none."""
    return gpu.functions(tables.CODE)[0] if any(step.table for step in steps) else None


def _config(launch: Launch, stream: int, props: DeviceProperties) -> Any:
    sizes = (ctypes.c_uint * 7)(launch.grid, 1, 1, launch.block, 1, 1, launch.shared)
    early = launch.early and props.cc >= EARLY_CC
    return ctypes.byref(Config(sizes, stream, _EARLY if early else None, early))


_KEPT: list[Callable[[], object]] = []  # what empties a table in which prepared launches, or compiled code, are kept


def forgets(clear: Callable[[], object]) -> None:
    """Have this called where a launch fails: after a reset of the GPU no code that was loaded is there any more."""
    _KEPT.append(clear)


def forget() -> None:
    """Empty all tables of what was prepared."""
    for clear in _KEPT:
        clear()
