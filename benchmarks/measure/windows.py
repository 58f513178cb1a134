"""Windows of keys beside the same kernels without one, and beside FlashAttention 2 and 4, cuDNN and FlexAttention.

    python -m benchmarks.measure.windows --output benchmarks/windows/h200.json

Each answer, the peers' too, is first held beside float64's, of some rows of two heads; a peer that is not installed,
does not take the window, is wrong or compiles for too long is left out, with the reason. Times are of whole calls one
behind the other, by CUDA events, all ways in turns; medians count. What a window could cost is the share of the pairs
that are in it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.measure.peers import PEERS, Call, Way, beside, fa2
from benchmarks.measure.scripts import end_with
from benchmarks.measure.sequences import ALLOWED, SEED, record_in_turns, rows_of
from benchmarks.measure.turns import Rows
from hw4cli.arrays.arguments import Window, mask_of
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
        return self._with(None)

    @property
    def work(self) -> Workload:
        """With it."""
        return self._with(self.window)

    def _with(self, window: Window | None) -> Workload:
        batch, heads, kv_heads, N, d = self.sizes
        causal, offset, width = mask_of(N, N, self.causal, BOTTOM_RIGHT, window)
        return Workload(BFLOAT16, batch, heads, kv_heads, N, N, d, causal, offset, window=width)


CASES = (
    Case((1, 32, 8, 16384, 128), (1023, 0), causal=True),
    Case((4, 32, 8, 4096, 128), (1023, 0), causal=True),
    Case((2, 16, 16, 8192, 64), (512, 512)),
    Case((8, 12, 12, 4096, 64), (128, 128)),
    Case((1, 16, 16, 32768, 64), (4095, 0), causal=True),
)


class Tensors:
    """Those of a case, and our functions."""

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

    def call(self, window: Window | None) -> Call:
        """What the peers are asked for."""
        return Call(self.q, self.k, self.v, self.do, self.case.causal, window)

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


def prepare(case: Case) -> Callable[[], Rows]:
    """What times a case: its rows, forward and backward."""
    tensors = Tensors(case)
    ours = tensors.ours(case.window)
    tensors.check(ours[0](), ours[1]())
    peers, absent = beside(tensors.call(case.window), tensors.check, PEERS)
    full = {"hw4 full": tensors.ours(None), "fa2 full": fa2(tensors.call(None))}
    facts = {
        **{"sizes": case.sizes, "window": case.window, "causal": case.causal, "dtype": BFLOAT16},
        **{"share": case.work.pairs / case.full.pairs},
    }
    said = f"{case.sizes}, window {case.window}, causal={case.causal}"
    return rows_of(tensors.torch, {"hw4": ours, **peers, **full}, case.work.flops, facts, absent, said)


def main() -> None:
    """All cases."""
    record_in_turns(__doc__ or "", "windows", prepare, CASES)


if __name__ == "__main__":
    end_with(main)
