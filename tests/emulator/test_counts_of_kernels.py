"""The formulas of what kernels move and compute, against what is counted while their texts run on the CPU."""

import numpy as np
import pytest
from halves import random_words
from slow import slow

from hw4cli.arrays.emulated import run_half
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.emulator.build import COUNTS
from hw4cli.emulator.counts import EXPONENTIALS, FP32, FP64
from hw4cli.lab.arraymodel.launches import NAMES, array_models, plan_of
from hw4cli.lab.measure.counted import INTEGERS, Part, count
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.registry import HELPERS, KERNELS
from hw4cli.problem.workload import Shape, Workload

TAILS, MASKED = Shape(2, 150, 64), Shape(2, 150, 64, causal=True)
ODD, WHOLE, TILES = Shape(1, 67, 36), Shape(1, 128, 32), Shape(1, 96, 64)
QUICK = ("flash", "naive")
# What formulas leave out of fp32 operations: what is neither a product nor an exponential is at most this share.
# Of halfwarp, where each key rescales O: 0.8 at d = 64, 1.3 at d = 32.
MORE = dict.fromkeys(("halfwarp", "halfwarp_strided", "halfwarp_local"), 2.3)
# Accesses of shared memory that formulas have by CUDA's machine code, and counts by the text: all but these within 1 %.
# Sums of parts of blocks that convert are not in the formulas; paper's formula takes whole tiles of rows; loops of
# halfwarp_local that its text forbids to unroll are unrolled for the counts.
SHARED = {"split", "split8", "exact", "paper", "halfwarp_local"}


def pairs_of(kernel, shape, cc=80):
    """Counts and the model of each launch."""
    variant, props = VARIANTS[kernel], DEVICES[max(cc, VARIANTS[kernel].least_cc)]
    (counts,) = count(variant, [Part(shape)], props)
    return list(zip(counts, launch_models(variant.plan(shape, props), shape, props), strict=True))


def tried(kernels, *shapes):
    """Parameters: of each kernel all shapes; only QUICK ones with the first are not slow."""
    return [
        pytest.param(kernel, shape, id=f"{kernel}-{shape}{'-causal' * shape.causal}", marks=() if quick else slow)
        for kernel in kernels
        for shape in shapes
        for quick in [kernel in QUICK and shape == shapes[0]]
    ]


@pytest.mark.parametrize(("kernel", "shape"), tried(VARIANTS, MASKED, TAILS, ODD, WHOLE))
def test_formulas_have_the_bytes_exponentials_and_products_that_are_counted(kernel, shape):
    for counts, model in pairs_of(kernel, shape):
        assert (counts.first_read, counts.written) == model.dram, counts.symbol
        if not VARIANTS[kernel].pieces:
            assert model.l2[0] in (counts.global_read[0], counts.block_read)
            assert model.l2[1] in (*counts.global_written, counts.block_written)
            assert counts.total("amount", EXPONENTIALS) == model.exponentials
        products = counts.products
        tensor = sum(number for kind, number in products.items() if kind not in INTEGERS)
        # split's and split8's rows of ones, by which sums are products, too, are not in the formula, nor what a warp
        # leaves out behind the diagonal.
        apart = 0.3 if VARIANTS[kernel].pieces else 0
        assert tensor == pytest.approx(model.tensor_flops, rel=apart)
        assert sum(products.values()) - tensor == model.int8_operations
        assert counts.operand_bytes == model.operands
        for kind, formula in ((FP32, model.ffma_flops), (FP64, model.dfma_flops)):
            if formula and not VARIANTS[kernel].pieces:
                assert formula <= counts.total("amount", kind), kind
                if shape != ODD:  # where lanes compute elements again that others have
                    assert counts.total("amount", kind) <= MORE.get(kernel, 1.15) * formula, kind


@slow
@pytest.mark.parametrize(("kernel", "shape"), tried([*(name for name in VARIANTS if name not in SHARED)], TILES))
def test_formulas_have_the_accesses_of_shared_memory_that_are_counted_without_conflicts(kernel, shape):
    for counts, model in pairs_of(kernel, shape):
        assert 128 * counts.shared_wavefronts[1] == pytest.approx(model.shared, rel=0.01)


# As many times more wavefronts as profilers counted on an H200 (tests/lab/measure/test_shared_model.py).
@slow
@pytest.mark.parametrize(
    ("kernel", "ways"),
    [pytest.param("halfwarp_unpadded", 4.45, marks=()), pytest.param("float4", 1.33, marks=slow)],
)
def test_bank_conflicts_are_those_that_a_profiler_counted(kernel, ways):
    ((counts, _),) = pairs_of(kernel, TILES)
    wavefronts, least = counts.shared_wavefronts
    assert wavefronts / least == pytest.approx(ways, rel=0.03)


ARRAYS = {  # of a kernel of 16-bit numbers: the compute capability, rows, keys
    "half": (90, 150, 333),
    "half_mma": (80, 150, 333),
    "half_split": (80, 5, 333),
    "half_cores": (80, 150, 333),
}


@slow
@pytest.mark.parametrize("kernel", ARRAYS)
def test_formulas_of_16_bit_kernels_have_the_bytes_and_products_that_are_counted(kernel):
    cc, rows, keys = ARRAYS[kernel]
    work = Workload("float16", 1, 2, 1, rows, keys, 64)
    out = run_half(work, *random_words(work), kernel=kernel, cc=cc, build=COUNTS)
    assert out.finished
    models = array_models(plan_of(kernel, work, DEVICES[cc]), work, DEVICES[cc])
    for counts, model in zip(out.counts, models, strict=True):
        assert counts.first_read == model.dram[0]
        assert counts.global_read[0] == counts.block_read == model.l2[0]
        assert sum(counts.products.values()) == model.tensor_flops
        assert counts.operand_bytes == model.operands
        lse = 4 * work.batch * work.heads * work.Nq  # which is asked for here
        assert counts.written == model.dram[1] + lse


def test_every_kernel_has_formulas_and_all_that_are_listed_are_kernels():
    known = {*VARIANTS, *ENTRIES16, *GRADIENTS, *HELPERS}
    assert known == {*KERNELS}
    assert {*MORE, *SHARED, *QUICK, *ARRAYS} <= known
    for name in NAMES:
        work = Workload("float16", 1, 2, 2, 64, 64, 64)
        plan = plan_of(name, work, DEVICES[90])
        models = array_models(plan, work, DEVICES[90])
        assert any(any(model.dram) for model in models), name


@slow
def test_formulas_know_what_gradients_read_once():
    work = Workload("float16", 1, 2, 1, 40, 50, 64)
    q, k, v = random_words(work)
    lse = np.zeros((1, 2, 40), np.float32)
    out = run_backward(work, q.copy(), q, k, v, q, lse, kernel="backward", cc=80, build=COUNTS)
    assert out.finished
    models = array_models(plan_of("backward", work, DEVICES[80]), work, DEVICES[80])
    for counts, model in zip(out.counts, models, strict=True):
        assert (counts.first_read, counts.written) == model.dram, counts.symbol
