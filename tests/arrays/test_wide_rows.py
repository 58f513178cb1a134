"""Rows of more than 128 columns: each kernel that takes them, executed on the CPU against float64."""

import re
from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from halves import ALLOWED, SUMS, numbers, random_words
from slow import few, quick_of_each, slow, slow_of_each

from hw4cli.arrays.emulated import run_half
from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.errors import MachineError
from hw4cli.plans.dispatch import AUTO, candidates
from hw4cli.plans.kernels16 import ENTRIES16, kernel16, plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Span, Workload
from hw4cli.resources import kernel_source

# A kernel, the compute capability, the type, and sizes: batches, heads, heads of K and V, rows, keys, d.
PLAIN = {
    "Ampere, fp16": ("half_mma", 80, FLOAT16, (1, 2, 1, 70, 90, 256)),
    "Ada, bf16, padded": ("half_mma", 89, BFLOAT16, (1, 1, 1, 70, 41, 136)),
    "Turing, fp16": ("half_mma", 75, FLOAT16, (1, 1, 1, 65, 33, 200)),
    "Pascal, bf16": ("half_cores", 61, BFLOAT16, (1, 2, 1, 33, 41, 256)),
    "Pascal, fp16, padded": ("half_cores", 61, FLOAT16, (1, 1, 1, 20, 41, 168)),
    "Hopper, bf16": ("half", 90, BFLOAT16, (1, 3, 1, 200, 170, 256)),
    "Hopper, fp16, padded": ("half", 90, FLOAT16, (2, 2, 2, 130, 210, 136)),
    "Hopper, bf16, in 192 columns": ("half", 90, BFLOAT16, (1, 2, 1, 65, 97, 184)),
    "decoding, Ampere": ("half_split", 80, BFLOAT16, (1, 4, 2, 1, 300, 256)),
    "decoding, Turing": ("half_split", 75, FLOAT16, (2, 3, 1, 2, 130, 192)),
    "decoding, Hopper": ("half_split", 90, FLOAT16, (1, 20, 1, 3, 200, 160)),
}
OF_TENSOR_CORES = [("half", 90), ("half_mma", 75), ("half_mma", 80), ("half_mma", 89), ("half_split", 80)]


def of(dtype, sizes, **mask):
    work = Workload(dtype, *sizes)
    return replace(work, **mask) if mask else work


def assert_right(work, kernel, cc, **options):
    """Runs a kernel; holds O and the LSE of each sequence against float64, and nothing else written."""
    q, k, v = random_words(work)
    outcome = run_half(work, q, k, v, kernel=kernel, cc=cc, gap=8, **options)
    assert [str(finding) for finding in outcome.findings] == []
    assert outcome.finished and (outcome.beside == 0xFFFF).all()
    exact = [numbers(x, work.dtype) for x in (q, k, v)]
    o, lse = definition(*exact, work.scale, work.offset if work.causal else None, work.window)
    assert np.abs(numbers(outcome.o, work.dtype) - o).max() <= ALLOWED[work.dtype]
    seen = np.isfinite(lse)
    assert (outcome.lse[~seen] == -np.inf).all()
    np.testing.assert_allclose(outcome.lse[seen], lse[seen], rtol=1e-6, atol=SUMS[work.dtype])


@pytest.mark.parametrize("way", few(PLAIN, quick=1))
def test_kernels_of_16_bits_compute_wide_rows(way):
    kernel, cc, dtype, sizes = PLAIN[way]
    assert_right(of(dtype, sizes), kernel, cc)


@slow_of_each(6)
@slow
@pytest.mark.parametrize("way", PLAIN)
@pytest.mark.parametrize("window", [0, 25])
def test_masks_of_wide_rows_are_those_of_narrow_ones(way, window):
    kernel, cc, dtype, sizes = PLAIN[way]
    work = of(dtype, sizes)
    assert_right(replace(work, causal=True, offset=work.Nk - work.Nq - 3, window=window), kernel, cc)


@slow
@quick_of_each(2)
@pytest.mark.parametrize("window", [0, 25])
@pytest.mark.parametrize(("d", "dv"), [(192, 128), (64, 136), (256, 24), (40, 56), (136, 256)])
def test_half_computes_v_of_another_width_as_it_is(d, dv, window):
    work = Workload(BFLOAT16, 1, 3, 1, 200, 170, d, window > 0, -30, window=window, dv=dv)
    assert plan16(work, DEVICES[90], "half").macros["DV"] == dv
    assert_right(work, "half", 90)


