"""The formulas of what kernels move and compute, against what is counted while their texts run on the CPU."""

from dataclasses import replace

import numpy as np
import pytest
from halves import random_words
from slow import slow, slow_of_each

from hw4cli.arrays.emulated import run_half
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.emulator.build import COUNTS
from hw4cli.emulator.counts import EXPONENTIALS, FP32, FP64
from hw4cli.lab.candidates import plan_of
from hw4cli.lab.measure.counted import INTEGERS, Part, count
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.half import Tiling
from hw4cli.plans.kernels16 import ENTRIES16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.registry import HELPERS, KERNELS
from hw4cli.problem.workload import Shape, Workload

TAILS, MASKED = Shape(1, 150, 64), Shape(1, 150, 64, causal=True)
ODD, WHOLE, TILES = Shape(2, 67, 36), Shape(1, 128, 32), Shape(1, 96, 64)
QUICK = ("flash", "naive")
# What formulas leave out of fp32 operations: what is neither a product nor an exponential is at most this share.
# Of halfwarp, where each key rescales O: 0.8 at d = 64, 1.3 at d = 32.
MORE = dict.fromkeys(("halfwarp", "halfwarp_strided", "halfwarp_local", "halfwarp_scalar", "halfwarp_rows"), 2.3)
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


@slow_of_each(22)
@slow
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


@slow_of_each(8)
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


# Of a kernel of arrays: its workloads with compute capability and multiprocessors, for some with a mask, splits, parts
# or a launch before it. Which is launched there is the plan's to say.
FEW, SHORT = Workload("float16", 1, 4, 2, 5, 700, 64), Workload("bfloat16", 1, 2, 1, 100, 120, 64)
SQUARE, LONG = Workload("float16", 1, 4, 1, 200, 200, 64, True), Workload("float16", 1, 2, 1, 150, 333, 64)
SEEN = Workload("float16", 1, 2, 1, 150, 333, 64, True, offset=183)
PAIRS, MASKED_PAIRS = Workload("float16", 1, 2, 1, 100, 150, 64), Workload("float16", 1, 2, 1, 100, 150, 64, True, 50)
WIDER = Workload("bfloat16", 1, 2, 1, 100, 150, 256)
MANY = Workload("float16", 1, 12, 12, 140, 140, 64, True)
WIDE, SINGLE = Workload("bfloat16", 1, 2, 1, 100, 150, 128), Workload("float32", 1, 2, 1, 100, 150, 64)
ARRAYS = [
    *(("half", work, 90, sms) for work, sms in ((LONG, 132), (SEEN, 132), (SQUARE, 2), (SHORT, 132))),
    *(("half_mma", work, 80, 108) for work in (LONG, SEEN)),
    *(("half_split", work, 80, sms) for work, sms in ((FEW, 8), (FEW, 1), (LONG, 4))),
    *(("half_cores", work, 80, 108) for work in (LONG, SEEN)),
    *(("backward", work, 80, 108) for work in (PAIRS, MASKED_PAIRS)),
    *(("backward_mma", work, 80, 108) for work in (PAIRS, MASKED_PAIRS, WIDE, SINGLE)),
    *(("backward_wgmma", work, 90, 132) for work in (PAIRS, MASKED_PAIRS, WIDE, WIDER)),
    *(("backward_once", work, 90, 132) for work in (PAIRS, MASKED_PAIRS, WIDE)),
    *(("backward_once", work, 90, 132) for work in (SHORT, MANY)),  # whose dQ the pass rounds
    *(("backward_atomic", work, 90, 132) for work in (PAIRS,)),
]
QUICK_ARRAYS = (("half_split", FEW, 80, 8), ("backward_mma", PAIRS, 80, 108))
# What formulas of arrays leave out: scales of pieces, and numbers of tasks, of what is read and written; sums of rows,
# of what is added. Of shared memory: barriers, and of one pass the zeros with which a block begins. A thread's loads of
# one word one after the other count once: those of stats of wide rows, which have few buffers.
BYTES, SHARED_BYTES = 0.02, {"backward_once": 0.2, "backward_atomic": 0.2, ("backward_wgmma", 256): 0.3}


