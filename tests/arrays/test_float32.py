"""hw4cli.attention of float32 tensors on a GPU that is made up: its kernels are executed on the CPU."""

import re
import threading
from dataclasses import replace
from types import SimpleNamespace

import faketorch
import numpy as np
import pytest
from definitions import definition
from faketorch import Tensor
from slow import few, quick_of_each, slow

import hw4cli
from hw4cli.arrays.float32 import Float32OnGpu, without_needless_mask
from hw4cli.arrays.operand import operand, stream_of
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Workload


@pytest.fixture
def gpu(monkeypatch):
    return faketorch.install(monkeypatch)


def tensors(q=(1, 4, 40, 16), kv=(1, 2, 70, 16), factor=1.0):
    rng = np.random.default_rng(0)
    return [Tensor(rng.uniform(-3, 3, shape).astype(np.float32) * np.float32(factor)) for shape in (q, kv, kv)]


def exact(q, k, v, scale=0.25, last=None):
    return definition(*(x.array.astype(np.float64) for x in (q, k, v)), scale, last)


def swapped(x):
    return Tensor(np.ascontiguousarray(x.array.swapaxes(1, 2)).swapaxes(1, 2))


@quick_of_each(1)
@pytest.mark.parametrize("causal", [False, True])
def test_shared_heads_masks_and_scales_are_computed(gpu, causal):
    q, k, v = tensors()
    o, lse = hw4cli.attention(q, k, v, causal=causal, scale=0.1, kernel="flash", return_lse=True)
    expected, sums = exact(q, k, v, 0.1, 30 if causal else None)
    np.testing.assert_allclose(o.array, expected, atol=1e-5)
    np.testing.assert_allclose(lse.array, sums, atol=1e-4)
    assert gpu.launched == ["flash"] * (2 if causal else 1)


@slow
@quick_of_each(1)
@pytest.mark.parametrize("causal", [False, True])
def test_values_that_only_float64_answers_have_an_lse_too(gpu, causal):
    q, k, v = tensors(factor=300.0)
    o, lse = hw4cli.attention(q, k, v, causal=causal, align="top-left", return_lse=True)
    expected, sums = exact(q, k, v, 0.25, 0 if causal else None)
    assert set(gpu.launched) == {"float64"}
    np.testing.assert_allclose(lse.array, sums, rtol=1e-7)
    np.testing.assert_allclose(o.array, expected, rtol=1e-6, atol=1e-4)


def test_rows_without_keys_have_the_lse_of_nothing_by_float64(gpu):
    q, k, v = tensors(q=(1, 2, 9, 16), kv=(1, 2, 4, 16))
    o, lse = hw4cli.attention(q, k, v, causal=True, kernel="float64", return_lse=True)
    assert (
        not o.array[:, :, :5].any()
        and np.isneginf(lse.array[:, :, :5]).all()
        and np.isfinite(lse.array[:, :, 5:]).all()
    )


def test_arrays_that_no_kernel_reads_as_they_are_are_copied_and_the_answer_back(gpu):
    q, k, v = tensors()
    expected = hw4cli.attention(q, k, v, causal=True, kernel="flash").array
    rows_first = [Tensor(swapped(x).array.swapaxes(1, 2)) for x in (q, k, v)]
    out = Tensor(np.full((1, 40, 4, 32), np.nan, np.float32)[..., :16])
    assert hw4cli.attention(*rows_first, causal=True, kernel="flash", layout="BNHD", out=out) is out
    np.testing.assert_array_equal(out.array.swapaxes(1, 2), expected)


@quick_of_each(1)
@pytest.mark.parametrize("kernel", ["paper", "naive", "warp", "flash"])
def test_the_answer_may_take_the_place_of_q(gpu, kernel):
    q, k, v = tensors(kv=(1, 4, 70, 16))
    expected = hw4cli.attention(q, k, v, kernel=kernel).array.copy()
    assert hw4cli.attention(q, k, v, kernel=kernel, out=q) is q
    np.testing.assert_array_equal(q.array, expected)


