"""Attention of Hugging Face's models, as an implementation that their library finds by its name.

Their models hand on a mask of (batch, keys) where a batch is padded, for implementations whose masks are made by
`flash_attention_mask`. It becomes lengths, once for all layers.
"""

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hw4cli.arrays.autograd.attention import attention
from hw4cli.arrays.sequences import LEFT, RIGHT, Numbers
from hw4cli.errors import MachineError
from hw4cli.problem.workload import BOTTOM_RIGHT

# What models ask for beside the mask, by the names of their arguments.
NOT_SUPPORTED = {"softcap": "softcap", "position_bias": "a bias of positions", "s_aux": "attention sinks"}


def register_in_transformers(name: str = "hw4") -> None:
    """From now on models of Hugging Face's transformers (4.48 and later) that are loaded, or set, with
    attn_implementation=NAME compute attention by hw4cli.torch.attention, padded batches included.

    Raises MachineError where transformers is not installed, or too old.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import flash_attention_mask
    except ImportError as error:
        raise MachineError(
            f"transformers with AttentionInterface is not installed here ({error}): pip install -U transformers"
        ) from None
    AttentionInterface.register(name, attention_of_model)
    AttentionMaskInterface.register(name, flash_attention_mask)


def attention_of_model(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """O as (batch, N, heads, d), as transformers' AttentionInterface wants it, of (batch, heads, N, d); no weights.

    Raises ValueError for dropout, scores that are changed, and masks that are none of padding on one side.
    """
    for argument, what in NOT_SUPPORTED.items():
        if options.get(argument) is not None:
            raise ValueError(f"the model asks for {what}, which is not supported: set another attn_implementation")
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    asked: dict[str, Any] = {"dropout_p": dropout, "scale": scaling, "enable_gqa": True, "align": BOTTOM_RIGHT}
    window = options.get("sliding_window")
    if window is not None:  # keys back, the own one among them
        asked["window"] = (window - 1, window - 1)
    if attention_mask is not None:
        lengths, padding = _lengths_of(attention_mask, key.shape[2])
        rows = tuple(min(length, query.shape[2]) for length in lengths)
        asked |= {"lengths": lengths, "q_lengths": rows, "padding": padding}
    o = attention(query, key, value, is_causal=causal and query.shape[2] > 1, **asked)
    return o.transpose(1, 2).contiguous(), None


class _Seen(NamedTuple):
    """A mask whose lengths are known: the layers of a model get the same one."""

    mask: Any  # a weak reference
    version: int
    keys: int
    found: tuple[Numbers, str]


_LAST: list[_Seen] = []


def _lengths_of(mask: Tensor, keys: int) -> tuple[Numbers, str]:
    """How many keys each batch has, and on which side the padding lies. Waits for a GPU, once for a mask."""
    for seen in _LAST:
        if seen.mask() is mask and (seen.version, seen.keys) == (mask._version, keys):
            return seen.found
    if mask.dim() != 2:
        shape = tuple(mask.shape)
        raise ValueError(f"the mask is {shape}: give one of padding, (batch, keys), or set another attn_implementation")
    seen_keys = torch.nn.functional.pad(mask.bool(), (0, keys - mask.shape[1]))  # keys for which there is but room
    lengths = seen_keys.sum(1, keepdim=True)
    numbers = torch.arange(keys, device=mask.device)
    right, left = (seen_keys == (numbers < lengths)).all(), (seen_keys == (numbers >= keys - lengths)).all()
    sides = torch.stack([right, left]).tolist()
    if not any(sides):
        raise ValueError("the mask hides keys between others: padding must lie on one side, the same of all batches")
    found = tuple(lengths[:, 0].tolist()), RIGHT if sides[0] else LEFT
    _LAST[:] = [_Seen(weakref.ref(mask), mask._version, keys, found)]
    return found
