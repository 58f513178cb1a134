"""Changed scores beside the same kernels with plain ones, and beside others' attention with the same changes.

    python -m benchmarks.measure.scores --output benchmarks/scores/h100.json

ALiBi, softcap, a bias of 16 bits for each head and a mask of pairs. FlashAttention 4 and torch's FlexAttention take
each as a function of a score or of a pair; torch's cuDNN and memory-efficient attention take a bias or a mask, and no
other mask beside it. (cudnn-frontend's functions of torch's tensors take none of the four.) Each answer, the peers'
too, is first held beside float64's, of some rows of two heads; a peer that is not installed, does not take the change,
is wrong or compiles for too long is left out, with the reason. Times are of whole calls one behind the other, by CUDA
events, all ways in turns; medians count.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.measure.peers import Way, beside
from benchmarks.measure.scripts import end_with
from benchmarks.measure.sequences import ALLOWED, SEED, record_in_turns, rows_of
from benchmarks.measure.turns import Rows
from hw4cli.lab.packages import function_of
from hw4cli.problem.workload import BFLOAT16, Workload

CHECKED_ROWS, CAP, KEPT = 64, 30.0, 0.8
PLAIN, ALIBI, SOFTCAP, BIAS, MASK = "plain", "alibi", "softcap", "bias", "mask"
CHANGES = ALIBI, SOFTCAP, BIAS, MASK


class Case(NamedTuple):
    """Sizes, a change of the scores, and whether it is causal."""

    sizes: tuple[int, int, int, int]  # batch, heads, N, d
    change: str
    causal: bool = False

    @property
    def work(self) -> Workload:
        """Without the change."""
        return Workload.square(BFLOAT16, *self.sizes, causal=self.causal)


SIZES = (
    ((2, 16, 8192, 128), False),
    ((2, 16, 8192, 128), True),
    ((2, 32, 8192, 64), False),
    ((8, 12, 1024, 64), True),
)
CASES = tuple(Case(sizes, change, causal) for sizes, causal in SIZES for change in CHANGES)


class Tensors:
    """Those of a case, and functions of ours."""

    def __init__(self, case: Case) -> None:
        import torch

        self.torch, self.case = torch, case
        batch, heads, N, d = case.sizes
        torch.manual_seed(SEED)
        draw = {"device": "cuda", "dtype": torch.bfloat16}
        self.q, self.k, self.v, self.do = (torch.randn(batch, heads, N, d, **draw) for _ in range(4))
        self.slopes = 2.0 ** -torch.arange(1, heads + 1, device="cuda", dtype=torch.float32)
        self.bias: Any = torch.randn(1, heads, N, N, **draw) if case.change == BIAS else None
        self.mask: Any = torch.rand(1, 1, N, N, device="cuda") < KEPT if case.change == MASK else None

    def ours(self, change: str) -> tuple[Way, Way]:
        """A call, and one of its gradients, with this change."""
        from hw4cli import attention, attention_backward

        asked: dict[str, Any] = {
            **{"causal": self.case.causal},
            **{
                PLAIN: {},
                ALIBI: {"alibi_slopes": self.slopes},
                SOFTCAP: {"softcap": CAP},
                BIAS: {"attn_mask": self.bias},
                MASK: {"attn_mask": self.mask},
            }[change],
        }
        o, lse = attention(self.q, self.k, self.v, return_lse=True, **asked)
        return (
            lambda: attention(self.q, self.k, self.v, **asked),
            lambda: attention_backward(self.do, self.q, self.k, self.v, o, lse, **asked),
        )

    def by_autograd(self, forward: Callable[..., Any]) -> tuple[Way, Way]:
        """A call of a function of Q, K and V that torch differentiates, and its gradients."""
        torch = self.torch
        leaves = [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]
        o = forward(*leaves)

        def call() -> Any:
            with torch.no_grad():
                return forward(self.q, self.k, self.v)

        return call, lambda: torch.autograd.grad(o, leaves, self.do, retain_graph=True)

    def seen(self) -> Any:
        """The pairs that count, by the mask and the order of the rows: (N, N), torch.bool."""
        N, torch = self.case.sizes[2], self.torch
        pairs = torch.ones(N, N, device="cuda", dtype=torch.bool) if self.mask is None else self.mask[0, 0]
        return pairs.tril() if self.case.causal else pairs

    def check(self, o: Any, gradients: Any) -> None:
        """Raise RuntimeError unless O and dQ of some rows of two heads are near float64's."""
        torch, (_, heads, N, d), change = self.torch, self.case.sizes, self.case.change
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