def test_the_library_allocates_what_a_kernel_needs_so_that_a_graph_keeps_it(gpu):
    hw4cli.attention(*tensors(), kernel="flash")
    assert [dtype for dtype, _ in faketorch.torch.allocated] == ["float32", "uint8"]


@slow
def test_the_range_that_is_read_chooses_as_the_one_that_is_given(gpu):
    for factor, kernel in ((1, "split"), (30, "float64")):
        arrays, bounds = tensors(factor=factor), (3 * factor,) * 3
        gpu.launched.clear()
        read, given = hw4cli.attention(*arrays), hw4cli.attention(*arrays, bounds=bounds)
        assert gpu.launched[-1].removesuffix("_convert") == kernel
        np.testing.assert_array_equal(read.array, given.array)


def test_a_larger_scale_counts_as_larger_values(gpu):
    hw4cli.attention(*tensors(), bounds=(3, 3, 3), scale=0.25 * 900)
    assert gpu.launched[-1] == "flash"


@pytest.mark.parametrize("options", [{"max_error": 1e-3}, {"lengths": [70], "kernel": "auto"}], ids=str)
def test_a_graph_that_would_need_the_range_is_refused(gpu, monkeypatch, options):
    monkeypatch.setattr(faketorch.torch, "capturing", True)
    sentence = "give bounds=(the largest |element| of q, of k, of v), or kernel= without max_error="
    with pytest.raises(ValueError, match=re.escape(sentence)):
        hw4cli.attention(*tensors(), **options)


@slow
@pytest.mark.parametrize("causal", few([False, True], quick=1))
def test_a_graph_chooses_the_kernel_by_what_is_in_the_arrays_when_it_is_replayed(gpu, monkeypatch, causal):
    """With shared heads, too, which are a launch after the other where rows have a mask."""
    faketorch.keep_memory(monkeypatch)
    given, options = tensors(), {"causal": causal, "return_lse": not causal}

    def answer(**more):
        found = hw4cli.attention(*arrays, **options, **more)
        return found if options["return_lse"] else (found,)

    arrays = [faketorch.empty(x.shape, x.dtype, None) for x in given]
    for x, y in zip(arrays, given, strict=True):
        x.array[...] = y.array
    answer()
    made = faketorch.captured(gpu, monkeypatch, answer)
    for part, factor, kernel in ((2, 1, "split"), (2, 2, "exact"), (0, 300, "float64"), (1, np.nan, "float64")):
        for x, y in zip(arrays, given, strict=True):
            x.array[...] = y.array
        arrays[part].array[...] *= np.float32(factor)
        for x in made:
            x.array[...] = np.float32(7)  # which is no answer
        gpu.launched.clear(), gpu.passed_over.clear()
        gpu.driver.replay()
        assert {*gpu.launched} == {kernel} and {"split", "exact", "flash", "float64"} - {kernel} == {*gpu.passed_over}
        for x, y in zip(made, answer(kernel=kernel), strict=True):
            np.testing.assert_array_equal(x.array, y.array)


def test_arrays_that_the_range_check_cannot_read_are_read_by_the_host(gpu, monkeypatch):
    q, k, v = tensors(kv=(1, 4, 70, 16))
    apart = [Tensor(np.full((1, 4, 80, 16), np.inf, np.float32)[:, :, :70]) for _ in range(2)]  # a cache of keys
    for x, y in zip(apart, (k, v), strict=True):
        x.array[...] = y.array
    with pytest.raises(AttributeError, match="min"):  # what the library is asked for
        hw4cli.attention(q, *apart)
    assert gpu.launched == gpu.passed_over == []


def test_nothing_is_read_where_one_kernel_alone_may_answer(gpu):
    """Changed scores."""
    hw4cli.attention(*tensors(), causal=True, window=(8, 0), softcap=3.0)
    assert {*gpu.launched} == {"flash"} and gpu.passed_over == []


