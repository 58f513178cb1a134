"""What the programs of benchmarks/ say of wrong arguments, and of what the machine lacks: a sentence and a status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import HANGS, ROOT

SCRIPTS = ["arrays.sh", "files.sh", "figures.sh", "gradients.sh"]
TABLE = "kernel,ms\nflash,1\n"


def call(*words, **env):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **env}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANGS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_names_what_is_wrong_with_its_arguments_and_makes_nothing(script, tmp_path):
    name, folder = f"benchmarks/{script}", tmp_path / "records"
    cases = {
        "usage: ": call("sh", name),
        "there is no record nonsense": call("sh", name, folder, "h100", WHAT="nonsense"),
        "there is no no-python": call("sh", name, folder, "h100", "no-python"),
    }
    for words, result in cases.items():
        assert (result.returncode, result.stdout) == (2, ""), words
        assert words in result.stderr and len(result.stderr.splitlines()) == 1
    assert not folder.exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_ends_where_the_machine_lacks_what_every_record_needs(script, tmp_path):
    result = call("sh", f"benchmarks/{script}", tmp_path / "records", "h100", sys.executable)
    assert result.returncode == 3
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["hw4"]


@pytest.mark.parametrize("module", ["traffic", "cache"])
def test_a_profile_that_cannot_be_taken_leaves_the_record_that_there_is(module, tmp_path):
    record = tmp_path / "traffic.csv"
    record.write_text(TABLE)
    result = call(sys.executable, "-m", f"benchmarks.{module}", "--output", record, PATH="/nonexistent")
    assert result.returncode == 3
    assert result.stderr.startswith(f"{module}.py: ncu is not on PATH")
    assert record.read_text() == TABLE


@pytest.mark.parametrize(
    "module", ["traffic", "cache", "nodes", "scaling", "without_warpgroups", "decoding", "ofarrays limits"]
)
def test_a_folder_that_is_not_there_is_named_before_anything_is_measured(module, tmp_path):
    result = call(sys.executable, "-m", *f"benchmarks.{module}".split(), "--output", tmp_path / "gone" / "record")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(f"{tmp_path / 'gone'} is not a folder")


@pytest.mark.parametrize("module", ["scaling", "without_warpgroups", "decoding"])
def test_a_machine_without_a_gpu_is_named_at_once(module, tmp_path):
    result = call(sys.executable, "-m", f"benchmarks.{module}", "--output", tmp_path / "record")
    assert result.returncode == 3
    assert result.stderr.startswith(f"{module}.py: no GPU can be used")
    assert list(tmp_path.iterdir()) == []
