"""What the programs that make records say of wrong arguments and of what the machine lacks: a sentence and a status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import HANGS, ROOT
from slow import quick_of_each

TABLE = "kernel,ms\nflash,1\n"


def call(*words, **env):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **env}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANGS)


@pytest.mark.parametrize("module", ["traffic", "cache"])
def test_a_profile_that_cannot_be_taken_leaves_the_record_that_there_is(module, tmp_path):
    record = tmp_path / "traffic.csv"
    record.write_text(TABLE)
    result = call(sys.executable, "-m", f"benchmarks.measure.{module}", "--output", record, PATH="/nonexistent")
    assert result.returncode == 3
    assert result.stderr.startswith(f"{module}.py: ncu is not on PATH")
    assert record.read_text() == TABLE


@quick_of_each(2)
@pytest.mark.parametrize(
    "module", ["traffic", "cache", "nodes", "scaling", "without_warpgroups", "decoding", "ofarrays limits"]
)
def test_a_folder_that_is_not_there_is_named_before_anything_is_measured(module, tmp_path):
    result = call(
        sys.executable, "-m", *f"benchmarks.measure.{module}".split(), "--output", tmp_path / "gone" / "record"
    )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(f"{tmp_path / 'gone'} is not a folder")


@quick_of_each(1)
@pytest.mark.parametrize("module", ["scaling", "without_warpgroups", "decoding"])
def test_a_machine_without_a_gpu_is_named_at_once(module, tmp_path):
    result = call(sys.executable, "-m", f"benchmarks.measure.{module}", "--output", tmp_path / "record")
    assert result.returncode == 3
    assert result.stderr.startswith(f"{module}.py: no GPU can be used")
    assert list(tmp_path.iterdir()) == []


@quick_of_each(1)
@pytest.mark.parametrize("words", ["predictions {} -o {}/made.json", "programs {} .", "scor {} -o {}/made"])
def test_a_file_that_is_not_there_is_a_sentence(words, tmp_path):
    module, *others = words.replace("{}", str(tmp_path / "gone"), 1).replace("{}", str(tmp_path)).split()
    result = call(sys.executable, "-m", f"benchmarks.measure.{module}", *others)
    assert result.returncode == 2
    assert result.stderr.startswith(f"{module}.py: {tmp_path / 'gone'}") and "No such file" in result.stderr
