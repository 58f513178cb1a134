"""Numbers of 16 bits as words, and attention of them by kernels executed on the CPU."""

import numpy as np
from definitions import definition

from hw4cli.arrays.emulated import run_half
from hw4cli.problem.workload import BFLOAT16, FLOAT16

ALLOWED = {FLOAT16: 2e-3, BFLOAT16: 1.6e-2}  # of O, for V within about 4: roundings of O and P
SUMS = {FLOAT16: 5e-4, BFLOAT16: 4e-3}  # of the LSE, where the rounded P are summed: their unit


def rounded(x, dtype):
    """Numbers as the words of fp16 or bf16 numbers, to nearest, ties to even."""
    if dtype != BFLOAT16:
        return x.astype(np.float16).view(np.uint16)
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def numbers(words, dtype):
    """What words of fp16 or bf16 numbers stand for."""
    if dtype != BFLOAT16:
        return words.view(np.float16).astype(np.float64)
    return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def random_words(work, seed=1, factor=1.0):
    """Q, K and V of a workload, normally distributed, Q times a factor."""
    rng = np.random.default_rng(seed)
    keys, dv = (work.kv_heads, work.Nk), work.value_columns
    shapes = [(work.heads, work.Nq, work.d, factor), (*keys, work.d, 1), (*keys, dv, 1)]
    return [rounded(rng.standard_normal((work.batch, *shape)) * f, work.dtype) for *shape, f in shapes]


def assert_right(work, q, k, v, how=None, **options):
    """Runs a kernel on the CPU with a tiling; holds what it gives, and does, against the definition."""
    outcome = run_half(work, q, k, v, how, **options)
    assert [str(finding) for finding in outcome.findings] == []
    assert outcome.finished
    assert (outcome.beside == 0xFFFF).all(), "written between O's rows"
    q, k, v = (numbers(x, work.dtype) for x in (q, k, v))
    o, lse = definition(q, k, v, work.scale, work.offset if work.causal else None)
    reach = max(1, np.abs(v).max() / 4)
    assert np.abs(numbers(outcome.o, work.dtype) - o).max() <= ALLOWED[work.dtype] * reach
    seen = np.isfinite(lse)
    assert (outcome.lse[~seen] == -np.inf).all()
    np.testing.assert_allclose(outcome.lse[seen], lse[seen], rtol=1e-6, atol=SUMS[work.dtype])
    return outcome
