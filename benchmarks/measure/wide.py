"""Rows of more than 128 columns, and V of another number of columns, beside torch's cuDNN and FlashAttention 2.

    python -m benchmarks.measure.wide --output benchmarks/wide/h200.json

Answers and gradients of smaller arrays are first held beside float64's; nothing is timed unless they are
right. Times are of whole calls one behind the other, by CUDA events, all ways in turns; medians count. What torch does
not compute is left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.measure.scripts import end_with, say
from benchmarks.measure.sequences import SEED, milliseconds, record
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload

Way = Callable[[], Any]
ALLOWED = {FLOAT32: 1e-4, FLOAT16: 6e-3, BFLOAT16: 4e-2}  # of numbers around 1, beside the largest
CHECKED = (  # type, d, V's columns, whether causal
    *((BFLOAT16, *widths, causal) for widths in ((256, 256), (192, 128)) for causal in (False, True)),
    (FLOAT16, 200, 200, True),
    (FLOAT32, 256, 256, False),
)
CHECKED_HEADS, CHECKED_ROWS = 60, 333  # more tiles than multiprocessors, as what is timed has: the same machine code
PEERS = {"cudnn": "CUDNN_ATTENTION", "fa2": "FLASH_ATTENTION"}


class Case(NamedTuple):
    """Batches, heads, N, d, V's columns, and whether it is causal."""

    batch: int
    heads: int
    N: int
    d: int
    dv: int
    causal: bool

    @property
    def work(self) -> Workload:
        """The workload, bf16."""
        sizes = self.batch, self.heads, self.heads, self.N, self.N, self.d
        return Workload(BFLOAT16, *sizes, self.causal, dv=self.dv)


CASES = tuple(
    Case(*sizes, causal)
    for sizes in ((4, 32, 4096, 256, 256), (2, 16, 8192, 256, 256), (1, 8, 8192, 192, 128))
    for causal in (False, True)
)


def tensors(torch: Any, dtype: str, batch: int, heads: int, N: int, d: int, dv: int) -> list[Any]:
    """Q, K, V and dO."""
    torch.manual_seed(SEED)
    shapes = (batch, heads, N, d), (batch, heads, N, d), (batch, heads, N, dv), (batch, heads, N, dv)
    return [torch.randn(*shape, device="cuda").to(getattr(torch, dtype)) for shape in shapes]


def check(torch: Any, dtype: str, d: int, dv: int, causal: bool) -> None:
    """Raise RuntimeError unless O, dQ, dK and dV of small arrays are near float64's."""
    from hw4cli import attention, attention_backward

    q, k, v, do = tensors(torch, dtype, 1, CHECKED_HEADS, CHECKED_ROWS, d, dv)
    kernel = "flash" if dtype == FLOAT32 else "auto"
    o, lse = attention(q, k, v, causal=causal, return_lse=True, kernel=kernel)
    found = o, *attention_backward(do, q, k, v, o, lse, causal=causal)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    s = wide[0] @ wide[1].mT * d**-0.5
    if causal:
        s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), -torch.inf)
    right = s.softmax(-1) @ wide[2]
    exact = right, *torch.autograd.grad(right, wide, do.double())
    for what, got, one in zip(("O", "dQ", "dK", "dV"), found, exact, strict=True):
        error = (got.double() - one).abs().max().item()
        if not error <= ALLOWED[dtype] * max(1.0, one.abs().max().item()):
            raise RuntimeError(f"{what} of {dtype}, d={d}, dv={dv}, causal={causal} is off by {error:.2g}")


def ours(case: Case, q: Any, k: Any, v: Any, do: Any) -> tuple[Way, Way]:
    """A call, and one of its gradients."""
    from hw4cli import attention, attention_backward

    o, lse = attention(q, k, v, causal=case.causal, return_lse=True)
    return (
        lambda: attention(q, k, v, causal=case.causal),
        lambda: attention_backward(do, q, k, v, o, lse, causal=case.causal),
    )


