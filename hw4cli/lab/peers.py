"""Others' attention as contenders: torch's backends, FlashAttention's own packages, any function."""

import importlib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.errors import InputError, MachineError
from hw4cli.lab.cases import ArrayCase, FileCase, FileData, ForwardData, GradientData
from hw4cli.lab.contender import Contender
from hw4cli.lab.tables import BACKWARD
from hw4cli.problem.workload import FLOAT32

# The name in tables; torch's name of the backend.
BACKENDS = {
    "cuDNN": "CUDNN_ATTENTION",
    "FA2": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
OF_FLOAT32 = ("efficient", "math")  # torch has no others for it
TORCH, FLASH_ATTN = "torch", "flash-attn"  # all of torch's backends; all of FlashAttention's packages that there are
PEERS = {"cudnn": "cuDNN", "fa2": "FA2", "efficient": "efficient", "math": "math"}  # each backend by itself
DETERMINISTIC = "flash-attn-4-deterministic"
# FlashAttention's own packages: the word, the name in tables, the module.
PACKAGES = {
    "flash-attn-2": ("flash-attn 2", "flash_attn"),
    "flash-attn-3": ("flash-attn 3", "flash_attn_interface"),
    "flash-attn-4": ("flash-attn 4", "flash_attn.cute"),
    DETERMINISTIC: ("flash-attn 4 deterministic", "flash_attn.cute"),  # gradients whose bits repeat, as hw4's do
}
SINGLE = (*PEERS, *PACKAGES)  # words that stand for one peer each
WORDS = (TORCH, *PEERS, FLASH_ATTN, *PACKAGES)
# Whose versions say which of it a time is of: the peer's word, the names in a record's machine.
VERSIONS = {
    "cudnn": ("torch", "cudnn"),
    "flash-attn-2": ("flash_attn",),
    "flash-attn-3": ("flash_attn_3",),
    "flash-attn-4": ("flash_attn_4", "cutlass_dsl"),
    DETERMINISTIC: ("flash_attn_4", "cutlass_dsl"),
}
FUNCTION = re.compile(r"[^:]+:\w+")
Forward = Callable[..., Any]  # O of torch's Q, K and V (batch, heads, N, d)


def check_peers(words: Iterable[str]) -> None:
    """Raise InputError for a word that names no peer."""
    for word in words:
        if word not in WORDS and not FUNCTION.fullmatch(word):
            raise InputError(f"{word!r} is none of {', '.join(WORDS)}, nor a function of yours as FILE.py:FUNCTION")


def peers_of_arrays(gpu: Gpu, words: tuple[str, ...], case: ArrayCase) -> list[Contender]:
    """The peers of these words for a workload: those of torch that know its element type, FlashAttention's packages,
    and functions MODULE:FUNCTION or FILE.py:FUNCTION.

    MachineError if there is no torch, or if there is not what a word names.
    """
    torch, float32 = torch_for("--peers"), case.work.dtype == FLOAT32
    wanted = [name for word, name in PEERS.items() if word in words or TORCH in words]
    backends = [name for name in wanted if not float32 or name in OF_FLOAT32]
    found = [(name, _backend(torch, name, case)) for name in backends]
    if not float32:
        found += _flash_attn_peers(words, case)
    found += [(word, _named_function(word, case)) for word in words if ":" in word]
    return [Peer(gpu, torch, name, forward, case) for name, forward in found]


def peers_of_files(gpu: Gpu, case: FileCase) -> list[Contender]:
    """PyTorch's float32 scaled_dot_product_attention by each backend. MachineError if there is no PyTorch."""
    torch = torch_for("--peers torch")
    return [Peer(gpu, torch, f"torch {name}", _backend(torch, name, case), case) for name in OF_FLOAT32]


def torch_for(option: str) -> Any:
    """PyTorch, as peers use it. MachineError if it is not installed."""
    try:
        import torch
    except ImportError:
        raise MachineError(f"{option} needs PyTorch, which is not installed here") from None
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is compared with float32
    return torch


def with_version(word: str, facts: Mapping[str, Any]) -> str:
    """A peer's word and, of a machine's facts, the versions of what it stands for.

    >>> with_version("cudnn", {"torch": "2.11.0", "cudnn": "9.28.1"}), with_version("mine.py:attention", {})
    ('cudnn (torch 2.11.0, cudnn 9.28.1)', 'mine.py:attention')
    """
    names = VERSIONS.get(word, ("torch",) if word in PEERS else ())
    known = ", ".join(f"{name} {facts[name]}" for name in names if facts.get(name))
    return f"{word} ({known})" if known else word


class Peer(Contender):
    """A function of torch's tensors: O, or by torch's autograd dQ, dK and dV, or all four."""

    def __init__(self, gpu: Gpu, torch: Any, name: str, forward: Forward, case: FileCase | ArrayCase) -> None:
        super().__init__(name, ours=False)
        self._gpu, self._torch, self._forward, self._case = gpu, torch, forward, case
        self._compute: Callable[[], tuple[Any, ...]] = lambda: ()
        self._made: tuple[Any, ...] = ()

    def prepare(self, data: FileData | ForwardData) -> dict[str, Any]:
        """Take the case's arrays as tensors."""
        torch = self._torch
        self._word = getattr(torch, data.word)
        dtype = getattr(torch, self._case.work.dtype)
        tensors = [torch.from_dlpack(x).view(dtype) for x in data.operands]
        if isinstance(data, GradientData):
            do = torch.from_dlpack(data.gradients.do).view(dtype)
            self._compute = self._gradients([x.detach().requires_grad_() for x in tensors], do)
        else:
            self._compute = lambda: self._output(tensors)
        return {}

    def run(self) -> None:
        """Enqueue it. Raises MachineError with torch's words."""
        torch = self._torch
        self._made = ()  # the memory of the last run's results is free for the next
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says in many lines why a backend is not there
                self._made = self._compute()
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            raise MachineError(f"PyTorch: {_first_line(error)}") from None
        except MachineError:
            raise
        except Exception as error:  # of a package's own backward pass
            raise MachineError(f"{self.name}: {_first_line(error)}") from None

    def answer(self) -> tuple[Any, ...]:
        """What it made, as arrays of CuPy's."""
        return tuple(self._gpu.cupy.from_dlpack(x.view(self._word)) for x in self._made)

    def _output(self, tensors: list[Any]) -> tuple[Any, ...]:
        with self._torch.no_grad():
            return (self._forward(*tensors),)

    def _gradients(self, inputs: list[Any], do: Any) -> Callable[[], tuple[Any, ...]]:
        """dQ, dK and dV, of both passes behind O; the backward pass alone starts from an O that is kept."""
        torch, kept = self._torch, list[Any]()
        backward_alone = isinstance(self._case, ArrayCase) and self._case.direction == BACKWARD

        def compute() -> tuple[Any, ...]:
            if not backward_alone:
                o = self._forward(*inputs)
                return o.detach(), *torch.autograd.grad(o, inputs, do)
            if not kept:
                kept.append(self._forward(*inputs))
            return tuple(torch.autograd.grad(kept[0], inputs, do, retain_graph=True))

        return compute


def _backend(torch: Any, name: str, case: FileCase | ArrayCase) -> Forward:
    """scaled_dot_product_attention by one of torch's backends."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend, work = getattr(SDPBackend, BACKENDS[name]), case.work
    options: dict[str, Any] = {"scale": work.scale}
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

    return forward


def _flash_attn_peers(words: Iterable[str], case: ArrayCase) -> list[tuple[str, Forward]]:
    """FlashAttention as its own packages have it: those that are named, or all that are installed. MachineError for one
    that is named and not there, and if there is none at all."""
    named = [word for word in PACKAGES if word in words]
    found = [(word, _flash_attn_function(word)) for word in named]
    if FLASH_ATTN in words:
        for word in PACKAGES:
            if word not in (*named, DETERMINISTIC):
                with suppress(MachineError):
                    found.append((word, _flash_attn_function(word)))
        if not found:
            raise MachineError(
                "--peers flash-attn needs the package flash-attn, flash-attn-3 or flash-attn-4: none is installed here"
            )
    return [(PACKAGES[word][0], _flash_attn(word, function, case)) for word, function in found]


def _flash_attn_function(word: str) -> Callable[..., Any]:
    """The function of one of the packages. MachineError with the reason if it is not there."""
    module = PACKAGES[word][1]
    package = word.removesuffix("-deterministic").removesuffix("-2")  # version 2 is the package flash-attn itself
    try:
        function: Callable[..., Any] | None = getattr(importlib.import_module(module), "flash_attn_func", None)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise MachineError(f"--peers {word} needs the package {package}, which is not installed here") from None
        raise MachineError(f"--peers {word}: {package} needs the package {error.name}, too") from None
    except Exception as error:
        raise MachineError(f"--peers {word}: {package} cannot be imported: {_first_line(error)}") from None
    if function is None:  # of version 4 alone, the folder flash_attn has none
        raise MachineError(f"--peers {word} needs the package {package}, which is not installed here")
    return function


def _flash_attn(word: str, function: Callable[..., Any], case: ArrayCase) -> Forward:
    name, work = PACKAGES[word][0], case.work
    options = {"deterministic": True} if word == DETERMINISTIC else {}

    def forward(*tensors: Any) -> Any:
        if work.causal and work.offset != work.Nk - work.Nq:
            raise MachineError(f"{name} aligns the mask at the bottom right alone")
        q, k, v = (x.transpose(1, 2) for x in tensors)  # (batch, N, heads, d)
        try:
            result = function(q, k, v, softmax_scale=work.scale, causal=work.causal, **options)
        except Exception as error:  # it compiles at its first call, and asserts what it can
            raise MachineError(f"{name}: {_first_line(error)}") from None
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    return forward


def _named_function(word: str, case: ArrayCase) -> Forward:
    """A function f(q, k, v, causal, scale) of tensors (batch, heads, N, d), such as that of Triton's tutorial."""
    place, name = word.rsplit(":", 1)
    function = getattr(_imported(place), name, None)
    if not callable(function):
        raise MachineError(f"--peers {word}: {place} has no function {name}")

    def forward(*tensors: Any) -> Any:
        try:
            return function(*tensors, case.work.causal, case.work.scale).contiguous()
        except Exception as error:
            raise MachineError(f"{word}: {_first_line(error)}") from None

    return forward


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
