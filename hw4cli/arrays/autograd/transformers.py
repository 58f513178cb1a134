"""Attention of Hugging Face's models, as an implementation that their library finds by its name.

A mask that is causal, a window, or none, and a batch that is padded on one side, are not made into masks: models hand
on what hides padding, (batch, keys), which becomes lengths, once for all layers. All other masks are those that torch's
scaled_dot_product_attention gets, of four dimensions.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hw4cli.arrays.autograd.attention import attention
from hw4cli.arrays.autograd.eager import is_compiling
from hw4cli.arrays.sequences import LEFT, RIGHT, Numbers
from hw4cli.errors import MachineError
from hw4cli.problem.workload import BOTTOM_RIGHT

# What models ask for beside the mask, by the names of their arguments.
NOT_SUPPORTED = {"s_aux": "attention sinks"}
# The functions of transformers' masks that an implementation is asked for by is_causal and sliding_window, too.
PLAIN = {
    "causal_mask_function",
    "bidirectional_mask_function",
    "sliding_window_overlay.<locals>.inner_mask",
    "sliding_window_bidirectional_overlay.<locals>.inner_mask",
}

# Types of models that say that they work with FlashAttention, but of no layer that it is causal.
SILENT = {"pegasus_x"}


def register_in_transformers(name: str = "hw4") -> None:
    """From now on models of Hugging Face's transformers (4.48 and later) that are loaded, or set, with
    attn_implementation=NAME compute attention by hw4cli.torch.attention, padded batches included.

    Raises MachineError where transformers is not installed, or too old.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import eager_mask, flash_attention_mask, sdpa_mask
    except ImportError as error:
        raise MachineError(
            f"transformers with AttentionInterface is not installed here ({error}): pip install -U transformers"
        ) from None

    def mask_of_model(*arguments: Any, **options: Any) -> Tensor | None:
        if _is_plain(**options) and _leaves_masks(**options):
            if is_compiling():  # where nobody asks whether there is padding in it
                return _of_keys(**options)
            of_padding: Tensor | None = flash_attention_mask(*arguments, **options)
            return None if of_padding is None else _with_version(of_padding)
        if is_compiling():
            options = _from_first_key(**options)
        # Whether a mask may be left out is decided by what torch's attention does without one.
        whole: Tensor | None = (eager_mask if _adds_masks(**options) else sdpa_mask)(
            *arguments, **{**options, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        )
        return whole

    AttentionInterface.register(name, attention_of_model)
    AttentionMaskInterface.register(name, mask_of_model)


def _is_plain(
    *,
    q_length: int = 0,
    kv_length: int = 0,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> bool:
    """Whether a mask is known without one: causal, a window, or none, with padding that the model hands on; the last
    row sees the last key."""
    if not _is_known(mask_function):
        return False
    if attention_mask is not None:  # whose keys are all that there are yet
        return True
    return not isinstance(q_offset, Tensor) and q_offset + q_length == kv_offset + kv_length


def _is_known(function: Any) -> bool:
    """Whether a mask's function is of those that are PLAIN, or put together of them, if all of them must be true: of
    what it is put together, a graph of torch.compile does not tell."""
    name = getattr(function, "__qualname__", "?")
    if name != "and_masks.<locals>.and_mask" or is_compiling():
        return any(name == plain for plain in PLAIN)
    return all(_is_known(part) for cell in function.__closure__ for part in cell.cell_contents)


def _leaves_masks(
    *,
    config: Any = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = True,
    **_: Any,
) -> bool:
    """Whether a model leaves it to attention what a plain mask is: of a mask of four dimensions it reads nothing, and
    of each layer it says whether that is causal. Models that work with FlashAttention do, and those that work with
    torch's attention, if they let masks be left out."""
    if config is None:  # transformers before 4.53
        return True
    if getattr(config, "model_type", "") in SILENT:
        return False
    of_flash, of_torch = _supported(type(config))
    return of_flash or (of_torch and allow_is_causal_skip and allow_is_bidirectional_skip)


def _adds_masks(*, config: Any = None, **_: Any) -> bool:
    """Whether a model works with its own attention alone, which some of its layers may keep: to scores masks are
    added there."""
    return config is not None and _supported(type(config)) == (False, False)


_SUPPORTED: dict[type, tuple[bool, bool]] = {}  # by hand: torch.compile warns of functools.cache


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _supported(config: type) -> tuple[bool, bool]:
    """Whether a model of a kind of configuration says that it works with FlashAttention, and with torch's attention."""
    if config not in _SUPPORTED:
        from transformers import PreTrainedModel

        models, kinds = [], [PreTrainedModel]
        while kinds:
            kinds += (kind := kinds.pop()).__subclasses__()
            models += [kind] if getattr(kind, "config_class", None) is config else []
        names = ("_supports_flash_attn", "_supports_flash_attn_2"), ("_supports_sdpa",)
        of_flash, of_torch = (any(getattr(model, name, False) for model in models for name in some) for some in names)
        _SUPPORTED[config] = of_flash, of_torch
    return _SUPPORTED[config]


def _of_keys(*, kv_length: int, attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
    """What hides padding, of the last so many keys."""
    return None if attention_mask is None else attention_mask[:, -kv_length:]


def _from_first_key(
    *, kv_length: int = 0, q_offset: Any = 0, kv_offset: Any = 0, attention_mask: Tensor | None = None, **others: Any
) -> dict[str, Any]:
    """A mask's arguments, with rows and keys counted from the first of these keys where what hides padding is of them
    alone: generate() has had it cut for a plain mask, of which a graph does not tell that it is one."""
    if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.shape[1] == kv_length:
        q_offset, kv_offset = q_offset - kv_offset, 0
    offsets = {"kv_length": kv_length, "q_offset": q_offset, "kv_offset": kv_offset}
    return {**others, **offsets, "attention_mask": attention_mask}


def attention_of_model(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """O as (batch, N, heads, d), as transformers' AttentionInterface wants it, of (batch, heads, N, d); no weights.

    `attention_mask`: of padding, (batch, keys), true or 1 for what is none; or of four dimensions, which broadcast,
    boolean or added to the scores, and then all that there is of a mask. `position_bias` is added to the scores.

    Raises ValueError for dropout and attention sinks.
    """
    for argument, what in NOT_SUPPORTED.items():
        if options.get(argument) is not None:
            raise ValueError(f"the model asks for {what}, which is not supported: set another attn_implementation")
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    asked: dict[str, Any] = {"dropout_p": dropout, "scale": scaling, "enable_gqa": True, "align": BOTTOM_RIGHT}
    window = options.get("sliding_window")
    if softcap is not None:
        asked["softcap"] = softcap
    bias = position_bias
    if attention_mask is not None and attention_mask.dim() == 4:
        causal, window = False, None
        mask = attention_mask[..., : key.shape[2]]
        if bias is None or mask.is_floating_point():
            bias = mask if bias is None else bias[..., : key.shape[2]] + mask
        else:  # an index that leaves an array is its last one: so what has one element there is broadcast
            asked |= {"keep": "mask[b, h, i, j]", "arrays": {"mask": mask.bool()}}
    elif attention_mask is not None:
        keys = attention_mask.shape[1]
        key, value = key[:, :, :keys], value[:, :, :keys]  # a cache may have room for more
        found = None if is_compiling() else _lengths_of(attention_mask)  # numbers, for which a graph would be left
        if found is None or (bias is not None and found[1] == LEFT):
            asked |= {"keep": "seen[b, j]", "arrays": {"seen": attention_mask.bool()}}
        else:
            lengths, padding = found
            asked |= {"lengths": lengths, "padding": padding}
            if causal or window is not None:  # rows are those of the keys: else they may be another sequence's
                asked["q_lengths"] = tuple(min(length, query.shape[2]) for length in lengths)
    if bias is not None:
        asked["attn_mask"] = bias[..., : key.shape[2]]
    if window is not None:  # keys back, the own one among them
        asked["window"] = (window - 1, window - 1)
    o = attention(query, key, value, is_causal=causal and query.shape[2] > 1, **asked)
    return o.transpose(1, 2).contiguous(), None


def _with_version(mask: Tensor) -> Tensor:
    """A mask that counts its changes, so that what was read of it may be known to the next layer: in inference mode a
    copy."""
    if not mask.is_inference():
        return mask
    with torch.inference_mode(False):
        return mask.clone()


class _Seen(NamedTuple):
    """A mask whose lengths are known: the layers of a model get the same one."""

    mask: Any  # a weak reference
    version: int
    found: tuple[Numbers, str] | None


_LAST: list[_Seen] = []


def _lengths_of(mask: Tensor) -> tuple[Numbers, str] | None:
    """How many keys each batch has, and on which side the padding lies; None where it lies on neither, or on one of
    some batches and on the other of others. Waits for a GPU, once for a mask that counts its changes."""
    version = None if mask.is_inference() else mask._version
    for seen in _LAST:
        if seen.mask() is mask and seen.version == version:
            return seen.found
    if mask.dim() != 2:
        raise ValueError(f"the mask is {tuple(mask.shape)}: give one of padding, (batch, keys), or of four dimensions")
    keys, seen_keys = mask.shape[1], mask.bool()
    lengths = seen_keys.sum(1, keepdim=True)
    numbers = torch.arange(keys, device=mask.device)
    right, left = (seen_keys == (numbers < lengths)).all(), (seen_keys == (numbers >= keys - lengths)).all()
    sides = torch.stack([right, left]).tolist()
    found = (tuple(lengths[:, 0].tolist()), RIGHT if sides[0] else LEFT) if any(sides) else None
    if version is not None:
        _LAST[:] = [_Seen(weakref.ref(mask), version, found)]
    return found
