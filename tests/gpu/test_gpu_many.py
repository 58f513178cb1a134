"""Large batches, which are computed by ranges of rows; and several GPUs on one file."""

import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import fails, folder_is_clean, hw4_env, random_block, read_output, run_hw4, start_hw4, write_case

from hw4cli.plans.bounds import SAFE
from hw4cli.problem.workload import Shape
from hw4cli.stream import pipeline
from hw4cli.stream.gpus import count_here
from hw4cli.stream.timeline import Timeline

pytestmark = pytest.mark.usefixtures("gpu")
LARGE = Shape(2, 98304, 64)  # 75 MB a batch: two ranges of rows

# `hw4 ARGS`, where a GPU fails. GPU 0 waits for GPU 1, which would be late on a busy machine.
FAULTY = """
import os, threading
from hw4cli.cli import run_command
from hw4cli.device.gpu import Gpu
from hw4cli.stream.cudadevice import CudaSlot
from hw4cli.stream.team import Team

failed, first = threading.Event(), threading.Lock()

def start(slot, part, kernel, keys, whole=CudaSlot.start):
    device = slot._device
    if device._number == 0:
        failed.wait(60)
    LOSE
    whole(slot, part, kernel, keys)

def empty(gpu, shape, whole=Gpu.empty):
    FILL
    return whole(gpu, shape)

def go_on_without(team, number, error, whole=Team._go_on_without):
    whole(team, number, error)
    failed.set()

CudaSlot.start, Gpu.empty, Team._go_on_without = start, empty, go_on_without
os._exit(run_command())
"""
# A kernel that fails: after it, CUDA refuses all work on this GPU.
LOSE = """if device._number == 1 and first.acquire(blocking=False):
        module = device.gpu.cupy.RawModule(code='extern "C" __global__ void trap() { __trap(); }')
        with slot._stream:
            module.get_function("trap")((1,), (1,), ())
        device.trap = module  # kept: it can no longer be unloaded"""
# More memory than a GPU has is asked for: to fill its memory would let other tests fail.
FILL = """if gpu.cupy.cuda.Device().id == FULL:
        shape = (1 << 44,)"""


def run_faulty(source, target, lose="pass", fill="pass"):
    """Two GPUs compute a file, slowly, and one of them fails."""
    program = FAULTY.replace("LOSE", lose).replace("FILL", fill)
    words = [sys.executable, "-c", program, str(source), str(target), "--gpus", "ids:0,1", "--kernel", "warp"]
    return subprocess.run(words, env=hw4_env(), capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    block = random_block(LARGE.B, LARGE.N, LARGE.d)
    return write_case(tmp_path_factory.mktemp("large") / "in", block), block


def worst(block, outputs, causal):
    """The largest error of some rows of each batch and range."""
    rows = np.array([0, 1, 65535, 65536, 65537, 98303])
    errors = []
    for (q, k, v), o in zip(block.astype(np.float64), outputs, strict=True):
        s = q[rows] @ k.T / 8
        if causal:
            s[np.arange(len(k)) > rows[:, None]] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        errors.append(np.abs(p @ v / p.sum(axis=1, keepdims=True) - o[rows]).max())
    return max(errors)


@pytest.mark.parametrize("options", [(), ("--causal",), ("--kernel", "flash"), ("--kernel", "warp", "--causal")])
def test_a_large_batch_is_right_in_all_ranges_of_rows(hw4, large, tmp_path, options):
    source, block = large
    result = hw4("--device", "cuda", source, tmp_path / "out", "--timing", *options)
    assert result.returncode == 0, result.stderr
    assert "kernel: 2 batches by" in result.stderr
    assert worst(block, read_output(tmp_path / "out", LARGE), "--causal" in options) < SAFE


@pytest.mark.alone
def test_copies_to_a_gpu_do_not_wait_for_its_kernels(large, tmp_path):
    """All four parts are on the GPU before the first one is computed, by a slow kernel."""
    timeline = Timeline()
    job = pipeline.Job(pipeline.alone(pipeline.cuda("smallbr", None)), cores=4)
    pipeline.run(large[0], tmp_path / "out", job, timeline, pytest.fail)
    copied, computed = ([end for _, end in timeline.spans[stage]] for stage in ("copy in", "kernel"))
    assert len(computed) == 4
    assert max(copied) < min(computed)


def test_more_gpus_than_there_are_is_one_sentence(hw4, large, tmp_path):
    fails(hw4(large[0], tmp_path / "out", "--gpus", "count:99"), 3, "--gpus count:99: here", "CUDA_VISIBLE_DEVICES")


@pytest.fixture
def two_gpus():
    if count_here() < 2:
        pytest.skip("there is one GPU")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("shape", "causal"),
    [
        *((LARGE, causal) for causal in (False, True)),
        *((Shape(9, 8192, 64), True), (Shape(1200, 256, 64), False), (Shape(2, 128, 32), False)),
    ],
)
def test_several_gpus_write_the_bytes_of_one(hw4, tmp_path, shape, causal):
    source = write_case(tmp_path / "in", random_block(shape.B, shape.N, shape.d))
    options = ["--timing", *["--causal"] * causal]
    for gpus in ("ids:0", "ids:1,0") if shape == LARGE else ("ids:0", "ids:0,1"):
        result = hw4(source, tmp_path / gpus, "--gpus", gpus, *options)
        assert result.returncode == 0, result.stderr
        assert (tmp_path / gpus).read_bytes() == (tmp_path / "ids:0").read_bytes()


