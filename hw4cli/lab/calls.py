"""What a call costs, beside torch's: the host's time to enqueue it, and its share of a row of calls with the GPU's.

A model's layer calls attention for a moment's work, so its calls can cost more than its kernels do. Here functions are
called as a model calls them, one call behind the other without a wait, in turns with each other: a batch of CALLS of
one function, then of the next. The first number of a batch is the host's time until all is enqueued, the second the
time until the GPU is done, both divided by CALLS.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from hw4cli.arrays.attention import attention
from hw4cli.arrays.gradients.backward import attention_backward
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import InputError, MachineError
from hw4cli.lab.arrays.named import PACKED, NamedWorkload
from hw4cli.lab.peers import BACKENDS, OF_FLOAT32, torch_for
from hw4cli.lab.record import heading
from hw4cli.lab.tables import CALLS as KIND
from hw4cli.problem.workload import FLOAT32, TOP_LEFT
from hw4cli.system.machine import machine

CALLS, WARM_UP = 12, 20  # calls of a batch, as of a model of so many layers; batches before the first that counts
ALLOWED = {"float16": 2e-3, "bfloat16": 1.6e-2, FLOAT32: 2e-3}  # norm of the difference to torch's answer, of its norm
OURS, DEFAULT, FLOOR = "hw4", "torch", "empty"
ARRAYS, INFERENCE, TRAINING, BACKWARD, BOTH = "arrays", "inference", "training", "backward", "both"
PASSES = (ARRAYS, INFERENCE, TRAINING, BACKWARD, BOTH)


@dataclass(frozen=True)
class CallRow:
    """Calls of one function, of a pass: medians of batches, in microseconds a call.

    Passes: `arrays`, of hw4cli.attention or attention_backward; of a function of torch's tensors `inference`, O where
    no gradient is wanted; `training`, O where one is; `backward`, by torch.autograd.grad; and `both` of these."""

    case: str
    kernel: str  # the function
    work: dict[str, Any]
    direction: str  # the pass
    status: str = "ok"
    reason: str = ""
    host_us: float = 0.0
    whole_us: float = 0.0
    least_host_us: float = 0.0
    host_samples_us: tuple[float, ...] = ()
    whole_samples_us: tuple[float, ...] = ()


Call = Callable[[], Any]
Context = Callable[[], AbstractContextManager[Any]]


@dataclass
class _Function:
    """One that is called in turns with others, in a context of its own; its samples."""

    name: str
    call: Call
    context: Context = nullcontext
    reason: str = ""

    def __post_init__(self) -> None:
        self.host: list[float] = []
        self.whole: list[float] = []


def check_calls(workload: NamedWorkload) -> None:
    """Raise InputError for a workload that torch's function has no arguments for."""
    work = workload.work
    if work.causal and work.offset:
        raise InputError(
            f"{workload}: torch's mask of {work.Nq} rows and {work.Nk} keys is another: give align=top-left"
        )


