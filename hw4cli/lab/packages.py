"""Others' attention that comes in packages of its own, or beside torch's backends, as functions of torch's tensors."""

import importlib
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from hw4cli.errors import MachineError, first_line
from hw4cli.lab.cases import ArrayCase
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32

Forward = Callable[..., Any]  # O of torch's Q, K and V (batch, heads, N, d)
Function = Callable[..., Any]  # as its package has it
BLOCK = 128  # rows, and keys, of a block of cudnn-frontend's block-sparse attention
TILE = 128  # rows, and keys, of a tile of TLX's kernel
IEEE, TF32 = "ieee", "tf32"  # Triton's names of precisions
BLOCKS, INTERVALS, DETERMINISTIC = "cudnn-blocks", "cudnn-flex", "flash-attn-4-deterministic"


@dataclass(frozen=True)
class Package:
    """Attention of a package: its name in tables; the module, its function, and the name by which pip knows what has
    them; what makes a function of (batch, heads, N, d) of it; the names of its versions in a record's machine; the
    element types that it is asked for."""

    title: str
    module: str
    function: str
    package: str
    adapted: Callable[[str, Function, ArrayCase], Forward]
    versions: tuple[str, ...]
    types: tuple[str, ...] = (FLOAT16, BFLOAT16)


def packages_peers(words: Iterable[str], every: str, case: ArrayCase) -> list[tuple[str, Forward]]:
    """The names and functions of the packages that words name and that know the element type; with the word `every`
    those of FlashAttention's that are installed. MachineError for one that is named and not there, and if there is none
    at all."""
    named = [word for word, one in PACKAGES.items() if word in words and case.work.dtype in one.types]
    found = [(word, function_of(word)) for word in named]
    if every in words and case.work.dtype != FLOAT32:
        for word in FLASH_ATTN:
            if word not in (*named, DETERMINISTIC):
                with suppress(MachineError):
                    found.append((word, function_of(word)))
        if not found:
            raise MachineError(
                f"--peers {every} needs the package flash-attn, flash-attn-3 or flash-attn-4: none is installed here"
            )
    return [(PACKAGES[word].title, PACKAGES[word].adapted(PACKAGES[word].title, f, case)) for word, f in found]


def function_of(word: str) -> Function:
    """A package's function. MachineError with the reason if it is not there."""
    one = PACKAGES[word]
    try:
        function: Function | None = getattr(importlib.import_module(one.module), one.function, None)
    except ModuleNotFoundError as error:
        if error.name and f"{one.module}.".startswith(f"{error.name}."):
            raise MachineError(f"--peers {word} needs the package {one.package}, which is not installed here") from None
        raise MachineError(f"--peers {word}: {one.package} needs the package {error.name}, too") from None
    except Exception as error:
        raise MachineError(f"--peers {word}: {one.package} cannot be imported: {first_line(error)}") from None
    if function is None:  # of FlashAttention 4 alone, the folder flash_attn has none
        raise MachineError(f"--peers {word} needs the package {one.package}, which is not installed here")
    return function


def _refusing(name: str, compute: Forward, problem: str = "") -> Forward:
    """A function whose exceptions are one sentence: packages compile at their first call, and assert what they can.
    With a problem, what it does not compute, it fails at once."""

    def forward(*tensors: Any) -> Any:
        if problem:
            raise MachineError(f"{name} {problem}")
        try:
            return compute(*tensors)
        except MachineError:
            raise
        except Exception as error:
            raise MachineError(f"{name}: {first_line(error)}") from None

    return forward


