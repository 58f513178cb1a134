"""Causal attention by every kernel, executed on the CPU: tails, parts of the keys, offsets, rows without keys."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from slow import slow, slow_of_each

from hw4cli.emulator import library
from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.check import HUGE, RANDOM_DATA, RISING, make_data
from hw4cli.plans.bounds import bound
from hw4cli.plans.common import main_blocks
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import FIELDS, arguments
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path

# Every kernel, and those on tensor cores in every way that they multiply.
KERNELS = [(name, 80) for name in VARIANTS] + [("split", 90), ("exact", 90), ("flash", 61)]
SPLITTING = ("flash", "split", "exact")  # the keys among blocks
TAILS = (1, 33, 127, 129)


class Launcher:
    """Runs a causal plan on one batch; if asked, with other numbers of queries and keys than the plan's."""

    def __init__(self, monkeypatch):
        self.changes = {}
        monkeypatch.setattr(library, "arguments", self._arguments)

    def _arguments(self, *given):
        data = bytearray(arguments(*given))
        at = 0
        for name, code in FIELDS.items():
            if name in self.changes:
                struct.pack_into(code, data, at, self.changes[name])
            at += struct.calcsize(code)
        return bytes(data)

    def __call__(self, name, cc, block, splits=0, queries=0, keys=0, offset=0):
        _, _, N, d = block.shape
        queries, keys = queries or N, keys or N
        variant = VARIANTS[name] if not splits else replace(VARIANTS[name], splits=lambda *_: splits)
        plan = variant.plan(Shape(1, N, d, causal=True), DEVICES[cc])
        BR, BC = plan.macros["BR"], plan.macros["BC"]
        blocks = {launch.symbol: launch.grid // ceil_div(N, BR) * ceil_div(queries, BR) for launch in plan.launches}
        blocks |= {"naive_scores": ceil_div(queries, BR) * ceil_div(keys, BC)}
        if plan.splits > 1:
            blocks[name] = main_blocks(Shape(1, keys, d, True, queries), plan.macros, plan.splits)
        by_rows = () if name == "paper" else (name, "naive_scores", "float4_kernel")  # paper: a block a batch
        steps = [step._replace(grid=blocks[step.symbol]) if step.symbol in by_rows else step for step in plan.launches]
        lse = np.full(N, np.nan, np.float32)
        self.changes = {"Nq": queries, "Nk": keys, "causal_offset": offset, "lse": lse.ctypes.data}
        made = library.Library(shared_object(kernel_path(plan.source), plan.macros, cc, 32, PLAIN))
        made.add_as(cc)
        outcome = made.run(replace(plan, launches=tuple(steps)), block, watched=False)
        assert outcome.finished
        return outcome.o[0, :queries], lse[:queries]


@pytest.fixture
def launch(monkeypatch):
    return Launcher(monkeypatch)


def allowed(name, cc, block):
    return bound(name, magnitudes_of(block), block.shape[3], block.shape[2], DEVICES[cc])


@slow_of_each(7)
@pytest.mark.parametrize(("name", "cc"), KERNELS)
def test_a_row_sees_the_keys_up_to_its_own(launch, name, cc):
    for N in TAILS:
        block = make_data(RANDOM_DATA, Shape(1, N, 32))
        o, _ = launch(name, cc, block)
        assert np.abs(o - definition(*block[0], last=0)[0]).max() <= allowed(name, cc, block), N


@slow
def test_batches_whose_blocks_take_turns_are_all_computed():
    """More than a section of them, with several blocks of rows each."""
    shape = Shape(18, 70, 8, causal=True)
    plan = VARIANTS["shared"].plan(shape, DEVICES[80])
    block = make_data(RANDOM_DATA, shape)
    made = library.Library(shared_object(kernel_path("shared"), plan.macros, 80, 32, PLAIN))
    assert np.abs(made.run(plan, block, watched=False).o - exact_attention(block, causal=True)).max() < 1e-5


@slow
@pytest.mark.parametrize(
    ("name", "cc", "sizes", "splits"),
    [("flash", 80, (18, 100, 8), 3), ("exact", 80, (17, 260, 8), 2), ("split", 90, (17, 580, 8), 3)],
)
def test_more_than_a_section_of_batches_whose_keys_are_split_are_all_computed(name, cc, sizes, splits):
    shape = Shape(*sizes, causal=True)
    plan = replace(VARIANTS[name], splits=lambda *_: splits).plan(shape, DEVICES[cc])
    block = make_data(RANDOM_DATA, shape)
    made = library.Library(shared_object(kernel_path(plan.source), plan.macros, cc, 32, PLAIN))
    made.add_as(cc)
    o = made.run(plan, block, watched=False).o
    assert np.abs(o - exact_attention(block, causal=True)).max() <= allowed(name, cc, block)


LENGTH, LENGTHS = 333, {("split", 90): 527}  # so many that blocks do not convert the keys themselves
LSE_ERROR = {"split": 6e-4}  # it sums P rounded to fp16


@slow
@pytest.mark.parametrize(("name", "cc"), [one for one in KERNELS if one[0] in SPLITTING])
def test_parts_of_the_keys_of_which_some_have_none_for_a_row_are_put_together(launch, name, cc):
    N, more = LENGTHS.get((name, cc), LENGTH), 1100  # more: than one accumulator takes
    cases = [(N, RANDOM_DATA, 3), (N, HUGE, 8), (N, RISING, 8), *([(more, RANDOM_DATA, 1)] if cc == 90 else [])]
    for N, kind, splits in cases:
        block = make_data(kind, Shape(1, N, 32))
        o, lse = launch(name, cc, block, splits)
        right, right_lse = definition(*block[0], last=0)
        assert np.abs(o - right).max() <= allowed(name, cc, block), (N, kind)
        assert (np.abs(lse - right_lse) / np.maximum(1, np.abs(right_lse))).max() <= LSE_ERROR.get(name, 1e-5), (
            N,
            kind,
        )


@slow_of_each(7)
@slow
@pytest.mark.parametrize(("name", "cc"), KERNELS)
def test_rows_see_keys_by_their_offset_and_one_that_sees_none_is_0(launch, name, cc):
    N = LENGTHS.get((name, cc), LENGTH)
    block = make_data(RANDOM_DATA, Shape(1, N, 32))
    q, k, v = block[0]
    for queries, keys, offset in ((N, 200, 200 - N), (130, N, N - 130), (130, N, 0), (130, N, -200)):
        for splits in (1, 4) if name in SPLITTING else (0,):
            o, lse = launch(name, cc, block, splits, queries, keys, offset)
            right, right_lse = definition(q[:queries], k[:keys], v[:keys], last=offset)
            unseen = np.isneginf(right_lse)
            assert np.abs(o - right).max() <= allowed(name, cc, block), (queries, keys, splits)
            assert (o[unseen] == 0).all()
            if splits:
                assert (lse[unseen] == -np.inf).all()
                assert np.abs(lse[~unseen] - right_lse[~unseen]).max(initial=0) < LSE_ERROR.get(name, 1e-5)
