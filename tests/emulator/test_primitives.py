"""Votes, shuffles, atomics, static shared memory on the CPU; and what becomes of kernels that never end, or crash."""

import os
from pathlib import Path

import numpy as np
import pytest
from needs import skip_without
from probes import MACROS, library, run
from slow import slow

from hw4cli.emulator.build import PLAIN, RACE, find_compiler, shared_object
from hw4cli.emulator.library import Library
from hw4cli.emulator.worker import Job, run_jobs
from hw4cli.plans.plan import Launch, Plan, Scratch

NAMES = (
    *("COUNT", "AND_OR", "BALLOT", "UP", "DOWN", "XOR", "ATOMICS", "STATIC", "STATIC_RACE", "HALF_WARP"),
    *("HALF_WARP_RACE", "STRONG", "WEAK", "ENDLESS", "NULL_POINTER", "DIVISION", "STRUCT", "STRUCT_RACE"),
)
X = np.arange(64, dtype=np.uint32)
SEGMENT = X % 16
EXPECTED = {
    "COUNT": np.full(64, 22),
    "AND_OR": np.full(64, 0b0101),
    "BALLOT": [sum(1 << i for i in range(32) if (first + i) % 5 == 0) + (first == 0) * 2**31 for first in X // 32 * 32],
    "UP": np.where(SEGMENT >= 3, X - 3, X),
    "DOWN": np.where(SEGMENT < 13, X + 3, X),
    "XOR": X ^ 17,
    "ATOMICS": np.tile([X.sum(), 0, 9, 63], 16),
    "STATIC": X[::-1],
}


def tried(name, order="forward", build=RACE, blocks=1):
    bytes_of_o, outcome = run("primitives", "primitive", X, X, X, NAMES.index(name), 64, 0, build, order, blocks)
    return bytes_of_o.view(np.uint32), [str(finding) for finding in outcome.findings]


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize("name", EXPECTED)
def test_threads_that_meet_get_what_cuda_says(name, order):
    o, found = tried(name, order)
    np.testing.assert_array_equal(o, np.asarray(EXPECTED[name], np.uint32))
    assert found == []


def test_static_shared_memory_is_watched():
    _, found = tried("STATIC_RACE")
    assert any("race: " in sentence and "primitives.cu:40" in sentence for sentence in found), found


TEMPLATE = """#include "params.cuh"
template <class T> __device__ T kept(T x) {
    __shared__ T before[64], words[64][SIZE], behind[64];
    words[threadIdx.x][0] = x;
    __syncthreads();
    before[threadIdx.x] = behind[threadIdx.x] = 0;
    __syncthreads();
    return words[threadIdx.x][0];
}
extern "C" __global__ void keep(const Params p) { p.o.data[threadIdx.x] = kept(p.q.data[threadIdx.x]); }
"""


@pytest.mark.parametrize("size", [1, 2])
def test_static_shared_memory_in_a_template_is_each_files_own(tmp_path, size):
    """Compilers may let a process have one such array for all its shared objects: the second is longer."""
    (tmp_path / f"keep{size}.cu").write_text(TEMPLATE.replace("SIZE", str(size)))
    x = np.arange(64, dtype=np.float32).reshape(1, 1, 16, 4).repeat(3, axis=1)
    plan = Plan("keep", MACROS, (Launch("keep", 1, 64, 0),), layout=Scratch(16))
    made = Library(shared_object(tmp_path / f"keep{size}.cu", MACROS, 90, 32, RACE))
    outcome = made.run(plan, x, watched=True)
    assert list(map(str, outcome.findings)) == []
    np.testing.assert_array_equal(outcome.o, x[:, 0])


def test_a_part_of_a_warp_may_meet_alone():
    o, found = tried("HALF_WARP")
    np.testing.assert_array_equal(o[:16], X[:16][::-1])
    assert found == []
    _, found = tried("HALF_WARP_RACE")
    assert any("__syncwarp() is missing" in sentence for sentence in found), found


def test_volatile_stores_of_the_same_value_are_no_race_and_plain_ones_are():
    assert tried("STRONG")[1] == []
    assert any("race: " in sentence and "O of batch 0" in sentence for sentence in tried("WEAK")[1])


@pytest.fixture(params=["g++", "clang++"])
def compiler(request, monkeypatch):
    skip_without(request.param)
    for cached in (find_compiler, library):
        cached.cache_clear()
    monkeypatch.setenv("CXX", request.param)
    yield request.param
    for cached in (find_compiler, library):
        cached.cache_clear()


def test_a_struct_in_shared_memory_is_watched_whatever_the_compiler_copies_it_with(compiler):
    o, found = tried("STRUCT")
    np.testing.assert_array_equal(o, X)
    assert found == []
    assert any("race: " in sentence and "primitives.cu:" in sentence for sentence in tried("STRUCT_RACE")[1])


def test_undefined_behaviour_is_found():
    jobs = [job("DIVISION")]
    kinds = [finding.kind for finding in run_jobs(jobs, RACE)[0].findings]
    assert "undefined behaviour" in kinds


def job(name, build=RACE):
    plan = Plan("primitives", MACROS, (Launch("primitive", 1, 64, 0),), splits=NAMES.index(name))
    block = np.stack([X, X, X]).view(np.float32).reshape(1, 3, 16, 4)
    return Job(library("primitives", build).path, plan, block, seconds=1)


@slow
@pytest.mark.parametrize("build", [PLAIN, RACE])
def test_a_kernel_that_crashes_or_never_ends_is_a_finding_and_the_others_run(build):
    jobs = [job("STATIC", build), job("NULL_POINTER", build), job("ENDLESS", build), job("COUNT", build)]
    outcomes = run_jobs(jobs, build)
    assert [outcome.finished for outcome in outcomes] == [True, False, False, True]
    assert outcomes[1].findings[0].kind in ("crash", "out of bounds")
    assert outcomes[2].findings[0].kind == "hang"
    np.testing.assert_array_equal(outcomes[3].o.view(np.uint32).reshape(-1), np.full(64, 22))


def test_a_launch_leaves_no_mappings_of_its_threads_stacks():
    """A process has 65,530 at most, and each kernel has a runtime of its own."""

    def mappings():
        return len(Path("/proc/self/maps").read_text().splitlines())

    one, loaded = job("COUNT", PLAIN), library("primitives", PLAIN)
    before = mappings()
    assert loaded.run(one.plan, one.inputs).finished
    assert mappings() < before + one.plan.launches[0].block


@slow
def test_runs_of_a_kernel_that_never_ends_are_left_out_where_that_is_wanted():
    left = []
    jobs = [job("COUNT", PLAIN), job("ENDLESS", PLAIN), job("ENDLESS", PLAIN), job("COUNT", PLAIN)]
    outcomes = run_jobs(jobs, PLAIN, advance=left.append, until_a_hang=True)
    assert [outcome.finished for outcome in outcomes] == [True, False, False, False]
    assert [len(outcome.findings) for outcome in outcomes] == [0, 1, 0, 0]
    assert sum(left) == len(jobs)


@slow
def test_a_kernel_that_never_ends_costs_the_time_of_one_kernel_however_many_follow():
    before = os.times()
    outcomes = run_jobs([job("ENDLESS", PLAIN), *[job("COUNT", PLAIN)] * 9], PLAIN)
    after = os.times()
    assert [outcome.finished for outcome in outcomes] == [False] + [True] * 9
    assert after.children_user - before.children_user < 5
