"""What the operators of plain attention do not carry: sequences of several lengths, padded and packed, and scores that
are changed, with gradients for query, key, value and an additive mask.

Lengths are numbers, by which launches are planned, and expressions are texts, for which kernels are compiled. Eager
calls come here; in a graph of torch.compile there are the operators of changed.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from hw4cli.arrays.attention import attention
from hw4cli.arrays.autograd.oncpu import array_of, backward_of_float64, forward_of_float64
from hw4cli.arrays.autograd.operators import Underivable, readable, refuse_forward_mode, turned
from hw4cli.arrays.gradients.backward import attention_backward
from hw4cli.arrays.scored import Words

Options = dict[str, Any]
MASK, SLOPES, ARRAYS = "attn_mask", "alibi_slopes", "arrays"  # arguments of hw4cli.attention that are tensors
LENGTHS = "lengths", "q_lengths", "padding", "cu_seqlens_q", "cu_seqlens_k"


class _Call(NamedTuple):
    """The arguments of hw4cli.attention that are no tensors; and those that are, beside an additive mask, by the
    argument and, of `arrays`, the name."""

    options: Options
    names: tuple[tuple[str, str], ...]

    def asked(self, tensors: Sequence[Any]) -> Options:
        """All of them, with arrays in the place of the tensors."""
        found, arrays = dict(self.options), {}
        for (argument, name), x in zip(self.names, tensors, strict=True):
            if argument == ARRAYS:
                arrays[name] = x
            else:
                found[argument] = x
        return found | ({ARRAYS: arrays} if arrays else {})


def attend(q: Tensor, k: Tensor, v: Tensor, options: Options, words: Words | None = None) -> Tensor:
    """O of q (batch, heads, Nq, d), k and v (batch, kv_heads, Nk, d), or, where cu_seqlens are among the options, of
    tensors without a batch. The options, and what changes scores, are arguments of hw4cli.attention, which checks them.

    Raises TypeError or ValueError for arrays that are no tensors beside q, or require a gradient."""
    words = words or Words()
    check(q, words)
    call, tensors = _with(options, words)
    mask = words.attn_mask
    if mask is not None and mask.is_floating_point():
        call, tensors = call._replace(names=call.names[:-1]), tensors[:-1]
    else:
        mask = None
    o: Tensor = _Direct.apply(q, k, v, mask, call, *tensors)[0]
    return o


def forward(
    q: Tensor, k: Tensor, v: Tensor, options: Options, words: Words, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """O and the LSE, of arguments that the checks of `attend` have passed; `mask`: one that is not among the words."""
    call, tensors = _with(options, words)
    return _Direct.forward(q, k, v, mask, call, *tensors)


def gradients(
    tensors: Sequence[Tensor], options: Options, words: Words, mask: Tensor | None, of_mask: bool
) -> tuple[Tensor, ...]:
    """dQ, dK and dV for dO, q, k, v, O and the LSE of such a call; and, if it is wanted, the mask's gradient."""
    (do, *others), (call, beside) = tensors, _with(options, words)
    return _Gradients.forward(do, call, of_mask, *others, mask, *beside)


def derive(tensors: Sequence[Tensor], options: Options, words: Words, of_mask: bool = False) -> tuple[Tensor, ...]:
    """dQ, dK and dV for dO, q, k, v, O and the LSE of such a call; and, if it is wanted, the mask's gradient."""
    mask, words = (words.attn_mask, words._replace(attn_mask=None)) if of_mask else (None, words)
    (do, *others), (call, beside) = tensors, _with(options, words)
    found: tuple[Tensor, ...] = _Gradients.apply(do, call, of_mask, *others, mask, *beside)
    return found


def _with(options: Options, words: Words) -> tuple[_Call, tuple[Any, ...]]:
    """A call with options and words, and its tensors, of which a mask is the last."""
    named: dict[tuple[str, str], Any] = {(ARRAYS, name): x for name, x in (words.arrays or {}).items()}
    named |= {(name, name): x for name in (SLOPES, MASK) if (x := getattr(words, name)) is not None}
    plain = {name: getattr(words, name) for name in ("score", "keep", "softcap")}
    return _Call({**options, **plain}, tuple(named)), tuple(named.values())