def test_a_graph_captures_what_was_compiled_before_and_nothing_else(gpu, monkeypatch):
    arrays = tensors()
    monkeypatch.setattr(faketorch.torch, "capturing", True)
    with pytest.raises(ValueError, match="is not compiled yet, which cannot be done while a CUDA graph is captured"):
        hw4cli.attention(*arrays, kernel="flash")
    monkeypatch.setattr(faketorch.torch, "capturing", False)
    expected = hw4cli.attention(*arrays, kernel="flash")
    monkeypatch.setattr(faketorch.torch, "capturing", True)
    np.testing.assert_array_equal(hw4cli.attention(*arrays, kernel="flash").array, expected.array)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kernel": "float64", "scale": 1.0}, "float64 computes with the scale 1/sqrt(d) alone, and scale is 1"),
        ({"kernel": "float64", "scale": 1.0, "max_error": 1e-3}, "float64 computes with the scale 1/sqrt(d) alone"),
        (
            {"kernel": "float4", "return_lse": True},
            "kernel float4 gives no LSE: flash, split, split8, exact, float64 do",
        ),
        ({"max_error": 1e-12}, "max_error = 1e-12 is less than any kernel can keep"),
    ],
)
def test_what_no_kernel_gives_is_refused(gpu, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        hw4cli.attention(*tensors(), **options)


@pytest.mark.parametrize(
    ("fact", "error", "sentence"),
    [
        ({"layout": "torch.sparse_coo"}, TypeError, "k is a nested or sparse tensor: give a dense one"),
        ({"is_nested": True}, TypeError, "k is a nested or sparse tensor: give a dense one"),
        ({"negative": True}, ValueError, "k is the negative of what lies in memory: give k.resolve_neg()"),
    ],
)
def test_a_tensor_that_is_not_what_lies_in_memory_is_refused(gpu, fact, error, sentence):
    q, k, v = tensors()
    vars(k).update(fact)
    with pytest.raises(error, match=re.escape(sentence)):
        hw4cli.attention(q, k, v)


def test_a_thread_that_has_not_used_the_gpu_yet_gets_its_context(gpu):
    before = len(faketorch.has_context)
    hw4cli.attention(*tensors())
    assert (threading.get_ident(), 0) in faketorch.has_context[before:]


def test_torchs_stream_is_taken_by_cudas_protocol_or_in_an_older_cupy_by_its_address(gpu):
    x = operand("q", tensors()[0], "BHND")
    assert stream_of(x, faketorch.cupy).ptr == faketorch.STREAM
    runtime = faketorch.cupy.cuda.runtime
    older = SimpleNamespace(
        cuda=SimpleNamespace(Stream=SimpleNamespace(), ExternalStream=lambda address: address, runtime=runtime)
    )
    assert stream_of(x, older) == faketorch.STREAM


@pytest.mark.parametrize(("scale", "kernel"), [(None, "split8"), (0.1, "split")])
def test_integers_multiply_long_rows_only_with_the_usual_scale(scale, kernel):
    hopper = Float32OnGpu(SimpleNamespace(props=DEVICES[90], name="NVIDIA H200"))
    work = Workload.square("float32", 1, 2, 4096, 64)
    work = replace(work, scale=scale or work.scale)
    assert hopper.kernel(work, (), AUTO, None, (2.9, 2.9, 2.9), None) == kernel


@pytest.mark.parametrize(("d", "first"), [(64, "split8"), (32, "split")])
def test_windows_are_computed_by_tensor_cores_where_all_keys_are(d, first):
    hopper = Float32OnGpu(SimpleNamespace(props=DEVICES[90], name="NVIDIA H200"))
    plain = Workload.square("float32", 1, 2, 8192, d, causal=True)
    for window in (1, 1024, 6000):
        work = replace(plain, window=window)
        assert hopper._listed(work, AUTO).kernels == hopper._listed(plain, AUTO).kernels
        assert hopper.kernel(work, (), AUTO, None, (2.9, 2.9, 2.9), None) == first
        assert hopper.kernel(work, (), AUTO, None, (30, 30, 30), None) == "float64"


def test_a_mask_is_left_out_only_where_every_row_sees_every_key():
    masked = Workload("float32", 1, 1, 1, 4, 9, 8, True)
    assert without_needless_mask(replace(masked, offset=8)).causal is False
    assert without_needless_mask(replace(masked, offset=7)).causal is True
