"""How keys are split under a causal mask: parts of one length, as many as rows need, ends at about the same time."""

import pytest

from hw4cli.compute.common import main_blocks, split_keys
from hw4cli.compute.formulas import ceil_div
from hw4cli.compute.plan import DEVICES
from hw4cli.compute.variants import VARIANTS
from hw4cli.problem.shape import Oblong, Shape

H100 = DEVICES[90]
SPLITTING = ("flash", "split", "exact")


def parts(rows, N, offset, tile, splits):
    """The lengths of all parts that have keys, if row i sees the keys up to i + offset."""
    keys = split_keys(N, tile["BC"], splits)
    ends = (max(0, min(N, row + tile["BR"] + offset)) for row in range(0, rows, tile["BR"]))
    return [min(keys, end - first) for end in ends for first in range(0, end, keys)]


@pytest.mark.parametrize("name", SPLITTING)
def test_one_batch_is_cut_into_parts_of_one_length_that_fill_the_gpu(name):
    plan = VARIANTS[name].plan(Shape(1, 8192, 64, causal=True), H100)
    places = plan.macros["BLOCKS"] * H100.sms
    lengths = parts(8192, 8192, 0, plan.macros, plan.splits)
    free = [0] * places
    for length in sorted(lengths, reverse=True):
        free[free.index(min(free))] += length
    assert max(free) < 1.25 * sum(lengths) / places


@pytest.mark.parametrize("name", SPLITTING)
def test_many_batches_are_cut_no_more_than_their_sums_need(name):
    shape = Shape(40, 8192, 64, causal=True)
    assert VARIANTS[name].plan(shape, H100).splits == (2 if name == "flash" else 1)


@pytest.mark.parametrize("splits", [2, 3, 5, 8])
@pytest.mark.parametrize(("rows", "N"), [(8192, 8192), (1000, 1000), (1, 5000), (3000, 1500), (700, 3000)])
def test_there_are_blocks_for_all_parts_whatever_the_offset_and_few_more(rows, N, splits):
    tile = {"BR": 192, "BC": 64}
    blocks = main_blocks(Oblong(2, N, 64, True, rows), tile, splits)
    most = max(0, N - rows)
    needed = [2 * len(parts(rows, N, offset, tile, splits)) for offset in (most, most // 2, 0, -rows // 2)]
    assert max(needed) <= blocks <= needed[0] + 2 * splits * (ceil_div(N, 192) // splits + 2)


def test_without_a_mask_there_is_a_block_for_each_split_of_each_block_of_rows():
    assert main_blocks(Shape(3, 1000, 64), {"BR": 192, "BC": 64}, 4) == 3 * 6 * 4
