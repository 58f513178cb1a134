"""Gradients of rows of more than 128 columns, executed on the CPU against float64."""

import re
from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from slow import few, quick_of_each, slow, slow_of_each
from test_gradients import EPSILON, as_numbers, as_words, operands

from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.emulator.library import Schedule
from hw4cli.errors import MachineError
from hw4cli.plans import gradients as choice
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients
from hw4cli.problem.scores import Score
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Span, Workload
from hw4cli.resources import kernel_source

# A kernel, the compute capability, the type, and sizes: batches, heads, heads of K and V, rows, keys, d.
WAYS = {
    "Ampere, fp16": ("backward_mma", 80, FLOAT16, (1, 2, 1, 70, 50, 256)),
    "Ada, bf16, padded": ("backward_mma", 89, BFLOAT16, (1, 1, 1, 33, 70, 136)),
    "Ampere, float32, padded": ("backward_mma", 80, FLOAT32, (1, 2, 1, 40, 35, 132)),
    "Ada, float32": ("backward_mma", 89, FLOAT32, (1, 1, 1, 20, 18, 256)),
    "Hopper, float32": ("backward_mma", 90, FLOAT32, (1, 1, 1, 70, 33, 192)),
    "Hopper, fp16": ("backward_wgmma", 90, FLOAT16, (1, 4, 2, 130, 129, 256)),
    "Hopper, bf16, padded": ("backward_wgmma", 90, BFLOAT16, (2, 1, 1, 65, 127, 136)),
    "Hopper, bf16, in 192 columns": ("backward_wgmma", 90, BFLOAT16, (1, 2, 1, 128, 200, 192)),
    "Pascal, float32": ("backward", 61, FLOAT32, (1, 2, 1, 20, 30, 256)),
    "Turing, fp16, padded": ("backward", 75, FLOAT16, (1, 1, 1, 33, 20, 168)),
    "Ampere, bf16, by CUDA cores": ("backward", 80, BFLOAT16, (1, 1, 1, 20, 40, 192)),
}


def assert_right(way, factor=1.0, allowed=None, **mask):
    kernel, cc, dtype, sizes = WAYS[way]
    work = replace(Workload(dtype, *sizes), **mask) if mask else Workload(dtype, *sizes)
    assert_work(work, kernel, cc, factor, allowed)


def assert_work(work, kernel, cc, factor=1.0, allowed=None, **how):
    dtype = work.dtype
    words = [as_words(x, dtype) for x in operands(work, factor=factor)]
    do, q, k, v = (as_numbers(x, dtype) for x in words)
    last = work.offset if work.causal else None
    o, lse = definition(q, k, v, last=last, window=work.window)
    got = run_backward(work, *words, as_words(o, dtype), lse.astype(np.float32), kernel=kernel, cc=cc, **how)
    assert got.finished and not got.findings, got.findings
    expected = exact_gradients(do, q, k, v, causal=work.causal, offset=work.offset, window=work.window)
    for one, right in zip(got.gradients, expected, strict=True):
        error = np.abs(as_numbers(one, dtype) - right).max()
        assert error <= (allowed or EPSILON[dtype]) * max(np.abs(right).max(), 1e-2), error
    return got


@slow_of_each(5)
@pytest.mark.parametrize("way", few(WAYS, quick=1))
def test_gradients_of_wide_rows_are_right_and_free_of_races(way):
    assert_right(way)


@slow_of_each(6)
@slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("window", [0, 12])
def test_masks_of_wide_rows_are_those_of_narrow_ones(way, window):
    assert_right(way, causal=True, offset=5, window=window)


@slow
@quick_of_each(1)
def test_large_scores_of_wide_rows_are_weighed_once_more():
    assert_right("Ampere, float32, padded", factor=3.0, allowed=2e-5)


def test_each_gpu_has_a_kernel_for_gradients_of_wide_rows():
    for dtype in (FLOAT16, FLOAT32):
        work = Workload(dtype, 1, 8, 8, 1024, 1024, 256)
        for cc, props in DEVICES.items():
            kernel = choice.fastest(work, props)
            by_warpgroups = props.warpgroups and dtype == FLOAT16
            assert kernel == ("backward_wgmma" if by_warpgroups else "backward_mma" if cc >= 80 else "backward")
            for launch in choice.plan(work, props).launches:
                assert launch.shared <= props.shared_limit


@slow_of_each(3)
@slow
@pytest.mark.parametrize("window", few([0, 25], quick=1))
@pytest.mark.parametrize(("d", "dv"), few([(192, 128), (256, 192), (256, 24), (136, 72), (200, 8)], quick=1))
def test_v_of_fewer_columns_has_gradients_as_it_is(d, dv, window):
    for dtype, rows, keys in ((BFLOAT16, 70, 130), (FLOAT16, 129, 65)):
        work = Workload(dtype, 1, 2, 1, rows, keys, d, True, keys - rows, dv=dv)
        assert_work(replace(work, window=window), "backward_wgmma", 90)