def fa4(tensors: Tensors) -> tuple[Way, Way]:
    """FlashAttention 4, by functions in CUTLASS's DSL. MachineError where it is not installed."""
    function = function_of("flash-attn-4")
    from benchmarks.measure import score_functions as changes

    torch, change, asked = tensors.torch, tensors.case.change, dict[str, Any](causal=tensors.case.causal)
    if change == SOFTCAP:
        asked["softcap"] = CAP
    elif change == ALIBI:
        asked |= {"score_mod": changes.alibi, "score_mod_bwd": changes.as_it_is}
    elif change == BIAS:
        asked |= {"score_mod": changes.bias, "score_mod_bwd": changes.as_it_is, "aux_tensors": [tensors.bias[0]]}
    else:
        # Its tiles of 192 rows ask for pairs behind the last row, too.
        pairs = torch.nn.functional.pad(tensors.seen().to(torch.uint8), (0, 0, 0, 256))
        asked = {"mask_mod": changes.mask, "aux_tensors": [pairs]}

    def forward(*rows: Any) -> Any:
        found = function(*(x.transpose(1, 2) for x in rows), **asked)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return tensors.by_autograd(forward)


def flex(tensors: Tensors) -> tuple[Way, Way]:
    """torch's FlexAttention, compiled, with a mask of blocks where pairs are left out."""
    from torch.nn.attention.flex_attention import create_block_mask

    torch, case, slopes, bias = tensors.torch, tensors.case, tensors.slopes, tensors.bias
    scores: dict[str, Callable[..., Any]] = {
        ALIBI: lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(),
        SOFTCAP: lambda s, b, h, i, j: CAP * torch.tanh(s / CAP),
        BIAS: lambda s, b, h, i, j: s + bias[0, h, i, j],
    }
    asked: dict[str, Any] = {"score_mod": scores.get(case.change)}
    if case.causal or case.change == MASK:
        N, seen = case.sizes[2], tensors.seen()
        pairs = (lambda b, h, i, j: seen[i, j]) if case.change == MASK else (lambda b, h, i, j: i >= j)
        asked["block_mask"] = create_block_mask(pairs, None, None, N, N)
    compiled = torch.compile(function_of("flex"), dynamic=False)
    return tensors.by_autograd(lambda q, k, v: compiled(q, k, v, **asked))


def torchs(backend: str) -> Callable[[Tensors], tuple[Way, Way]]:
    """torch's attention by a backend, which takes a bias or a mask, and no other mask beside it."""

    def peer(tensors: Tensors) -> tuple[Way, Way]:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        mask = tensors.bias if tensors.case.change == BIAS else tensors.mask

        def forward(q: Any, k: Any, v: Any) -> Any:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return scaled_dot_product_attention(q, k, v, attn_mask=mask)

        return tensors.by_autograd(forward)

    return peer


PEERS = {"fa4": fa4, "flex": flex}
OF_MASKS = {"torch cudnn": torchs("CUDNN_ATTENTION"), "efficient": torchs("EFFICIENT_ATTENTION")}


def prepare(case: Case) -> Callable[[], Rows]:
    """What times a case: its rows, forward and backward."""
    tensors = Tensors(case)
    ours = tensors.ours(case.change)
    tensors.check(ours[0](), ours[1]())
    takes_a_mask = case.change in (BIAS, MASK) and not case.causal
    peers, absent = beside(tensors, tensors.check, PEERS | (OF_MASKS if takes_a_mask else {}))
    ways = {"hw4": ours, "hw4 plain": tensors.ours(PLAIN), **peers}
    facts = {"sizes": case.sizes, "change": case.change, "causal": case.causal, "dtype": BFLOAT16}
    said = f"{case.sizes}, {case.change}, causal={case.causal}"
    return rows_of(tensors.torch, ways, case.work.flops, facts, absent, said)


def main() -> None:
    """All cases."""
    record_in_turns(__doc__ or "", "scores", prepare, CASES)


if __name__ == "__main__":
    end_with(main)
