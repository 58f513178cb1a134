"""Windows of keys beside the same kernels without one, and beside torch's FlashAttention 2.

    python -m benchmarks.measure.windows --output benchmarks/windows/h200.json

Each answer is first held beside float64's, of some rows of two heads. Times are of whole calls one behind the other, by
CUDA events, all ways in turns; medians count. What a window could cost is the share of the pairs that are in it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.measure.scripts import end_with, say
from benchmarks.measure.sequences import ALLOWED, SEED, milliseconds, record
from hw4cli.arrays.arguments import Window, masked
from hw4cli.problem.workload import BFLOAT16, BOTTOM_RIGHT, Workload

CHECKED_ROWS = 64  # the first of the checked ones is the 0th, 1/3 of all, and the 64th from the end


class Case(NamedTuple):
    """Sizes, the window, and whether it is causal."""

    sizes: tuple[int, int, int, int, int]  # batch, heads, heads of K and V, N, d
    window: Window
    causal: bool = False

    @property
    def full(self) -> Workload:
        """Without the window."""
        batch, heads, kv_heads, N, d = self.sizes
        return masked(Workload(BFLOAT16, batch, heads, kv_heads, N, N, d), self.causal, BOTTOM_RIGHT)

    @property
    def work(self) -> Workload:
        """With it."""
        return masked(replace(self.full, causal=False, offset=0), self.causal, BOTTOM_RIGHT, self.window)


CASES = (
    Case((1, 32, 8, 16384, 128), (1023, 0), causal=True),
    Case((4, 32, 8, 4096, 128), (1023, 0), causal=True),
    Case((2, 16, 16, 8192, 64), (512, 512)),
    Case((8, 12, 12, 4096, 64), (128, 128)),
    Case((1, 16, 16, 32768, 64), (4095, 0), causal=True),
)
Way = Callable[[], Any]


class Tensors:
    """Those of a case, and functions of ours and of the peer."""

    def __init__(self, case: Case) -> None:
        import torch

        self.torch, self.case = torch, case
        batch, heads, kv_heads, N, d = case.sizes
        torch.manual_seed(SEED)

        def rows(n: int) -> Any:
            return torch.randn(batch, N, n, d, device="cuda", dtype=torch.bfloat16)

        self.q, self.k, self.v, self.do = rows(heads), rows(kv_heads), rows(kv_heads), rows(heads)

    def ours(self, window: Window | None) -> tuple[Way, Way]:
        """A call, and one of its gradients."""
        from hw4cli import attention, attention_backward

        asked: dict[str, Any] = {"causal": self.case.causal, "window": window, "layout": "BNHD"}
        o, lse = attention(self.q, self.k, self.v, return_lse=True, **asked)
        return (
            lambda: attention(self.q, self.k, self.v, **asked),
            lambda: attention_backward(self.do, self.q, self.k, self.v, o, lse, **asked),
        )

    def fa2(self, window: Window | None) -> tuple[Way, Way]:
        """torch's FlashAttention 2, without what torch does around it."""
        aten, N = self.torch.ops.aten, self.q.shape[1]
        left, right = window or (-1, -1)
        sides = {"window_size_left": left, "window_size_right": 0 if self.case.causal else right} if window else {}
        sizes = (None, None, N, N, 0.0, self.case.causal)
        o, lse, seed, offset, _ = aten._flash_attention_forward(self.q, self.k, self.v, *sizes, False, **sides)
        given = self.do, self.q, self.k, self.v, o, lse
        return (
            lambda: aten._flash_attention_forward(self.q, self.k, self.v, *sizes, False, **sides)[0],
            lambda: aten._flash_attention_backward(*given, *sizes, seed, offset, **sides),
        )

    def check(self, o: Any, gradients: Any) -> None:
        """Raise RuntimeError unless O and dQ of some rows of two heads are near float64's."""
        torch, work = self.torch, self.case.work
        for head in (0, work.heads - 1):
            k, v = (x[0, :, head * work.kv_heads // work.heads].double() for x in (self.k, self.v))
            for first in (0, work.Nq // 3, work.Nq - CHECKED_ROWS):
                some = slice(first, first + CHECKED_ROWS)
                q, do = (x[0, some, head].double().requires_grad_() for x in (self.q, self.do))
                last = torch.arange(first, first + CHECKED_ROWS, device="cuda")[:, None] + work.offset
                key = torch.arange(work.Nk, device="cuda")
                s = (q @ k.T / math.sqrt(work.d)).masked_fill((key > last) | (key <= last - work.window), -torch.inf)
                right = s.softmax(1) @ v
                (dq,) = torch.autograd.grad(right, q, do)
                for what, got, exact in (("O", o, right), ("dQ", gradients[0], dq)):
                    error = (got[0, some, head].double() - exact).abs().max().item()
                    if not error <= ALLOWED * max(1.0, exact.abs().max().item()):
                        raise RuntimeError(f"{what} of rows from {first} on is off by {error:.2g}")


def measure(case: Case) -> list[dict[str, Any]]:
    """The rows of a case, forward and backward."""
    tensors = Tensors(case)
    ways = {
        "hw4": tensors.ours(case.window),
        "hw4 full": tensors.ours(None),
        "fa2": tensors.fa2(case.window),
        "fa2 full": tensors.fa2(None),
    }
    tensors.check(ways["hw4"][0](), ways["hw4"][1]())
    rows = []
    for place, direction in enumerate(("forward", "backward")):
        times = milliseconds(tensors.torch, {name: made[place] for name, made in ways.items()})
        flops = case.work.flops * (1 if direction == "forward" else 2.5)
        rows.append(
            {
                **{"sizes": case.sizes, "window": case.window, "causal": case.causal, "dtype": BFLOAT16},
                **{"pass": direction, "status": "ok", "ms": times, "tflops": flops / times["hw4"] / 1e9},
                **{"share": case.work.pairs / case.full.pairs},
            }
        )
        shown = ", ".join(f"{one} {ms:.3f} ms" for one, ms in times.items())
        say(f"{case.sizes}, window {case.window}, causal={case.causal}, {direction}: {shown}")
    return rows


def main() -> None:
    """All cases."""
    record(__doc__ or "", "windows", lambda: [row for case in CASES for row in measure(case)])


if __name__ == "__main__":
    end_with(main)
