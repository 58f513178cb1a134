"""Instructions that the host executes for a call of hw4cli.torch.attention, counted by valgrind's callgrind.

    python -m benchmarks.measure.hostwork

Times of calls differ by a third from minute to minute, and counts do not. No GPU is needed: PyTorch's tensors on the
CPU pose as a GPU's, and the driver is a library that does nothing, which a C compiler makes. What CUDA's driver and
allocator take is not counted. PyTorch, valgrind with its headers and a C compiler are; it takes two minutes.
"""

import argparse
import ctypes
import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import ROOT
from benchmarks.measure.scripts import end_with
from benchmarks.measure.sequences import MIXES, lengths_of
from hw4cli.errors import MachineError

CALLS, WARM_UP = 20, 40
CU_SEQLENS = "cu_seqlens_q", "cu_seqlens_k"
CAPACITY, FIRST = 2000, 1000  # keys of a cache, and of the first step of decoding
BATCHES = 4  # of several lengths
PACKED = "sentences", "short sentences"  # mixes of packed sequences
DRIVER = r"""
#include <string.h>
#include <valgrind/callgrind.h>
int cuLaunchKernelEx(void *config, void *function, void *passed, void *extra) { return 0; }
int cuMemsetD8Async(void *to, int byte, long size, void *stream) { return 0; }
int cuMemsetD32Async(void *to, int word, long count, void *stream) { return 0; }
int cuMemcpyHtoDAsync_v2(void *to, void *from, long size, void *stream) { return 0; }
int cuStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuTensorMapEncodeTiled(void *map, int type, int rank, void *address, long *sizes) {
    memset(map, 0, 128);
    memcpy(map, &address, 8);
    memcpy((char *)map + 8, sizes, 32);
    return 0;
}
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""


def counted() -> dict[str, float]:
    """Instructions a call, by the call's name. Raises MachineError where they cannot be counted."""
    if find_spec("torch") is None:
        raise MachineError("this needs PyTorch, which is not installed here")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "driver.c").write_text(DRIVER)
        library, counts = folder / "libcuda.so.1", folder / "counts"
        _run(["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "driver.c")])
        environment = {**os.environ, "LD_LIBRARY_PATH": name, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}"]
        _run([*command, sys.executable, "-m", "benchmarks.measure.hostwork", "--inside"], env=environment)
        found = {}
        for path in sorted(folder.glob("counts.*"), key=lambda path: int(path.suffix[1:])):
            text = path.read_text()
            title = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if title and total:
                found[title[1]] = int(total[1]) / CALLS
    return found


def _run(command: list[str], **options: Any) -> None:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)
    except FileNotFoundError:
        raise MachineError(f"there is no {command[0]} here") from None
    if done.returncode:
        raise MachineError(f"{command[0]} ended with status {done.returncode}: {done.stderr.strip()[-500:]}")


def inside() -> None:
    """Call each function, with a mark before and after it."""
    marks = ctypes.CDLL("libcuda.so.1")
    gc.disable()
    for name, call in _calls():
        for _ in range(WARM_UP):
            call()
        marks.begin()
        for _ in range(CALLS):
            call()
        marks.end(name.encode())


def _calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    import torch

    from hw4cli import torch as ours
    from hw4cli.lab.calls import empty_function

    attention: Callable[..., Any] = ours.attention
    remember = _pose(torch)
    x = [torch.zeros(1, 2, 197, 64, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv"]
    plain, do = [t.detach() for t in x], torch.zeros(1, 2, 197, 64, dtype=torch.bfloat16)
    remember(*x), remember(*plain)

    apply = empty_function(torch, do, plain)  # torch's own share
    o, empty = attention(*x), apply(*x)
    yield "no gradient", lambda: attention(*plain)
    yield "forward with a gradient", lambda: attention(*x)
    yield "backward", lambda: torch.autograd.grad(o, x, do, retain_graph=True)
    yield "both", lambda: torch.autograd.grad(attention(*x), x, do)
    yield "backward of an empty Function", lambda: torch.autograd.grad(empty, x, do, retain_graph=True)
    yield "both of an empty Function", lambda: torch.autograd.grad(apply(*x), x, do)
    mask = torch.zeros(1, 1, 197, 197, dtype=torch.bfloat16)
    others: dict[str, dict[str, Any]] = {
        "no gradient, a window": {"window": (64, 0)},
        "no gradient, softcap": {"softcap": 20.0},
        "no gradient, a mask": {"attn_mask": mask},
        "no gradient, lengths as a list": {"lengths": [100], "q_lengths": [100]},
    }
    for name, more in others.items():
        remember(*plain, **more)
        yield name, partial(attention, *plain, **more)
    q = torch.zeros(1, 32, 1, 128, dtype=torch.bfloat16)
    caches, keys = [torch.zeros(1, 8, CAPACITY, 128, dtype=torch.bfloat16) for _ in "kv"], FIRST

    def first(count: int) -> list[Any]:
        return [cache[:, :, :count] for cache in caches]

    def step() -> None:
        nonlocal keys
        keys += 1
        attention(q, *first(keys), enable_gqa=True)

    remember(q, *first(FIRST), enable_gqa=True)
    yield "two slices of a cache", lambda: first(FIRST)
    yield "one row, these keys again", lambda: attention(q, *first(FIRST), enable_gqa=True)
    yield "a step of decoding", step
    yield "the same step in the next layer", lambda: attention(q, *first(keys), enable_gqa=True)
    q, numbers = torch.zeros(BATCHES, 32, 1, 128, dtype=torch.bfloat16), list(range(FIRST, FIRST + BATCHES))
    padded = [torch.zeros(BATCHES, 8, CAPACITY, 128, dtype=torch.bfloat16) for _ in "kv"]

    def grow(kind: Callable[[list[int]], Any]) -> None:
        numbers[:] = [number + 1 for number in numbers]
        attention(q, *padded, enable_gqa=True, lengths=kind(numbers))

    remember(q, *padded, enable_gqa=True, lengths=numbers)
    yield "a step of several lengths", lambda: grow(list)
    yield (
        "the same step of several lengths in the next layer",
        lambda: attention(q, *padded, enable_gqa=True, lengths=numbers),
    )
    yield "a step of several lengths in a tensor", lambda: grow(torch.tensor)
    yield from _of_options(torch, remember)


def _of_options(torch: Any, remember: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of one shape, plain and with each option, and both passes of them; then of packed sequences."""

    x = [torch.zeros(2, heads, 197, 64, dtype=torch.bfloat16, requires_grad=True) for heads in (4, 2, 2)]
    plain, do, shared = [t.detach() for t in x], torch.zeros(2, 4, 197, 64, dtype=torch.bfloat16), {"enable_gqa": True}
    kept = torch.ones(2, 1, 197, 197, dtype=torch.bool)
    options: dict[str, dict[str, Any]] = {
        "GQA": {},
        "a window": {"window": (64, 0)},
        "softcap": {"softcap": 20.0},
        "ALiBi": {"alibi_slopes": torch.ones(4)},
        "a boolean mask": {"attn_mask": kept},
        "a mask of numbers": {"attn_mask": kept.bfloat16()},
        "lengths": {"lengths": [197, 100]},
    }
    yield from _both_passes(torch, remember, options, x, plain, do, shared)
    for mix in PACKED:
        starts = [0, *accumulate(lengths_of(*MIXES[mix][0]))]
        x = [torch.zeros(4, starts[-1], 64, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv"]
        plain, do = [t.detach() for t in x], torch.zeros(4, starts[-1], 64, dtype=torch.bfloat16)
        packed: dict[str, dict[str, Any]] = {f"{len(starts) - 1} {mix}": dict.fromkeys(CU_SEQLENS, starts)}
        yield from _both_passes(torch, remember, packed, x, plain, do, {})


def _both_passes(
    torch: Any, remember: Any, options: dict[str, dict[str, Any]], x: Any, plain: Any, do: Any, shared: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A call without a gradient, one with it, and its backward pass, with each of these options."""
    from hw4cli.torch import attention

    for name, more in options.items():
        more = {**shared, **more}
        remember(*plain, **more), remember(*x, **more)
        o = attention(*x, **more)
        yield f"{name}: no gradient", partial(attention, *plain, **more)
        yield f"{name}: forward with a gradient", partial(attention, *x, **more)
        yield f"{name}: backward", partial(torch.autograd.grad, o, x, do, retain_graph=True)


def _pose(torch: Any) -> Callable[..., None]:
    """Let tensors on the CPU be taken for a GPU's; what remembers a call of some."""
    from hw4cli.arrays import attention, operand, repeated
    from hw4cli.arrays.autograd import eager, operators
    from hw4cli.arrays.autograd.direct import LENGTHS
    from hw4cli.arrays.gradients import backward
    from hw4cli.arrays.gradients.ongpu import BackwardOnGpu
    from hw4cli.arrays.ongpu import HalfOnGpu
    from hw4cli.arrays.scored import Words
    from hw4cli.arrays.sequences import RIGHT
    from hw4cli.plans.plan import DEVICES

    def functions(plan: Any) -> list[Any]:
        return [SimpleNamespace(kernel=SimpleNamespace(ptr=1)) for _ in plan.launches]

    gpu: Any = SimpleNamespace(props=DEVICES[90], functions=functions, is_compiled=lambda plan: True)
    runtime = SimpleNamespace(setDevice=int)
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: nullcontext(), runtime=runtime))
    forward, gradients, library = HalfOnGpu(gpu), BackwardOnGpu(gpu), repeated.Torch()
    library.device, library.stream = int, abs  # functions in C that give 0, as torch's are
    if library.new is not torch.empty_like:
        library.new = torch._C._dynamo.guards._empty_strided_cpu
    repeated.LIBRARIES[torch.Tensor] = library
    changes: tuple[tuple[Any, str, Any], ...] = (
        (eager, "_is_on_gpu", lambda x: True),
        (operand, "_check_tensor", lambda *_: None),
        (attention, "is_capturing", lambda library: False),
        (attention, "import_cupy", lambda: cupy),
        (backward, "import_cupy", lambda: cupy),
        (attention, "_open", lambda device: (forward, None)),
        (backward, "_open", lambda device: gradients),
        (operators, "derive", lambda do, *inputs: tuple(map(torch.empty_like, inputs[:3]))),
    )
    for module, name, value in changes:
        setattr(module, name, value)

    def remember(q: Any, k: Any, v: Any, enable_gqa: bool = False, window: Any = None, **more: Any) -> None:
        options = eager.options_of(False, enable_gqa, "top-left", None, window, None, 0.0)
        changes = tuple(more.get(name) for name in Words._fields)
        lengths = tuple(RIGHT if name == "padding" else more.get(name) for name in LENGTHS)
        beside: tuple[Any, ...] = ()
        if more and options:
            words = None if all(x is None for x in changes) else changes
            sequences = lengths if set(more) & set(LENGTHS) else None
            options, beside = eager.with_more(q, options, words, sequences)
        assert options is not None
        o = torch.empty_like(q, requires_grad=q.requires_grad)
        eager.remember((q, k, v, *beside), o, options, "auto")

    return remember


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().inside:
        inside()
        return
    found = counted()
    print("| call | thousand instructions |\n| --- | --- |")
    for name, count in found.items():
        print(f"| {name} | {count / 1e3:.1f} |")


if __name__ == "__main__":
    end_with(main)
