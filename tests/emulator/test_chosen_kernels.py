"""Kernels of which the GPU chooses one, executed on the CPU: the one that is chosen computes, and the others touch
nothing."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from slow import slow_of_each

from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.check import RANDOM_DATA, make_data
from hw4cli.emulator.library import Library, Memory, Watched
from hw4cli.plans import choice
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import ABSMAX_BYTES, arguments
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape, Workload
from hw4cli.resources import kernel_path

# One block converts its keys itself; tiles come through a ring; each of two parts of the keys fills that ring.
SHORT, LONG, LONGER = Shape(3, 65, 36), Shape(1, 527, 32), Shape(1, 1031, 32)
WAYS = {
    "flash": ("flash", 80, SHORT, 1),
    "flash, parts of the keys": ("flash", 80, LONGER, 2),
    "split in a block": ("split", 80, SHORT, 1),
    "split": ("split", 80, LONGER, 2),
    "split by warpgroups in a block": ("split", 90, SHORT, 1),
    "split by warpgroups": ("split", 90, LONG, 1),
    "split8": ("split8", 80, LONG, 1),
    "exact": ("exact", 90, LONG, 1),
    "float64": ("float64", 61, SHORT, 1),
}


def launched(way, chosen, number):
    """The memory after all launches of a kernel of this number where another number, or the same, is chosen; its bytes
    before; the inputs."""
    name, cc, shape, splits = WAYS[way]
    plan = choice.chosen(replace(VARIANTS[name], splits=lambda *_: splits).plan(shape, DEVICES[cc]))
    room = plan.layout._replace(size=choice.SCRATCH + plan.scratch)
    library = Library(shared_object(kernel_path(plan.source), plan.macros, cc, 32, RACE))
    block = make_data(RANDOM_DATA, shape)
    memory = Memory(block, replace(plan, layout=room), watched=True, lse=True)
    at = memory.scratch + choice.SCRATCH  # the kernel's own, which begins with what it finds
    work = Workload.one_head(shape.B, shape.N, shape.d)
    passed = arguments(plan, work, memory.matrices, at, memory.lse) + choice.members(memory.scratch, number)
    ctypes.c_uint.from_address(memory.scratch + choice.CHOICE_AT).value = chosen
    ctypes.memset(at, 0, min(ABSMAX_BYTES, plan.scratch))
    arrays = [
        Watched(x.begin, x.bytes, bool(x.writable), x.name.decode(), bool(x.written))
        for x in memory.arrays
        if b"scratch" not in x.name
    ]
    arrays.append(Watched(memory.scratch + choice.CHOICE_AT, 4, False, "the choice", True))
    found = ABSMAX_BYTES if plan.finds_absmax else 0
    arrays.append(Watched(at, found, True, "what is found", True))
    arrays.append(Watched(at + found, plan.scratch - found, True, "scratch"))
    before = memory.all()
    assert library.launches(plan.launches, passed, arrays) == (True, ())
    return memory, before, block


@slow_of_each(4)
@pytest.mark.parametrize("way", WAYS)
def test_the_kernel_that_is_chosen_computes(way):
    memory, _, block = launched(way, chosen=3, number=3)
    o, lse = definition(*block.astype(np.float64).swapaxes(0, 1))
    tolerance = 4e-3 if way.startswith("split") else 2e-5
    np.testing.assert_allclose(memory.outputs()[..., : block.shape[-1]], o, atol=tolerance)
    np.testing.assert_allclose(memory.log_sums(), lse, atol=2e-3 if way.startswith("split") else 2e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [0, 3])
def test_a_kernel_that_is_not_chosen_writes_nothing_anywhere(way, number):
    memory, before, _ = launched(way, chosen=2, number=number)
    assert memory.all() == before
