"""`hw4 judge` of hw4 itself has the kernels compiled before the first case, as a submission is built before."""

import json
import subprocess
import sys
from contextlib import nullcontext

import psutil
import pytest
from helpers import wait_until

from hw4cli.cli.terminal.preparing import prepare_kernels
from hw4cli.problem import suite
from hw4cli.system import gpufiles

CASES = suite.select(["t01", "t10"])
# Stands for hw4: notes how it was started.
NOTES = "import json, os, sys; json.dump([sys.argv[2:], os.environ.get('CUPY_CACHE_DIR')], open(sys.argv[1], 'w'))"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What a judge asks hw4 for, with the words that it starts it by, and the cache that hw4 has; None if nothing."""
    monkeypatch.setattr(gpufiles, "nvidia_gpu_is_here", lambda: True)
    notes = tmp_path / "notes"

    def ask(cases=CASES, launcher=(), env=None):
        prepare_kernels([sys.executable, "-c", NOTES, str(notes)], env, cases, launcher)
        return json.loads(notes.read_text()) if notes.exists() else None

    return ask


def test_what_the_cases_need_is_compiled_whatever_the_cache_holds(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    (tmp_path / "hw4-0123.cubin").touch()  # of another case, or another build
    assert asked() == [["doctor", "--prepare", "t01", "t10"], str(tmp_path)]


def test_into_the_cache_that_the_judged_program_has(asked):
    assert asked(env={"CUPY_CACHE_DIR": "/its/own"})[1] == "/its/own"


def test_causal_cases_have_kernels_of_their_own(asked):
    words, _ = asked([case.as_causal() for case in CASES])
    assert words == ["doctor", "--prepare", "--causal", "t01", "t10"]


def test_nothing_is_asked_for_without_a_gpu_but_behind_a_launcher_that_may_have_one(asked, monkeypatch):
    monkeypatch.setattr(gpufiles, "nvidia_gpu_is_here", lambda: False)
    assert asked() is None
    assert asked(launcher=["env"])[0] == ["doctor", "--prepare", "t01", "t10"]


def test_what_is_wrong_is_left_to_the_cases(monkeypatch):
    monkeypatch.setattr(gpufiles, "nvidia_gpu_is_here", lambda: True)
    prepare_kernels(["/nonexistent/hw4"], None, CASES)
    prepare_kernels([sys.executable, "-c", "raise SystemExit(3)"], None, CASES)


def test_a_gpu_that_works_but_whose_kernels_cannot_be_kept_is_not_taken_for_none(monkeypatch):
    monkeypatch.setattr(gpufiles, "nvidia_gpu_is_here", lambda: True)
    words = [sys.executable, "-c", "print('NVIDIA H200: 1 kernel compiled'); raise SystemExit(3)"]
    assert prepare_kernels(words, None, CASES) == ""
    assert prepare_kernels([sys.executable, "-c", "raise SystemExit(3)"], None, CASES).startswith("hw4 computed on the")


STARTS = """
import pathlib, subprocess, sys, time
compiler = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
pathlib.Path(sys.argv[1] + ".part").write_text(str(compiler.pid))
pathlib.Path(sys.argv[1] + ".part").rename(sys.argv[1])
time.sleep(300)
"""


@pytest.mark.parametrize("end", ["interrupted", "too slow"])
def test_what_compiles_ends_with_the_judge_and_when_it_takes_too_long(tmp_path, monkeypatch, end):
    """With the processes that it has started, one for each kernel."""
    monkeypatch.setattr(gpufiles, "nvidia_gpu_is_here", lambda: True)
    started, ended = tmp_path / "started", pytest.raises(KeyboardInterrupt) if end == "interrupted" else nullcontext()

    def communicate(process, *args, timeout=None, **others):
        wait_until(started.exists)
        raise KeyboardInterrupt if end == "interrupted" else subprocess.TimeoutExpired("hw4", 600)

    with monkeypatch.context() as patched, ended:
        patched.setattr(subprocess.Popen, "communicate", communicate)
        prepare_kernels([sys.executable, "-c", STARTS, str(started)], None, CASES)
    compiler = int(started.read_text())
    wait_until(lambda: not psutil.pid_exists(compiler) or psutil.Process(compiler).status() == psutil.STATUS_ZOMBIE)
