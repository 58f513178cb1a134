"""`hw4 doctor --json` with nothing but fake programs on PATH."""

import json

import pytest
from doctors import NO_GPU
from helpers import run_hw4


@pytest.fixture
def hw4():
    """Run `hw4 ARGS` as a process of its own: what doctor says of a process is not to be said of the tests' own."""
    return run_hw4


@pytest.fixture
def bin_folder(tmp_path):
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.fixture
def examined(hw4, bin_folder):
    """Run doctor with nothing but the fakes on PATH; the JSON document, with its lines by name."""

    def run(code=0, **env):
        result = hw4("doctor", "--json", env={**NO_GPU, "PATH": str(bin_folder), **env})
        assert result.returncode == code, result.stderr
        assert result.stderr == ""
        document = json.loads(result.stdout)
        document["lines"] = {line["name"]: line for line in document["findings"]}
        return document

    return run
