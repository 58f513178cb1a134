"""float32 arrays as calls of the ladder's kernels: heads that share keys, masks, other numbers of keys, layouts; the
kernels executed on the CPU."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from slow import quick_of_each

from hw4cli.arrays.float32 import as_batches, is_contiguous, is_packed, without_needless_mask
from hw4cli.arrays.operand import operand
from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import ABSMAX_BYTES, arguments
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import FLOAT32, Workload
from hw4cli.resources import kernel_path

pytestmark = quick_of_each(2)


def random(work, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [(work.heads, work.Nq), (work.kv_heads, work.Nk), (work.kv_heads, work.Nk), (work.heads, work.Nq)]
    return [rng.uniform(-2, 2, (work.batch, heads, N, work.d)).astype(np.float32) for heads, N in sizes]


def operands(arrays, layout="BHND"):
    return tuple(operand(name, array, layout) for name, array in zip(("q", "k", "v", "out"), arrays, strict=True))


def execute(kernel, cc, work, arrays, splits=0):
    """O and the LSE by a kernel, as Float32OnGpu calls it."""
    variant = VARIANTS[kernel] if not splits else replace(VARIANTS[kernel], splits=lambda *_: splits)
    arrays[3][...] = np.nan
    work = without_needless_mask(work)
    calls = as_batches(work, operands(arrays))
    lse = np.full(work.batch * work.heads * work.Nq, np.nan, np.float32)
    plan = variant.plan(calls.each[0].shape, DEVICES[cc])
    library = Library(shared_object(kernel_path(plan.source), plan.macros, cc, 32, PLAIN))
    library.add_as(cc)
    scratch = np.full(plan.scratch + 128, 0xFF, np.uint8)  # NaN
    address = -(-scratch.ctypes.data // 64) * 64
    end = address - scratch.ctypes.data + plan.scratch
    for call in calls.each:
        if plan.finds_absmax:
            ctypes.memset(address, 0, ABSMAX_BYTES)
        at = lse.ctypes.data + 4 * call.first_lse
        passed = arguments(plan, call.shape, call.matrices, address, at, call.offset)
        for step in plan.launches:
            assert library.launch(step, passed, [])[0]
    assert (scratch[end:] == 0xFF).all()
    group = work.heads // work.kv_heads
    if calls.interleaved:
        lse = lse.reshape(group, work.batch, work.kv_heads, work.Nq).transpose(1, 2, 0, 3)
    return arrays[3], lse.reshape(work.batch, work.heads, work.Nq)


WORKS = {  # kernel, compute capability, parts of the keys; batch, heads, heads of K and V, rows, keys, d, causal
    "heads alone": ("flash", 90, 0, (2, 3, 3, 40, 40, 16, False)),
    "shared keys, one call": ("flash", 90, 0, (2, 6, 2, 20, 70, 16, False)),
    "shared keys and a mask": ("flash", 90, 2, (2, 4, 2, 50, 300, 16, True)),
    "more rows than keys": ("flash", 90, 0, (1, 2, 1, 90, 33, 16, True)),
    "longer, as on a GPU": ("flash", 90, 0, (1, 4, 2, 512, 512, 64, True)),
    "decoding": ("flash", 90, 3, (1, 8, 2, 1, 500, 16, True)),
    "warp groups, shared keys, a mask": ("split", 90, 2, (1, 4, 2, 140, 600, 32, True)),
    "warp groups, a block converts": ("split", 90, 0, (1, 2, 1, 33, 130, 32, True)),
    "mma.sync, another number of keys": ("exact", 80, 0, (1, 4, 2, 70, 290, 32, False)),
    "float64": ("float64", 90, 0, (1, 4, 2, 30, 50, 16, True)),
}


@pytest.mark.parametrize("name", WORKS)
def test_kernels_compute_heads_masks_and_other_numbers_of_keys(name):
    kernel, cc, splits, (batch, heads, kv_heads, Nq, Nk, d, causal) = WORKS[name]
    work = Workload(FLOAT32, batch, heads, kv_heads, Nq, Nk, d, causal, Nk - Nq if causal else 0)
    arrays = random(work)
    work = work if kernel == "float64" else replace(work, scale=0.3)
    o, lse = execute(kernel, cc, work, arrays, splits)
    expected, sums = definition(
        *(x.astype(np.float64) for x in arrays[:3]), work.scale, work.offset if causal else None
    )
    np.testing.assert_allclose(o, expected, atol=2e-3 if kernel == "split" else 1e-5)
    if kernel != "float64":
        seen = np.isfinite(sums)
        assert (lse[~seen] == -np.inf).all()
        np.testing.assert_allclose(lse[seen], sums[seen], atol=1e-3 if kernel == "split" else 1e-4)


def test_heads_that_share_keys_are_one_call_where_no_mask_depends_on_the_row():
    for causal, Nq, calls, rows in ((False, 5, 1, 20), (True, 5, 4, 5), (True, 1, 1, 4)):
        work = Workload(FLOAT32, 2, 8, 2, Nq, 9, 8, causal, 9 - Nq if causal else 0)
        made = as_batches(without_needless_mask(work), operands(random(work)))
        assert (len(made.each), {call.shape.Nq for call in made.each}) == (calls, {rows})
        assert {(call.shape.B, call.shape.N) for call in made.each} == {(4, 9)}


def test_what_a_kernel_reads_as_it_is_and_what_must_be_copied():
    whole = np.zeros((2, 4, 10, 8), np.float32)
    for array, layout, packed, contiguous in (
        (whole, "BHND", True, True),
        (whole[:, :, :5], "BHND", True, False),  # heads lie further apart
        (whole[:1, :2], "BHND", True, True),
        (whole[:, :2], "BHND", False, False),  # batches and heads lie apart by other distances
        (whole, "BNHD", False, False),
        (whole[:, :, :1].swapaxes(1, 2), "BNHD", True, False),  # one row a head
        (whole[..., :4], "BHND", False, False),
        (whole[:, ::-1], "BHND", False, False),
        (whole.reshape(-1)[1:-7].reshape(1, 1, 79, 8), "BHND", False, False),  # not at a multiple of 16 bytes
    ):
        x = operand("x", array, layout)
        assert (is_packed(x), is_contiguous(x)) == (packed, contiguous), (array.shape, array.strides, layout)
