"""Calls that are repeated: the first one of its kind is checked, planned and prepared, and those after it are found by
what their arrays and options are.

Of the same kind are calls with the same options, and arrays of the same shapes, strides, element types, device and
class. What else the checks depend on, a repeated call looks at itself: whether addresses are multiples of 16 bytes,
and which GPU is the current one. Where that does not fit, the call is checked anew, and says what is wrong. Options
that are no plain numbers, texts or flags are never remembered: they may change.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from hw4cli.arrays.operand import CUPY, TORCH, Operand, cast
from hw4cli.device.launcher import Addresses, Prepared, forgets
from hw4cli.plans.formulas import FLOAT
from hw4cli.problem.workload import FLOAT32

RECENT = 8  # calls with the same options that are found by torch's guards
EACH = 16  # once in so many times, a call that is found by its key becomes a recent one
MODELS = 256  # that are kept
MOST = 1024  # calls that are remembered
FEW, LINE = 256, 32  # bytes of scratch that may lie behind an LSE, and floats at a multiple of which they begin
ZERO, MINUS_INF = 0, 0xFF800000  # words that fill arrays; the latter as a float32
ALIGNMENT = 16  # bytes, of arrays of which kernels read or copy whole chunks
PLAIN = {NoneType, bool, int, float, str, np.float32, np.float64}  # what never changes, and equals the same only

Arrays = tuple[Any, ...]
Model = tuple[Any, ...]
Guard = Callable[..., bool]


def are_plain(options: Sequence[Any], bounds: Any = None) -> bool:
    """Whether options can be part of a key: numbers, texts, flags, and bounds as a tuple of numbers."""
    return PLAIN.issuperset(map(type, options)) and (
        bounds is None or (type(bounds) is tuple and PLAIN.issuperset(map(type, bounds)))
    )


class Library:
    """What a repeated call asks of torch or cupy. A model is what `new` takes to make an array."""

    # Whether arrays are of the same kind as these, in a microsecond. With the axis of keys: where K and V may have
    # another number of these, and other strides.
    guard: Callable[[Arrays, int | None], Guard] | None = None

    def key(self, arrays: Arrays) -> Hashable:
        """Equal for arrays of the same kind; None if they are none that are remembered."""
        raise NotImplementedError

    def but_sizes(self, key: Any) -> Hashable:
        """Of the key of q, k and v what does not change with the number of keys."""
        raise NotImplementedError

    model: Callable[..., Model]  # of arrays of a shape, type and device, contiguous or of strides; it takes no memory
    new: Callable[..., Any]
    address: Callable[[Any], int]
    strides: Callable[[Any], tuple[int, ...]]  # in elements
    device: Callable[[], int]  # the current one
    stream: Callable[[int], int]  # the current one's address


class Torch(Library):
    """Tensors, and parameters."""

    def __init__(self) -> None:
        import torch

        self._torch, own = torch, torch._C
        self._types = {torch.Tensor, torch.nn.Parameter}
        self.address, self.strides = torch.Tensor.data_ptr, torch.Tensor.stride
        self.device = getattr(own, "_cuda_getDevice", torch.cuda.current_device)
        self.stream = getattr(own, "_cuda_getCurrentRawStream", self._stream)
        self._keys, self._grad = getattr(own, "_dispatch_keys", None), torch.is_grad_enabled
        names = "_len_torch_dispatch_stack", "_are_functorch_transforms_active", "_get_tracing_state"
        self._watchers = [getattr(own, name, lambda: True) for name in names]
        try:  # torch's own, of torch.compile: not part of its documented interface
            self._guards = own._dynamo.guards.TensorGuards
            self.guard = self._guard
        except AttributeError:
            self.guard = None
        try:  # likewise, of what it compiles: on the current device, in half of empty_like's instructions
            self.new, self.model = own._dynamo.guards._empty_strided_cuda, lru_cache(MODELS)(self._sizes)
        except AttributeError:
            self.new, self.model = torch.empty_like, lru_cache(MODELS)(self._model)

    def _stream(self, device: int) -> int:
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def _guard(self, tensors: Arrays, of_keys: int | None) -> Guard:
        sizes: list[list[int | None]] | None = None
        strides: list[list[int | None]] | None = None
        if of_keys is not None:
            sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
            for n in (1, 2):
                sizes[n][of_keys], strides[n] = None, [None] * len(strides[n])
        found: Guard = self._guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return found

    def key(self, arrays: Arrays) -> Hashable:
        """None while torch records, transforms or watches what is called, too, or where it does not tell."""
        if self._keys is None:
            return None
        for x in arrays:
            if type(x) not in self._types:
                return None
        for is_active in self._watchers:
            if is_active():
                return None
        grad, keys, torch = self._grad(), self._keys, self._torch
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        each = [
            (x.shape, x.stride(), x.dtype, x.device, type(x), keys(x).raw_repr(), grad and x.requires_grad)
            for x in arrays
        ]
        return autocast, *each

    def but_sizes(self, key: Any) -> Hashable:
        """All but shapes and strides of k and v."""
        autocast, q, k, v = key
        return autocast, q, k[2:], v[2:]

    def _sizes(self, shape: tuple[int, ...], dtype: Any, device: int, strides: tuple[int, ...] | None = None) -> Model:
        """Shape, strides and type."""
        steps = strides or tuple([math.prod(shape[n + 1 :]) for n in range(len(shape))])
        return shape, steps, getattr(self._torch, dtype) if isinstance(dtype, str) else dtype

    def _model(self, shape: tuple[int, ...], dtype: Any, device: int, strides: tuple[int, ...] | None = None) -> Model:
        """A tensor whose memory was given back: empty_like makes one of its kind in half the time of empty, of the same
        strides where these leave nothing out, as those of all that is made do."""
        torch = self._torch
        options = {"dtype": getattr(torch, dtype) if isinstance(dtype, str) else dtype}
        options["device"] = torch.device("cuda", device)
        with torch.inference_mode(False), torch.no_grad():
            made = torch.empty(shape, **options) if strides is None else torch.empty_strided(shape, strides, **options)
            made.untyped_storage().resize_(0)
        return (made,)


class CuPy(Library):
    """Arrays of cupy's."""

    def __init__(self) -> None:
        import cupy

        self._type, self.device = cupy.ndarray, cupy.cuda.runtime.getDevice
        self._current, self.new = cupy.cuda.get_current_stream, cupy.ndarray

    def address(self, array: Any) -> int:
        """Where it begins."""
        return int(array.data.ptr)

    def strides(self, array: Any) -> tuple[int, ...]:
        """In elements."""
        return tuple([step // array.itemsize for step in array.strides])

    def stream(self, device: int) -> int:
        """The current one of the current device."""
        return int(self._current().ptr)

    def key(self, arrays: Arrays) -> Hashable:
        """Of what there is to know of arrays of cupy's."""
        for x in arrays:
            if type(x) is not self._type:
                return None
        return tuple([(x.shape, x.strides, x.dtype, x.data.device_id) for x in arrays])

    def but_sizes(self, key: Any) -> Hashable:
        """All but shapes and strides of k and v."""
        q, k, v = key
        return q, k[2:], v[2:]

    def model(self, shape: tuple[int, ...], dtype: Any, device: int, strides: tuple[int, ...] | None = None) -> Model:
        """Shape and type."""
        return shape, dtype


LIBRARIES: dict[type, Library] = {}  # by the classes of arrays that the checked path has met


def library_of(x: Operand) -> Library:
    """The library of an array that was checked; its class is known from then on."""
    kind = type(x.array)
    found = LIBRARIES.get(kind)
    if found is None:
        made = {TORCH: Torch, CUPY: CuPy}[x.library]
        found = next((one for one in LIBRARIES.values() if isinstance(one, made)), None) or made()
        LIBRARIES[kind] = found
    return found


def is_known(array: Any) -> bool:
    """Whether calls of an array of this class may be remembered already."""
    return type(array) in LIBRARIES


class Way(NamedTuple):
    """How an array that a score names comes from the one that was given: a part of it, of another type; None for all,
    and for the same. `aligned`: kernels read whole chunks of it."""

    part: Any
    type: str | None
    aligned: bool


# The launches of a call of other keys, what they ask for behind the address of O, a table in the place of their own, if
# they have one, whether not all rows are written, and their scratch.
Found = tuple[Prepared, Addresses, bytes, bool, Model | None]


class Grown(NamedTuple):
    """How calls go on that differ in the number of keys, which is an axis of K and V: `launches` checks these two, and
    the numbers of sequences of several lengths, and gives what is launched; None where all must be checked."""

    axis: int
    launches: Callable[..., Found | None]


class Call(NamedTuple):
    """A call that was checked: its launches, and models of what it makes; None for what is not made. `run`, once the
    call is remembered: what `forward` or `backward` makes of it.

    Scratch lies in memory of its own, or so many bytes `behind` the beginning of the LSE. `gaps`: not all that is made
    is written: the rest of an LSE is -inf, and of all else 0. `ways`: of arrays that a score names. `grown`: how Q
    meets other keys and values. `choose`: what gives the launches for these addresses of q, k and v, and a stream's,
    where they depend on what is in the arrays. `scores`: of the zeros in which gradients of scores are written, where
    these are wanted."""

    library: Library
    device: int
    launches: Prepared
    made: tuple[Model, ...]
    lse: Model | None
    scratch: Model | None
    behind: int = 0
    gaps: bool = False
    ways: tuple[Way, ...] = ()
    grown: Grown | None = None
    choose: Callable[[tuple[int, int, int], int], Prepared] | None = None
    scores: Model | None = None
    run: Any = None


def call_of(
    first: Operand,
    launches: Prepared | None,
    made: Arrays,
    lse: Any = None,
    gaps: bool = False,
    ways: tuple[Way, ...] = (),
    scores: Any = None,
) -> Call | None:
    """The call that makes arrays such as these, of which `first` is given; None if it is not to be remembered."""
    if launches is None or not launches.is_filled:
        return None
    library, device = library_of(first), first.device or 0
    try:
        models = tuple(_model(library, x, device) for x in made)
        of_lse, of_scores = (None if x is None else _model(library, x, device) for x in (lse, scores))
        scratch = scratch_of(library, launches, device)
    except RuntimeError:  # no memory for a model, for now
        return None
    return Call(library, device, launches, models, of_lse, scratch, 0, gaps, ways, scores=of_scores)


def call_with_inner_lse(first: Operand, launches: Prepared | None, o: Any, rows: int) -> Call | None:
    """The call that makes arrays such as O, and an LSE of so many rows for no one but the backward pass: its numbers
    one after the other, and little scratch behind them."""
    call = call_of(first, launches, (o,))
    if call is None or not 0 < call.launches.scratch <= FEW:
        lse = call and call.library.model((rows,), FLOAT32, call.device)
        return call and call._replace(lse=lse)
    behind = -(-rows // LINE) * LINE
    lse = call.library.model((behind + _floats(call.launches),), FLOAT32, call.device)
    return call._replace(lse=lse, scratch=None, behind=FLOAT * behind)


def _floats(launches: Prepared) -> int:
    return -(-launches.scratch // FLOAT)


def scratch_of(library: Library, launches: Prepared, device: int) -> Model | None:
    """The model of a launch's scratch; None where it needs none."""
    return library.model((_floats(launches),), FLOAT32, device) if launches.scratch else None


def _model(library: Library, x: Any, device: int) -> Model:
    return library.model(tuple(x.shape), x.dtype, device, tuple(x.stride()) if isinstance(library, Torch) else None)


Run = Callable[..., Arrays | None]  # the repeated calls: None where the arrays must be checked


def forward(call: Call, *_options: Any) -> Run:
    """Of q, k, v and the arrays that a score names, or the numbers of sequences of other lengths: O, and the LSE or
    None."""
    library, device, prepared, (of_o,), of_lse, of_own_scratch, behind, gaps, ways, grown, choose, *_ = call
    address, new, current, stream = library.address, library.new, library.device, library.stream
    read = _reading(address, ways)

    def run(q: Any, k: Any, v: Any, *beside: Any) -> Arrays | None:
        q_at, k_at, v_at = address(q), address(k), address(v)
        if (q_at | k_at | v_at) % ALIGNMENT or current() != device:
            return None
        launches, of_scratch, more, table, clears = prepared, of_own_scratch, NOWHERE, b"", gaps
        if ways:
            named = read(beside)  # which live until all is enqueued
            if named is None:
                return None
            more = named[1]
        elif grown is not None:
            found = grown.launches(k, v, *beside)
            if found is None:
                return None
            launches, more, table, clears, of_scratch = found
        elif choose is not None:
            launches = choose((q_at, k_at, v_at), stream(device))
            of_scratch = scratch_of(library, launches, device)
        o, lse, lse_at, scratch_at = new(*of_o), None, 0, 0
        o_at, on = address(o), stream(device)
        if of_lse is not None:
            lse = new(*of_lse)
            lse_at = address(lse)
            scratch_at = lse_at + behind if behind else 0
        if of_scratch is not None:
            scratch = new(*of_scratch)  # which lives until all is enqueued
            scratch_at = address(scratch)
        if clears:
            launches.fill(o_at, o.nbytes, ZERO, on)
            if lse is not None:
                launches.fill(lse_at, lse.nbytes, MINUS_INF, on)
        launches.enqueue((q_at, k_at, v_at, o_at, *more, lse_at, scratch_at), on, table)
        return o, lse

    return run


def backward(call: Call, *_options: Any) -> Run:
    """Of dO, q, k, v, O, the LSE and the arrays that a score names: dQ, dK and dV, and the gradients of scores where
    they are wanted."""
    library, device, launches, (of_dq, of_dk, of_dv), _, of_scratch, _, gaps, ways, _, _, of_scores, _ = call
    address, new, current, stream = library.address, library.new, library.device, library.stream
    read = _reading(address, ways)

    def run(do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *beside: Any) -> Arrays | None:
        q_at, k_at, v_at, o_at, do_at = address(q), address(k), address(v), address(o), address(do)
        if (q_at | k_at | v_at | o_at | do_at) % ALIGNMENT or current() != device:
            return None
        named = read(beside) if ways else NOTHING  # which live until all is enqueued
        if named is None:
            return None
        dq, dk, dv, scratch_at = new(*of_dq), new(*of_dk), new(*of_dv), 0
        dq_at, dk_at, dv_at = address(dq), address(dk), address(dv)
        if of_scratch is not None:
            scratch = new(*of_scratch)  # which lives until all is enqueued
            scratch_at = address(scratch)
        made: Arrays = dq, dk, dv
        at, on = (q_at, k_at, v_at, o_at, do_at, dq_at, dk_at, dv_at, *named[1]), stream(device)
        if gaps:
            launches.fill(dq_at, dq.nbytes, ZERO, on)
            launches.fill(dk_at, dk.nbytes, ZERO, on)
            launches.fill(dv_at, dv.nbytes, ZERO, on)
        if of_scores is not None:
            scores = new(*of_scores)
            scores_at = address(scores)
            launches.fill(scores_at, scores.nbytes, ZERO, on)
            made, at = (*made, scores), (*at, scores_at)
        launches.enqueue((*at, address(lse), scratch_at), on)
        return made

    return run


NOWHERE: Addresses = ()
NOTHING: tuple[Arrays, Addresses] = (), NOWHERE
Read = Callable[[Arrays], tuple[Arrays, Addresses] | None]


def _reading(address: Callable[[Any], int], ways: tuple[Way, ...]) -> Read:
    """What gives the arrays that a score names as kernels read them, and their addresses, of those that were given;
    None where they must be checked. What is in them is read when the launches run, or here."""
    whole, aligned = all(to is None for _, to, _ in ways), [place for place, way in enumerate(ways) if way.aligned]

    def read(given: Arrays) -> tuple[Arrays, Addresses] | None:
        found = given if whole else tuple([_cast(x, way) for x, way in zip(given, ways, strict=True)])
        at = tuple(map(address, found))
        for place in aligned:
            if at[place] % ALIGNMENT:
                return None
        return found, at

    return read


def _cast(x: Any, way: Way) -> Any:
    part, to, _ = way
    return x if to is None else cast(x if part is None else x[part], to)


class Calls:
    """The calls of one function, `forward` or `backward`. Any thread may look at any time: tables change by assignments
    of whole entries."""

    def __init__(self, running: Callable[[Call, Any], Run], records: Callable[[], bool] = bool) -> None:
        """`records`: whether torch records gradients now, which its guards do not see."""
        self._running, self._records = running, records
        self._recent: dict[Hashable, tuple[tuple[Guard, Call], ...]] = {}
        self._all: dict[Hashable, tuple[Call | None, list[int]]] = {}  # with the number of times that it was found
        self._growing: dict[Hashable, tuple[Call, list[int]]] = {}  # of those that differ in the number of keys, one
        forgets(self.clear)

    def __len__(self) -> int:
        return len(self._all)

    def clear(self) -> None:
        """Forget all calls."""
        self._recent, self._all, self._growing = {}, {}, {}

    def find(self, options: Any, arrays: Arrays, kin_of: Callable[[Any], Hashable] | None = None) -> Call | None:
        """The call with these options, and arrays of these kinds, if there was one; or one that grows, with other
        lengths of sequences. `kin_of`: gives the options but for these."""
        for is_alike, call in self._recent.get((options, self._records()), ()):
            if is_alike(*arrays):
                return call
        kin = options
        if kin_of is not None:
            kin = kin_of(options)
            for is_alike, call in self._recent.get((kin, self._records()), ()):
                if is_alike(*arrays):
                    return call
        return self._by_key(options, arrays, kin)

    def _by_key(self, options: Hashable, arrays: Arrays, kin: Hashable) -> Call | None:
        library = LIBRARIES.get(type(arrays[0]))
        if library is None or not (self._all or self._growing):
            return None
        key = library.key(arrays)
        if key is None:
            return None
        found = self._all.get((options, key))
        if found is None and self._growing and len(arrays) == 3:  # as a step of decoding has one key more than the last
            found = self._growing.get((kin, library.but_sizes(key)))
        call, times = found or (None, [])
        if call is None:
            return None
        if times[0] % EACH == 0:
            self._bring_forward(options if call.grown is None else kin, arrays, call)
        times[0] += 1
        return call

    def knows(self, options: Hashable, arrays: Arrays) -> bool:
        """Whether such a call was put, or is one that is always checked."""
        library = LIBRARIES.get(type(arrays[0]))
        key = library.key(arrays) if library else None
        return library is not None and (key is None or (options, key) in self._all)

    def put(self, options: Hashable, arrays: Arrays, call: Call | None, kin: Hashable = None) -> None:
        """Remember a call that the checks have passed; None: such calls are always checked. `kin`: the options but for
        lengths of sequences, of which calls that grow may have others."""
        library = LIBRARIES.get(type(arrays[0]))
        key = library.key(arrays) if library else None
        if library is None or key is None:
            return
        if max(len(self._all), len(self._growing), len(self._recent)) >= MOST:
            self.clear()
        if call is None:
            self._all[options, key] = None, []
            return
        if call.grown is not None:
            grown, shared = call._replace(run=self._running(call, options)), options if kin is None else kin
            self._growing[shared, library.but_sizes(key)] = grown, [0]
            if kin is not None:  # lengths are seldom the same again
                self._bring_forward(kin, arrays, grown)
                return
        call = call._replace(grown=None)
        call = call._replace(run=self._running(call, options))
        self._all[options, key] = call, [1]
        self._bring_forward(options, arrays, call)

    def _bring_forward(self, options: Hashable, arrays: Arrays, call: Call) -> None:
        """Among those that guards find; these find nothing where an array is given twice."""
        guard = call.library.guard and call.library.guard(arrays, call.grown and call.grown.axis)
        if guard is not None and guard(*arrays):
            key = options, self._records()
            self._recent[key] = ((guard, call), *self._recent.get(key, ())[: RECENT - 1])


# Of hw4cli.attention, and of attention_backward.
FORWARD, BACKWARD = Calls(forward), Calls(backward)
