"""The kernels on tensor cores, executed on the CPU, in ways that `hw4 check` does not try: other sums, other parts."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from slow import slow, slow_of_each

from hw4cli.emulator import library
from hw4cli.emulator.build import PLAIN, RACE, shared_object
from hw4cli.emulator.check import RANDOM_DATA, SCHEDULES, check_kernel, make_data, some_rows
from hw4cli.emulator.library import Library
from hw4cli.plans.bounds import bound
from hw4cli.plans.common import converters_of
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path

WAYS = {
    "split 8.0": ("split", DEVICES[80]),
    "exact 8.0": ("exact", DEVICES[80]),
    "split 9.0, warp groups": ("split", DEVICES[90]),
    "exact 10.0": ("exact", DEVICES[100]),
}
library_memory = library.Memory
RACES = {"data": [RANDOM_DATA], "builds": [RACE]}
# Of many keys, as `hw4 check` has it, or where another test has all: each of the others takes as long again.
ONE_ORDER = SCHEDULES[:1]
OLD_COMPILER = replace(DEVICES[90], warpgroups=False)


def test_a_kernel_that_delays_its_last_product_is_right_and_free_of_races():
    found = check_kernel(
        VARIANTS["split"], props=OLD_COMPILER, shapes=[Shape(1, 527, 32)], data=[RANDOM_DATA], builds=[RACE]
    )
    assert [str(mistake) for mistake in found] == []


@slow
@pytest.mark.parametrize("props", [DEVICES[80], DEVICES[90]], ids=["8.0", "9.0"])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_wide_heads_are_right_and_free_of_races_where_sums_are_promoted(causal, props):
    """On 9.0 products with V are late, also across the promotion; and with a mask sub-tiles are half as long."""
    shape = some_rows(1, 1100, 100, 1030, 67, causal)
    taken = VARIANTS["split"].plan(shape, props).macros
    assert (taken["SMALL_FIRST"], taken["PROMOTION"], taken["SKEW"]) == (1, 1024, props.cc == 90)
    assert taken["SUB"] == (16 if causal and props.cc == 90 else 32)
    found = check_kernel(VARIANTS["split"], props=props, shapes=[shape], orders=ONE_ORDER, **RACES)
    assert [str(mistake) for mistake in found] == []


MANY_TASKS = {"BR": 128, "BC": 64}  # so many of a batch that four batches are enough


@slow_of_each(2)
@slow
@pytest.mark.parametrize(("name", "d"), [("split", 20), ("split", 64), ("split8", 36), ("split8", 64)])
def test_batches_that_some_blocks_convert_before_they_attend_are_waited_for(name, d):
    """On a GPU of two multiprocessors few batches are enough for that. Blocks run one after the other here: nobody
    waits for one that starts later."""
    few, shape = replace(DEVICES[90], sms=2), Shape(4, 513, d)
    plan = VARIANTS[name].plan(shape, few, MANY_TASKS)
    assert 0 < converters_of(shape, plan.macros, plan.splits).first < shape.B
    orders = SCHEDULES if d == 20 else ONE_ORDER  # the other kernel's blocks wait for each other in the same way
    found = check_kernel(VARIANTS[name], props=few, shapes=[shape], tile=MANY_TASKS, orders=orders, **RACES)
    assert [str(mistake) for mistake in found] == []


@slow
def test_the_range_is_that_of_all_batches_whoever_converts_them(monkeypatch):
    few, shape, kept = replace(DEVICES[90], sms=2), Shape(4, 513, 20), []
    monkeypatch.setattr(library, "Memory", lambda *args: kept.append(library_memory(*args)) or kept[-1])
    for batch in (0, 1, 3):
        block = make_data(RANDOM_DATA, shape)
        block[batch, :, -1, -1] = 7, 8, 9
        answer("split", few, shape, block, tile=MANY_TASKS)
        found = (ctypes.c_float * 5).from_address(kept[-1].scratch)
        assert (found[0], found[2], found[4]) == (7, 8, 9)
        norms = [np.square(block[:, part].astype(float)).sum(-1).max() for part in range(2)]
        assert [found[1], found[3]] == pytest.approx(norms, abs=20 * 2**-7)
        assert found[1] >= norms[0]
        assert found[3] >= norms[1]


def answer(name, props, shape, block, cut_off=False, splits=0, tile=None):
    """O of the shape's rows."""
    variant = VARIANTS[name] if not splits else replace(VARIANTS[name], splits=lambda *_: splits)
    plan = variant.plan(shape, props, tile)
    made = shared_object(kernel_path(plan.source), plan.macros, props.cc, 32, PLAIN)
    library = Library(made)
    library.add_as(props.cc if cut_off else 0)
    some = shape.Nq != shape.N
    outcome = library.run(plan, block, watched=False, rows=(shape.offset, shape.Nq) if some else None)
    assert outcome.finished
    return outcome.o[:, shape.offset :][:, : shape.Nq] if some else outcome.o


