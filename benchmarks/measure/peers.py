"""The peers of records of whole calls: packed sequences and windows of keys by others' functions, a call and its
gradients each, and what becomes of those that are not installed, cannot, are wrong or compile for too long.

cuDNN is asked by its own package, cudnn-frontend: torch's scaled_dot_product_attention has neither. Gradients are
computed by torch's autograd, but for FlashAttention 2, whose functions torch has.
"""

import importlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple, TypeVar

from hw4cli.errors import first_line
from hw4cli.lab.packages import function_of

Way = Callable[[], Any]
Ways = dict[str, tuple[Way, Way]]
Check = Callable[[Any, Any], None]
Asked = TypeVar("Asked")
WHOLE = (-1, -1)  # a window's sides, in FlashAttention's words for all keys
LIMIT = 90  # seconds that all peers together may compile a case


class Call(NamedTuple):
    """Tensors (batch, N, heads, d), or (tokens, heads, d) of packed sequences that begin at `starts`, the last of which
    is the end of all; whether keys behind a row's place are left out, and a window's sides."""

    q: Any
    k: Any
    v: Any
    do: Any
    causal: bool
    window: tuple[int, int] | None = None
    starts: tuple[int, ...] = ()

    @property
    def longest(self) -> int:
        """Rows of the longest sequence."""
        if not self.starts:
            return int(self.q.shape[1])
        return max(end - begin for begin, end in zip(self.starts, self.starts[1:], strict=False))

    @property
    def sides(self) -> tuple[int, int]:
        """The window's sides, to the right as the mask leaves them."""
        left, right = self.window or WHOLE
        return left, 0 if self.causal and self.window else right

    def begins(self) -> Any:
        """The starts on the GPU."""
        import torch

        return torch.tensor(self.starts, device=self.q.device, dtype=torch.int32)

    def leaves(self) -> tuple[Any, Any, Any]:
        """Q, K and V whose gradients are asked for."""
        q, k, v = (x.detach().requires_grad_() for x in (self.q, self.k, self.v))
        return q, k, v

    def by_autograd(self, forward: Callable[..., Any]) -> tuple[Way, Way]:
        """A call of a function of Q, K and V that torch differentiates, and its gradients."""
        import torch

        leaves = self.leaves()
        o = forward(*leaves)

        def call() -> Any:
            with torch.no_grad():
                return forward(self.q, self.k, self.v)

        return call, lambda: torch.autograd.grad(o, leaves, self.do, retain_graph=True)


def fa2(call: Call) -> tuple[Way, Way]:
    """torch's FlashAttention 2, without what torch does around it."""
    import torch

    aten, most = torch.ops.aten, call.longest
    starts = call.begins() if call.starts else None
    sizes = (starts, starts, most, most, 0.0, call.causal)
    left, right = call.sides
    window = {"window_size_left": left, "window_size_right": right} if call.window else {}
    tensors = call.q, call.k, call.v
    o, lse, seed, offset, _ = aten._flash_attention_forward(*tensors, *sizes, False, **window)
    return (
        lambda: aten._flash_attention_forward(*tensors, *sizes, False, **window)[0],
        lambda: aten._flash_attention_backward(call.do, *tensors, o, lse, *sizes, seed, offset, **window),
    )


