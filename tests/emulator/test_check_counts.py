"""`hw4 check --run --counts` and `hw4 explain ./mine.cu`: what a kernel does, without a GPU."""

import json

import pytest
from slow import slow, slow_of_each

from hw4cli.lab.measure.counted import Part, count, counted_models, counted_works
from hw4cli.lab.measure.gpus import model_named
from hw4cli.lab.measure.model import launch_models
from hw4cli.lab.measure.timing import total
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape


@pytest.fixture
def mine(hw4, tmp_path):
    """A folder with a kernel of your own, ./mine.cu, that is `shared` under another name."""
    assert hw4("new-kernel", "mine", "--from", "shared", cwd=tmp_path).returncode == 0
    return tmp_path


@slow
def test_a_kernel_of_ones_own_is_explained_by_what_its_text_does(hw4, mine):
    done = hw4("explain", "./mine.cu", "shared", "4,4096,64", "--gpu", "H100", "--json", cwd=mine)
    assert done.returncode == 0, done.stderr
    own, rung = json.loads(done.stdout)
    assert own["roof"] == rung["roof"] == "shared memory"
    assert own["least_seconds"]["shared memory"] == pytest.approx(rung["least_seconds"]["shared memory"], rel=1e-3)
    assert (own["l2_to_sm_bytes"], own["exponentials"]) == (rung["l2_to_sm_bytes"], rung["exponentials"])


def test_without_a_compiler_a_sentence_says_that_its_own_work_is_not_known(hw4, mine):
    done = hw4("explain", "./mine.cu", "4,4096,64", "--gpu", "H100", cwd=mine, env={"CXX": "no-such-compiler"})
    assert done.returncode == 0, done.stderr
    assert "no-such-compiler" in done.stdout
    assert "not known" in done.stdout


@slow
def test_lines_with_bank_conflicts_come_first(hw4, tmp_path):
    done = hw4("check", "halfwarp_unpadded", "1,32,64", "--run", "--counts", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    worst = max(record["lines"], key=lambda line: line["wavefronts"])
    assert (worst["where"], worst["wavefronts"] / worst["least"]) == ("halfwarp.cuh:124", 8)
    assert {*record["predicted"]} == {"GTX 1080", "MI210", "H100"}
    assert all(one["ms"] > 0 and one["limit"] == "L1 and shared memory" for one in record["predicted"].values())


@slow
def test_counts_go_with_executed_kernels(hw4, tmp_path):
    done = hw4("check", "flash", "--counts", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--counts" in done.stderr


@slow
def test_the_time_of_a_naive_kernel_is_predicted_by_the_pipe_to_its_cache():
    """benchmarks/h200-ladder.json has 175.4 ms."""
    gpu = model_named("H200")
    time = total(counted_works(VARIANTS["naive"], Shape(4, 16384, 64), gpu.props), gpu)
    assert 0.8 < 1e3 * time.seconds / 175.4 < 1.25
    assert time.limit == "L1 and shared memory"


@slow_of_each(2)
@slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["shared", "float4"])
def test_counts_of_small_shapes_come_to_those_of_a_large_one(kernel, causal):
    shape, props = Shape(2, 384, 64, causal=causal), DEVICES[80]
    variant = VARIANTS[kernel]
    (found,) = counted_models(variant, shape, props)
    ((counts,),) = count(variant, [Part(shape)], props)
    assert found.shared == 128 * counts.shared_wavefronts[0]
    assert found.ffma_flops == counts.total("amount", "fp32 FLOP")
    assert found.l2 == (counts.block_read, counts.block_written)
    (formula,) = launch_models(variant.plan(shape, props), shape, props)
    assert (found.dram, found.exponentials) == (formula.dram, formula.exponentials)
