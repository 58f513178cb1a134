"""A kernel of your own on a GPU: it answers, is timed, is refused where it is wrong; what is counted holds."""

import json

import numpy as np
import pytest
from gpuexact import exact_attention
from helpers import fails, random_block, read_output, write_case

from hw4cli.device.occupancy import occupancy
from hw4cli.device.timing import GpuTimer
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import Shape

pytestmark = pytest.mark.usefixtures("gpu")
SHAPE = (3, 130, 64)


@pytest.fixture
def folder(hw4, tmp_path):
    """A folder with mine.cu, which is naive under another name, and an input."""
    hw4("new-kernel", tmp_path / "mine")
    write_case(tmp_path / "in", random_block(*SHAPE))
    return tmp_path


def replaced(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_answers_and_is_said_to_have_no_bound(hw4, folder):
    result = hw4("--kernel", "./mine.cu", "--timing", "in", "out", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "kernel: 3 batches by ./mine.cu, asked for; no bound of its error is known" in result.stderr
    got = read_output(folder / "out", Shape(*SHAPE))
    assert np.abs(got - exact_attention(random_block(*SHAPE))).max() < 5e-5


@pytest.mark.parametrize("base", VARIANTS)
def test_each_kernel_of_the_ladder_can_be_begun_from(gpu, hw4, folder, base):
    if gpu.props.cc < VARIANTS[base].least_cc:
        pytest.skip(f"{base} needs compute capability {VARIANTS[base].least_cc / 10}")
    assert hw4("new-kernel", "own", "--from", base, cwd=folder).returncode == 0
    result = hw4("--kernel", "own.cu", "in", "out", cwd=folder)
    assert result.returncode == 0, result.stderr
    got = read_output(folder / "out", Shape(*SHAPE))
    assert np.abs(got - exact_attention(random_block(*SHAPE))).max() <= VARIANTS[base].error_bound


def test_huge_values_are_left_to_it(hw4, folder):
    write_case(folder / "in", random_block(*SHAPE) * np.float32(1e30))
    assert hw4("--kernel", "./mine.cu", "in", "out", cwd=folder).returncode == 0
    assert not np.isfinite(read_output(folder / "out", Shape(*SHAPE))).all()


def test_what_is_wrong_with_it_is_one_sentence_and_leaves_the_old_output(hw4, folder):
    (folder / "out").write_bytes(b"old")
    replaced(folder / "mine.cu", "\nmine_softmax(", "\nmine_sotfmax(")
    result = hw4("--kernel", "./mine.cu", "in", "out", cwd=folder)
    fails(result, 2, "has no kernel mine_softmax: it has mine_scores, mine_sotfmax, mine_values")
    replaced(folder / "mine.cu", "float s = 0.0f;", "float s = foo;")
    fails(hw4("--kernel", "./mine.cu", "in", "out", cwd=folder), 2, 'identifier "foo" is undefined')
    assert (folder / "out").read_bytes() == b"old"


def test_a_changed_file_is_compiled_again(hw4, folder):
    hw4("--kernel", "./mine.cu", "in", "first", cwd=folder)
    replaced(folder / "mine.cu", "sum += P[j] *", "sum -= P[j] *")
    hw4("--kernel", "./mine.cu", "in", "second", cwd=folder)
    first, second = (read_output(folder / name, Shape(*SHAPE)) for name in ("first", "second"))
    assert np.array_equal(first, -second)


@pytest.mark.alone
def test_it_is_timed_beside_the_ladders_and_told_where_it_is_wrong(hw4, folder):
    hw4("new-kernel", "wrong", cwd=folder)
    replaced(folder / "wrong.cu", "float s = 0.0f;", "float s = c_of(threadIdx.x);")
    result = hw4("bench", "naive", "./mine.cu", "./wrong.cu", "2,512,64", "--json", cwd=folder)
    assert result.returncode == 1
    naive, mine, wrong = json.loads(result.stdout)["rows"]
    assert (naive["status"], mine["status"], wrong["status"]) == ("ok", "ok", "failed")
    assert 0.8 < mine["median"] / naive["median"] < 1.25
    assert "c_of" in wrong["reason"]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_occupancy_that_is_counted_is_the_drivers(gpu, name):
    if gpu.props.cc < VARIANTS[name].least_cc:
        pytest.skip(f"{name} needs compute capability {VARIANTS[name].least_cc / 10}")
    for d in (32, 64, 128):
        plan = gpu.plan(name, Shape(4, 4096, d))
        found = GpuTimer(gpu).resources(plan)
        threads = plan.launches[plan.main].block
        assert occupancy(gpu.props, found.registers, found.shared_bytes, threads).share == pytest.approx(
            found.occupancy
        )
