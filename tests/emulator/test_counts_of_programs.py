"""`hw4 check FILE.cu --run --counts` of a whole program: what its kernels ask of memory, by kernel and line."""

import json

import pytest
from cases_of_programs import PROGRAMS
from helpers import run_here
from needs import needs
from slow import slow

from hw4cli.lab.measure.gpus import model_named
from hw4cli.lab.measure.timing import Work, missed, time_of

pytestmark = needs("g++")
SOURCE = PROGRAMS / "counted.cu"
WARPS = 8 * 128 // 32  # of kernels with 8 blocks of 128 threads


def line_of(words):
    """The line of the program that ends so, as reports name it."""
    (found,) = [n for n, text in enumerate(SOURCE.read_text().splitlines(), 1) if text.endswith(f"// {words}")]
    return f"counted.cu:{found}"


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The launches' records by kernel, and what stands on the terminal."""
    folder = tmp_path_factory.mktemp("counted")
    done = run_here("check", str(SOURCE), "--run", "--counts", "-o", str(folder / "counts.json"), cwd=folder)
    assert done.returncode == 0, done.stderr
    run, *launches = json.loads((folder / "counts.json").read_text())
    assert (run["what"], run["end"], run["status"]) == ("run", "ended", 0)
    return {launch["launch"]: launch for launch in launches}, done.stdout


def at(launch, what, where):
    (found,) = [line for line in launch["lines"] if (line["what"], line["where"]) == (what, line_of(where))]
    return found


@slow
def test_a_naive_transpose_writes_32_sectors_a_request_and_one_by_tiles_four(counted):
    launches, _ = counted
    requests = 2 * 64 * 64 // 32  # of two launches
    assert launches["transpose"]["launches"] == 2
    load, store = (at(launches["transpose"], f"{what}, global", "transpose") for what in ("load", "store"))
    assert (load["times"], load["sectors"], load["bytes"]) == (requests, 4 * requests, 2 * 64 * 64 * 4)
    assert (store["times"], store["sectors"], store["lanes"]) == (requests, 32 * requests, 2 * 64 * 64)
    for kernel in ("tiles<32>", "tiles<33>"):
        assert at(launches[kernel], "store, global", "tiles")["sectors"] == 4 * requests // 2
    assert launches["transpose"]["dram_read_bytes"] == launches["transpose"]["dram_written_bytes"] == 2 * 64 * 64 * 4


@slow
@pytest.mark.parametrize(("kernel", "ways"), [("tiles<32>", 32), ("tiles<33>", 1)])
def test_a_column_of_a_tile_lies_in_one_bank_unless_its_rows_are_padded(counted, kernel, ways):
    load = at(counted[0][kernel], "load, shared", "tiles")
    assert load["wavefronts"] == ways * load["least"] == ways * load["times"]


@slow
def test_interleaved_sums_have_few_active_lanes_and_sequential_ones_whole_warps(counted):
    launches, _ = counted
    adds = 127  # of a block, in either order
    inter, seq = (at(launches[name], "fp32 FLOP, add", name) for name in ("interleaved", "sequential"))
    assert inter["amount"] == seq["amount"] == 8 * adds
    # Warps that add in each step: all four while a warp has a lane that does; then those of threads 0, 64 and so on.
    assert inter["times"] == 8 * (5 * 4 + 2 + 1)
    assert seq["times"] == 8 * (2 + 1 + 5)  # threads below 64, below 32, and five times less than a warp
    assert launches["interleaved"]["active_lanes"] < launches["sequential"]["active_lanes"] < 1
    assert launches["transpose"]["active_lanes"] == 1


@slow
def test_atomics_that_meet_in_a_word_take_turns(counted):
    launch = counted[0]["histogram"]
    own, all_ = at(launch, "atomic, shared", "histogram"), at(launch, "atomic, global", "all")
    assert (own["times"], own["lanes"]) == (WARPS, 32 * WARPS)
    assert own["amount"] == own["wavefronts"] == WARPS // 2 * (32 + 2)  # all lanes one word; two lanes each word
    assert (all_["times"], all_["lanes"], all_["amount"]) == (8, 8 * 16, 8)
    assert launch["atomics"]["global"] == {"threads": 128, "requests": 8, "turns": 8}


