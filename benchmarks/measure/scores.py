"""Changed scores beside the same kernels with plain ones, and beside torch's FlexAttention and its masks.

    python -m benchmarks.measure.scores --output benchmarks/scores/h100.json

ALiBi, softcap, a bias of 16 bits for each head and a mask of pairs. Each answer is first held beside float64's, of some
rows of two heads. Times are of whole calls one behind the other, by CUDA events, all ways in turns; medians count.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from benchmarks.measure.scripts import end_with, say
from benchmarks.measure.sequences import ALLOWED, SEED, milliseconds, record
from hw4cli.problem.workload import BFLOAT16, Workload

CHECKED_ROWS, CAP, KEPT = 64, 30.0, 0.8
PLAIN, ALIBI, SOFTCAP, BIAS, MASK = "plain", "alibi", "softcap", "bias", "mask"
Way = Callable[[], Any]


class Case(NamedTuple):
    """Sizes; whether it is causal; whether FlexAttention, which compiles for long, is measured, too."""

    sizes: tuple[int, int, int, int]  # batch, heads, N, d
    causal: bool = False
    flex: bool = False

    @property
    def work(self) -> Workload:
        """Without a score."""
        return Workload.square(BFLOAT16, *self.sizes, causal=self.causal)


CASES = (
    Case((2, 16, 8192, 128), flex=True),
    Case((2, 16, 8192, 128), causal=True),
    Case((2, 32, 8192, 64)),
    Case((8, 12, 1024, 64), causal=True),
)


class Tensors:
    """Those of a case, and functions of ours and of the peers."""

    def __init__(self, case: Case) -> None:
        import torch

        self.torch, self.case = torch, case
        batch, heads, N, d = case.sizes
        torch.manual_seed(SEED)
        draw = {"device": "cuda", "dtype": torch.bfloat16}
        self.q, self.k, self.v, self.do = (torch.randn(batch, heads, N, d, **draw) for _ in range(4))
        self.slopes = 2.0 ** -torch.arange(1, heads + 1, device="cuda", dtype=torch.float32)
        self.bias = torch.randn(1, heads, N, N, **draw)
        self.mask = torch.rand(1, 1, N, N, device="cuda") < KEPT

    def words(self, change: str) -> dict[str, Any]:
        """A change in the arguments of hw4's functions."""
        return {
            PLAIN: {},
            ALIBI: {"alibi_slopes": self.slopes},
            SOFTCAP: {"softcap": CAP},
            BIAS: {"attn_mask": self.bias},
            MASK: {"attn_mask": self.mask},
        }[change]

    def ours(self, change: str) -> tuple[Way, Way]:
        """A call, and one of its gradients."""
        from hw4cli import attention, attention_backward

        asked: dict[str, Any] = {"causal": self.case.causal, **self.words(change)}
        o, lse = attention(self.q, self.k, self.v, return_lse=True, **asked)
        return (
            lambda: attention(self.q, self.k, self.v, **asked),
            lambda: attention_backward(self.do, self.q, self.k, self.v, o, lse, **asked),
        )

    def flex(self, change: str) -> tuple[Way, Way]:
        """torch's FlexAttention, compiled, and its gradients of q, k and v."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        slopes, bias, mask, torch = self.slopes, self.bias, self.mask, self.torch
        scores: dict[str, Callable[..., Any]] = {
            ALIBI: lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(),
            SOFTCAP: lambda s, b, h, i, j: CAP * torch.tanh(s / CAP),
            BIAS: lambda s, b, h, i, j: s + bias[0, h, i, j],
        }
        N = self.case.sizes[2]
        pairs = {"block_mask": create_block_mask(lambda b, h, i, j: mask[0, 0, i, j], None, None, N, N)}
        asked: dict[str, Any] = pairs if change == MASK else {"score_mod": scores.get(change)}
        compiled = torch.compile(flex_attention, dynamic=False)
        q, k, v = (x.detach().requires_grad_() for x in (self.q, self.k, self.v))
        o = compiled(q, k, v, **asked)

        def backward() -> Any:
            return torch.autograd.grad(o, (q, k, v), self.do, retain_graph=True)

        backward()
        return lambda: compiled(self.q, self.k, self.v, **asked), backward

    def efficient(self, change: str) -> tuple[Way, None]:
        """torch's memory-efficient attention with a mask; its gradients are not asked for."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        batch, heads, N, _ = self.case.sizes
        mask = (self.bias if change == BIAS else self.mask).expand(batch, heads, N, N)

        def forward() -> Any:
            with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                return scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=mask)

        forward()
        return forward, None

    def check(self, change: str, o: Any, gradients: Any) -> None:
        """Raise RuntimeError unless O and dQ of some rows of two heads are near float64's."""
        torch, (_, heads, N, d) = self.torch, self.case.sizes
        for head in (0, heads - 1):
            k, v = (x[0, head].double() for x in (self.k, self.v))
            for first in (0, N // 3, N - CHECKED_ROWS):
                some = slice(first, first + CHECKED_ROWS)
                q, do = (x[0, head, some].double().requires_grad_() for x in (self.q, self.do))
                apart = torch.arange(first, first + CHECKED_ROWS, device="cuda")[:, None] - torch.arange(
                    N, device="cuda"
                )
                s = q @ k.T / math.sqrt(d)
                if change == ALIBI:
                    s = s - self.slopes[head].double() * apart.abs()
                elif change == SOFTCAP:
                    s = CAP * (s / CAP).tanh()
                elif change == BIAS:
                    s = s + self.bias[0, head, some].double()
                elif change == MASK:
                    s = s.masked_fill(~self.mask[0, 0, some], -torch.inf)
                if self.case.causal:
                    s = s.masked_fill(apart < 0, -torch.inf)
                right = s.softmax(1).nan_to_num() @ v
                (dq,) = torch.autograd.grad(right, q, do)
                for what, got, exact in (("O", o, right), ("dQ", gradients[0], dq.nan_to_num())):
                    error = (got[0, head, some].double() - exact).abs().max().item()
                    if not error <= ALLOWED * max(1.0, exact.abs().max().item()):
                        raise RuntimeError(f"{what} of {change}, rows from {first} on, is off by {error:.2g}")


def measure(case: Case) -> list[dict[str, Any]]:
    """The rows of a case: each change, forward and backward."""
    tensors, rows = Tensors(case), []
    plain = tensors.ours(PLAIN)
    for change in (ALIBI, SOFTCAP, BIAS, MASK):
        ours = tensors.ours(change)
        tensors.check(change, ours[0](), ours[1]())
        ways: dict[str, tuple[Way, Way | None]] = {"hw4": ours, "hw4 plain": plain}
        if case.flex:
            with suppress(ImportError):
                ways["flex"] = tensors.flex(change)
        if change in (BIAS, MASK) and not case.causal:
            ways["efficient"] = tensors.efficient(change)
        for place, direction in enumerate(("forward", "backward")):
            times = milliseconds(tensors.torch, {name: way for name, made in ways.items() if (way := made[place])})
            flops = case.work.flops * (1 if direction == "forward" else 2.5)
            rows.append(
                {
                    **{"sizes": case.sizes, "change": change, "causal": case.causal, "dtype": BFLOAT16},
                    **{"pass": direction, "status": "ok", "ms": times, "tflops": flops / times["hw4"] / 1e9},
                }
            )
            shown = ", ".join(f"{one} {ms:.3f} ms" for one, ms in times.items())
            say(f"{case.sizes}, {change}, causal={case.causal}, {direction}: {shown}")
    return rows


def main() -> None:
    """All cases."""
    record(__doc__ or "", "scores", lambda: [row for case in CASES for row in measure(case)])


if __name__ == "__main__":
    end_with(main)