@slow
@quick_of_each(1)
def test_a_sequence_s_last_values_are_cleared_in_all_columns_of_v():
    spans = (Span(0, 0, 5, 0, 40), Span(0, 5, 33, 40, 7), Span(0, 38, 1, 47, 1))
    work = Workload(FLOAT16, 1, 2, 1, 39, 48, 64, sequences=spans, dv=136)
    q, k, v = random_words(work)
    v[:, :, 40:] = 0x7C00  # infinite: of other sequences than the first one
    outcome = run_half(work, q, k, v, kernel="half", cc=90)
    assert [str(finding) for finding in outcome.findings] == []
    part = [numbers(x, FLOAT16) for x in (q[:, :, :5], k[:, :, :40], v[:, :, :40])]
    assert np.abs(numbers(outcome.o[:, :, :5], FLOAT16) - definition(*part, work.scale)[0]).max() <= ALLOWED[FLOAT16]


def test_kernels_that_compute_v_of_q_s_width_alone_say_so():
    work = Workload(FLOAT16, 1, 1, 1, 9, 9, 64, dv=32)
    with pytest.raises(MachineError, match="kernel half_mma computes V of as many columns as Q has, not 32 and 64"):
        plan16(work, DEVICES[80], "half_mma")


@slow
@quick_of_each(1)
@pytest.mark.parametrize("rows", [1, 2])
def test_splits_of_the_keys_of_wide_rows_are_put_together(rows):
    work = Workload(BFLOAT16, 1, 2, 1, rows, 900, 256)
    tiling = plan16(work, DEVICES[80], "half_split")
    assert tiling.splits > 1
    assert_right(work, "half_split", 80)


@quick_of_each(1)
@pytest.mark.parametrize(("kernel", "cc"), [("half", 90), ("half_mma", 80), ("half_cores", 61)])
def test_sequences_of_several_lengths_have_wide_rows_too(kernel, cc):
    spans = (Span(0, 0, 5, 0, 40), Span(0, 5, 33, 40, 7), Span(0, 38, 1, 47, 1))
    work = Workload(FLOAT16, 1, 2, 1, 39, 48, 144, sequences=spans)
    q, k, v = random_words(work)
    outcome = run_half(work, q, k, v, kernel=kernel, cc=cc)
    assert [str(finding) for finding in outcome.findings] == []
    for _, row, rows, key, keys, *_ in spans:
        part = [numbers(x, FLOAT16) for x in (q[:, :, row : row + rows], *(y[:, :, key : key + keys] for y in (k, v)))]
        o, _ = definition(*part, work.scale, None)
        assert np.abs(numbers(outcome.o[:, :, row : row + rows], FLOAT16) - o).max() <= ALLOWED[FLOAT16]


def test_each_gpu_has_a_kernel_for_wide_rows():
    work = Workload(FLOAT16, 1, 32, 8, 1024, 1024, 256)
    assert [kernel16(work, DEVICES[cc]) for cc in (61, 75, 80, 120)] == [
        "half_cores",
        "half_mma",
        "half_mma",
        "half_mma",
    ]
    for cc, props in DEVICES.items():
        kernels, _ = candidates(AUTO, props, "", 256, 1024)
        assert kernels == (("flash", "float64") if cc >= 80 else ("float64",))
        for kernel in kernels:
            assert VARIANTS[kernel].fits(Workload.one_head(2, 1024, 256), props)


def test_kernels_that_do_not_compute_wide_rows_say_so():
    for name in ("exact", "split", "warp"):
        with pytest.raises(MachineError, match=f"kernel {name} computes d up to 128, and this is d=132"):
            VARIANTS[name].plan(Workload.one_head(1, 100, 132), DEVICES[90])


@slow_of_each(5)
@slow
@pytest.mark.parametrize("mask", ["full", "causal", "window", "lengths"])
@pytest.mark.parametrize(("kernel", "cc"), OF_TENSOR_CORES)
def test_wide_rows_compile_without_a_spill_or_a_serialised_product(kernel, cc, mask):
    compiler = Compiler(find(13000, cc), 13000, cc)
    for d, dv in ((192, 0), (256, 0), *(((192, 128), (256, 128), (64, 256)) if kernel == "half" else ())):
        work = replace(Workload.square(FLOAT16, 4, 16, 4096, d, causal=mask in ("causal", "window")), dv=dv)
        if mask == "window":
            work = replace(work, window=1024)
        if mask == "lengths":
            if not ENTRIES16[kernel].sequences:
                pytest.skip(f"{kernel} computes sequences one by one")
            work = replace(work, sequences=tuple(Span(n, 0, 4096 - n, 0, 4096 - n) for n in range(4)))
        options = (*OPTIONS, *plan16(work, DEVICES[cc], kernel).options, "--ptxas-options=-v")
        _, log = compiler.build(kernel_source(kernel), f"{kernel}.cu", options, cc)
        assert set(re.findall(r"(\d+) bytes spill", log)) == {"0"}, log
        assert "serialized" not in log and "C75" not in log, log
