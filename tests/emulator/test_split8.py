"""split8, executed on the CPU: what its integers change, and what they must not."""

from dataclasses import replace

import numpy as np
import pytest
from slow import slow, slow_of_each
from test_tensor_kernels import answer, exact_rows

from hw4cli.emulator.build import RACE
from hw4cli.emulator.check import RANDOM_DATA, SCHEDULES, check_kernel, make_data, some_rows
from hw4cli.errors import MachineError
from hw4cli.plans.bounds import bound
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.terms import QK_FACTOR
from hw4cli.problem.workload import Shape

H200 = DEVICES[90]
BY_WARPS = {"8.0": DEVICES[80], "old": replace(H200, warpgroups=False)}  # mma.sync; old: a compiler without warp groups
WAYS = {"9.0": H200, **BY_WARPS}
MOST = np.float32(1 / QK_FACTOR / (1 + 2.0**-22))  # of what integers hold


def midpoints(block):
    """Q and K whose first terms are as wrong as they can be, all in one direction."""
    grid = np.floor(np.abs(block[:, :2]) * QK_FACTOR * 2**11) / 2**11
    block[:, :2] = np.minimum((grid + 2.0**-12) / QK_FACTOR, MOST)
    return block


def rising(block):
    """Scores that grow along the keys: m moves, and parts of a row have other maxima."""
    block[:, 0] = np.abs(block[:, 0])
    block[:, 1] = np.linspace(-MOST, MOST, block.shape[2], dtype=np.float32)[None, :, None]
    return block


def opposed(block):
    """Two keys of one score and opposite values, whose corrections are opposite, too; all others are far below."""
    even = np.arange(block.shape[3]) % 2 == 0
    block[:, 0] = (1797 + np.where(even, 0.51, 0.49)) * 2.0**-11 / QK_FACTOR
    block[:, 1], block[:, 1, 0], block[:, 1, 1] = -3, np.where(even, 2.9, 0.1), np.where(even, 0.1, 2.9)
    block[:, 2, 0], block[:, 2, 1] = 3, -3
    return block


HOSTILE = {
    "opposed": opposed,
    "midpoints": midpoints,
    "rising": rising,
    "as large as may be": lambda block: MOST * np.sign(block),
    "tiny": lambda block: block * np.float32(1e-6),
}


@slow_of_each(4)
@pytest.mark.parametrize(
    ("kind", "way"), [*((kind, way) for kind in HOSTILE for way in ("9.0", "8.0")), ("rising", "old")]
)
def test_hostile_numbers_stay_within_the_bound(kind, way):
    """More keys than one accumulator takes, on so few multiprocessors that blocks share tasks."""
    shape, few = some_rows(1, 1100, 64, 700, 390), replace(WAYS[way], sms=2)
    block = HOSTILE[kind](make_data(RANDOM_DATA, shape))
    error = np.abs(answer("split8", few, shape, block, cut_off=True) - exact_rows(block, shape)).max()
    assert error <= bound("split8", magnitudes_of(block), shape.d, shape.N, few)


@slow_of_each(2)
@slow
@pytest.mark.parametrize("way", ["8.0", "9.0"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_numbers_stay_within_the_bound_of_wide_heads(kind, way):
    """Which are split's: by mma.sync, promoted once."""
    shape, few = some_rows(1, 1060, 128, 900, 130), replace(WAYS[way], sms=1)
    block = HOSTILE[kind](make_data(RANDOM_DATA, shape))
    error = np.abs(answer("split", few, shape, block, cut_off=True) - exact_rows(block, shape)).max()
    assert error <= bound("split", magnitudes_of(block), shape.d, shape.N, few)


@slow
def test_these_find_a_kernel_without_its_corrections():
    """hi hi alone."""
    shape = Shape(1, 1100, 64)
    block = opposed(make_data(RANDOM_DATA, shape))
    hi = (block[:, :2] * np.float32(QK_FACTOR)).astype(np.float16) / np.float32(QK_FACTOR)
    rounded = np.concatenate([hi, block[:, 2:]], axis=1)
    lost = np.abs(exact_attention(rounded) - exact_attention(block)).max()
    assert lost > 3 * bound("split8", magnitudes_of(block), shape.d, shape.N, H200)


@slow
def test_numbers_that_no_integer_holds_are_less_exact_and_no_more():
    shape = Shape(1, 530, 64)
    block = make_data(RANDOM_DATA, shape) * np.float32(1.3)
    assert bound("split8", magnitudes_of(block), shape.d, shape.N, H200) == np.inf
    assert np.abs(answer("split8", H200, shape, block) - exact_attention(block)).max() < 0.02


@slow
@pytest.mark.parametrize("d", [4, 20, 32])
def test_by_warps_narrow_heads_are_multiplied_as_integers_too(d):
    """With warp groups they are split's."""
    shape, props = some_rows(2, 600, d, 500, 100), DEVICES[80]
    block = make_data(RANDOM_DATA, shape)
    block[:1] = opposed(block[:1])
    o = answer("split8", props, shape, block, cut_off=True)
    assert np.abs(o - exact_rows(block, shape)).max() <= bound("split8", magnitudes_of(block), d, shape.N, props)
    assert (o != answer("split", props, shape, block)).any()


SHAPES = [Shape(1, 530, 36), Shape(1, 600, 64, causal=True)]
RACES = [*((shape, H200) for shape in SHAPES), *((Shape(1, 300, 20), props) for props in BY_WARPS.values())]


@slow
@pytest.mark.parametrize(("shape", "props"), [*RACES, (SHAPES[1], DEVICES[80])], ids=str)
def test_its_integers_are_written_and_read_without_a_race(shape, props):
    few = replace(props, sms=2)
    orders = SCHEDULES if shape.N < 600 else SCHEDULES[:1]  # of long rows one, as `hw4 check` has it
    how = {"shapes": [shape], "data": [RANDOM_DATA], "builds": [RACE], "orders": orders}
    found = check_kernel(VARIANTS["split8"], props=few, **how)
    assert [str(mistake) for mistake in found] == []


RINGS = {"split8": (2, "needs 3 stages"), "split8 of three": (3, ""), "split": (2, "")}


@pytest.mark.parametrize("kernel", RINGS)
def test_a_ring_that_cannot_hold_what_a_group_uses_is_refused_and_not_waited_for(kernel):
    """`hw4 tune` tries rings of two stages: a GPU would wait for ever for the third tile of split8."""
    stages, says = RINGS[kernel]
    variant, tile = VARIANTS[kernel.partition(" ")[0]], {"BR": 192, "BC": 64, "STAGES": stages}
    try:
        how = {"shapes": [Shape(1, 777, 64)], "data": ["random"], "builds": [RACE], "orders": SCHEDULES[:1]}
        mistakes = check_kernel(variant, props=H200, tile=tile, **how)
        found = "; ".join(mistake.sentence for mistake in mistakes)
    except MachineError as error:
        found = str(error)
    assert says in found if says else not found, found


def test_a_block_with_one_unit_of_work_reads_no_queries_of_a_second_one():
    shape = some_rows(1, 531, 64, 100, 64)
    props = replace(H200, sms=1)
    assert VARIANTS["split8"].plan(shape, props).source == "split8_wgmma"
    assert check_kernel(VARIANTS["split8"], props=props, shapes=[shape], data=[RANDOM_DATA], builds=[RACE]) == []