class Session:
    """Measures calls on the current GPU, by torch. Raises MachineError without PyTorch, or a GPU."""

    def __init__(self, peers: Sequence[str], samples: int, timer: GpuTimer | None = None) -> None:
        from hw4cli.device.gpu import Gpu

        self.torch = torch_for("--calls")
        self._peers, self._samples, self._timer = peers, samples, timer or GpuTimer(Gpu())
        self._before = self._timer.clocks()
        self.rows: list[CallRow] = []

    def measure(self, workload: NamedWorkload) -> list[CallRow]:
        """The rows of a workload, whose answers are compared first. Raises MachineError where ours is not torch's."""
        check_calls(workload)
        functions = self._functions(workload)
        tensors = self._tensors(workload)
        self._check(workload, functions[0][1], tensors)
        found = []
        for name in PASSES:
            cases = list(self._cases(name, workload, functions, tensors))
            self._sample(cases)
            found += [self._row(workload, name, one) for one in cases]
        self.rows += found
        return found

    def record(self) -> dict[str, Any]:
        """The record of all rows so far."""
        return {
            **heading(KIND),
            "machine": machine(self._timer.machine(), True),
            "clocks": {"before": self._before, "after": self._timer.clocks()},
            "method": {
                "calls": f"{CALLS} of a function, one behind the other, then of the next",
                "host_us": "until all are enqueued, a call",
                "whole_us": "until the GPU is done, a call",
                "warm_up": WARM_UP,
            },
            "rows": [asdict(row) for row in self.rows],
        }

    def _tensors(self, workload: NamedWorkload) -> list[Any]:
        torch, work = self.torch, workload.work
        generator, rows_first = torch.Generator("cuda").manual_seed(workload.seed), workload.layout != "BHND"

        def one(heads: int, rows: int, d: int = work.d) -> Any:
            shape = (work.batch, rows, heads, d) if rows_first else (work.batch, heads, rows, d)
            x = torch.randn(shape, generator=generator, device="cuda").to(getattr(torch, work.dtype))
            return x.transpose(1, 2) if rows_first else x

        do, keys = one(work.heads, work.Nq, work.value_columns), (work.kv_heads, work.Nk)
        if workload.layout == PACKED:
            heads = work.heads, work.kv_heads, work.kv_heads
            return [*one(sum(heads), work.Nq).split(heads, dim=1), do]
        return [one(work.heads, work.Nq), one(*keys), one(*keys, work.value_columns), do]

    def _functions(self, workload: NamedWorkload) -> list[tuple[str, Any, Context]]:
        """Name, function of torch's q, k and v, and the context in which it is called."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        from hw4cli.arrays.autograd.attention import attention as of_tensors

        work = workload.work
        options: dict[str, Any] = {"is_causal": work.causal}
        options |= {"enable_gqa": True} if work.heads != work.kv_heads else {}
        options |= {"scale": work.scale} if work.scale != work.usual_scale else {}
        found: list[tuple[str, Any, Context]] = [(OURS, partial(of_tensors, **options), nullcontext)]
        theirs = partial(scaled_dot_product_attention, **options)
        found.append((DEFAULT, theirs, nullcontext))
        for name in self._peers:
            if work.dtype != FLOAT32 or name in OF_FLOAT32:
                found.append((name, theirs, partial(sdpa_kernel, getattr(SDPBackend, BACKENDS[name]))))
        return found

    def _check(self, workload: NamedWorkload, ours: Any, tensors: list[Any]) -> None:
        """Raise MachineError unless O and the gradients are those of torch's formula in float32, but for rounding."""
        torch, allowed = self.torch, ALLOWED[workload.work.dtype]
        (_, theirs, _), inputs = self._functions(workload)[1], tensors[:3]
        got = _answers(torch, ours, inputs, tensors[3])
        right = _answers(torch, theirs, inputs, tensors[3])
        for x, y, what in zip(got, right, ("O", "dQ", "dK", "dV"), strict=True):
            error = float((x.float() - y.float()).norm() / y.float().norm())
            if not error <= 2 * allowed:  # both are rounded
                raise MachineError(f"{workload}: {what} of hw4cli.torch.attention differs from torch's by {error:.2g}")

    def _cases(
        self, name: str, workload: NamedWorkload, functions: Sequence[tuple[str, Any, Context]], tensors: list[Any]
    ) -> Iterator[_Function]:
        torch, inputs, do = self.torch, tensors[:3], tensors[3]
        if name == ARRAYS:
            yield from _of_arrays(workload, tensors)
            return
        if name == INFERENCE:
            for title, function, context in functions:
                yield _Function(title, partial(function, *inputs), context)
            return
        wanted = [x.detach().requires_grad_() for x in inputs]
        if name == BACKWARD:
            yield _Function(FLOOR, _empty_backward(torch, wanted, do))
        for title, function, context in functions:
            call = partial(function, *wanted)
            if name == BACKWARD:
                yield _backward(torch, title, call, context, wanted, do)
            else:
                both = partial(_both, torch, call, wanted, do)
                yield _Function(title, both if name == BOTH else call, context)

    def _sample(self, cases: Sequence[_Function]) -> None:
        """Batches of all in turns, each round from the next one on; of one that fails, the reason."""
        torch = self.torch
        gc.collect()
        gc.disable()  # as training loops do that care for microseconds
        try:
            for n in range(WARM_UP + self._samples):
                first = n % len(cases)
                for one in (*cases[first:], *cases[:first]):
                    if one.reason:
                        continue
                    try:
                        with one.context():
                            host, whole = self._batch(one.call)
                    except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
                        one.reason = f"PyTorch: {str(error).splitlines()[0]}"
                        continue
                    if n >= WARM_UP:
                        one.host.append(host)
                        one.whole.append(whole)
        finally:
            gc.enable()

    def _batch(self, call: Call) -> tuple[float, float]:
        """Microseconds a call, on the host and in all."""
        wait = self.torch.cuda.synchronize
        wait()
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        enqueued = time.perf_counter_ns()
        wait()
        end = time.perf_counter_ns()
        return (enqueued - begin) / CALLS / 1e3, (end - begin) / CALLS / 1e3

    def _row(self, workload: NamedWorkload, name: str, one: _Function) -> CallRow:
        common = workload.name, one.name, asdict(workload.work), name
        if one.reason:
            return CallRow(*common, "cannot run", one.reason)
        host, whole = statistics.median(one.host), statistics.median(one.whole)
        return CallRow(*common, "ok", "", host, whole, min(one.host), tuple(one.host), tuple(one.whole))


