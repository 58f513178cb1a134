"""How keys are split under a causal mask: parts of one length, as many as rows need, ends at about the same time."""

import pytest

from hw4cli.plans.common import main_blocks, split_keys
from hw4cli.plans.flash import CAUSAL_SPLITS, LONGEST_SPLIT
from hw4cli.plans.formulas import MOST_SPLITS, ceil_div
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

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
    blocks = main_blocks(Shape(2, N, 64, True, rows), tile, splits)
    most = max(0, N - rows)
    needed = [2 * len(parts(rows, N, offset, tile, splits)) for offset in (most, most // 2, 0, -rows // 2)]
    assert max(needed) <= blocks <= needed[0] + 2 * splits * (ceil_div(N, 192) // splits + 2)


def test_without_a_mask_there_is_a_block_for_each_split_of_each_block_of_rows():
    assert main_blocks(Shape(3, 1000, 64), {"BR": 192, "BC": 64}, 4) == 3 * 6 * 4


@pytest.mark.parametrize("name", SPLITTING)
def test_no_plan_has_more_splits_than_its_bound_counts_nor_longer_ones(name):
    """Each split rounds O and l once more when it is combined (hw4cli/plans/bounds.py)."""
    most = CAUSAL_SPLITS if name == "flash" else MOST_SPLITS
    for B, N, d in ((1, 4096, 32), (1, 8191, 64), (1, 8192, 64), (1, 40001, 128), (2, 16384, 32), (7, 20000, 64)):
        plan = VARIANTS[name].plan(Shape(B, N, d, causal=True), H100)
        assert plan.splits <= (most if N >= 8192 else MOST_SPLITS), (B, N, d)
        if name == "flash":
            assert split_keys(N, plan.macros["BC"], plan.splits) <= max(LONGEST_SPLIT, ceil_div(N, MOST_SPLITS))