@pytest.mark.usefixtures("two_gpus")
def test_torchruns_ranks_take_a_gpu_each_and_write_the_bytes_of_one(hw4, large, tmp_path):
    pytest.importorskip("torch")
    assert hw4(large[0], tmp_path / "one", "--gpus", "ids:0").returncode == 0
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    rank = ["-m", "hw4cli", str(large[0]), str(tmp_path / "out"), "--ranks"]
    words = [sys.executable, *launcher, sys.executable, *rank]
    result = subprocess.run(words, env=hw4_env(), capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out").read_bytes() == (tmp_path / "one").read_bytes()
    folder_is_clean(tmp_path, "one", "out")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("full", [0, 1])
def test_a_gpu_without_memory_leaves_its_share_to_the_others(large, tmp_path, full):
    result = run_faulty(large[0], tmp_path / "out", fill=FILL.replace("FULL", str(full)))
    assert result.returncode == 0, result.stderr
    [line] = result.stderr.splitlines()
    assert f"GPU {full} failed, and the others compute its share: the GPU has not enough memory" in line
    assert worst(large[1], read_output(tmp_path / "out", LARGE), causal=False) < SAFE


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_lost_leaves_its_share_to_the_others(large, tmp_path):
    result = run_faulty(large[0], tmp_path / "out", lose=LOSE)
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()  # where GPU 0 cannot be used either then, a new process begins again with it
    assert "GPU 1 failed, and the others compute its share: the GPU failed in kernel warp: " in lines[0]
    assert lines[1:] in ([], ["hw4: no GPU works in this process any more: beginning again with the others"])
    assert worst(large[1], read_output(tmp_path / "out", LARGE), causal=False) < SAFE
    folder_is_clean(tmp_path, "out")


@pytest.mark.usefixtures("two_gpus")
def test_ctrl_c_ends_both_gpus_work_and_leaves_the_old_output(large, tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    process = start_hw4(large[0], tmp_path / "out", "--gpus", "ids:0,1", "--kernel", "warp")
    deadline = time.monotonic() + 60
    while process.poll() is None and not list(tmp_path.glob(".out.*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr.strip()) == (130, "hw4: interrupted")
    assert (tmp_path / "out").read_bytes() == b"old"
    folder_is_clean(tmp_path, "out")


@pytest.mark.usefixtures("two_gpus")
def test_a_full_disk_is_no_gpus_failure_and_leaves_the_old_output(large, tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, 10 << 20))  # noqa: E731
    result = run_hw4(large[0], tmp_path / "out", "--gpus", "ids:0,1", preexec_fn=limit)
    fails(result, 3, f"cannot write {tmp_path / 'out'}", "File too large")
    assert (tmp_path / "out").read_bytes() == b"old"
    folder_is_clean(tmp_path, "out")
