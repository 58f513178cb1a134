"""Others' attention as contenders: torch's backends, packages of their own, any function."""

import importlib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.errors import InputError, MachineError, first_line
from hw4cli.lab.cases import ArrayCase, FileCase, FileData, ForwardData, GradientData
from hw4cli.lab.contender import Contender
from hw4cli.lab.packages import PACKAGES, Forward, packages_peers
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
SINGLE = (*PEERS, *PACKAGES)  # words that stand for one peer each
WORDS = (TORCH, *PEERS, FLASH_ATTN, *PACKAGES)
# Whose versions say which of it a time is of: the peer's word, the names in a record's machine.
VERSIONS = {"cudnn": ("torch", "cudnn"), **{word: one.versions for word, one in PACKAGES.items()}}
OPTIONAL = "?"  # ends a word of what need not be installed
FUNCTION = re.compile(r"[^:]+:\w+")


def check_peers(words: Iterable[str]) -> None:
    """Raise InputError for a word that names no peer."""
    for word in map(_bare, words):
        if word not in WORDS and not FUNCTION.fullmatch(word):
            raise InputError(f"{word!r} is none of {', '.join(WORDS)}, nor a function of yours as FILE.py:FUNCTION")


def peers_of_arrays(gpu: Gpu, words: tuple[str, ...], case: ArrayCase) -> list[Contender]:
    """The peers of these words for a workload: those of torch and of packages that know its element type, and
    functions MODULE:FUNCTION or FILE.py:FUNCTION. Behind a word that ends in "?", which is optional, what is not there
    is a contender that fails with the reason.

    MachineError if there is no torch, or if there is not what another word names.
    """
    torch = torch_for("--peers")
    needed = tuple(word for word in words if not word.endswith(OPTIONAL))
    found: list[Contender] = [Peer(gpu, torch, *one, case) for one in _functions(torch, needed, case)]
    for word in map(_bare, words):
        if word not in needed:
            try:
                found += [Peer(gpu, torch, *one, case) for one in _functions(torch, (word,), case)]
            except MachineError as error:
                found.append(Absent(PACKAGES[word].title if word in PACKAGES else word, str(error)))
    return found


def _bare(word: str) -> str:
    """A peer's word without the mark of what is optional."""
    return word.removesuffix(OPTIONAL)


def _functions(torch: Any, words: tuple[str, ...], case: ArrayCase) -> list[tuple[str, Forward]]:
    """Names and functions: of torch's backends, then of packages, then of users."""
    float32 = case.work.dtype == FLOAT32
    wanted = [name for word, name in PEERS.items() if word in words or TORCH in words]
    found = [(name, _backend(torch, name, case)) for name in wanted if not float32 or name in OF_FLOAT32]
    found += packages_peers(words, FLASH_ATTN, case)
    return found + [(word, _named_function(word, case)) for word in words if ":" in word]


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


class Absent(Contender):
    """What is not installed here, or cannot be imported."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, ours=False)
        self._reason = reason

    def prepare(self, data: FileData | ForwardData) -> dict[str, Any]:
        """Raise MachineError with the reason."""
        raise MachineError(self._reason)

    def run(self) -> None:
        """Nothing: it is never prepared."""

    def answer(self) -> tuple[Any, ...]:
        """Nothing."""
        return ()


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
            raise MachineError(f"PyTorch: {first_line(error)}") from None
        except MachineError:
            raise
        except Exception as error:  # of a package's own backward pass
            raise MachineError(f"{self.name}: {first_line(error)}") from None

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
            raise MachineError(f"{word}: {first_line(error)}") from None

    return forward


def _imported(place: str) -> Any:
    """A module by its name, or by its file. Raises MachineError with the reason if it cannot be imported."""
    file = Path(place)
    if file.suffix == ".py" and not file.is_file():
        raise MachineError(f"--peers {place}: there is no such file")
    try:
        return _module_of(file.resolve()) if file.suffix == ".py" else importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise MachineError(f"--peers {place} needs the package {error.name}, which is not installed here") from None
    except Exception as error:
        raise MachineError(f"--peers {place} cannot be imported: {first_line(error)}") from None


@cache
def _module_of(file: Path) -> Any:
    """The module of a file, executed once. Another one may have its name already: a file in another folder, or a
    module of Python's."""
    sys.path.insert(0, str(file.parent))
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_{len(sys.modules)}"
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # of every file that ends in .py
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
