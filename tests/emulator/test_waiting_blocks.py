"""Blocks of one launch that wait for each other take turns; a wait that never ends says where each block waits."""

import pytest
from cases_of_programs import Program
from needs import needs

from hw4cli.emulator.library import REVERSE, Schedule

pytestmark = needs("g++|clang++")
BLOCKS = Program("blocks")

FOUND = {  # the kind, and words of the sentence
    "backwards": ("race", "a __threadfence() is missing before"),
    "by-hand": ("race", "nothing orders blocks of one launch"),
    "grid": ("race", "nothing orders blocks of one launch"),
    "some-blocks": ("hang", "the launch never ends"),
    "no-cooperation": ("grid", "works in a launch by cudaLaunchCooperativeKernel alone"),
    "too-many": ("launch", "a cooperative launch has at most as many blocks as are there at once"),
    "circle": ("hang", "block 1: 1 at a loop"),
    "crowd": ("hang", "have not begun, as no more fit on the GPU at once"),
}


@pytest.mark.parametrize("name", FOUND)
def test_blocks_that_wait_for_each_other_take_turns_and_what_never_ends_is_a_hang(name):
    assert BLOCKS.said(name, *FOUND[name])
    for order in (Schedule(), Schedule(REVERSE)):
        right = BLOCKS.ran(name, "right", schedule=order)
        assert right.right and not right.output, right


def test_a_hang_says_where_each_block_waits():
    (said,), line = BLOCKS.said("circle", "hang"), BLOCKS.lines("circle")[0]
    for block in (0, 1):
        assert f"block {block}: 1 at a loop that reads a word again and again, {line}" in said
    (said,), line = BLOCKS.said("some-blocks", "hang"), BLOCKS.lines("some-blocks")[0]
    assert f"64 at this_grid().sync() ({line})" in said
    assert "1 have ended" in said
