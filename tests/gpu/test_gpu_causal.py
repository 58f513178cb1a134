"""Causal attention by every kernel on the GPU, against float64: tails, parts of the keys, hostile scores."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from gpuexact import exact_attention
from helpers import random_block, run_hw4, write_case
from test_gpu_attention import SPLITTING, on_gpu

from hw4cli.emulator.check import DATA, make_data
from hw4cli.plans.bounds import bound
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.workload import Shape, Workload

SHAPES = [
    *((2, N, 64) for N in (1, 33, 127, 129, 300, 777, 1100)),
    *((1, 777, d) for d in (32, 36, 128)),
    (35, 300, 32),  # batches whose blocks take turns
    (1, 2600, 64),
]


HOSTILE, PARTS = Shape(2, 777, 64, causal=True), [Shape(2, 1100, d, causal=True) for d in (32, 64, 128)]
WITHOUT_WARP_GROUPS = [(Shape(1, N, d, causal=True), 0) for d in (32, 64) for N in (129, 777, 4200)]
WITHOUT_WARP_GROUPS += [(Shape(3, 1100, d, causal=True), splits) for d in (32, 64) for splits in range(1, 6)]


def planned(variant, shape, props, splits=0):
    """The plan of a causal shape, with so many parts of the keys or as many as the kernel takes itself."""
    known = VARIANTS[variant] if not splits else replace(VARIANTS[variant], splits=lambda *_: splits)
    return known.plan(shape, props)


def plans(props):
    """What these tests compile."""
    able = [name for name, variant in VARIANTS.items() if variant.least_cc <= props.cc]
    for name in able:
        yield from (planned(name, Shape(*shape, causal=True), props) for shape in [*SHAPES, HOSTILE.sizes])
    for name in {*SPLITTING} & {*able}:
        yield from (planned(name, shape, props, splits) for shape in PARTS for splits in range(1, 9))
    if props.warpgroups:
        for name in ("split", "split8"):
            for shape, splits in WITHOUT_WARP_GROUPS:
                yield planned(name, shape, replace(props, warpgroups=False), splits)


def check(gpu, variant, block, splits=0):
    shape = Workload.of_block(block, causal=True)
    if gpu.props.cc < VARIANTS[variant].least_cc:
        pytest.skip(f"{variant} needs compute capability {VARIANTS[variant].least_cc / 10}")
    plan = planned(variant, shape, gpu.props, splits)
    first = on_gpu(gpu, variant, block, plan)
    right = exact_attention(block, causal=True)
    assert np.abs(first - right).max() <= bound(variant, magnitudes_of(block), shape.d, shape.N, gpu.props), (
        shape,
        splits,
    )
    assert np.array_equal(first, on_gpu(gpu, variant, block, plan)), (shape, splits)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_causal_shape_is_right_and_the_same_bits_every_time(gpu, variant, shape):
    check(gpu, variant, random_block(*shape))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("variant", VARIANTS)
def test_hostile_scores_are_right_where_a_row_ends_at_the_diagonal(gpu, variant, data):
    check(gpu, variant, make_data(data, HOSTILE))


@pytest.mark.parametrize("shape", PARTS, ids=str)
@pytest.mark.parametrize("variant", SPLITTING)
def test_parts_of_the_keys_some_without_keys_for_a_row_are_put_together(gpu, variant, shape):
    block = random_block(*shape.sizes)
    for splits in range(1, 9):
        check(gpu, variant, block, splits)


@pytest.mark.parametrize(("shape", "splits"), WITHOUT_WARP_GROUPS, ids=str)
@pytest.mark.parametrize("variant", ["split", "split8"])
def test_split_is_right_without_warp_groups_too(gpu, monkeypatch, variant, shape, splits):
    if not gpu.props.warpgroups:
        pytest.skip("this GPU has no warp groups")
    monkeypatch.setattr(gpu, "props", replace(gpu.props, warpgroups=False))
    check(gpu, variant, random_block(*shape.sizes), splits)


def test_a_file_is_answered_on_the_gpu(prepared, tmp_path):
    prepared(Shape(3, 513, 64, causal=True))
    block = random_block(3, 513, 64)
    done = run_hw4(write_case(tmp_path / "in", block), tmp_path / "out", "--causal", "--device", "cuda")
    assert done.returncode == 0, done.stderr
    o = np.fromfile(tmp_path / "out", np.float32).reshape(3, 513, 64)
    assert np.abs(o - exact_attention(block, causal=True)).max() < 4e-3


@pytest.mark.alone
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "naive"])
def test_causal_attention_takes_less_time_than_all_of_it(gpu, variant):
    from hw4cli.device.timing import GpuTimer

    timer = GpuTimer(gpu)
    shape = Shape(100, 4096, 64)  # many more blocks than run at once: else the longest alone counts
    if gpu.props.cc < VARIANTS[variant].least_cc:
        pytest.skip("the GPU is too old")
    inputs, outputs = gpu.upload(random_block(*shape.sizes)), gpu.empty((shape.B, shape.N, shape.d))
    times = []
    for each in (shape, replace(shape, causal=True)):
        plan = gpu.plan(variant, each)
        runs = [timer.milliseconds(partial(gpu.compute, plan, inputs, outputs), True) for _ in range(5)]
        times.append(min(runs[1:]))
    assert times[1] < 0.8 * times[0], times
