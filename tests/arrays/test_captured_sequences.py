"""CUDA graphs of sequences of several lengths, by tensors and a driver that are made up: replayed, they compute what is
in the arrays then, whatever has become of the host's memory."""

import gc

import faketorch
import numpy as np
import pytest
from needs import COMPILER, needs
from slow import slow

import hw4cli

LENGTHS = [0, 5, 40, 40, 77]
STARTS = np.cumsum([0, *LENGTHS])
ASKED = {"cu_seqlens_q": STARTS, "cu_seqlens_k": STARTS, "causal": True}


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose kernels are executed on the CPU, and whose memory is kept, as a graph keeps it."""
    faketorch.keep_memory(monkeypatch)
    return faketorch.install_kernels(monkeypatch)


def tensor(array):
    made = faketorch.empty(array.shape, faketorch.DType("float16"), None)
    made.array[...] = array
    return made


@slow
@needs(COMPILER)
def test_a_graph_of_sequences_keeps_their_table_and_computes_other_numbers_when_it_is_replayed(gpu, monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v, do = (tensor(rng.standard_normal((2, STARTS[-1], 32))) for _ in range(4))

    def step():
        o, lse = hw4cli.attention(q, k, v, return_lse=True, **ASKED)
        return o, lse, *hw4cli.attention_backward(do, q, k, v, o, lse, **ASKED)

    step()
    made = faketorch.captured(gpu, monkeypatch, step)
    for x in (q, k, v, do):
        x.array[...] = rng.standard_normal(x.shape)
    gc.collect()
    gpu.driver.replay()
    for found, expected in zip(made, step(), strict=True):
        np.testing.assert_array_equal(found.array, expected.array)


def test_a_graph_captures_nothing_that_is_not_compiled(gpu, monkeypatch):
    q, k, v = (tensor(np.zeros((2, STARTS[-1], 32))) for _ in range(3))
    with pytest.raises(ValueError, match="is not compiled yet, which cannot be done while a CUDA graph is captured"):
        faketorch.captured(gpu, monkeypatch, lambda: hw4cli.attention(q, k, v, **ASKED))
