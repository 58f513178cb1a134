"""One thing of a rung with other values: right on the CPU, and what that changes is counted."""

import pytest
from slow import few, slow

from hw4cli.emulator.build import RACE
from hw4cli.emulator.check import RANDOM_DATA, check_kernel
from hw4cli.lab.measure.counted import Part, count
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

PROPS = DEVICES[80]
TILES = {
    "warp": [{"BR": 32, "BC": 32, "WARP_ROWS": rows} for rows in (1, 2)],
    "naive": [{"BR": 16, "BC": 16, "SOFTMAX_LANES": lanes} for lanes in (1, 4)],
    "pitched": [{"BR": 4, "BC": 32, "PITCH": pitch} for pitch in (65, 64)],
}
KNOBS = [(kernel, tile) for kernel, tiles in TILES.items() for tile in tiles]


def counted(kernel, shape, **knobs):
    """What a kernel's launches do with knobs, and their models."""
    variant = VARIANTS[kernel]
    own = variant.tile(shape, PROPS)
    tile = {"BR": own["BR"], "BC": own["BC"], **knobs}
    ((*launches,),) = count(variant, [Part(shape)], PROPS, tile)
    return list(zip(launches, launch_models(variant.plan(shape, PROPS, tile), shape, PROPS), strict=True))


@pytest.mark.parametrize(("kernel", "tile"), few(KNOBS))
def test_a_kernel_is_right_and_free_of_mistakes_with_other_values_of_its_knob(kernel, tile):
    shapes = [Shape(2, 5, 4), Shape(1, 67, 64, causal=True)]
    found = check_kernel(VARIANTS[kernel], props=PROPS, shapes=shapes, data=[RANDOM_DATA], builds=[RACE], tile=tile)
    assert [str(mistake) for mistake in found] == []


@slow
@pytest.mark.parametrize("rows", [1, pytest.param(2, marks=slow), pytest.param(4, marks=slow)])
def test_the_fewer_rows_a_warp_has_the_more_often_it_reads_each_key(rows):
    """32 rows a block, and each warp reads all of a tile: four rows a warp are 8 warps, one row a warp are 32."""
    ((counts, model),) = counted("warp", Shape(1, 64, 64), BR=32, WARP_ROWS=rows)
    assert counts.threads == 32 * 32 // rows
    assert 128 * counts.shared_wavefronts[1] == pytest.approx(model.shared, rel=0.01)
    tile = 32 // rows * (64 + 64 + rows * 16 * 2) + 2 * 64  # accesses: of K, V and Q by each warp; K and V come
    assert model.shared == 2 * (2 * tile + 64) * 128


@slow
def test_a_softmax_with_a_thread_a_row_moves_the_same_scores_in_many_more_requests():
    """The same bytes, three times read and once written; but the lanes of a warp ask for 32 rows, a sector each."""
    shape, seen = Shape(1, 96, 32), {}
    for lanes in (32, 1):
        counts, model = counted("naive", shape, SOFTMAX_LANES=lanes)[1]
        assert (model.l2, counts.written) == ((3 * 4 * 96 * 96, 4 * 96 * 96), 4 * 96 * 96)
        asked, sectors = counts.global_read
        assert asked == 3 * 4 * 96 * 96
        seen[lanes] = sectors / asked
    assert seen == {32: 1.0, 1: 8.0}


@slow
@pytest.mark.parametrize(("d", "expected"), [(64, {128: 1.0}), pytest.param(36, {128: 1.22}, marks=slow)])
def test_rows_at_whole_lines_save_no_sector_over_rows_that_lie_side_by_side(d, expected):
    """What 2D alignment is against is rows that begin anywhere; those of a file begin at multiples of 16 bytes, and a
    tile of 32 of them is one piece, at a multiple of 128."""
    share = {}
    for pitch in (d, d + 1, 128):
        counts, model = counted("pitched", Shape(1, 64, d), PITCH=pitch)[1]
        asked, sectors = counts.global_read
        assert asked == model.l2[0]
        share[pitch] = sectors / asked
    assert share[d] == pytest.approx(1.0, abs=0.001)
    assert share[d] <= share[128] <= share[d + 1] == pytest.approx(1.22, abs=0.01)
    for pitch, times in expected.items():
        assert share[pitch] == pytest.approx(times, abs=0.01)


@slow
def test_vector_loads_alone_leave_the_wavefronts_and_take_three_of_four_requests():
    """halfwarp by four floats, and by one: the same bytes in as many accesses of shared memory."""
    shape, seen = Shape(1, 96, 64), {}
    for kernel in ("halfwarp", "halfwarp_scalar"):
        ((counts, model),) = counted(kernel, shape)
        assert counts.shared_wavefronts[0] == counts.shared_wavefronts[1], "no bank conflicts in either"
        asked, sectors = counts.global_read
        assert sectors == asked, "both are coalesced"
        seen[kernel] = counts.total("times", "load, shared"), counts.total("times", "load, global"), model.shared
    vectors, floats = seen["halfwarp"], seen["halfwarp_scalar"]
    assert (floats[0] / vectors[0], floats[1] / vectors[1]) == (4, 4)
    assert floats[2] == vectors[2]


@slow
def test_uncoalesced_tiles_of_keys_take_twice_the_sectors_for_the_same_bytes():
    shape, seen = Shape(1, 128, 64), {}
    for kernel in ("halfwarp", "halfwarp_rows"):
        ((counts, model),) = counted(kernel, shape)
        asked, sectors = counts.global_read
        assert asked == model.l2[0]
        assert counts.shared_wavefronts[0] == counts.shared_wavefronts[1], "the stores meet in no bank either way"
        seen[kernel] = sectors
    assert seen["halfwarp_rows"] / seen["halfwarp"] > 1.6
