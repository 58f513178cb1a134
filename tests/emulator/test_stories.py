"""What depends on the order of turns is told as a story: the fewest switches, and who does what one after the other."""

import json

import pytest
from cases_of_programs import Program
from helpers import run_hw4
from needs import needs
from slow import slow

from hw4cli.emulator.library import RANDOM, REVERSE, Schedule
from hw4cli.emulator.story import fewest

pytestmark = needs("g++|clang++")
BLOCKS, ORDERS, MISTAKES = Program("blocks"), Program("orders"), Program("mistakes")
FOREVER = float("inf")


def story(program, name, kind):
    """Of the first finding of a kind that has a story."""
    found = program.ran(name).findings
    return next(one.story for one in found if one.kind == kind and one.story)


@slow
def test_a_missing_fence_is_told_from_the_store_to_the_load_that_may_not_yet_see_it():
    data, flag, loop, use = ORDERS.lines("message")
    assert story(ORDERS, "message", "race") == (
        f"block 0, thread 0 stores data[0] at {data}",
        f"block 0, thread 0 stores done at {flag}, with no __threadfence() since then",
        f"block 1, thread 0 loads done at {loop}, and sees it",
        f"block 1, thread 0 loads data[0] at {use}, and may not yet see what was stored at {data}",
    )


def test_a_fence_that_is_missing_behind_the_flag_is_told_where_the_flag_is_read():
    lines = story(ORDERS, "reader", "race")
    assert [line.split(", ")[2:] for line in lines[2:3]] == [["and sees it", "with no __threadfence() behind"]]
    assert lines[3].startswith("block 1, thread 0 loads data[0] at ")


def test_a_lock_without_a_fence_is_told_in_the_order_in_which_it_fails():
    taken, used = ORDERS.lines("lock-taken")
    lines = story(ORDERS, "lock-taken", "race")
    assert lines[1] == f"block 0, thread 0 waits for the lock at {taken}, with no fence behind it"
    assert lines[2] == f"block 0, thread 0 stores data[0] at {used}, which may happen before it has the lock"


def test_an_atomic_of_a_block_is_told_with_the_one_that_does_not_see_it():
    (line,) = set(ORDERS.lines("block-atomic"))
    first, second = story(ORDERS, "block-atomic", "race")
    assert first.endswith(f"stores data[0] at {line} by an atomic") and second.startswith(
        "block 1, thread 0 touches data[0]"
    )


def test_a_hang_is_told_by_the_words_that_nobody_stores():
    (line,) = set(BLOCKS.lines("circle"))
    why = f"at {line} again and again: nobody has stored it in this launch"
    assert story(BLOCKS, "circle", "hang") == tuple(
        f"block {block}, thread 0 loads done[{1 - block}] {why}" for block in (0, 1)
    )


def test_a_story_is_not_told_of_what_is_right():
    for program, name in ((ORDERS, "message"), (BLOCKS, "circle"), (MISTAKES, "turns")):
        assert not any(one.story for one in program.ran(name, "right", schedule=Schedule(REVERSE)).findings)


@pytest.mark.parametrize("schedule", [Schedule(REVERSE), Schedule(RANDOM, 3)], ids=["reverse", "random"])
def test_an_order_is_replayed_by_its_switches_and_without_them_it_is_the_usual_one(schedule):
    usual, other = MISTAKES.ran("turns"), MISTAKES.ran("turns", schedule=schedule)
    assert not usual.switches and other.switches and other.written != usual.written
    assert MISTAKES.ran("turns", replay=other.switches).written == other.written
    assert MISTAKES.ran("turns", replay=()).written == usual.written


def records(hw4, program, *words):
    """Findings of `hw4 check --run`, as records, with what the terminal shows."""
    done = hw4("check", str(program.path), "--run", "--json", *words)
    assert done.returncode == 1, done.stderr
    return [record for record in json.loads(done.stdout) if record["what"] == "finding"]


def test_the_fewest_switches_that_change_what_a_program_writes_are_told(hw4):
    (line,) = set(MISTAKES.lines("turns"))
    (found,) = records(hw4, MISTAKES, "--", "turns")
    assert found["kind"] == "order"
    enough, switch, early, late = found["story"]
    assert enough == "1 of 31 switches is enough for it"
    assert switch == "launch 1: block 0, warp 0, lane 31 goes before lane 0"
    assert early == f"block 0, thread 31 stores p[0] at {line}"
    assert late == f"block 0, thread 0 loads p[0] at {line} only now, and sees that store already"
    (found,) = records(hw4, MISTAKES, "--story", "0", "--", "turns")
    assert found["story"] == []


def test_a_lost_wake_up_that_only_another_order_shows_is_told_with_its_switch(hw4):
    (line,) = set(BLOCKS.lines("wake-up"))
    assert BLOCKS.ran("wake-up").right and BLOCKS.ran("wake-up", "right", schedule=Schedule(REVERSE)).right
    done = hw4("check", str(BLOCKS.path), "--run", "--", "wake-up")
    assert done.returncode == 1 and "hang: " in done.stdout
    told = [text.split(". ", 1)[1] for text in done.stdout.splitlines() if text[:7].strip(" .").isdigit()]
    assert told[0].endswith("switches is enough for it") and told[0].startswith("1 of ")
    assert told[1:] == [
        "launch 1: block 1 begins before block 0",
        f"block 0, thread 0 loads signal_word at {line} again and again: nobody has stored it in this launch",
    ]


def test_of_the_switches_that_are_left_none_can_be_left_out():
    needed = {3, 57, 58}
    asked = []

    def first(attempts):
        for at, some in enumerate(attempts):
            asked.append(len(some))
            if needed <= set(some):
                return at
        return None

    assert fewest(range(200), first, FOREVER) == ([3, 57, 58], True)
    assert len(asked) < 100
    assert fewest(range(200), first, 0.0)[1] is False


def test_an_option_of_what_is_executed_is_refused_where_nothing_is():
    result = run_hw4("check", "flash", "--story", "5")
    assert result.returncode == 2
    assert "--story goes with --run" in result.stderr