def peer(torch: Any, name: str, case: Case, q: Any, k: Any, v: Any, do: Any) -> tuple[Way | None, Way | None]:
    """The same by a backend of torch's scaled_dot_product_attention; None for what it does not compute."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, PEERS[name])
    alone, wanted = (q, k, v), [x.detach().requires_grad_() for x in (q, k, v)]

    def forward(some: Any = alone) -> Any:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(*some, is_causal=case.causal)

    try:
        forward()
    except RuntimeError as error:
        say(f"{name} does not compute {case}: {str(error).splitlines()[0]}")
        return None, None
    try:
        o = forward(wanted)

        def backward() -> Any:
            return torch.autograd.grad(o, wanted, do, retain_graph=True)

        backward()
    except RuntimeError as error:
        say(f"{name} has no gradients of {case}: {str(error).splitlines()[0]}")
        return forward, None
    return forward, backward


def measure(torch: Any, case: Case) -> list[dict[str, Any]]:
    """The rows of a case, forward and backward."""
    given = tensors(torch, BFLOAT16, case.batch, case.heads, case.N, case.d, case.dv)
    made: dict[str, tuple[Way | None, Way | None]] = {"hw4": ours(case, *given)}
    made |= {name: peer(torch, name, case, *given) for name in PEERS}
    rows = []
    for place, direction in enumerate(("forward", "backward")):
        ways = {name: way for name, both in made.items() if (way := both[place])}
        times = milliseconds(torch, ways)
        flops = case.work.flops * (1 if direction == "forward" else 2.5)
        rates = {name: flops / ms / 1e9 for name, ms in times.items()}
        rows.append(
            {
                **{"sizes": case[:-1], "causal": case.causal, "dtype": BFLOAT16, "pass": direction, "status": "ok"},
                **{"ms": times, "tflops": rates["hw4"]},
            }
        )
        shown = ", ".join(f"{name} {ms:.3f} ms ({rates[name]:.0f} TFLOP/s)" for name, ms in times.items())
        say(f"{case[:-1]}, causal={case.causal}, {direction}: {shown}")
    return rows


def compile_all() -> None:
    """Compile what is called, in processes side by side."""
    from hw4cli.device.gpu import Gpu
    from hw4cli.lab.contender import compile_side_by_side
    from hw4cli.plans import gradients
    from hw4cli.plans.dispatch import AUTO
    from hw4cli.plans.kernels16 import plan16, takes_values
    from hw4cli.plans.ladder import VARIANTS

    gpu = Gpu()
    sizes = 1, CHECKED_HEADS, CHECKED_HEADS, CHECKED_ROWS, CHECKED_ROWS
    works = [case.work for case in CASES]
    works += [Workload(dtype, *sizes, d, causal, dv=dv) for dtype, d, dv, causal in CHECKED]
    plans = []
    for work in works:
        alike = work.of_one_width
        plans.append(gradients.plan(alike, gpu.props))
        if work.dtype == FLOAT32:
            plans.append(VARIANTS["flash"].plan(Workload.one_head(work.B, work.Nk, alike.d, work.causal), gpu.props))
        else:
            plans.append(plan16(work if takes_values(work, gpu.props, AUTO) else alike, gpu.props))
    compile_side_by_side(gpu, plans)


def measure_all() -> list[dict[str, Any]]:
    """All checks, then all cases."""
    import torch

    compile_all()
    for one in CHECKED:
        check(torch, *one)
    say(f"right beside float64: {', '.join(f'{dtype} {d}/{dv}' for dtype, d, dv, _ in CHECKED)}, and their gradients")
    return [row for case in CASES for row in measure(torch, case)]


def main() -> None:
    """All of it."""
    record(__doc__ or "", "wide", measure_all)


if __name__ == "__main__":
    end_with(main)