def counted_arrays(kernel, work, cc, sms):
    """Counts and the model of each launch, and the bytes of the LSE, which is asked for here."""
    props = replace(DEVICES[cc], sms=sms)
    words = random_words(work)
    if work.dtype == "float32":
        words = [np.random.default_rng(1).standard_normal(x.shape, dtype=np.float32) for x in words]
    lse = 4 * work.batch * work.heads * work.Nq
    if kernel in ENTRIES16:
        out = run_half(work, *words, kernel=kernel, cc=cc, build=COUNTS, sms=sms)
    else:
        q, k, v = words
        stats = np.zeros((work.batch, work.heads, work.Nq), np.float32)
        out, lse = run_backward(work, q.copy(), q, k, v, q, stats, kernel=kernel, cc=cc, build=COUNTS, sms=sms), 0
    assert out.finished
    plan = plan_of(kernel, work, props)
    return list(zip(out.counts, launch_models(plan, work, props), strict=True)), lse, plan


@slow_of_each(9)
@pytest.mark.parametrize(
    ("kernel", "work", "cc", "sms"),
    [
        pytest.param(*one, id=f"{one[0]}-{one[1]}-{one[1].dtype}-{one[3]}", marks=() if one in QUICK_ARRAYS else slow)
        for one in ARRAYS
    ],
)
def test_formulas_of_kernels_of_arrays_have_what_is_counted(kernel, work, cc, sms):
    launches, lse, plan = counted_arrays(kernel, work, cc, sms)
    for n, (counts, model) in enumerate(launches):
        left_out = lse if n == len(launches) - 1 else 0
        assert counts.symbol == model.symbol
        assert counts.first_read == pytest.approx(model.dram[0], rel=BYTES, abs=4)
        assert counts.written - left_out == pytest.approx(model.dram[1], rel=BYTES, abs=4)
        read = [counts.global_read[0], counts.block_read]
        assert any(one == pytest.approx(model.l2[0], rel=BYTES, abs=32) for one in read), (counts.symbol, read)
        assert sum(counts.products.values()) == model.tensor_flops, counts.symbol
        assert counts.operand_bytes == model.operands, counts.symbol
        assert counts.total("amount", EXPONENTIALS) == model.exponentials, counts.symbol
        assert model.ffma_flops <= counts.total("amount", FP32), counts.symbol
        if n == plan.main:
            rel = SHARED_BYTES.get(kernel, SHARED_BYTES.get((kernel, work.d), BYTES))
            least = 128 * counts.shared_wavefronts[1]
            assert least == pytest.approx(model.shared, rel=rel, abs=1024 * counts.threads // 32), counts.symbol


def test_half_rescales_o_for_no_tile_of_such_keys_where_the_textbook_does_for_each():
    """LAZY: what a group adds and multiplies on CUDA cores for five tiles of keys more, with and without."""
    rows, each = 64, 64 * 64  # of a group, and numbers of its O
    more = {}
    for lazy in (True, False):
        counted = []
        for keys in (256, 896):
            work = Workload("float16", 1, 1, 1, rows, keys, 64)
            tiling = Tiling(2, 128, 2, ones=True, lazy=lazy)
            out = run_half(work, *random_words(work), kernel="half", tiling=tiling, build=COUNTS)
            assert out.finished
            counted.append(out.counts[-1].total("amount", FP32))
        more[lazy] = (counted[1] - counted[0]) / 5
    assert each <= more[False] - more[True] <= 1.5 * each, more


def test_every_kernel_has_formulas_that_are_held_to_counts_here():
    known = {*VARIANTS, *ENTRIES16, *GRADIENTS, *HELPERS}
    assert known == {*KERNELS}
    named = {key[0] if isinstance(key, tuple) else key for key in SHARED_BYTES}  # a kernel, or one at so many columns
    assert {*MORE, *SHARED, *QUICK, *named} <= known
    counted = {plan_of(kernel, work, replace(DEVICES[cc], sms=sms)).variant for kernel, work, cc, sms in ARRAYS}
    assert counted == {*ENTRIES16, *GRADIENTS}