def exact_rows(block, shape):
    """The same in float64."""
    return exact_attention(block)[:, shape.offset :][:, : shape.Nq]


@slow_of_each(2)
@slow
@pytest.mark.parametrize("way", WAYS)
def test_sums_that_are_cut_off_as_on_the_chip_stay_within_the_bound(way):
    """What the proof assumes of tensor cores, in the kernel's own order of additions."""
    name, props = WAYS[way][0], replace(WAYS[way][1], sms=1)
    shape = some_rows(1, 1100, 32, 1000, 70)  # more keys than one accumulator takes
    block = make_data(RANDOM_DATA, shape)
    exact, allowed = exact_rows(block, shape), bound(name, magnitudes_of(block), shape.d, shape.N, props)
    rounded, cut = (np.abs(answer(name, props, shape, block, how) - exact).max() for how in (False, True))
    assert rounded <= allowed
    assert cut <= allowed
    assert rounded != cut
    if name == "exact":  # where nothing else is left of the error
        assert rounded < cut


@slow
@pytest.mark.parametrize("way", ["exact 8.0", "split 9.0, warp groups"])
def test_parts_of_the_keys_are_put_together(way):
    name, props = WAYS[way]
    shape = Shape(1, 527, 32)
    block = make_data(RANDOM_DATA, shape)
    whole, parts = (answer(name, props, shape, block, splits=splits) for splits in (1, 3))
    assert np.abs(whole - parts).max() <= VARIANTS[name].error_bound / 2
    assert (whole != parts).any()


@slow
@pytest.mark.parametrize(("B", "sms", "d"), [(3, 5, 32), (1, 3, 64)])
def test_blocks_that_stay_share_the_last_tasks_out_equally(B, sms, d):
    """Some of them in two parts: a block adds what the one before has left."""
    shape, few = Shape(B, 640, d), replace(DEVICES[90], sms=sms)
    block = make_data(RANDOM_DATA, shape)
    block[..., : shape.N // 2, :] *= np.float32(0.5)  # so that the parts have other maxima
    exact, o = exact_attention(block), answer("split", few, shape, block)
    assert np.abs(o - exact).max() <= VARIANTS["split"].error_bound
    changed = (o != answer("split", DEVICES[90], shape, block)).any(axis=-1)
    assert changed.any()
    assert not changed.all()


@slow
@pytest.mark.parametrize("factor", ["rising", "in turns"])
def test_nothing_of_a_part_is_lost_where_the_other_has_much_larger_scores(factor):
    shape, few, n = Shape(3, 640, 32), replace(DEVICES[90], sms=5), np.arange(640)
    block = make_data(RANDOM_DATA, shape)
    scale = 8 * n / 640 if factor == "rising" else np.where(n // 64 % 2, 6, 0.1)
    block[:, 1] *= scale.astype(np.float32)[:, None]
    error = np.abs(answer("split", few, shape, block) - exact_attention(block)).max()
    assert error <= bound("split", magnitudes_of(block), shape.d, shape.N, few)


@slow
def test_parts_that_blocks_hand_over_are_free_of_races():
    few = replace(DEVICES[90], sms=2)
    found = check_kernel(VARIANTS["split"], props=few, shapes=[Shape(1, 530, 20)], data=[RANDOM_DATA], builds=[RACE])
    assert [str(mistake) for mistake in found] == []


@slow
@pytest.mark.parametrize("more", [{}, {"POLYNOMIAL": 3, "IN_ORDER": 4}], ids=["its own share", "more, in order"])
@pytest.mark.parametrize("factor", [1, 4])
def test_a_part_of_the_exponentials_is_by_polynomial_within_the_bound(factor, more):
    """Four groups, for which there must be tasks enough; and scores far below a row's largest."""
    shape, few = Shape(1, 1280, 32), replace(DEVICES[90], sms=2)
    block = make_data(RANDOM_DATA, shape)
    block[:, 0] *= factor
    taken = VARIANTS["split"].plan(shape, few).macros
    assert (taken["POLYNOMIAL"], taken["GROUPS"]) == (1, 4)
    o = answer("split", few, shape, block, cut_off=True, tile={"BR": 256, "BC": 64, **more} if more else None)
    assert np.abs(o - exact_attention(block)).max() <= bound("split", magnitudes_of(block), shape.d, shape.N, few)
