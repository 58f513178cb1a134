"""Attention of torch's tensors with gradients: the arguments of torch's scaled_dot_product_attention, checked."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Never

import torch
from torch.overrides import handle_torch_function, has_torch_function

from hw4cli.arrays.arguments import check_align, check_flags, checked_number, checked_window, refuse
from hw4cli.arrays.autograd import changed, direct, eager
from hw4cli.arrays.autograd.operators import attend, usual_kernel
from hw4cli.arrays.operand import check_dense, check_dimensions
from hw4cli.arrays.scored import Words
from hw4cli.arrays.sequences import RIGHT, check_packed, check_padding, sequences_of
from hw4cli.arrays.sequences import asked as numbers_asked
from hw4cli.problem.workload import TOP_LEFT

NAMES = "query", "key", "value"


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    align: str = TOP_LEFT,
    window: tuple[int | None, int | None] | None = None,
    kernel: str | None = None,
    lengths: Any = None,
    q_lengths: Any = None,
    padding: str = RIGHT,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    score: str | None = None,
    keep: str | None = None,
    arrays: Any = None,
    softcap: float | None = None,
    alibi_slopes: Any = None,
    **not_supported: Never,
) -> Any:
    """softmax(scale Q Kᵀ) V with gradients, in place of torch.nn.functional.scaled_dot_product_attention.

    query is (..., heads, Nq, d), key (..., kv_heads, Nk, d), value (..., kv_heads, Nk, dv); with enable_gqa heads may
    be a multiple of kv_heads. Dimensions before the rows may broadcast, as in torch. On a GPU elements are float16,
    bfloat16 or float32; d and dv are 1 to 256. On the CPU NumPy computes, float64 too. is_causal: row i sees the keys 0
    to i, as torch has it, or, with align="bottom-right", 0 to i + Nk - Nq. window: (left, right), of how many keys
    before that one, and behind it, row i sees no others, as in hw4cli.attention. scale: 1/sqrt(d) by default.
    `kernel`: of the forward pass, as in hw4cli.attention; by default "auto", and for float32 on a GPU "flash", whose
    errors are float32's own.

    Sequences of several lengths: `lengths` are the numbers of keys of each batch of padded tensors of four dimensions,
    `q_lengths` those of rows, `padding` where the padding lies, "right" or "left"; packed tensors (heads, N, d) have
    cu_seqlens_q and cu_seqlens_k, as in hw4cli.attention. Numbers on a GPU are waited for.

    attn_mask: boolean, true where a row sees a key, or of floating-point numbers that are added to the scores; it
    broadcasts to (..., heads, Nq, Nk), or of packed tensors to (sequences, heads, Nq, Nk) of the longest, goes together
    with all else, and has a gradient where it requires one. score, keep, arrays, softcap and alibi_slopes change scores
    as in hw4cli.attention; they have no gradients.

    The forward pass is hw4cli.attention, the backward pass hw4cli.attention_backward: on the tensors' GPU and torch's
    current stream, with the same bits in every run. It is an operator for torch.compile, torch.autocast, torch.no_grad,
    torch.utils.checkpoint, and torch.func's grad, vjp, jacrev and vmap. Only what the kernels cannot read where it lies
    is copied: rows that do not begin at multiples of 16 bytes, or are none long, and what has been expanded. With a
    mask, changed scores or lengths it is one for torch.compile; vmap refuses it.

    Raises ValueError for dropout_p and shapes, strides or devices that do not fit, TypeError for other
    element types or arguments of other types, MachineError if the GPU cannot do it; NotImplementedError if a
    forward-mode or a second derivative is asked for.

    >>> import torch
    >>> q, k, v = torch.ones(3, 1, 2, 5, 8, requires_grad=True)
    >>> attention(q, k, v, is_causal=True).sum().backward()
    """
    tensors = query, key, value
    given: tuple[Any, ...] | None = None
    beside: tuple[Any, ...] = ()
    if window is not None:
        window = checked_window(window)
    changes: Any = None
    sequences: Any = None
    if not softcap is arrays is score is keep is alibi_slopes is attn_mask is None:
        changes = score, keep, arrays, softcap, alibi_slopes, attn_mask
    if not lengths is q_lengths is cu_seqlens_q is cu_seqlens_k is None:
        sequences = lengths, q_lengths, padding, cu_seqlens_q, cu_seqlens_k
    elif padding != RIGHT:
        check_padding(padding)
    if not not_supported and not eager.is_compiling():
        given = eager.options_of(is_causal, enable_gqa, align, scale, window, kernel, dropout_p)
        if given is not None and not changes is sequences is None:
            given, beside = eager.with_more(query, given, changes, sequences)
        found = None if given is None else eager.repeated(query, key, value, given, *beside)
        if found is not None:
            return found
    words = None if changes is None else Words(*changes)
    asked: dict[str, Any] = {}
    if sequences is not None:
        asked = {"lengths": lengths, "q_lengths": q_lengths, "padding": padding}
        asked |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    if has_torch_function(tensors):  # a tracer's proxy, or a tensor of another kind, which says how it is called
        options: dict[str, Any] = {
            "scale": scale,
            "enable_gqa": enable_gqa,
            "align": align,
            "kernel": kernel,
            **not_supported,
        }
        options |= {} if window is None else {"window": window}
        options |= asked
        options |= {} if words is None else {n: x for n, x in words._asdict().items() if n != "attn_mask"}
        return handle_torch_function(attention, tensors, *tensors, attn_mask, dropout_p, is_causal, **options)
    refuse("attention", not_supported)
    check_flags(is_causal=is_causal, enable_gqa=enable_gqa)
    check_align(align)
    if kernel is not None and not isinstance(kernel, str):
        raise TypeError(f"kernel is {kernel!r}: give the name of one, or None")
    if scale is not None and type(scale) is not float:
        scale = checked_number("scale", scale)
    if checked_number("dropout_p", dropout_p):
        raise ValueError(f"dropout_p is {dropout_p}: there is no dropout here, give 0")
    query, key, value = _alike(query, key, value)
    options = {"causal": bool(is_causal), "align": align, "window": window, "scale": scale}
    if sequences is not None:
        _shape_of_result(query, key, value, enable_gqa)
        if not query.numel() or not key.numel() or not value.numel():
            return _of_empty_sequences(query, key, value, sequences)
        named = kernel or usual_kernel(query)
        options["kernel"] = named
        if _asks_for_operators(query):
            check_padding(padding, lengths, q_lengths)
            return changed.attend(query, key, value, options | asked, words)
        options |= numbers_asked(*sequences).arguments
        if given is None or query is not tensors[0] or key is not tensors[1] or value is not tensors[2]:
            return direct.attend(query, key, value, options, words)
        direct.check(query, words or Words())
        compute = partial(direct.attend, query, key, value, options, words)
        return eager.first(compute, (*tensors, *beside), given, named)
    *leading, Nq, dv = _shape_of_result(query, key, value, enable_gqa)
    q, k, v = _with_four_dimensions((query, key, value), leading)
    shape = (*leading, Nq, dv)[-max(x.dim() for x in tensors) :]
    if not q.numel() or not k.numel() or not v.numel():
        return _of_nothing(q, k, v).reshape(shape)
    named, fits = kernel or usual_kernel(q), True
    if words is None:
        compute = partial(_plain, q, k, v, bool(is_causal), align, scale, *(window or eager.EVERY), named)
    else:
        words = words._replace(attn_mask=_fitting(attn_mask, leading[:-1]))
        fits = words.attn_mask is attn_mask
        way = changed.attend if _asks_for_operators(q) else direct.attend
        compute = partial(way, q, k, v, {**options, "kernel": named}, words)
    if given is None or not fits or q is not tensors[0] or k is not tensors[1] or v is not tensors[2]:
        o = compute()
    else:
        direct.check(q, words or Words())
        o = eager.first(compute, (*tensors, *beside), given, named)
    return o if len(shape) == len(o.shape) else o.reshape(shape)  # which may give an axis of one another stride


def _plain(*arguments: Any) -> Any:
    """O alone."""
    return attend(*arguments)[0]


def _asks_for_operators(q: Any) -> bool:
    """Whether the operators are what is wanted: by a graph, for shapes alone, or by a mode that sees what is called."""
    return bool(eager.is_compiling() or q.is_meta or eager.dispatch_modes())


def _alike(*tensors: Any) -> list[Any]:
    """The tensors, of the element type that autocast asks for. Raises unless all are of one, and on one device."""
    for name, x in zip(NAMES, tensors, strict=True):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}: give a tensor of torch (hw4cli.attention takes others)")
        check_dense(name, x)
        if x.dim() < 2:
            raise ValueError(f"{name} has {x.dim()} dimensions: give (..., heads, N, d)")
    found, kind = list(tensors), tensors[0].device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        found = [x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors]
    for name, x in zip(NAMES[1:], found[1:], strict=True):
        if x.dtype != found[0].dtype:
            raise TypeError(f"query is {_type(found[0])}, {name} {_type(x)}: give one element type")
        if x.device != found[0].device:
            raise ValueError(f"query is on {found[0].device}, {name} on {x.device}: bring them together")
    return found


def _shape_of_result(query: Any, key: Any, value: Any, enable_gqa: bool) -> tuple[int, ...]:
    """(..., heads, Nq, dv) of O, where tensors without heads have one. Raises ValueError where shapes do not fit."""
    shapes = query.shape, key.shape, value.shape
    both = f"{tuple(key.shape)} and {tuple(value.shape)}"
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key differ in d: {tuple(query.shape)} and {tuple(key.shape)}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"key and value differ in rows: {both}")
    if value.shape[-1] and not query.shape[-1]:
        raise ValueError(f"query and value differ in d, and query has no columns: {tuple(query.shape)}")
    heads, kv_heads, value_heads = map(_heads, (query, key, value))
    for name, count in (("key", kv_heads), ("value", value_heads)):
        if enable_gqa and (not count or heads % count) and count != heads:
            raise ValueError(f"query has {heads} heads, which is not a multiple of the {count} of {name}")
        if not enable_gqa and count != heads and 1 not in (count, heads):
            raise ValueError(f"query has {heads} heads, {name} {count}: give enable_gqa=True to share them")
    try:
        batches = torch.broadcast_shapes(*(shape[:-3] for shape in shapes))
        broadcast = torch.broadcast_shapes((kv_heads,), (value_heads,), (heads,))[0] if not enable_gqa else heads
    except RuntimeError:
        all_shapes = ", ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"query, key and value differ in batches or heads: {all_shapes}") from None
    return (*batches, broadcast, query.shape[-2], value.shape[-1])


def _with_four_dimensions(tensors: tuple[Any, ...], leading: list[int]) -> list[Any]:
    """The tensors as (batch, heads, N, d), without a copy where nothing is broadcast: dimensions before the heads are
    one batch. Key and value keep the heads that they have, if these are equally many: kernels share them."""
    *batches, heads = leading
    shared = _heads(tensors[1]) == _heads(tensors[2])
    found = []
    for name, x in zip(NAMES, tensors, strict=True):
        own = _heads(x)
        if name == "query" or not shared:
            x = x if own in (1, heads) else x.repeat_interleave(heads // own, dim=-3)
            own = heads
        shape = *batches, own, *x.shape[-2:]
        x = x if x.shape == shape else x.expand(shape)
        found.append(x if len(batches) == 1 else x.reshape(math.prod(batches), *shape[-3:]))
    return found


def _fitting(mask: Any, batches: list[int]) -> Any:
    """A mask of at least two dimensions, and of no more than four: dimensions before the heads are one batch."""
    if not isinstance(mask, torch.Tensor):
        return mask
    if mask.dim() < 2:
        return mask.expand(1, -1) if mask.dim() else mask.expand(1, 1)
    if mask.dim() < 4 or len(batches) == 1:
        return mask
    try:
        whole = mask if math.prod(mask.shape[:-3]) == 1 else mask.expand(*batches, *mask.shape[-3:])
    except RuntimeError:
        raise ValueError(f"attn_mask has the shape {tuple(mask.shape)}, query the batches {tuple(batches)}") from None
    return whole.reshape(-1, *mask.shape[-3:])


def _heads(x: Any) -> int:
    heads: int = x.shape[-3] if x.dim() > 2 else 1
    return heads


def _of_nothing(query: Any, key: Any, value: Any) -> Any:
    """What there is without batches, heads, rows or keys: zeros like query, whose gradients are zeros, too."""
    none = query[..., :0].sum() + key[..., :0].sum() + value[..., :0].sum()
    return query.new_zeros((*query.shape[:-1], value.shape[-1])) + none


def _of_empty_sequences(query: Any, key: Any, value: Any, given: Sequence[Any]) -> Any:
    """The same of sequences, whose numbers are checked where they can be read."""
    packed = not given[3] is given[4] is None
    for name, x in zip(NAMES, (query, key, value), strict=True):
        (check_packed if packed else check_dimensions)(name, x, "BHND")
    if not _asks_for_operators(query):
        sequences_of(query.shape[0], query.shape[-2], key.shape[-2], numbers_asked(*given))
    return _of_nothing(query, key, value)


def _type(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")