def test_columns_that_v_lacks_are_neither_multiplied_nor_read():
    work = Workload(BFLOAT16, 1, 8, 8, 1024, 1024, 192)
    shorter, props = replace(work, dv=128), DEVICES[90]
    assert choice.as_computed(shorter, props) == shorter
    both = [choice.WGMMA.models(choice.plan(one, props), one, props) for one in (work, shorter)]
    for whole, less, share in zip(*both, (0, 8 / 9, 5 / 6), strict=True):
        assert (less.tensor_flops, less.dram < whole.dram) == (share * whole.tensor_flops, True)


@pytest.mark.parametrize(
    ("d", "dv", "cc", "kernel"),
    [
        (128, 64, 90, "backward_once"),
        (192, 256, 90, "backward_wgmma"),
        (192, 128, 80, "backward_mma"),
        (192, 128, 61, "backward"),
    ],
)
def test_kernels_that_compute_rows_of_one_width_alone_say_so(d, dv, cc, kernel):
    """Arrays are widened for them."""
    work = Workload(FLOAT16, 1, 2, 2, 100, 100, d, dv=dv)
    widened = choice.as_computed(work, DEVICES[cc])
    assert widened == choice.as_computed(work, DEVICES[cc], kernel) == work.of_one_width
    assert choice.fastest(widened, DEVICES[cc]) == kernel
    with pytest.raises(MachineError, match=f"^kernel {kernel} (computes V of as many columns|does not take)"):
        choice.plan(work, DEVICES[cc], kernel)


@slow_of_each(6)
@slow
@pytest.mark.parametrize("offset", ["bottom right", "top left"])
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("keys", [1, 63, 64, 65, 127, 128, 129, 200])
def test_two_groups_that_share_keys_compute_any_number_of_them(keys, dtype, offset):
    """A group computes P and dV of 64 keys, another dS and dK; of one row, and of more than a tile has."""
    for rows in (1, 63, 65, 129):
        work = Workload(dtype, 1, 2, 1, rows, keys, 256, True, keys - rows if offset == "bottom right" else 0)
        assert_work(work, "backward_wgmma", 90)


@slow
def test_every_order_of_threads_and_every_number_of_blocks_gives_wide_rows_the_same_bits():
    work = Workload(BFLOAT16, 1, 2, 1, 130, 200, 256, True, 70)
    runs = [(Schedule("forward"), 2), (Schedule("random", 5), 1), (Schedule("reverse"), 3)]
    first, *others = (
        assert_work(work, "backward_wgmma", 90, schedule=order, blocks=blocks).gradients for order, blocks in runs
    )
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@slow_of_each(6)
@slow
@pytest.mark.parametrize("mask", ["full", "causal", "window", "lengths", "softcap"])
@pytest.mark.parametrize(
    ("dtype", "d", "dv"),
    [
        (FLOAT16, 256, 0),
        (BFLOAT16, 256, 0),
        (BFLOAT16, 192, 0),
        (FLOAT16, 136, 0),
        (BFLOAT16, 192, 128),
        (FLOAT16, 256, 64),
    ],
)
def test_wide_rows_by_warpgroups_compile_without_a_spill_or_a_serialised_product(dtype, d, dv, mask):
    work = replace(Workload.square(dtype, 4, 16, 4096, d, mask in ("causal", "window")), dv=dv)
    if mask == "window":
        work = replace(work, window=1024)
    if mask == "lengths":
        work = replace(work, sequences=tuple(Span(n, 0, 4096 - n, 0, 4096 - n) for n in range(4)))
    if mask == "softcap":
        work = replace(work, score=Score("30 * tanh(s / 30)"))
    planned = choice.plan(work, DEVICES[90])
    assert planned.variant == "backward_wgmma"
    options = (*OPTIONS, *planned.options, "--ptxas-options=-v")
    compiler = Compiler(find(13000, 90), 13000, 90)
    _, log = compiler.build(kernel_source("backward_wgmma"), "backward_wgmma.cu", options, 90)
    assert re.findall(r"(\d+) bytes spill", log) == 6 * ["0"], log
    assert "Potential Performance Loss" not in log and "warning" not in log, log
    assert all(step.shared <= DEVICES[90].shared_limit for step in planned.launches)


def test_dk_and_dv_of_wide_rows_are_two_launches_whose_work_is_counted():
    work = Workload(BFLOAT16, 1, 8, 8, 1024, 1024, 256)
    plan = choice.plan(work, DEVICES[80])
    assert [launch.symbol for launch in plan.launches[1:]] == ["backward_mma_dq", "backward_mma_dk", "backward_mma_dv"]
    _, dq, dk, dv = choice.GRADIENTS["backward_mma"].models(plan, work, DEVICES[80])
    assert dq.tensor_flops == dk.tensor_flops == 1.5 * dv.tensor_flops == 6 * 8 * 1024 * 1024 * 256
