"""Every kernel against float64: all kinds of shapes, hostile inputs, poisoned outputs, the same bits every time."""

import os
import subprocess
import sys
from dataclasses import replace

import gpuexact
import numpy as np
import pytest
from emulation import along_the_keys, largest_numbers
from gpuexact import exact_attention
from helpers import random_block
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hw4cli.plans.bounds import ON_TENSOR_CORES, PROVEN, bound
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention as on_the_cpu
from hw4cli.problem.workload import Shape

SPLITTING = ("flash", "split", "split8", "exact")  # kernels with several ways, by N, d and the number of batches
ROWS = (1, 31, 127, 128, 129, 200)  # of one key; of whole tiles, of one row less and one more
# For the other rungs, whose way is one: every head size, each with another number of rows; then extremes.
FEW_SHAPES = [
    *((1 + i % 3, ROWS[(i + i // 6) % 6], 4 * i) for i in range(1, 33)),
    *((2, N, 64) for N in ROWS),
    (500, 31, 8),
    (500, 128, 32),
    (1, 4096, 64),
    (70_000, 1, 4),
]
SHAPES = [
    *((B, N, d) for N in ROWS for B, d in ((1, 64), (3, 32), (5, 20))),
    *((2, 129, d) for d in range(4, 129, 4)),
    (500, 31, 8),
    (500, 128, 32),
    *((2, N, d) for N in (256, 257, 512, 513, 1000) for d in (32, 64, 128)),  # where split's blocks stop converting
    (1, 4096, 64),
    (2, 4096, 32),
    (1, 4096, 128),
    (1, 8192, 64),
    (1, 8190, 32),
    *((3, N, d) for N in (300, 385, 511, 577, 641) for d in (8, 32, 36, 64)),  # warp groups and their tails
    *((1, N, d) for N in (2048, 2049, 4200, 6200) for d in (32, 64)),  # sums that are promoted, and added later
    (70_000, 1, 4),
]
SHARED_TASKS = [(34, 600, 64), (45, 600, 32), (5, 6001, 64), (5, 8190, 32)]  # by split's blocks, on 132 multiprocessors
WITHOUT_WARP_GROUPS = [shape for shape in SHAPES + SHARED_TASKS if shape[2] <= 64]
SPLITS = [(d, splits) for d in (4, 20, 32, 36, 64, 100, 128) for splits in (2, 3, 5, 7, 8)]


def shapes_of(variant):
    return SHAPES if variant in SPLITTING else FEW_SHAPES


def plans(props):
    """What these tests compile."""
    for variant in VARIANTS.values():
        if variant.least_cc <= props.cc:
            yield from (variant.plan(Shape(*shape), props) for shape in shapes_of(variant.name))
    for name in SPLITTING:
        variant = VARIANTS[name]
        if variant.least_cc <= props.cc:
            yield from (variant.plan(Shape(*shape), props) for shape in SHARED_TASKS)
            for d, splits in SPLITS:
                yield replace(variant, splits=lambda *_, splits=splits: splits).plan(Shape(3, 1041, d), props)
    if props.warpgroups:
        for name in ("split", "split8"):
            for shape in WITHOUT_WARP_GROUPS:
                yield VARIANTS[name].plan(Shape(*shape), replace(props, warpgroups=False))


def on_gpu(gpu, variant, block, plan=None):
    """O by a kernel whose output array was NaN before; skips where the GPU is too old for it."""
    import cupy

    if gpu.props.cc < VARIANTS[variant].least_cc:
        pytest.skip(f"{variant} needs compute capability {VARIANTS[variant].least_cc / 10}")
    inputs = cupy.empty(block.shape, cupy.float32)
    inputs.set(block)
    outputs = cupy.empty((len(block), *block.shape[2:]), cupy.float32)
    outputs.data.memset(0xFF, outputs.nbytes)
    gpu.compute(plan or gpu.plan(variant, Shape(len(block), *block.shape[2:])), inputs, outputs)
    return outputs.get()


@pytest.mark.parametrize(
    ("variant", "shape"), [(variant, shape) for variant in VARIANTS for shape in shapes_of(variant)], ids=str
)
def test_every_shape_is_right_and_the_same_bits_every_time(gpu, variant, shape):
    block = random_block(*shape)
    first = on_gpu(gpu, variant, block)
    assert np.abs(first - exact_attention(block)).max() <= VARIANTS[variant].error_bound
    assert np.array_equal(first, on_gpu(gpu, variant, block))


@pytest.mark.parametrize("shape", SHARED_TASKS, ids=str)
@pytest.mark.parametrize("variant", SPLITTING)
def test_tasks_that_blocks_share_are_right_and_the_same_bits_every_time(gpu, variant, shape):
    block = random_block(*shape)
    first = on_gpu(gpu, variant, block)
    assert np.abs(first - exact_attention(block)).max() <= VARIANTS[variant].error_bound
    for _ in range(20):
        assert np.array_equal(first, on_gpu(gpu, variant, block))


@pytest.mark.parametrize("shape", WITHOUT_WARP_GROUPS, ids=str)
@pytest.mark.parametrize("variant", ["split", "split8"])
def test_split_is_right_without_warp_groups_too(gpu, monkeypatch, variant, shape):
    """What other GPUs run, and this one with an old compiler."""
    if not gpu.props.warpgroups:
        pytest.skip("this GPU has no warp groups")
    monkeypatch.setattr(gpu, "props", replace(gpu.props, warpgroups=False))
    block = random_block(*shape)
    first = on_gpu(gpu, variant, block)
    assert np.abs(first - exact_attention(block)).max() <= VARIANTS[variant].error_bound
    assert np.array_equal(first, on_gpu(gpu, variant, block))


# Keeps the GPU busy until its input ends, as it does with whoever has started it.
COMPANION = """
import select, sys
import cupy
x = cupy.ones(1 << 26, cupy.float32)
print(flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(20):
        x *= 1
    cupy.cuda.Device().synchronize()
"""


@pytest.fixture
def other_work(gpu):
    """Processes among which the GPU divides its time: those that run these tests or, if it is one, three others."""
    alone = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) < 4
    command = [sys.executable, "-c", COMPANION]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3 * alone)]
    for process in processes:
        assert process.stdout and process.stdout.readline(), "a process that keeps the GPU busy has not begun"
    yield
    for process in processes:
        process.communicate()


@pytest.mark.usefixtures("other_work")
@pytest.mark.parametrize("warpgroups", [True, False])
@pytest.mark.parametrize("shape", [(70, 1200, 64), (5, 6001, 64)], ids=str)
@pytest.mark.parametrize("variant", SPLITTING)
def test_a_hundred_runs_beside_other_work_give_the_same_bits(gpu, monkeypatch, variant, shape, warpgroups):
    """A buffer of K and V is not filled again while a warp still reads it, however long that warp has to wait."""
    import cupy

    if warpgroups and not gpu.props.warpgroups:
        pytest.skip("this GPU has no warp groups")
    if gpu.props.cc < VARIANTS[variant].least_cc:
        pytest.skip(f"{variant} needs compute capability {VARIANTS[variant].least_cc / 10}")
    monkeypatch.setattr(gpu, "props", replace(gpu.props, warpgroups=warpgroups))
    plan, inputs = gpu.plan(variant, Shape(*shape)), gpu.upload(random_block(*shape))
    first, outputs = gpu.empty(shape), gpu.empty(shape)
    gpu.compute(plan, inputs, first)
    differ = {}
    for run in range(100):
        outputs.data.memset(0xFF, outputs.nbytes)
        gpu.compute(plan, inputs, outputs)
        wrong = first.view(cupy.uint32) != outputs.view(cupy.uint32)
        if wrong.any():
            differ[run] = (
                [np.unique(axis.get()).tolist() for axis in cupy.nonzero(wrong)],
                float(abs(first - outputs).max()),
            )
    assert not differ, f"in these runs these batches, rows and columns, by so much: {differ}"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    B=st.integers(1, 40),
    N=st.integers(1, 700),
    d=st.integers(1, 32).map(lambda x: 4 * x),
    seed=st.integers(0, 2**31),
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_any_shape_is_right(gpu, variant, B, N, d, seed):
    block = random_block(B, N, d, seed)
    assert np.abs(on_gpu(gpu, variant, block) - exact_attention(block)).max() <= VARIANTS[variant].error_bound


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(3, 129, 20), (2, 1000, 64), (700, 16, 4), (1, 1, 128)], ids=str)
def test_the_oracle_of_these_tests_gives_on_the_gpu_what_the_cpus_gives(gpu, monkeypatch, shape, causal):
    block = random_block(*shape)
    block[:, 1, :, 0] *= 40
    right = on_the_cpu(block, causal=causal)
    for scores in (gpuexact.SCORES, 30_000, 100):  # in one piece; some batches at a time; some rows
        monkeypatch.setattr(gpuexact, "SCORES", scores)
        np.testing.assert_allclose(exact_attention(block, causal=causal), right, rtol=2.0**-22, atol=1e-7)


