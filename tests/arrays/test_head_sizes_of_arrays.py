"""Arrays of any head size from 1 to 256, and their gradients: on the CPU, and on a GPU that is made up, whose kernels
are executed on the CPU."""

import re

import faketorch
import numpy as np
import pytest
from definitions import definition
from faketorch import Tensor
from needs import COMPILER, needs
from slow import few, quick_of_each, slow, slow_of_each

import hw4cli
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients

COPY = {"float32": "columns32", "float16": "columns16"}
ALLOWED = {"float32": 2e-5, "float16": 4e-3}
OF_GRADIENTS = {"float32": 2e-5, "float16": 2e-2}


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of compute capability 9.0, without warp groups, which the CPU has not, for both passes."""
    return faketorch.install_kernels(monkeypatch)


def numbers(d, dtype="float32", heads=2, kv_heads=2, rows=9, keys=13):
    rng = np.random.default_rng(d)
    shapes = (heads, rows), (kv_heads, keys), (kv_heads, keys)
    return [rng.uniform(-2, 2, (1, h, n, d)).astype(dtype) for h, n in shapes]


def exact(q, k, v, last=None):
    return definition(*(x.astype(np.float64) for x in (q, k, v)), q.shape[3] ** -0.5, last)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_head_size_is_computed_on_the_cpu_and_so_are_its_gradients(dtype):
    for d in (*range(1, 129), *range(129, 257, 9), 192, 256):
        q, k, v = numbers(d, dtype)
        o, lse = hw4cli.attention(q, k, v, causal=True, return_lse=True)
        expected, sums = exact(q, k, v, 4)
        assert np.abs(o - expected).max() < ALLOWED[dtype], d
        np.testing.assert_allclose(lse, sums, atol=1e-3)
        do = np.random.default_rng(0).uniform(-1, 1, q.shape).astype(dtype)
        found = hw4cli.attention_backward(do, q, k, v, o, lse, causal=True)
        for one, right in zip(found, exact_gradients(do, q, k, v, causal=True, offset=4, scale=d**-0.5), strict=True):
            assert np.abs(one - right).max() < OF_GRADIENTS[dtype], d


@pytest.mark.parametrize("d", [0, 257, 4096])
def test_what_is_no_head_size_is_one_sentence(d):
    q = k = v = np.zeros((1, 1, 2, d), np.float32)
    words = "there is nothing to compute" if d == 0 else f"d is {d}: it must be between 1 and 256"
    with pytest.raises(ValueError, match=re.escape(words)):
        hw4cli.attention(q, k, v)


@slow_of_each(9)
@quick_of_each(1)
@needs(COMPILER)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("d", [59, *few((129, 1, 3, 7, 31, 33, 63, 65, 111, 127, 201, 255), 1)])
def test_a_gpu_computes_in_rows_with_zero_columns_and_the_true_scale(gpu, dtype, d):
    arrays = numbers(d, dtype, heads=4)
    out = Tensor(np.full((1, 4, 9, 2 * d), np.nan, dtype)[..., ::2])
    options = {"kernel": "flash"} if dtype == "float32" else {}
    o, lse = hw4cli.attention(*map(Tensor, arrays), causal=True, return_lse=True, out=out, **options)
    assert o is out
    expected, sums = exact(*arrays, 4)
    assert np.abs(o.array - expected).max() < ALLOWED[dtype]
    np.testing.assert_allclose(lse.array, sums, atol=1e-3)
    assert gpu.launched[0] == gpu.launched[-1] == "columns"
    assert gpu.launched.count("columns") == 2  # Q, K and V together, and O
    assert np.isnan(out.array.base[..., 1::2].astype(float)).all()  # between O's columns


@slow_of_each(5)
@slow
@needs(COMPILER)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("d", [59, *few((1, 5, 33, 111, 129, 251), 0)])
def test_gradients_on_a_gpu_are_those_of_the_definition(gpu, dtype, d):
    q, k, v = numbers(d, dtype, heads=4)
    do = np.broadcast_to(
        np.random.default_rng(0).uniform(-1, 1, (1, 1, 1, d)).astype(dtype), q.shape
    )  # as torch expands
    tensors = [*map(Tensor, (q, k, v))]
    options = {"kernel": "flash"} if dtype == "float32" else {}
    o, lse = hw4cli.attention(*tensors, return_lse=True, **options)
    gpu.launched.clear()
    found = hw4cli.attention_backward(Tensor(do), *tensors, o, lse)
    assert gpu.launched[0] == gpu.launched[-1] == "columns"
    for one, right in zip(found, exact_gradients(do, q, k, v, causal=False, offset=0, scale=d**-0.5), strict=True):
        assert np.abs(one.array - right).max() < OF_GRADIENTS[dtype] * 2


@slow
@needs(COMPILER)
def test_the_range_that_is_read_chooses_the_kernel_that_the_next_multiple_gets(gpu):
    gpu.props = DEVICES[90]
    for d in (59, 60):
        gpu.launched.clear()
        hw4cli.attention(*map(Tensor, numbers(d)))
        kernels = [name for name in gpu.launched if name != "columns"]
        assert set(kernels) == {"split"}, gpu.launched
    gpu.launched.clear()
    q, k, v = (30 * x for x in numbers(59))
    o = hw4cli.attention(*map(Tensor, (q, k, v)))
    assert "float64" in gpu.launched  # whose scale is that of 59 columns, not of 60
    assert np.abs(o.array - exact(q, k, v)[0]).max() < 1e-5


@needs(COMPILER)
def test_rows_of_heads_side_by_side_are_copied_once(gpu):
    q, k, v = numbers(59)
    expected = hw4cli.attention(*map(Tensor, (q, k, v)), kernel="flash").array
    gpu.launched.clear()
    turned = [Tensor(np.ascontiguousarray(x.swapaxes(1, 2))) for x in (q, k, v)]
    o = hw4cli.attention(*turned, kernel="flash", layout="BNHD")
    np.testing.assert_array_equal(o.array.swapaxes(1, 2), expected)
    assert gpu.launched == ["columns", "flash", "columns"]


@needs(COMPILER)
def test_a_graph_captures_the_copies_too_once_they_are_compiled(gpu, monkeypatch):
    arrays = [*map(Tensor, numbers(59))]
    monkeypatch.setattr(faketorch.torch, "capturing", True)
    with pytest.raises(ValueError, match="is not compiled yet, which cannot be done while a CUDA graph is captured"):
        hw4cli.attention(*arrays, kernel="flash")
    monkeypatch.setattr(faketorch.torch, "capturing", False)
    expected = hw4cli.attention(*arrays, kernel="flash")
    monkeypatch.setattr(faketorch.torch, "capturing", True)
    np.testing.assert_array_equal(hw4cli.attention(*arrays, kernel="flash").array, expected.array)