def with_gradients(
    forward: Callable[..., tuple[Any, Any]], backward: Callable[..., tuple[Any, Any, Any]]
) -> Callable[..., Any]:
    """Attention that torch's autograd knows, of (q, k, v) -> (o, lse) and (do, q, k, v, o, lse) -> (dq, dk, dv)."""
    import torch

    class Attention(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            o, lse = forward(q, k, v)
            ctx.save_for_backward(q, k, v, o, lse)
            return o

        @staticmethod
        def backward(ctx: Any, do: Any) -> Any:
            return backward(do, *ctx.saved_tensors)

    applied: Callable[..., Any] = Attention.apply
    return applied


def _flash_attn(name: str, function: Function, case: ArrayCase, **options: Any) -> Forward:
    """FlashAttention's packages: arrays (batch, N, heads, d)."""
    work = case.work

    def compute(*tensors: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in tensors)
        result = function(q, k, v, softmax_scale=work.scale, causal=work.causal, **options)
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    elsewhere = work.causal and work.offset != work.Nk - work.Nq
    return _refusing(name, compute, "aligns the mask at the bottom right alone" if elsewhere else "")


def _frontend(name: str, function: Function, case: ArrayCase, deterministic: bool = False) -> Forward:
    """cuDNN by its own Python package, which builds a graph for each geometry and takes the first engine that its
    heuristics name; gradients in a fixed order if `deterministic`."""
    import torch

    work = case.work
    asked = {"is_causal": work.causal, "causal_bottom_right": work.causal and work.offset != 0}
    gradients = torch.ops.cudnn.sdpa_bwd  # the package's module has registered it

    def forward(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        o, lse = function(q, k, v, scale=work.scale, return_lse=True, **asked)
        return o, lse

    def backward(*given: Any) -> tuple[Any, Any, Any]:
        dq, dk, dv = gradients(*given, work.scale, is_deterministic=deterministic, **asked)
        return dq, dk, dv

    differentiable = with_gradients(forward, backward)

    def compute(*tensors: Any) -> Any:
        if torch.is_grad_enabled():
            return differentiable(*tensors)
        return function(*tensors, scale=work.scale, **asked)

    elsewhere = work.causal and work.offset not in (0, work.Nk - work.Nq)
    return _refusing(name, compute, "aligns the mask at the top left or at the bottom right" if elsewhere else "")


def _blocks(name: str, function: Function, case: ArrayCase) -> Forward:
    """cudnn-frontend's own kernels for Hopper: its block-sparse attention with every block kept, which is attention."""
    import torch

    work, api = case.work, importlib.import_module(PACKAGES[BLOCKS].module)
    asked = {"softmax_scale": work.scale, "sparse_block_size": BLOCK}
    kept = list[Any]()  # every block of keys, for each block of rows of each head

    def index(q: Any) -> Any:
        if not kept:
            rows, keys = work.Nq // BLOCK, work.Nk // BLOCK
            every = torch.arange(keys, dtype=torch.int32, device=q.device)
            kept.append(every.expand(work.batch, work.heads, rows, keys).contiguous())
        return kept[0]

    def forward(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        found = function(q, k, v, index(q), **asked)
        return found["o_tensor"], found["lse_tensor"]

    def backward(*given: Any) -> tuple[Any, Any, Any]:
        found = api.block_sparse_attention_backward(*given, index(given[1]), **asked)
        return found["dq_tensor"], found["dk_tensor"], found["dv_tensor"]

    partly = work.causal or work.Nq % BLOCK or work.Nk % BLOCK
    problem = f"has no mask, and whole blocks of {BLOCK} rows and keys alone" if partly else ""
    return _refusing(name, with_gradients(forward, backward), problem)


def _intervals(name: str, function: Function, case: ArrayCase, deterministic: bool = False) -> Forward:
    """cudnn-frontend's own kernels for Hopper of masks that are intervals of keys: a row sees those up to its end."""
    import torch

    work, api = case.work, importlib.import_module(PACKAGES[INTERVALS].module)
    plans = list[Any]()

    def plan(tensors: list[Any]) -> Any:
        if not plans:
            rows = torch.arange(work.Nq, dtype=torch.int32, device=tensors[0].device)
            ends = (rows + 1 + work.offset).clip(0, work.Nk) if work.causal else torch.full_like(rows, work.Nk)
            plans.append(api.create_mask_plan(ends.repeat(work.batch)[None, None], *tensors))
        return plans[0]

    def compute(*tensors: Any) -> Any:
        rows = [x.transpose(1, 2) for x in tensors]
        asked = {"softmax_scale": work.scale, "deterministic": deterministic}
        with redirect_stdout(sys.stderr):  # it prints what it compiles
            return function(*rows, mask_plan=plan(rows), **asked).transpose(1, 2)

    return _refusing(name, compute)


def _tlx(name: str, function: Function, case: ArrayCase) -> Forward:
    """The kernel for Hopper among TLX's examples: the forward pass without a mask."""
    work = case.work

    def compute(*tensors: Any) -> Any:
        if any(x.requires_grad for x in tensors):
            raise MachineError(f"{name} has no gradients")
        return function(*(x.contiguous() for x in tensors), work.scale)

    other = work.causal or work.heads != work.kv_heads or work.Nq != work.Nk or work.Nq % TILE
    problem = f"has no mask, no shared heads, and as many keys as rows, a multiple of {TILE}" if other else ""
    return _refusing(name, compute, problem)


def _flex(name: str, function: Function, case: ArrayCase, precision: str = IEEE) -> Forward:
    """torch's FlexAttention, which torch compiles with Triton at its first call; products of float32 in a precision of
    Triton's."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    work, offset = case.work, case.work.offset
    torch._dynamo.reset()  # or beyond a number of geometries it would run without having been compiled
    compiled = torch.compile(function, dynamic=False)
    asked: dict[str, Any] = {"scale": work.scale, "enable_gqa": work.heads != work.kv_heads}
    if work.dtype == FLOAT32:
        asked["kernel_options"] = {"FLOAT32_PRECISION": f"'{precision}'"}
    masks = list[Any]()

    def seen(b: Any, h: Any, row: Any, key: Any) -> Any:
        return key <= row + offset

    def compute(q: Any, k: Any, v: Any) -> Any:
        if work.causal and not masks:
            masks.append(create_block_mask(seen, None, None, work.Nq, work.Nk, device=q.device))
        return compiled(q, k, v, block_mask=masks[0] if masks else None, **asked)

    return _refusing(name, compute)


_INTERVALS = ("cudnn.flex_attention", "flex_attn_func", "nvidia-cudnn-frontend")
_FOURTH = ("flash_attn.cute", "flash_attn_func", "flash-attn-4")
_FRONTEND = ("cudnn.sdpa.fwd.torch_op", "sdpa", "nvidia-cudnn-frontend")
_FLEX = ("torch.nn.attention.flex_attention", "flex_attention", "torch")
_TLX = "triton.language.extra.tlx.tutorials.hopper_fa_ws_pipelined_pingpong_persistent"
_OF_FOURTH, _OF_OWN, _OF_FRONTEND, _OF_FLEX = (
    ("flash_attn_4", "cutlass_dsl"),
    ("cudnn_frontend", "cutlass_dsl"),
    ("cudnn_frontend", "frontends_cudnn"),
    ("torch", "triton"),
)
FLASH_ATTN = {
    "flash-attn-2": Package(
        "flash-attn 2", "flash_attn", "flash_attn_func", "flash-attn", _flash_attn, ("flash_attn",)
    ),
    "flash-attn-3": Package(
        *("flash-attn 3", "flash_attn_interface", "flash_attn_func", "flash-attn-3"), _flash_attn, ("flash_attn_3",)
    ),
    "flash-attn-4": Package("flash-attn 4", *_FOURTH, _flash_attn, _OF_FOURTH),
    DETERMINISTIC: Package(  # gradients whose bits repeat, as hw4's do
        "flash-attn 4 deterministic", *_FOURTH, partial(_flash_attn, deterministic=True), _OF_FOURTH
    ),
}
# The word by which a user names it, and what it is.
PACKAGES = {
    **FLASH_ATTN,
    "cudnn-frontend": Package("cudnn-frontend", *_FRONTEND, _frontend, _OF_FRONTEND),
    "cudnn-frontend-deterministic": Package(
        "cudnn-frontend deterministic", *_FRONTEND, partial(_frontend, deterministic=True), _OF_FRONTEND
    ),
    BLOCKS: Package(
        *("cudnn-frontend blocks", "cudnn.block_sparse_attention", "block_sparse_attention_forward"),
        *("nvidia-cudnn-frontend", _blocks, _OF_OWN),
    ),
    INTERVALS: Package("cudnn-frontend flex", *_INTERVALS, _intervals, _OF_OWN),
    "cudnn-flex-deterministic": Package(
        "cudnn-frontend flex deterministic", *_INTERVALS, partial(_intervals, deterministic=True), _OF_OWN
    ),
    "tlx": Package("TLX", _TLX, "attention", "fbtriton", _tlx, ("fbtriton",)),
    "flex": Package("FlexAttention", *_FLEX, _flex, _OF_FLEX, (FLOAT16, BFLOAT16, FLOAT32)),
    "flex-tf32": Package("FlexAttention TF32", *_FLEX, partial(_flex, precision=TF32), _OF_FLEX, (FLOAT32,)),
}
