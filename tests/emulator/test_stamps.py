"""The stamps that say what a block does when: left on the CPU, where a clock counts its own readings."""

import ctypes

import numpy as np
import pytest
from halves import assert_right, random_words

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.check import RANDOM_DATA, make_data
from hw4cli.emulator.library import Library
from hw4cli.lab.stepper.blocktimeline import ACTIVITIES, SYMBOL, row, spans, stamped, stamps_shape
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import FLOAT16, Shape, Workload
from hw4cli.resources import kernel_path

COPYING, COPYING_V, SCORING, WEIGHING, ADDING = range(5)


def stamps_of(kernel, cc, shape, block):
    """The plan, O and the stamps of a kernel that ran on the CPU."""
    plan = stamped(VARIANTS[kernel].plan(shape, DEVICES[cc]), block)
    path = shared_object(kernel_path(plan.source), plan.macros, cc, 32, PLAIN)
    inputs = make_data(RANDOM_DATA, shape)
    outcome = Library(path).run(plan, inputs, watched=False)
    size = stamps_shape(plan)
    array = (ctypes.c_longlong * int(np.prod(size))).in_dll(ctypes.CDLL(str(path)), SYMBOL)
    np.testing.assert_allclose(outcome.o, exact_attention(inputs), atol=5e-3)
    return plan, np.array(array).reshape(size)


@pytest.mark.parametrize(
    ("kernel", "cc", "shape"), [("flash", 80, Shape(1, 150, 32)), ("split", 90, Shape(1, 600, 32))]
)
def test_every_warp_stamps_what_it_does_with_every_tile(kernel, cc, shape):
    plan, stamps = stamps_of(kernel, cc, shape, 0)
    line = row(plan, shape, 0, stamps)
    tiles = -(-(shape.N // plan.splits) // line["keys"])
    found = {(warp, tile, activity) for warp, tile, activity, *_ in line["spans"]}
    working = len(stamps) - (4 if plan.macros.get("GROUPS") else 0)  # the last four copy
    for warp in range(working):
        for tile in range(tiles):
            assert {(warp, tile, activity) for activity in (SCORING, WEIGHING, ADDING)} <= found
        mine = [stamps[warp, tile] for tile in range(tiles)]
        for one in mine:
            assert (
                one[SCORING, 0]
                < one[SCORING, 1]
                <= one[WEIGHING, 0]
                < one[WEIGHING, 1]
                <= one[ADDING, 0]
                < one[ADDING, 1]
            )
    copies = {(tile, activity) for _, tile, activity in found if activity in (COPYING, COPYING_V)}
    if kernel == "flash":
        assert copies == {(tile, activity) for tile in range(tiles) for activity in (COPYING, COPYING_V)}
    else:
        assert copies == {(tile, COPYING) for tile in range(tiles)}
        assert {warp for warp, _, activity, *_ in line["spans"] if activity == COPYING} == {working}


def test_spans_are_what_was_begun_and_ended_counted_from_the_first_stamp():
    stamps = np.zeros((2, 3, len(ACTIVITIES), 2), np.int64)
    assert spans(stamps) == []
    stamps[1, 2, SCORING] = 1000, 1250
    stamps[0, 1, COPYING] = 900, 0
    assert spans(stamps) == [[1, 2, SCORING, 100, 350]]


def test_half_stamps_what_each_group_does_with_every_tile_of_keys_and_how_long_copies_are_on_their_way():
    work = Workload(FLOAT16, 1, 1, 1, 200, 700, 64)
    plan = stamped(plan16(work, DEVICES[90], "half"), 0)
    assert_right(work, *random_words(work), kernel="half", build=PLAIN, planner=lambda *_: plan)
    path = shared_object(kernel_path(plan.source), plan.macros, 90, 32, PLAIN)
    size = stamps_shape(plan)
    array = (ctypes.c_longlong * int(np.prod(size))).in_dll(ctypes.CDLL(str(path)), SYMBOL)
    line = row(plan, work, 0, np.array(array).reshape(size), "short")
    assert (line["case"], line["shape"], line["keys"]) == ("short", [1, 700, 64], plan.macros["BC"])
    found = {(warp, tile, activity): (begin, end) for warp, tile, activity, begin, end in line["spans"]}
    tiles = -(-700 // line["keys"])
    copies = {(0, tile, activity) for tile in range(tiles) for activity in (COPYING, COPYING_V)}
    assert {one for one in found if one[2] in (COPYING, COPYING_V)} == copies
    idle = -200 % plan.macros["BR"] // 64  # groups of block 0's tile, which is the head's first one
    for warp in range(4 + 4 * idle, plan.macros["THREADS"] // 32):
        for tile in range(tiles):
            scores, weights, values = (found[warp, tile, activity] for activity in (SCORING, WEIGHING, ADDING))
            assert scores[1] <= weights[0]
            assert values[0] < values[1]
            assert found[0, tile, COPYING][0] < scores[0]
            assert found[0, tile, COPYING_V][0] < values[0]
        ahead = [(found[warp, tile, SCORING][0], found[warp, tile - 1, ADDING][1]) for tile in range(1, tiles)]
        assert all(begin < end for begin, end in ahead), "the next scores begin before O of the tile before is done"
