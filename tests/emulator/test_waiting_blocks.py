"""Blocks of one launch that wait for each other take turns; a wait that never ends says where each block waits."""

import re
from functools import cache
from pathlib import Path

import pytest
from needs import needs

from hw4cli.emulator.library import REVERSE, Schedule
from hw4cli.emulator.program.build import Source, compile_program
from hw4cli.emulator.program.execute import run_program

pytestmark = needs("g++|clang++")
BLOCKS = Path(__file__).parent / "programs/blocks.cu"


@cache
def blocks():
    return compile_program(Source((BLOCKS,)))


def line_of(name):
    """The first line of blocks.cu that a comment names."""
    return next(n for n, line in enumerate(BLOCKS.read_text().splitlines(), 1) if re.search(rf"// {name}$", line))


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
    kind, words = FOUND[name]
    wrong = run_program(blocks(), [name])
    assert any(one.kind == kind and words in one.sentence for one in wrong.findings), wrong
    for order in (Schedule(), Schedule(REVERSE)):
        right = run_program(blocks(), [name, "right"], schedule=order)
        assert right.right and not right.output, right


def test_a_hang_says_where_each_block_waits():
    (finding,) = (one for one in run_program(blocks(), ["circle"]).findings if one.kind == "hang")
    for block in (0, 1):
        assert (
            f"block {block}: 1 at a loop that reads a word again and again, blocks.cu:{line_of('circle')}"
            in finding.sentence
        )
    (finding,) = (one for one in run_program(blocks(), ["some-blocks"]).findings if one.kind == "hang")
    assert f"64 at this_grid().sync() (blocks.cu:{line_of('some-blocks')})" in finding.sentence
    assert "1 have ended" in finding.sentence
