"""half_split, executed on the CPU against float64: few rows, many keys, heads that share keys, splits put together."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from halves import assert_right, random_words
from slow import quick_of_each, slow

from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.emulator.library import FORWARDS, REVERSE, Schedule
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.halfmma import (
    COMBINED,
    MMA,
    MOST_SPLITS,
    SPLIT,
    SplitTiling,
    least,
    packed_rows,
    split_count,
    split_plan,
)
from hw4cli.plans.kernels16 import are_many, kernel16, key_step, length_step, plan16, table16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Span, Workload
from hw4cli.resources import kernel_path, kernel_source

pytestmark = quick_of_each(1)


def how(warps, fragments, keys, stages, q_registers, splits):
    return SplitTiling(warps, fragments, keys, stages, q_registers, 2, splits)


# The tiling, where it is not what the GPU would take; the compute capability; heads, heads of K and V, rows, keys, the
# head size, the type; the offset, if it is causal.
WAYS = {
    "one row of 8 heads on 2": (None, 90, 8, 2, 1, 3000, 64, FLOAT16, None),
    "three rows, causal, three splits": (
        how(4, 1, 16, 3, True, splits=3),
        90,
        4,
        1,
        3,
        1111,
        128,
        BFLOAT16,
        1108,
    ),
    "more rows than a tile": (how(4, 2, 16, 2, False, splits=2), 80, 4, 1, 11, 700, 80, BFLOAT16, 689),
    "T4, an odd head size": (how(2, 1, 32, 2, True, splits=5), 75, 2, 2, 9, 500, 40, FLOAT16, None),
    "splits without a key": (how(4, 1, 64, 2, True, splits=4), 89, 6, 2, 2, 70, 24, FLOAT16, 30),
    "more splits than a warp puts together": (how(1, 1, 16, 2, True, splits=100), 90, 2, 1, 2, 1650, 40, BFLOAT16, 700),
    "as many warps as memory has room for": (None, 90, 32, 1, 1, 900, 64, FLOAT16, None),
    "eight warps to a block, more rows than a tile": (
        SplitTiling(8, 2, 16, 3, False, 1, 2),
        90,
        34,
        1,
        1,
        601,
        128,
        BFLOAT16,
        None,
    ),
    "teams of two warps": (SplitTiling(4, 1, 32, 6, True, 1, 3, team=2), 90, 20, 1, 1, 700, 128, BFLOAT16, None),
    "rows without a key, one split": (how(4, 1, 64, 2, True, splits=1), 86, 6, 2, 4, 70, 24, FLOAT16, -2),
}


@pytest.mark.parametrize("way", WAYS)
def test_half_split_is_right_and_free_of_races(way):
    tiling, cc, heads, kv_heads, rows, keys, d, dtype, offset = WAYS[way]
    work = Workload(dtype, 2, heads, kv_heads, rows, keys, d, offset is not None, offset or 0)
    outcome = assert_right(work, *random_words(work), tiling, kernel=SPLIT, cc=cc)
    if offset is not None and offset < 0:
        assert not outcome.o[:, :, :-offset].any()


@slow
def test_other_orders_of_threads_give_the_same_bits():
    work = Workload(FLOAT16, 1, 4, 2, 2, 600, 32)
    q, k, v = random_words(work)
    first, second = (
        assert_right(work, q, k, v, schedule=schedule, kernel=SPLIT) for schedule in (FORWARDS, Schedule(REVERSE))
    )
    assert np.array_equal(first.o, second.o)
    assert np.array_equal(first.lse, second.lse)


def decoding(batch, keys, cc=90, **more):
    return split_plan(Workload(BFLOAT16, batch, 32, 8, 1, keys, 128, **more), DEVICES[cc])


def test_splits_fill_the_multiprocessors_and_no_more():
    """One block of eight warps each, of 132; where that would leave many idle, two of four."""
    assert all(119 <= decoding(batch, 131072).launches[0].grid <= 132 for batch in (1, 2, 3, 4, 5, 16))
    (only,) = decoding(16, 1024).launches
    assert (only.grid, only.block) == (128, 256)
    assert all(decoding(batch, 131072).macros["BLOCKS"] == 2 for batch in (6, 12, 24))
    assert decoding(1, 100).launches[0].grid == 8
    assert split_count(600, 100, 264, 0) < 10
    assert split_count(8, 1000, 264, cost=1.0) == 1


def test_blocks_of_eight_warps_are_for_keys_enough_and_of_one_length():
    assert [decoding(1, keys).macros["THREADS"] for keys in (2048, 8192)] == [128, 256]
    assert decoding(16, 1024, cc=80).macros["BLOCKS"] == 2, "less memory"
    spans = tuple(Span(n, 0, 1, 0, keys, keys - 1, n) for n, keys in enumerate([1024] * 15 + [20]))
    assert decoding(16, 1024, sequences=spans).macros["THREADS"] == 128


def test_first_keys_are_asked_for_early_where_all_blocks_wait_together():
    """Blocks of a later wave find the launch before ended; a table of sequences may be what it writes."""
    assert [decoding(batch, 1024).macros["PREFETCHED"] for batch in (1, 16, 64)] == [2, 2, 0]
    assert decoding(16, 1024, cc=80).macros["PREFETCHED"] == 0
    spans = (Span(0, 0, 1, 0, 2000, 1999, 0),)
    assert decoding(1, 2000, sequences=spans).macros["PREFETCHED"] == 0


@pytest.mark.parametrize("cc", [75, 80, 90])
def test_plans_for_numbers_of_keys_between_two_multiples_of_a_step_are_the_same(cc):
    """A step of decoding has one key more than the one before, and takes its plan."""
    draw, known = random.Random(cc), 0
    for _ in range(60):
        group, rows = draw.choice([1, 4, 8]), draw.choice([1, 1, 2, 8, 40])
        kv_heads, batch, d = draw.choice([1, 2, 8]), draw.choice([1, 3, 64]), draw.choice([32, 64, 128, 256])
        dtype, window = draw.choice([FLOAT16, BFLOAT16]), draw.choice([0, 0, 100])
        mask = {"causal": bool(window) or draw.random() < 0.5, "window": window}
        work = Workload(dtype, batch, kv_heads * group, kv_heads, rows, 1, d, **mask)
        for name in (AUTO, SPLIT) if least(work) <= cc else (AUTO,):
            step = key_step(work, DEVICES[cc], name)
            known += step > 0
            for end in range(step, 3000 if step else 0, draw.choice([1, 7]) * step or 1):
                last = plan16(replace(work, Nk=end, offset=end - rows), DEVICES[cc], name)
                for keys in {max(1, end - step + 1), draw.randrange(end - step + 1, end + 1)}:
                    assert plan16(replace(work, Nk=keys, offset=keys - rows), DEVICES[cc], name) == last
    assert known > 20


@pytest.mark.parametrize("cc", [75, 80, 90])
def test_plans_for_lengths_whose_most_keys_lie_in_one_step_differ_in_their_tables_alone(cc):
    """Of whatever kernel, and on either side of where keys are split; the table is that of the plan for them."""
    draw, shared = random.Random(cc), set()
    for _ in range(60):
        group, rows, kv_heads = draw.choice([1, 4, 8]), draw.choice([1, 1, 2, 8]), draw.choice([1, 2, 8])
        d, causal = draw.choice([32, 64, 128, 256]), draw.random() < 0.5
        work = Workload(draw.choice([FLOAT16, BFLOAT16]), 3, kv_heads * group, kv_heads, rows, 3000, d, causal)

        def planned(most, name, work=work, rows=rows):
            lengths = [most, draw.randrange(1, most + 1), draw.randrange(1, most + 1)]
            spans = tuple(Span(n, 0, rows, 0, keys, keys - rows, n) for n, keys in enumerate(lengths))
            found = plan16(replace(work, sequences=spans), DEVICES[cc], name)
            return found, spans, replace(work, sequences=spans)

        for name in (AUTO, *(one for one in (MMA, SPLIT) if least(work) <= cc), "half_cores"):
            _, _, first = planned(1, name)
            step = length_step(first, DEVICES[cc])
            assert step
            for end in (step, 2 * step, 1024 // step * step, (1024 // step + 1) * step, 2560):
                (last, _, of_last), (some, spans, _) = planned(end, name), planned(end - draw.randrange(step), name)
                if are_many(end) != are_many(max(span.keys for span in spans)):
                    continue
                assert replace(last, table=b"") == replace(some, table=b"")
                assert table16(spans, of_last, last) == some.table
                shared.add(some.variant)
    assert len(shared) > 2


@pytest.mark.parametrize("kernel", [MMA, "half_cores"])
def test_of_a_kernel_that_splits_no_keys_no_step_is_known(kernel):
    assert key_step(Workload(BFLOAT16, 1, 8, 2, 1, 100, 64), DEVICES[90], kernel) == 0


def test_where_the_kernel_depends_on_the_number_of_keys_no_step_is_known():
    """40 rows of a head are for half where there are few keys, and many heads."""
    assert key_step(Workload(BFLOAT16, 1, 8, 8, 40, 4096, 64), DEVICES[90]) == 0


def test_one_head_of_keys_has_fewer_blocks_than_multiprocessors():
    """A tile of rows has 128 splits at most; an H100 has 132 multiprocessors, and holds 264 blocks of four warps."""
    work = Workload(BFLOAT16, 1, 32, 1, 1, 131072, 128)
    taken, asked = (split_plan(work, DEVICES[90], tiling) for tiling in (None, how(4, 2, 16, 3, False, splits=264)))
    assert (taken.launches[0].grid, asked.launches[0].grid) == (128, 128)


def test_warps_are_in_teams_where_many_blocks_share_the_keys_of_32_rows():
    def team(heads, batch=1):
        return split_plan(Workload(BFLOAT16, batch, heads, 1, 1, 131072, 128), DEVICES[90]).macros.get("TEAM", 1)

    assert (team(32), team(16), team(32, batch=4)) == (2, 1, 1)


def test_each_warp_that_combines_has_at_most_eight_splits():
    for splits in (2, 8, 9, 33, 128, 500):
        work = Workload(BFLOAT16, 1, 32, 8, 1, 65536, 128)
        _, combine = split_plan(work, DEVICES[90], how(4, 1, 16, 3, True, splits)).launches
        assert 8 * (combine.block // 32 - 1) < min(splits, 128) <= 8 * (combine.block // 32)


def test_the_kernel_that_combines_takes_as_many_splits_as_plans_have():
    text = kernel_path(SPLIT).read_text()
    taken = re.search(r"constexpr int AHEAD = (\d+), MOST = (\d+);", text)
    threads = re.search(r"__launch_bounds__\((\d+)\) half_split_combine", text)
    assert [*map(int, taken.groups())] == [COMBINED, MOST_SPLITS]
    assert int(threads[1]) >= 32 * MOST_SPLITS // COMBINED


def test_keys_are_split_up_to_a_quarter_of_the_multiprocessors_with_a_tile_of_rows():
    found = [kernel16(Workload(FLOAT16, 1, heads, heads, 128, 1024, 64), DEVICES[80]) for heads in (27, 28)]
    assert (DEVICES[80].sms, found) == (108, [SPLIT, MMA])


def test_few_rows_of_many_keys_are_split_and_many_rows_are_not():
    decoding = Workload(FLOAT16, 16, 32, 8, 1, 4096, 128)
    assert packed_rows(decoding) == 4
    assert kernel16(decoding, DEVICES[90]) == kernel16(decoding, DEVICES[80]) == SPLIT
    assert kernel16(Workload.square(FLOAT16, 1, 1, 4096, 64), DEVICES[90]) == SPLIT
    assert kernel16(Workload.square(FLOAT16, 1, 32, 4096, 64), DEVICES[90]) == "half"
    short = Workload.square(FLOAT16, 1, 19200, 64, 64)
    assert [kernel16(short, DEVICES[cc]) for cc in (80, 90)] == ["half_mma", "half"]
    assert kernel16(Workload.square(FLOAT16, 1, 19200, 32, 64), DEVICES[90]) == SPLIT, "not measured"
    assert kernel16(Workload.square(FLOAT16, 1, 100, 64, 64), DEVICES[90]) == SPLIT, "not measured"
    assert kernel16(Workload(FLOAT16, 64, 64, 1, 1, 128, 64), DEVICES[90]) == SPLIT, "one row of heads that share keys"


@slow
@pytest.mark.parametrize("cc", [75, 80, 90, 120])
def test_no_register_spills_on_any_gpu(cc):
    compiler = Compiler(find(13000, cc), 13000, cc)
    work = Workload(FLOAT16, 1, 32, 8, 8, 4096, 128, True, 0)
    options = (*OPTIONS, *split_plan(work, DEVICES[cc]).options, "--ptxas-options=-v")
    _, log = compiler.build(kernel_source(SPLIT), "half_split.cu", options, cc)
    assert re.findall(r"(\d+) bytes spill", log) == ["0"] * 4, log


def test_both_launches_may_begin_early_and_wait_before_they_read_and_write():
    """What the first one asks for before are lines of the L2 cache, which what is still written there meets."""
    work = Workload(BFLOAT16, 1, 32, 8, 1, 16384, 128)
    assert [step.early for step in split_plan(work, DEVICES[90]).launches] == [True, True]
    first, combine = kernel_path(SPLIT).read_text().split("half_split_combine(")
    _, keys, kernel = re.split(r"void split_keys\(|void __launch_bounds__", first, maxsplit=2)
    before, after = keys.split("griddep_wait();")
    assert "prefetch_rows<SUB>(p.k" in before
    assert not re.search(r"\bfetch\(|copy16", before), "reads before what came before has ended"
    assert re.search(r"\bfetch\(.*griddep_launch\(\);", after, re.DOTALL)
    assert kernel.index("griddep_wait();") < kernel.index("p.sequences[")
    waits = combine.index("griddep_wait();")
    assert not re.search(r"\b(lse|part)\[|\*\(const float4", combine[:waits]), "reads before the splits are there"


def test_keys_that_one_tile_of_rows_reads_leave_the_cache_first():
    for heads, once in ((32, 1), (64, 0)):  # with 64 rows, two tiles read them
        assert split_plan(Workload(BFLOAT16, 1, heads, 1, 1, 8192, 128), DEVICES[90]).macros["ONCE"] == once


def test_a_gigabyte_of_keys_and_values_stays_in_the_cache_as_long_as_anything_does():
    assert [decoding(16, keys).macros["ONCE"] for keys in (16383 - 128, 16384)] == [1, 0]
