"""TileLang's own FlashAttention, from its examples, as a peer of `hw4 bench`.

    TILELANG_EXAMPLES=.../examples/flash_attention hw4 bench half tilelang \
        --peers benchmarks/measure/tilelang_attention.py:attention

TileLang is a package; its examples are not part of it: the variable names their folder in a checkout of its repository.
The kernel is tuned and compiled at the first call for a shape.
"""

import functools
import importlib.util
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES, EXAMPLE = "TILELANG_EXAMPLES", "example_mha_fwd_bhsd.py"


@functools.cache
def example() -> Any:
    """The example's module. ValueError where the variable names no folder with it."""
    path = Path(os.environ.get(EXAMPLES, "")) / EXAMPLE
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"{EXAMPLES} must name the folder of TileLang's {EXAMPLE}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def kernel(batch: int, heads: int, Nq: int, Nk: int, d: int, causal: bool) -> Callable[..., Any]:
    """The kernel for a shape: O of Q, K and V."""
    made: Callable[..., Any] = example().flashattn(batch, heads, Nq, Nk, d, causal)
    return made


def attention(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    """O of float16 tensors (batch, heads, N, d); causal: the last row sees the last key.

    Raises ValueError for what the example does not compute.
    """
    if str(q.dtype) != "torch.float16" or q.shape[1] != k.shape[1]:
        raise ValueError("TileLang's example computes float16, and a head of K and V for each head of Q")
    if not math.isclose(scale, q.shape[-1] ** -0.5):
        raise ValueError(f"scale is {scale:g}: TileLang's example takes 1/sqrt(d)")
    return kernel(*q.shape[:3], k.shape[2], q.shape[3], causal)(q, k, v)