def hostile(N, d):
    block = random_block(3, N, d)
    dominant = block.copy()
    dominant[:, 1, N // 2] = 3 * np.sign(dominant[:, 0, N // 3])
    rising = block.copy()
    rising[:, 1] *= np.linspace(0, 12, N, dtype=np.float32)[:, None]
    halves = block.astype(np.float16)
    between = (halves.astype(np.float32) + np.nextafter(halves, np.float16(np.inf)).astype(np.float32)) / 2
    late = block.copy()
    late[:, 1, :-1], late[:, 1, -1] = -block[:, 0, :1], 4 * block[:, 0, 0]
    return {
        "all threes": np.full_like(block, 3),
        "all minus threes": np.full_like(block, -3),
        "threes against minus threes": np.full_like(block, 3) * np.array([1, -1, 1], np.float32)[:, None, None],
        "one dominant key": dominant,
        "scores that rise from tile to tile": rising,
        "the last key outweighs all": late,
        "fp16's rounding midpoints": between,
        "equal scores": block * np.array([0, 1, 1], np.float32)[:, None, None],
        "zeros": np.zeros_like(block),
        "subnormal values": block * np.float32(1e-40),
        "large V": block * np.array([1, 1, 1e4], np.float32)[:, None, None],
    }


def hostile_cases():
    """Of kernels with several ways all; of the others every kind of data at two sizes, and every size with some."""
    sizes = [(200, 32), (500, 64), (2200, 32), (2200, 64), (130, 128)]
    for i, variant in enumerate(VARIANTS):
        for j, name in enumerate(hostile(4, 4)):
            for size in sizes if variant in SPLITTING else (sizes[(i + j) % 5], sizes[(i + j + 2) % 5]):
                yield variant, name, *size


@pytest.mark.parametrize(("variant", "name", "N", "d"), list(hostile_cases()))
def test_hostile_inputs_are_right(gpu, variant, name, N, d):
    block = hostile(N, d)[name]
    expected = exact_attention(block)
    # Scores of hundreds carry float32's rounding; V's size scales every error.
    allowed = max(2e-4, VARIANTS[variant].error_bound) * max(1, np.abs(block[:, 2]).max() / 3)
    if variant in ("fp16qk", "split8"):
        allowed = max(2e-4, bound(variant, magnitudes_of(block), d, N, gpu.props))
    if not np.isfinite(allowed):
        pytest.skip(f"{variant} computes no such data: another kernel takes its place")
    assert np.abs(on_gpu(gpu, variant, block) - expected).max() <= allowed


@pytest.mark.parametrize(("d", "splits"), SPLITS)
@pytest.mark.parametrize("variant", ["flash", "split", "exact"])
def test_partial_results_lie_right_where_their_number_is_odd(gpu, variant, d, splits):
    """B x N x splits numbers of 8 bytes each lie in scratch, beside O, which is read and written 16 bytes at a time."""
    block = random_block(3, 1041, d)
    block[:, 1] *= np.linspace(0, 8, 1041, dtype=np.float32)[:, None]
    for B in (1, 3):
        plan = replace(VARIANTS[variant], splits=lambda *_: splits).plan(Shape(B, 1041, d), gpu.props)
        error = np.abs(on_gpu(gpu, variant, block[:B], plan) - exact_attention(block[:B])).max()
        assert error <= bound(variant, magnitudes_of(block[:B]), d, 1041, gpu.props)
        assert variant == "split" or error <= 2e-4


@pytest.mark.parametrize("d", [32, 64])
@pytest.mark.parametrize("variant", SPLITTING)
def test_long_odd_inputs_are_right_in_the_last_rows_too(gpu, variant, d):
    block = random_block(1, 40001, d)
    got = on_gpu(gpu, variant, block)
    rows = np.r_[:3, 20000:20003, 39998:40001]
    q, k, v = block[0].astype(np.float64)
    p = np.exp(q[rows] @ k.T / d**0.5)
    assert np.isfinite(got).all()
    assert np.abs(got[0, rows] - p @ v / p.sum(axis=1, keepdims=True)).max() <= VARIANTS[variant].error_bound


@pytest.mark.parametrize(("N", "d"), [(130, 16), (1100, 128), (2300, 32), (4501, 64)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_lost_however_scores_run_along_the_keys(gpu, variant, N, d):
    for name, q, k, v in along_the_keys(N, d):
        block = np.stack([np.resize(q, k.shape), k, v])[None]
        error = np.abs(on_gpu(gpu, variant, block) - exact_attention(block)).max()
        proven = bound(variant, magnitudes_of(block), d, N, gpu.props) if variant in PROVEN else np.inf
        most = {"split": 4e-3, "split8": proven, "fp16qk": bound("fp16qk", magnitudes_of(block), d, N)}.get(
            variant, 1e-3
        )
        assert error <= min(proven, most), name


def test_arrays_that_are_not_aligned_are_refused(gpu):
    shape = Shape(2, 30, 32)
    plan, whole = gpu.plan("flash", shape), gpu.empty((7 * shape.elements,))
    inputs, outputs = whole[: 3 * shape.elements], whole[4 * shape.elements :]
    for shift in ((1, 0), (0, 1)):
        arrays = [x[n : n + shape.elements * m] for x, n, m in zip((inputs, outputs), shift, (3, 1), strict=True)]
        if shift[0]:
            arrays[0] = whole[1 : 1 + 3 * shape.elements]
        with pytest.raises(ValueError, match="16 bytes"):
            gpu.compute(plan, arrays[0].reshape(2, 3, 30, 32), arrays[1].reshape(2, 30, 32))


@pytest.mark.parametrize("factor", [10, 30, 100, 300])
@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_in_the_hundreds_and_thousands_stay_finite_and_close(gpu, variant, factor):
    """Beyond what `run` gives a float32 kernel: it may round the scores, but nothing may overflow or vanish."""
    block = random_block(2, 300, 64)
    block[:, :2] *= np.float32(factor**0.5)
    got, expected = on_gpu(gpu, variant, block), exact_attention(block)
    assert np.isfinite(got).all()
    allowed = 1e-4 * factor
    if variant in ON_TENSOR_CORES:
        allowed = max(allowed, bound(variant, magnitudes_of(block), 64, 300, gpu.props))
    assert np.abs(got - expected).max() <= allowed


def test_float64_computes_any_finite_values(gpu):
    block = random_block(2, 200, 64) * np.float32(1e38)
    got = on_gpu(gpu, "float64", block)
    assert np.abs(got / exact_attention(block) - 1).max() < 1e-6


@pytest.mark.parametrize("variant", VARIANTS)
def test_files_beyond_two_to_the_31_elements_are_addressed_rightly(gpu, much_memory, variant):
    """180 000 batches are 2.2e9 input elements in one launch; zeros but for a few batches, which are looked at."""
    import cupy

    if gpu.props.cc < VARIANTS[variant].least_cc:
        pytest.skip(f"{variant} needs compute capability {VARIANTS[variant].least_cc / 10}")
    B, N, d = 180_000, 64, 64
    plan = gpu.plan(variant, Shape(B, N, d))
    if cupy.cuda.runtime.memGetInfo()[1] < 4 * 4 * B * N * d + plan.scratch + (2 << 30):
        pytest.skip("needs a GPU with 14 GB of memory and this kernel's scratch")
    block = random_block(3, N, d)
    inputs, outputs = cupy.empty((B, 3, N, d), cupy.float32), cupy.empty((B, N, d), cupy.float32)
    inputs.data.memset(0, inputs.nbytes)
    places = (0, B // 2, B - 1)
    for place, batch in zip(places, block, strict=True):
        inputs[place].set(batch)
    gpu.compute(plan, inputs, outputs)
    got = np.stack([outputs[place].get() for place in places])
    assert np.abs(got - exact_attention(block)).max() <= VARIANTS[variant].error_bound
    assert not outputs[1].get().any()


@pytest.mark.parametrize("shape", [(1, 1, 4), (3, 129, 20), (2, 5000, 36), (700, 16, 64), (1, 4097, 128)])
def test_the_range_check_finds_the_largest_of_each_part_and_what_is_no_number(gpu, shape):
    import cupy

    block = random_block(*shape)
    block[-1, 0, -1, -1], block[0, 1, 0, 0], block[-1, 2, 0, -1] = -7, 8, -9.5
    gpu.plan("flash", Shape(*shape))
    largest = cupy.empty(5, np.uint32)

    def found():
        gpu.absmax(gpu.upload(block), largest)
        return largest.get().view(np.float32).tolist()

    assert found() == largest_numbers(block)
    assert found()[::2] == [7, 8, 9.5]
    block[0, 1, -1, -1] = np.inf
    assert found()[::2] == [7, np.inf, 9.5]
    block[0, 1, 0, 0] = -np.nan
    assert np.isnan(found()[2])


def test_a_block_is_copied_in_computed_and_copied_out(gpu):
    block = random_block(4, 130, 32)
    assert np.abs(gpu.attention(block, "flash") - exact_attention(block)).max() < 2e-5
