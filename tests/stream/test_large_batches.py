"""Files with large batches, which the CPU, too, computes by ranges of rows; and the options for several GPUs."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import HANGS, definition, fails, folder_is_clean, hw4_env, random_block, read_output, run_hw4, write_case

from hw4cli.cli.run import OWN_GPUS, _job
from hw4cli.errors import InputError
from hw4cli.problem.workload import Shape
from hw4cli.stream import pipeline, work
from hw4cli.stream.timeline import Timeline

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
SHAPE = Shape(2, 2600, 8)  # three ranges of rows in each batch


@pytest.fixture
def small_parts(monkeypatch):
    """Batches are large from 100 KB on."""
    monkeypatch.setattr(work, "WHOLE_BYTES", 100_000)
    monkeypatch.setattr(work, "ROW_BYTES", 32 * 1024)


def computed(source, target, causal=False):
    said = []
    timeline, job = Timeline(), pipeline.Job(pipeline.alone(pipeline.cpu(None)), 2, causal)
    _, summary = pipeline.run(source, target, job, timeline, said.append)
    assert timeline.progress.done == timeline.progress.total
    return target.read_bytes(), summary, said


@pytest.mark.parametrize("causal", [False, True])
def test_ranges_of_rows_have_the_bytes_of_whole_batches(tmp_path, monkeypatch, causal):
    source = write_case(tmp_path / "in", random_block(*SHAPE.sizes))
    whole, *_ = computed(source, tmp_path / "whole", causal)
    monkeypatch.setattr(work, "WHOLE_BYTES", 100_000)
    monkeypatch.setattr(work, "ROW_BYTES", 32 * 1024)
    assert len(work.parts_of(SHAPE, 1, work.rows_of_a_part(SHAPE))) == 6
    parts, summary, said = computed(source, tmp_path / "parts", causal)
    assert parts == whole
    assert summary.startswith("kernel: 2 batches by float32, ")
    assert said == []


@pytest.mark.usefixtures("small_parts")
def test_only_the_ranges_that_need_it_are_computed_in_float64(tmp_path):
    block = random_block(*SHAPE.sizes)
    block[1, 0, 2500] *= 1e4  # in the last range
    source = write_case(tmp_path / "in", block)
    _, _, [sentence] = computed(source, tmp_path / "out")
    assert sentence.startswith("1 batch had values too large for float32")
    assert np.abs(read_output(tmp_path / "out", SHAPE) - definition(block)).max() < 2e-5


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("place", "words"), [((1, 0, 2500, 3), "Q of batch 1, row 2500"), ((0, 2, 7, 0), "V of batch 0")]
)
def test_a_nan_in_any_range_is_reported_with_its_place(tmp_path, place, words):
    block = random_block(*SHAPE.sizes)
    block[place] = np.nan
    with pytest.raises(InputError, match=words):
        computed(write_case(tmp_path / "in", block), tmp_path / "out")
    assert not (tmp_path / "out").exists()


HUGE = "9" * 5000  # too many digits for Python's int


@pytest.mark.parametrize(
    "words",
    [
        "none",
        "count:0",
        "ids:",
        "ids:1,1",
        pytest.param(f"count:{HUGE}", id="count"),
        pytest.param(f"ids:{HUGE}", id="ids"),
    ],
)
def test_words_that_choose_no_gpus_are_refused(hw4, tmp_path, words):
    fails(hw4("in", "out", "--gpus", words), 2, "--gpus", "all, count:N such as count:2, or ids:LIST such as ids:0,2")


@pytest.mark.parametrize("gpus", ["all", "count:2", "ids:0,1"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, gpus):
    os.mkfifo(tmp_path / "in")
    fails(run_hw4(tmp_path / "in", tmp_path / "out", "--gpus", gpus, timeout=HANGS), 2, "in is not a regular file")


def test_gpus_and_a_device_that_is_none_do_not_go_together(hw4, tmp_path):
    fails(hw4("in", "out", "--gpus", "all", "--device", "cpu"), 2, "--gpus all does not go with --device cpu")


def test_several_gpus_where_there_is_none_are_refused_and_the_old_output_is_untouched(hw4, tmp_path):
    source = write_case(tmp_path / "in", random_block(2, 8, 8))
    (tmp_path / "out").write_bytes(b"old")
    fails(hw4(source, tmp_path / "out", "--gpus", "all", env=NO_GPU), 3, "no GPU can be used")
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.mark.parametrize(("began", "of_node"), [(False, (1, 2)), (True, (0, 1))])
def test_a_rank_that_began_again_has_all_of_the_gpus_it_names(monkeypatch, began, of_node):
    found = []
    monkeypatch.setattr(pipeline, "several", lambda *given: found.append(given))
    if began:
        monkeypatch.setenv(OWN_GPUS, "1")
    options = {"device": "auto", "kernel": "auto", "max_error": None, "gpus": "ids:5,6,7", "causal": False}
    _job(options, 1, print, SimpleNamespace(local=1, local_size=2))
    assert found == [("auto", None, "ids:5,6,7", *of_node)]


# `hw4 ARGS`, where all GPUs of the process are lost, one after the other.
LOST = """
from hw4cli.cli import run_command
from hw4cli.errors import LostGpuError
from hw4cli.stream import pipeline

def lose(*_):
    error = LostGpuError("the GPU failed")
    error.others = (2, 0)
    raise error

pipeline.run = lose
run_command()
"""


def test_where_all_gpus_are_lost_a_new_process_begins_again_with_the_others(tmp_path):
    source, said = write_case(tmp_path / "in", random_block(2, 8, 8)), tmp_path / "said"
    record = f'#!/bin/sh\nfor word; do echo "$word"; done > {said}\n'
    (tmp_path / "python").write_text(record)
    (tmp_path / "python").chmod(0o755)
    start = f"import sys; sys.executable = {str(tmp_path / 'python')!r}\n{LOST}"
    words = [sys.executable, "-c", start, "--gpus", "all", "--", str(source), str(tmp_path / "out")]
    done = subprocess.run(words, env=hw4_env(), capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "hw4: no GPU works in this process any more: beginning again with the others\n"
    files = ["--", str(source), str(tmp_path / "out")]
    assert said.read_text().splitlines()[-7:] == ["--gpus", "all", "--gpus", "ids:2,0", *files]
    folder_is_clean(tmp_path, "in", "said", "python")