def _of_arrays(workload: NamedWorkload, tensors: list[Any]) -> Iterator[_Function]:
    """hw4cli.attention, and attention_backward."""
    work, (q, k, v, do) = workload.work, tensors
    options: dict[str, Any] = {
        "causal": work.causal,
        "align": TOP_LEFT,
        "scale": None if work.scale == work.usual_scale else work.scale,
    }
    forward = {**options, **({"kernel": "flash"} if work.dtype == FLOAT32 else {})}
    o, lse = attention(q, k, v, return_lse=True, **forward)
    yield _Function("hw4cli.attention", partial(attention, q, k, v, **forward))
    yield _Function("hw4cli.attention_backward", partial(attention_backward, do, q, k, v, o, lse, **options))


def _answers(torch: Any, function: Any, inputs: list[Any], do: Any) -> list[Any]:
    wanted = [x.detach().requires_grad_() for x in inputs]
    o = function(*wanted)
    return [o.detach(), *torch.autograd.grad(o, wanted, do)]


def _both(torch: Any, call: Call, wanted: list[Any], do: Any) -> Any:
    return torch.autograd.grad(call(), wanted, do)


def _backward(torch: Any, title: str, call: Call, context: Context, wanted: list[Any], do: Any) -> _Function:
    """The backward pass alone, of an O that is kept."""
    try:
        with context():
            o = call()
    except RuntimeError as error:
        return _Function(title, call, context, f"PyTorch: {str(error).splitlines()[0]}")
    return _Function(title, partial(torch.autograd.grad, o, wanted, do, retain_graph=True), context)


def empty_function(torch: Any, do: Any, ready: list[Any]) -> Callable[..., Any]:
    """torch's own cost of both passes: a function of q, k and v that gives something like dO, and whose gradients are
    there already."""

    class Empty(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return do.view_as(do)

        @staticmethod
        def backward(ctx: Any, _: Any) -> Any:
            return tuple(ready)

    found: Callable[..., Any] = Empty.apply
    return found


def _empty_backward(torch: Any, wanted: list[Any], do: Any) -> Call:
    o = empty_function(torch, do, [torch.zeros_like(x) for x in wanted])(*wanted)
    return partial(torch.autograd.grad, o, wanted, do, retain_graph=True)
