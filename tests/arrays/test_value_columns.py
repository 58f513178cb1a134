"""V with another number of columns than Q and K: on the CPU, and on a GPU that is made up, whose kernels the CPU
executes."""

import faketorch
import numpy as np
import pytest
from definitions import definition
from faketorch import Tensor
from needs import COMPILER, needs
from slow import few, quick_of_each, slow, slow_of_each

import hw4cli
from hw4cli.arrays import ongpu
from hw4cli.arrays.emulated import tensor_map
from hw4cli.arrays.gradients import ongpu as gradients_ongpu
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients

ALLOWED = {"float32": 2e-5, "float16": 4e-3}
OF_GRADIENTS = {"float32": 4e-5, "float16": 4e-2}
SIZES = [(192, 128), (64, 40), (5, 8), (40, 64), (1, 256), (59, 33), (129, 7)]  # of Q and K, of V


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of compute capability 8.0."""
    return faketorch.install_kernels(monkeypatch)


def numbers(d, dv, dtype="float32", heads=4, kv_heads=2, rows=9, keys=13):
    rng = np.random.default_rng(d)
    shapes = (heads, rows, d), (kv_heads, keys, d), (kv_heads, keys, dv), (heads, rows, dv)
    return [rng.uniform(-2, 2, (1, *shape)).astype(dtype) for shape in shapes]


def exact(q, k, v, last=None):
    return definition(*(x.astype(np.float64) for x in (q, k, v)), q.shape[3] ** -0.5, last)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("d", "dv"), SIZES)
def test_numpy_computes_them_and_their_gradients(d, dv, dtype):
    q, k, v, do = numbers(d, dv, dtype)
    o, lse = hw4cli.attention(q, k, v, causal=True, return_lse=True)
    expected, sums = exact(q, k, v, 4)
    assert o.shape == do.shape
    assert np.abs(o - expected).max() < ALLOWED[dtype]
    np.testing.assert_allclose(lse, sums, atol=1e-3)
    found = hw4cli.attention_backward(do, q, k, v, o, lse, causal=True)
    for one, right, like in zip(found, exact_gradients(do, q, k, v, causal=True, offset=4), (q, k, v), strict=True):
        assert one.shape == like.shape
        assert np.abs(one - right).max() < OF_GRADIENTS[dtype]


@needs(COMPILER)
@quick_of_each(2)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("d", "dv"), SIZES)
def test_a_gpu_computes_them(gpu, d, dv, dtype):
    q, k, v, do = numbers(d, dv, dtype)
    options = {"kernel": "flash"} if dtype == "float32" else {}
    o, lse = hw4cli.attention(*map(Tensor, (q, k, v)), causal=True, return_lse=True, **options)
    expected, sums = exact(q, k, v, 4)
    assert o.array.shape == do.shape
    assert np.abs(o.array - expected).max() < ALLOWED[dtype]
    np.testing.assert_allclose(lse.array, sums, atol=1e-3)


@slow_of_each(5)
@slow
@needs(COMPILER)
@quick_of_each(1)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("d", "dv"), few(SIZES))
def test_a_gpu_computes_their_gradients(gpu, d, dv, dtype):
    q, k, v, do = numbers(d, dv, dtype)
    options = {"kernel": "flash"} if dtype == "float32" else {}
    tensors = [*map(Tensor, (q, k, v))]
    o, lse = hw4cli.attention(*tensors, return_lse=True, **options)
    found = hw4cli.attention_backward(Tensor(do), *tensors, o, lse)
    for one, right in zip(found, exact_gradients(do, q, k, v), strict=True):
        assert one.array.shape == right.shape
        assert np.abs(one.array - right).max() < OF_GRADIENTS[dtype]


@slow
@needs(COMPILER)
@quick_of_each(1)
@pytest.mark.parametrize("padding", ["right", "left"])
def test_rows_of_no_sequence_stay_zero(gpu, padding):
    q, k, v, do = numbers(24, 16, "float16", rows=9, keys=9)
    q, k, v, do = (np.concatenate([x, x[:, :, ::-1]]) for x in (q, k, v, do))
    options = {"lengths": [5, 9], "q_lengths": [5, 9], "padding": padding}
    o, lse = hw4cli.attention(*map(Tensor, (q, k, v)), return_lse=True, **options)
    some, rest = (slice(0, 5), slice(5, 9)) if padding == "right" else (slice(4, 9), slice(0, 4))
    for batch, rows in ((0, some), (1, slice(0, 9))):
        expected, _ = exact(*(x[batch : batch + 1, :, rows] for x in (q, k, v)))
        assert np.abs(o.array[batch : batch + 1, :, rows] - expected).max() < ALLOWED["float16"]
    assert (o.array[0, :, rest] == 0).all() and np.isneginf(lse.array[0, :, rest]).all()
    found = hw4cli.attention_backward(do, q, k, v, o.array, lse.array, **options)  # NumPy's: on the CPU
    assert [x.shape for x in found] == [q.shape, k.shape, v.shape]
    assert all((x[0, :, rest] == 0).all() for x in found)


@pytest.mark.parametrize(
    ("sentence", "changed"),
    {
        "out has shape (1, 4, 9, 8): give that of q with v's columns, (1, 4, 9, 5)": {"out": (1, 4, 9, 8)},
        "k and v differ in batch, heads or N": {"v": (1, 2, 12, 5)},
        "v has 257 columns: they must be between 1 and 256": {"v": (1, 2, 13, 257)},
        "there is nothing to compute": {"v": (1, 2, 13, 0)},
    }.items(),
)
def test_what_does_not_fit_is_one_sentence(sentence, changed):
    q, k, v, _ = numbers(8, 5)
    given = {"q": q, "k": k, "v": v} | {name: np.zeros(shape, np.float32) for name, shape in changed.items()}
    with pytest.raises(ValueError) as error:
        hw4cli.attention(**given)
    assert sentence in str(error.value)


@slow
@needs(COMPILER)
@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_on_hopper_v_of_whole_chunks_is_read_where_it_lies(gpu, monkeypatch, layout):
    gpu.props = DEVICES[90]
    monkeypatch.setattr(ongpu, "encode", tensor_map)
    q, k, v, _ = numbers(72, 40, "float16", rows=65, keys=70)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) if layout == "BNHD" else x for x in (q, k, v)]
    o, lse = hw4cli.attention(*map(Tensor, turned), layout=layout, return_lse=True)
    expected, sums = exact(q, k, v)
    found = o.array.swapaxes(1, 2) if layout == "BNHD" else o.array
    assert np.abs(found - expected).max() < ALLOWED["float16"]
    np.testing.assert_allclose(lse.array, sums, atol=1e-3)
    assert gpu.launched == ["half"]
    gpu.launched.clear()
    odd = [x[..., :-1] for x in (q, k)]
    o = hw4cli.attention(*map(Tensor, (*odd, v)))  # Q and K alone are copied
    assert np.abs(o.array - exact(*odd, v)[0]).max() < ALLOWED["float16"]
    assert gpu.launched == ["columns", "half"]


@slow
@needs(COMPILER)
@quick_of_each(1)
@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_on_hopper_gradients_of_wide_rows_and_narrower_v_are_of_arrays_as_they_lie(gpu, monkeypatch, layout):
    gpu.props = DEVICES[90]
    for module in (ongpu, gradients_ongpu):
        monkeypatch.setattr(module, "encode", tensor_map)
    q, k, v, do = numbers(192, 128, "float16", rows=65, keys=70)
    given = [Tensor(np.ascontiguousarray(x.swapaxes(1, 2)) if layout == "BNHD" else x) for x in (do, q, k, v)]
    o, lse = hw4cli.attention(*given[1:], layout=layout, return_lse=True)
    gpu.launched.clear()
    found = hw4cli.attention_backward(*given, o, lse, layout=layout)
    for one, right in zip(found, exact_gradients(do, q, k, v), strict=True):
        one = one.array.swapaxes(1, 2) if layout == "BNHD" else one.array
        assert one.shape == right.shape
        assert np.abs(one - right).max() < OF_GRADIENTS["float16"]
    assert gpu.launched == 3 * ["backward_wgmma"]  # nothing is copied