def check(q: Tensor, words: Words) -> None:
    """Raise TypeError or ValueError for arrays that are no tensors beside q, or require a gradient."""
    if words.arrays is not None and not isinstance(words.arrays, Mapping):
        raise TypeError(f"arrays is a {type(words.arrays).__name__}: give a dictionary of names and tensors")
    for name, x in (words.arrays or {}).items():
        _check(f"{ARRAYS}[{name!r}]", x, q)
    for name in (SLOPES, MASK):
        if (given := getattr(words, name)) is not None:
            _check(name, given, q)


def _check(name: str, x: Any, q: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}: give a tensor of torch")
    if x.device != q.device:
        raise ValueError(f"query is on {q.device}, {name} on {x.device}: bring them together")
    if name != MASK and x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires a gradient, which is that of an attn_mask alone: give {name}.detach()")


class _Direct(torch.autograd.Function):  # type: ignore[misc]
    """Attention, and its derivative."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, call: _Call, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """O and the LSE."""
        layout, arrays = _as_arrays((q, k, v))
        asked = call.asked(_beside(tensors)) | ({} if mask is None else {MASK: _beside((mask,))[0]})
        if _is_wide(q, asked):
            o, lse = forward_of_float64(*arrays, **asked)
        else:
            o, lse = attention(*arrays, layout=layout, return_lse=True, **asked)
        return _as_tensor(o, layout, q), torch.as_tensor(lse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        q, k, v, mask, ctx.call, *tensors = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, *output, mask, *tensors)

    @staticmethod
    def backward(ctx: Any, do: Tensor, _: Any) -> tuple[Any, ...]:
        """dQ, dK, dV and the mask's gradient."""
        is_wanted, saved = ctx.needs_input_grad[3], ctx.saved_tensors
        found = _Gradients.apply(do, ctx.call, is_wanted, *saved)
        dmask = found[3] if is_wanted else None
        return (*found[:3], dmask, *[None] * (len(saved) - 5))

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode()

    @staticmethod
    def vmap(*_: Any) -> Any:
        refuse_vmap()


class _Gradients(Underivable):
    """The gradients, which have no derivative."""

    @staticmethod
    def forward(
        do: Tensor,
        call: _Call,
        is_wanted: bool,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        lse: Tensor,
        mask: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """dQ, dK and dV, and, if it is wanted, that of the mask."""
        layout, (of_q, of_do, *others) = _as_arrays((q, do, k, v, o))
        asked = call.asked(_beside(tensors))
        asked |= {} if mask is None else {MASK: _beside((mask,))[0]}
        asked |= {"mask_gradient": True} if is_wanted else {}
        arrays = of_do, of_q, *others, lse if lse.is_cuda else lse.numpy()
        del asked["kernel"]
        if _is_wide(q, asked):
            made = backward_of_float64(*arrays, **asked)
        else:
            made = attention_backward(*arrays, layout=layout, **asked)
        found = [_as_tensor(x, layout, like) for x, like in zip(made[:3], (q, k, v), strict=True)]
        if mask is not None and is_wanted:
            found.append(_as_tensor(made[3], "BHND", mask))
        return tuple(found)

    @staticmethod
    def vmap(*_: Any) -> Any:
        refuse_vmap()


def refuse_vmap() -> NoReturn:
    """Raise NotImplementedError."""
    raise NotImplementedError(
        "attention with lengths, a mask or changed scores is not mapped over by vmap: give tensors with that dimension"
    )


def _is_wide(q: Tensor, asked: Options) -> bool:
    """Whether this is float64 on the CPU, of whole tensors: for gradcheck."""
    return q.dtype == torch.float64 and not q.is_cuda and not any(asked.get(name) is not None for name in LENGTHS)


def _beside(tensors: Sequence[Tensor]) -> list[Any]:
    """Tensors beside query, key and value, as hw4cli.attention takes them."""
    return [x.detach().resolve_neg() if x.is_cuda else array_of(x) for x in tensors]


def _as_arrays(tensors: tuple[Tensor, ...]) -> tuple[str, list[Any]]:
    """The layout of the first one, and all as hw4cli.attention takes them: on the CPU it computes NumPy's arrays."""
    if tensors[0].is_cuda:
        return readable(tensors)
    return "BHND", list(map(array_of, tensors))


def _as_tensor(x: Any, layout: str, like: Tensor) -> Tensor:
    """What was computed as a tensor of the type of another one, turned back from the layout."""
    return turned(x, layout) if like.is_cuda else torch.from_numpy(x).to(like.dtype)
