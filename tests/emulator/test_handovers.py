"""Blocks of one launch that hand data to each other: a fence before the word that says so, and one behind it."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.library import GAP, Library, Schedule, Watched, space
from hw4cli.plans.plan import Launch

SOURCE = Path(__file__).with_name("handovers.cu")
NAMES = re.findall(r"\b[A-Z_]{4,}\b", SOURCE.read_text().split("enum Which {")[1].split("}")[0])
RIGHT = ["RIGHT", "ONE_FENCES", "LAST_BLOCK", "CHAIN"]
WRONG = ["NO_FENCE", "FENCE_TOO_EARLY", "FLAG_TOO_EARLY", "NO_FENCE_BEHIND", "BROKEN_CHAIN", "ONE_OF_TWO_FENCES"]


def handed_over(name, cleared=True, order="forward"):
    library = Library(shared_object(SOURCE, {}, 80, 32, RACE))
    buffer, starts = space([4 * 192, 4 * 64, 4 * 64], GAP)
    at = [buffer.ctypes.data + start for start in starts[:3]]
    arrays = zip(at, (768, 256, 256), ("data", "flag", "to"), strict=True)
    watched = [Watched(place, size, True, what) for place, size, what in arrays]
    steps = [Launch("handover", 3 if "CHAIN" in name else 2, 64, 0)]
    if cleared:
        steps.insert(0, Launch("clear", 1, 64, 0))
    passed = struct.pack("QQQi", *at, NAMES.index(name))
    finished, findings = library.launches(steps, passed, watched, Schedule(order))
    return finished, [str(finding) for finding in findings], buffer[starts[2] :][:256].view(np.uint32)


@pytest.mark.parametrize("name", RIGHT)
def test_what_lies_before_a_fence_is_there_behind_the_word_that_was_written_after_it(name):
    finished, found, to = handed_over(name)
    assert finished and found == []
    np.testing.assert_array_equal(to, np.arange(64) * (2 if name == "LAST_BLOCK" else 1))


@pytest.mark.parametrize("name", WRONG)
def test_what_no_fence_orders_is_a_race_between_blocks(name):
    _, found, _ = handed_over(name)
    assert any("race: block" in sentence and "nothing orders blocks of one launch" in sentence for sentence in found)
    assert all("handovers.cu:" in sentence for sentence in found)


@pytest.mark.parametrize("name", ["RIGHT", "LAST_BLOCK"])
def test_a_word_that_nobody_has_set_before_the_launch_may_hold_anything_when_it_is_looked_at(name):
    assert any(sentence.startswith("uninitialised: ") for sentence in handed_over(name, cleared=False)[1])


def test_the_order_of_the_blocks_does_not_matter_where_the_last_one_adds_up():
    finished, found, to = handed_over("LAST_BLOCK", order="reverse")
    assert finished and found == []
    np.testing.assert_array_equal(to, 2 * np.arange(64))