def fa4(call: Call) -> tuple[Way, Way]:
    """FlashAttention 4. MachineError where it is not installed."""
    function_of("flash-attn-4")
    module = importlib.import_module("flash_attn.cute")
    asked: dict[str, Any] = {"causal": call.causal}
    if call.window:
        asked["window_size"] = call.sides
    if call.starts:
        starts, most = call.begins(), call.longest
        asked |= {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": most, "max_seqlen_k": most}
    function = module.flash_attn_varlen_func if call.starts else module.flash_attn_func

    def forward(q: Any, k: Any, v: Any) -> Any:
        found = function(q, k, v, **asked)
        return found[0] if isinstance(found, tuple) else found

    return call.by_autograd(forward)


def cudnn(call: Call) -> tuple[Way, Way]:
    """cuDNN by cudnn-frontend. MachineError where it is not installed. Its left side counts a row's own key, too."""
    import torch

    function = function_of("cudnn-frontend")
    left, right = call.sides
    asked: dict[str, Any] = {"is_causal": call.causal}
    if call.window:
        asked |= {"window_left": left + 1, "window_right": -1 if call.causal else right}
    if call.starts:
        starts, most = call.begins(), call.longest
        asked |= {"cu_seqlens_q": starts, "cu_seqlens_kv": starts, "max_seqlen_q": most, "max_seqlen_kv": most}

    def forward(q: Any, k: Any, v: Any) -> Any:
        if not call.starts:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if torch.is_grad_enabled():
            o, _ = function(q, k, v, return_lse=True, **asked)
        else:
            o = function(q, k, v, **asked)
        return o if call.starts else o.transpose(1, 2)

    return call.by_autograd(forward)


def cudnn_flex(call: Call) -> tuple[Way, Way]:
    """cudnn-frontend's own kernels of intervals of keys. MachineError where it is not installed."""
    import torch

    function = function_of("cudnn-flex")
    module = importlib.import_module("cudnn.flex_attention")
    (left, right), device = call.sides, call.q.device

    def intervals(rows: int) -> Any:
        """The ends of what a sequence's rows see, from 0 to the first and from the second to the third."""
        row = torch.arange(rows, dtype=torch.int32, device=device)
        last = torch.full_like(row, rows) if right < 0 else (row + 1 + right).clip(max=rows)
        last = row + 1 if call.causal else last
        return torch.stack([last] if left < 0 else [torch.zeros_like(row), (row - left).clip(0), last])

    between = zip(call.starts, call.starts[1:], strict=False)
    lengths = [end - begin for begin, end in between] or [call.q.shape[1]] * len(call.q)
    mask = torch.cat([intervals(length) for length in lengths], 1)[None]
    asked: dict[str, Any] = {}
    if call.starts:
        starts, most = call.begins(), call.longest
        asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": most, "max_seqlen_k": most}
    with redirect_stdout(sys.stderr):  # it prints what it compiles
        plan = module.create_mask_plan(mask, *call.leaves(), **asked)
    return call.by_autograd(lambda q, k, v: function(q, k, v, mask_plan=plan))


def flex(call: Call) -> tuple[Way, Way]:
    """torch's FlexAttention, compiled, with a mask of blocks; of packed sequences one of all tokens."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    device, causal, (left, right) = call.q.device, call.causal, call.sides
    total = call.starts[-1] if call.starts else call.q.shape[1]
    lengths = torch.tensor([end - begin for begin, end in zip(call.starts, call.starts[1:], strict=False)])
    of = torch.repeat_interleave(lengths).to(device) if call.starts else torch.zeros(total, dtype=int, device=device)

    def seen(b: Any, h: Any, row: Any, key: Any) -> Any:
        same = of[row] == of[key]
        if causal:
            same = same & (key <= row)
        if left >= 0:
            same = same & (key >= row - left)
        if right >= 0:
            same = same & (key <= row + right)
        return same

    masked = causal or call.window or call.starts
    torch._dynamo.reset()  # or beyond a number of geometries it would run without having been compiled
    mask = create_block_mask(seen, None, None, total, total, device=device, _compile=True) if masked else None
    compiled = torch.compile(function_of("flex"), dynamic=False)
    shared = call.q.shape[-2] != call.k.shape[-2]

    def forward(q: Any, k: Any, v: Any) -> Any:
        rows = ((x[None] if call.starts else x).transpose(1, 2) for x in (q, k, v))
        o = compiled(*rows, block_mask=mask, enable_gqa=shared).transpose(1, 2)
        return o[0] if call.starts else o

    return call.by_autograd(forward)


PEERS: dict[str, Callable[[Call], tuple[Way, Way]]] = {
    "fa2": fa2,
    "fa4": fa4,
    "cudnn": cudnn,
    "cudnn flex": cudnn_flex,
    "flex": flex,
}


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer, of the main thread: between two steps of Python's."""

    def end(*_: object) -> None:
        raise TimeoutError(f"it is not compiled in the {LIMIT:g} s that all peers of a case have")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))  # of 0 there would be no end
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def beside(
    asked: Asked, check: Check, peers: Mapping[str, Callable[[Asked], tuple[Way, Way]]]
) -> tuple[Ways, dict[str, str]]:
    """Each peer's call and gradients, its answer checked; and of those that are missing the reason: what is not
    installed here, does not take the call, is wrong, or compiles for too long."""
    ways, absent, end = Ways(), dict[str, str](), time.monotonic() + LIMIT
    for name, peer in peers.items():
        try:
            with limited(end - time.monotonic()):
                found = peer(asked)
                check(found[0](), found[1]())
        except Exception as error:  # whatever somebody's package raises
            absent[name] = first_line(error)
        else:
            ways[name] = found
    return ways, absent
