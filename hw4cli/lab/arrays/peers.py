"""Others' attention for arrays in the same benchmark: torch's backends, flash-attn, any function."""

import importlib
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.errors import InputError, MachineError
from hw4cli.lab.arrays.inputs import DeviceArrays, GradientArrays
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.lab.arrays.ours import Implementation, Work
from hw4cli.lab.arrays.passes import BACKWARD, FORWARD
from hw4cli.problem.workload import FLOAT32

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
FUNCTION = re.compile(r"[^:]+:\w+")


def check_peers(words: Iterable[str]) -> None:
    """Raise InputError for a word that names no peer."""
    for word in words:
        if word not in WORDS and not FUNCTION.fullmatch(word):
            raise InputError(f"{word!r} is none of {', '.join(WORDS)}, nor a function of yours as FILE.py:FUNCTION")


def peer_implementations(
    gpu: Gpu, words: tuple[str, ...], dtype: str, direction: str = FORWARD
) -> list[Implementation]:
    """The peers of these words for an element type: those of torch that know the type, flash-attn where installed,
    and functions MODULE:FUNCTION or FILE.py:FUNCTION.

    MachineError if there is no torch, or if there is not what a word names.
    """
    torch = _torch()
    wanted = [name for word, name in PEERS.items() if word in words or TORCH in words]
    backends = [name for name in wanted if dtype != FLOAT32 or name in OF_FLOAT32]
    found = [_of_torch(gpu, torch, name, direction) for name in backends]
    if FLASH_ATTN in words and dtype != FLOAT32:
        found += _of_flash_attn(gpu, torch, direction)
    return found + [_of_word(gpu, torch, word, direction) for word in words if ":" in word]


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MachineError("--peers needs PyTorch, which is not installed here") from None
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is compared with float32
    return torch


def _of_torch(gpu: Gpu, torch: Any, name: str, direction: str) -> Implementation:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, BACKENDS[name])

    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        work = case.work
        options: dict[str, Any] = {"scale": case.scale}
        if work.heads != work.kv_heads:
            options["enable_gqa"] = True
        if work.causal and work.offset == 0:  # torch aligns is_causal at the top left
            options["is_causal"] = True
        elif work.causal:
            from torch.nn.attention.bias import causal_lower_right

            options["attn_mask"] = causal_lower_right(work.Nq, work.Nk)

        def forward(q: Any, k: Any, v: Any) -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        return _pass(gpu, torch, case, arrays, forward, direction), {}

    return Implementation(name, prepare, ours=False)


def _of_flash_attn(gpu: Gpu, torch: Any, direction: str) -> list[Implementation]:
    """FlashAttention 2 and 3 as their own packages have them."""
    found = []
    for name, module in (("flash-attn 2", "flash_attn"), ("flash-attn 3", "flash_attn_interface")):
        try:
            function = getattr(__import__(module), "flash_attn_func")  # noqa: B009 - no type is known
        except (ImportError, AttributeError):
            continue
        found.append(_of_function(gpu, torch, name, function, direction))
    if not found:
        raise MachineError("--peers flash-attn needs the package flash-attn (2 or 3), which is not installed here")
    return found


def _of_function(gpu: Gpu, torch: Any, name: str, function: Callable[..., Any], direction: str) -> Implementation:
    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        work = case.work
        if work.causal and work.offset != work.Nk - work.Nq:
            raise MachineError(f"{name} aligns the mask at the bottom right alone")

        def forward(*tensors: Any) -> Any:
            q, k, v = (x.transpose(1, 2) for x in tensors)  # (batch, N, heads, d)
            result = function(q, k, v, softmax_scale=case.scale, causal=work.causal)
            return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

        return _pass(gpu, torch, case, arrays, forward, direction), {}

    return Implementation(name, prepare, ours=False)


def _of_word(gpu: Gpu, torch: Any, word: str, direction: str) -> Implementation:
    """A function f(q, k, v, causal, scale) of tensors (batch, heads, N, d), such as that of Triton's tutorial."""
    place, name = word.rsplit(":", 1)
    function = getattr(_imported(place), name, None)
    if not callable(function):
        raise MachineError(f"--peers {word}: {place} has no function {name}")

    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        def forward(*tensors: Any) -> Any:
            try:
                return function(*tensors, case.work.causal, case.scale).contiguous()
            except Exception as error:
                raise MachineError(f"{word}: {_first_line(error)}") from None

        return _pass(gpu, torch, case, arrays, forward, direction), {}

    return Implementation(word, prepare, ours=False)


def _imported(place: str) -> Any:
    """A module by its name, or by its file. Raises MachineError with the reason if it cannot be imported."""
    file = Path(place)
    if file.suffix == ".py":
        if not file.is_file():
            raise MachineError(f"--peers {place}: there is no such file")
        sys.path.insert(0, str(file.resolve().parent))
    try:
        return importlib.import_module(file.stem if file.suffix == ".py" else place)
    except ModuleNotFoundError as error:
        raise MachineError(f"--peers {place} needs the package {error.name}, which is not installed here") from None
    except Exception as error:
        raise MachineError(f"--peers {place} cannot be imported: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _pass(
    gpu: Gpu,
    torch: Any,
    case: NamedWorkload,
    arrays: DeviceArrays,
    forward: Callable[..., Any],
    direction: str,
) -> Work:
    """The work of a pass: O, or by torch's autograd dQ, dK and dV, or all four."""
    dtype = getattr(torch, case.work.dtype)
    q, k, v = (torch.from_dlpack(x).view(dtype) for x in (arrays.q, arrays.k, arrays.v))
    if direction == FORWARD:

        def compute() -> tuple[Any, ...]:
            with torch.no_grad():
                return (forward(q, k, v),)

        return _translated(gpu, torch, case, compute)
    assert isinstance(arrays, GradientArrays)
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    do = torch.from_dlpack(arrays.do).view(dtype)
    kept: list[Any] = []  # O, which the backward pass alone starts from

    def gradients() -> tuple[Any, ...]:
        if direction != BACKWARD:
            o = forward(*inputs)
            return o.detach(), *torch.autograd.grad(o, inputs, do)
        if not kept:
            kept.append(forward(*inputs))
        return tuple(torch.autograd.grad(kept[0], inputs, do, retain_graph=True))

    return _translated(gpu, torch, case, gradients)


def _translated(gpu: Gpu, torch: Any, case: NamedWorkload, compute: Callable[[], tuple[Any, ...]]) -> Work:
    """The work, whose results are arrays of words, and whose errors are MachineErrors."""
    word = torch.int32 if case.work.dtype == FLOAT32 else torch.int16

    def work() -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says in many lines why a backend is not there
                return tuple(gpu.cupy.from_dlpack(x.view(word)) for x in compute())
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            raise MachineError(f"PyTorch: {_first_line(error)}") from None

    return work
