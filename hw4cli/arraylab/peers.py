"""Others' attention for arrays, as implementations in the same benchmark: torch's backends, flash-attn."""

import warnings
from collections.abc import Callable
from typing import Any

from hw4cli.arraylab.inputs import DeviceArrays
from hw4cli.arraylab.named import NamedWorkload
from hw4cli.arraylab.ours import Implementation, Work
from hw4cli.arrays.workload import FLOAT32
from hw4cli.device.gpu import Gpu
from hw4cli.errors import MachineError

# The name in tables; torch's name of the backend.
BACKENDS = {
    "cuDNN": "CUDNN_ATTENTION",
    "FA2": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
OF_FLOAT32 = ("efficient", "math")  # torch has no others for it
TORCH, FLASH_ATTN = "torch", "flash-attn"
PEERS = {"cudnn": "cuDNN", "fa2": "FA2", "efficient": "efficient", "math": "math"}  # each backend by itself
WORDS = (TORCH, *PEERS, FLASH_ATTN)


def peer_implementations(gpu: Gpu, words: tuple[str, ...], dtype: str) -> list[Implementation]:
    """The peers of these words for an element type: those of torch that know the type, flash-attn where installed.

    MachineError if there is no torch.
    """
    torch = _torch()
    wanted = [name for word, name in PEERS.items() if word in words or TORCH in words]
    backends = [name for name in wanted if dtype != FLOAT32 or name in OF_FLOAT32]
    found = [_of_torch(gpu, torch, name) for name in backends]
    if FLASH_ATTN in words and dtype != FLOAT32:
        found += _of_flash_attn(gpu, torch)
    return found


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MachineError("--peers needs PyTorch, which is not installed here") from None
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is compared with float32
    return torch


def _of_torch(gpu: Gpu, torch: Any, name: str) -> Implementation:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, BACKENDS[name])

    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        work, (q, k, v) = case.work, _tensors(torch, case, arrays)
        options: dict[str, Any] = {"scale": case.scale}
        if work.heads != work.kv_heads:
            options["enable_gqa"] = True
        if work.causal and work.offset == 0:  # torch aligns is_causal at the top left
            options["is_causal"] = True
        elif work.causal:
            from torch.nn.attention.bias import causal_lower_right

            options["attn_mask"] = causal_lower_right(work.Nq, work.Nk)

        def compute() -> Any:
            with torch.no_grad(), sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        return _translated(gpu, torch, case, compute), {}

    return Implementation(name, prepare, ours=False)


def _of_flash_attn(gpu: Gpu, torch: Any) -> list[Implementation]:
    """FlashAttention 2 and 3 as their own packages have them."""
    found = []
    for name, module in (("flash-attn 2", "flash_attn"), ("flash-attn 3", "flash_attn_interface")):
        try:
            function = getattr(__import__(module), "flash_attn_func")  # noqa: B009 - no type is known
        except (ImportError, AttributeError):
            continue
        found.append(_of_function(gpu, torch, name, function))
    if not found:
        raise MachineError("--peers flash-attn needs the package flash-attn (2 or 3), which is not installed here")
    return found


def _of_function(gpu: Gpu, torch: Any, name: str, function: Callable[..., Any]) -> Implementation:
    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        work = case.work
        if work.causal and work.offset != work.Nk - work.Nq:
            raise MachineError(f"{name} aligns the mask at the bottom right alone")
        q, k, v = (x.transpose(1, 2) for x in _tensors(torch, case, arrays))  # (batch, N, heads, d)

        def compute() -> Any:
            with torch.no_grad():
                result = function(q, k, v, softmax_scale=case.scale, causal=work.causal)
            return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

        return _translated(gpu, torch, case, compute), {}

    return Implementation(name, prepare, ours=False)


def _tensors(torch: Any, case: NamedWorkload, arrays: DeviceArrays) -> tuple[Any, ...]:
    """Q, K and V as torch's tensors (batch, heads, N, d), without a copy."""
    dtype = getattr(torch, case.work.dtype)
    return tuple(torch.from_dlpack(x).view(dtype) for x in (arrays.q, arrays.k, arrays.v))


def _translated(gpu: Gpu, torch: Any, case: NamedWorkload, compute: Callable[[], Any]) -> Work:
    """The work, whose result is an array of words, and whose errors are MachineErrors."""
    word = torch.int32 if case.work.dtype == FLOAT32 else torch.int16

    def work() -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says in many lines why a backend is not there
                return gpu.cupy.from_dlpack(compute().view(word))
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            raise MachineError(f"PyTorch: {str(error).splitlines()[0]}") from None

    return work
