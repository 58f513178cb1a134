"""What is counted while a kernel is executed, against what the text of small kernels comes to."""

import numpy as np
import pytest
from probes import run

from hw4cli.emulator.build import COUNTS
from hw4cli.emulator.counts import DIVISIONS, EXPONENTIALS, FP32

X = np.linspace(1, 2, 4096, dtype=np.float32)


def counted(symbol, which, threads=32):
    _, outcome = run("counted", symbol, X, X, X, which, threads, build=COUNTS)
    assert (outcome.findings, outcome.finished) == ((), True)
    (counts,) = outcome.counts
    return counts


def line(counts, what, where=""):
    (found,) = [one for one in counts.lines if one.what == what and where in one.where]
    return found


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (4, 16), (8, 32), (64, 32)])
def test_a_strided_load_takes_more_sectors_of_global_memory(stride, sectors):
    counts = counted("strided", stride, threads=64)
    load = line(counts, "load, global")
    assert (load.times, load.lanes, load.bytes, load.sectors) == (2, 64, 256, 2 * sectors)
    assert counts.global_read == (256, 2 * 32 * sectors)
    assert (counts.first_read, counts.written) == (256, 256)


@pytest.mark.parametrize(("stride", "ways"), [(1, 1), (2, 2), (3, 1), (8, 8), (32, 32), (33, 1)])
def test_lanes_whose_words_lie_in_one_bank_take_turns(stride, ways):
    load = line(counted("conflicts", stride), "load, shared")
    assert (load.times, load.wavefronts, load.least) == (1, ways, 1)


@pytest.mark.parametrize(("alike", "wavefronts"), [(1, 4), (2, 2), (32, 2)])
def test_vectors_of_16_bytes_are_fetched_for_a_quarter_of_the_lanes_or_for_half_where_neighbours_ask_alike(
    alike, wavefronts
):
    load = line(counted("vectors", alike), "load, shared")
    assert (load.times, load.wavefronts, load.least) == (1, wavefronts, wavefronts)


@pytest.mark.parametrize(("offset", "times", "bytes_"), [(0, 1, 16), (1, 4, 4)])
def test_words_side_by_side_are_one_load_where_they_are_aligned_and_are_loaded_once(offset, times, bytes_):
    load = line(counted("side_by_side", offset), "load, shared")
    assert (load.times, load.bytes) == (times, times * 32 * bytes_)


def test_operations_are_those_of_the_text_and_lanes_that_take_no_part_do_none():
    counts = counted("operations", 10, threads=64)
    assert counts.total("amount", FP32) == 64 * (
        2 * 10 + 1
    )  # fused products, the sum; the atomic addition is the L2 cache's
    assert counts.total("amount", EXPONENTIALS) == counts.total("amount", DIVISIONS) == 2 * 8
    exponentials = line(counts, EXPONENTIALS)
    assert (exponentials.where[:11], exponentials.times, exponentials.lanes) == ("counted.cu:", 2, 16)
    assert counts.total("times", "__shfl_xor_sync") == 2  # warps
    assert counts.total("times", "__syncthreads") == 1
    assert line(counts, "atomic, global").lanes == 64
    assert 0.5 < counts.active_lanes < 1


def test_what_a_warp_asks_for_again_comes_once_to_its_block_and_once_from_dram():
    counts = counted("operations", 10, threads=64)
    assert counts.global_read[0] == 64 * 4 + 2 * (2 * 10 * 4 + 4)  # each warp, of k, v and the sum at the end of o
    assert counts.block_read == counts.first_read == 64 * 4 + 2 * 10 * 4 + 4
