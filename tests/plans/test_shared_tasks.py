"""The tasks of blocks, and how blocks share them."""

from collections import Counter
from itertools import pairwise

import pytest

from hw4cli.plans.work import parts_of


@pytest.mark.parametrize(("tasks", "blocks", "tiles"), [(344, 132, 256), (133, 132, 7), (352, 132, 64), (263, 132, 3)])
def test_blocks_that_share_tasks_take_each_tile_once_and_equally_many(tasks, blocks, tiles):
    taken = parts_of(tasks, blocks, tiles)
    found = Counter((part.task, tile) for own in taken for part in own for tile in range(part.first, part.last))
    assert found == Counter((task, tile) for task in range(tasks) for tile in range(tiles))
    sizes = [sum(part.last - part.first for part in own) for own in taken]
    assert max(sizes) - min(sizes) <= 2 * 4  # no part is shorter than four tiles
    assert all(later.task < sooner.task for own in taken for sooner, later in pairwise(own[tasks // blocks - 1 :]))