@slow
def test_operations_stand_apart(counted):
    launch = counted[0]["polynomial"]
    threads = 8 * 128
    kinds = {kind: number for kind, number in launch["operations"].items() if number}
    assert kinds["fp32 FLOP, fma"] == 10 * 2 * threads
    assert kinds["fp32 FLOP, add"] == kinds["fp32 FLOP, multiply"] == kinds["exponentials"] == threads
    assert kinds["fp32 FLOP"] == 22 * threads


@slow
def test_the_tables_name_kernels_and_their_worst_lines_and_times_are_marked_as_predicted(counted):
    launches, text = counted
    assert f"| {512 + 512 // 16} of 1024" in text
    assert "Predicted, not measured" in text
    rows = [line.split() for line in text.splitlines() if line_of("tiles") in line]
    assert rows, "the load with 32 conflicts is among the worst lines"
    for launch in launches.values():
        assert {*launch["predicted"]} == {"GTX 1080", "MI210", "H100"}
        assert all(one["ms"] > 0 for one in launch["predicted"].values())


def test_a_limit_is_the_resource_that_needs_longest():
    """A kernel that reads much and computes little waits for DRAM; the same with conflicts for shared memory."""
    amounts = dict.fromkeys(
        [
            *(
                "lines",
                "wavefronts",
                "shuffles",
                "instructions",
                "fp32",
                "fp64",
                "special",
                "tensor",
                "asked",
                "stored",
            ),
            *("updated", "written", "first", "near_block", "far_block", "accesses", "waits_global", "waits_shared"),
            *("barriers", *(f"again {number}" for number in range(16))),
        ],
        0.0,
    )
    read = {"first": 1 << 25, "asked": 1 << 25, "lines": 1 << 23, "accesses": 4.0}  # a GB
    gpu = model_named("H100")
    times = time_of(Work("read", 1 << 13, 256, 0, amounts | read), gpu)
    assert (times.limit, times.seconds) == ("DRAM", pytest.approx((1 << 30) / (0.9 * gpu.dram * 1e9), rel=0.05))
    longer = time_of(Work("conflicts", 1 << 13, 256, 0, amounts | read | {"wavefronts": 1 << 28}), gpu)
    assert longer.limit == "L1 and shared memory"
    assert longer.seconds > 2 * times.seconds
    assert time_of(Work("large", 1, 256, 1 << 20, amounts), gpu) is None


def test_what_was_asked_for_again_is_in_a_cache_until_that_is_full():
    """A block that reads 1 MB twice reads it twice from behind a cache of 256 KB, and once where it has room."""
    amounts = {"first": 32768.0, "near_block": 0.0, "far_block": 0.0, "accesses": 2048.0}
    again = {f"again {number}": 0.0 for number in range(16)} | {"again 11": 32768.0}  # 1,024 accesses later
    work = Work("twice", 1, 128, 0, amounts | again)
    assert missed(work, work.amounts, 256 << 10) == 32768
    assert missed(work, work.amounts, 4 << 20) == 0


HALVES = """#include <hip/hip_runtime.h>
__global__ void whole(float* y, const float* x) { const int i = blockIdx.x * 256 + threadIdx.x; y[i] = 2 * x[i]; }
__global__ void halves(float* y, const float* x) { if (threadIdx.x % 64 < 32) y[threadIdx.x] = 2 * x[threadIdx.x]; }
int main()
{
    float *x, *y;
    hipMalloc(&x, 4096), hipMalloc(&y, 4096), hipMemset(x, 0, 4096);
    whole<<<4, 256>>>(y, x);
    halves<<<1, 256>>>(y, x);
    hipFree(x), hipFree(y);
}
"""


@slow
def test_a_hip_program_s_lanes_are_those_of_wavefronts_of_64_and_its_requests_are_of_32(tmp_path):
    (tmp_path / "halves.hip").write_text(HALVES)
    done = run_here("check", "halves.hip", "--run", "--counts", "-o", "counts.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    whole, halves = json.loads((tmp_path / "counts.json").read_text())[1:]
    assert (whole["active_lanes"], whole["launches"]) == (1.0, 1)
    assert 0.5 <= halves["active_lanes"] < 1.0  # half of each wavefront has at most to compare
    loads = [line for line in whole["lines"] if line["what"] == "load, global"]
    assert [(line["times"], line["lanes"]) for line in loads] == [(1024 // 32, 1024)]
    assert "200%" not in done.stdout
