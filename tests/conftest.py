"""What many tests start from: the command, a case, a class, a page."""

import os
import signal
from contextlib import suppress
from subprocess import CompletedProcess

import pytest
from boards import write_class
from browser import chromium  # noqa: F401 (a fixture)
from cluster import Cluster
from helpers import make_cases, run_hw4

from hw4cli.cli import run_command

# The tests may run inside `make test`, or inside a job of Slurm's: what a make, or a Slurm, inside them does must not
# depend on the one around them.
for name in list(os.environ):
    if name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON") or name.startswith(("SLURM_", "SBATCH_")):
        del os.environ[name]

# Nor on signals that are ignored around them (`make test &` in a script, nohup), which the command respects.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# Nor on how busy the machine is: hypothesis gives an example 0.2 s otherwise.
with suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("loaded", deadline=None)
    settings.load_profile("loaded")


@pytest.fixture
def hw4():
    return run_hw4


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with t01 and its answer."""
    return make_cases(tmp_path_factory.mktemp("cases"), "t01")


@pytest.fixture(scope="session")
def two(tmp_path_factory):
    """A folder with t01, t02 and their answers."""
    return make_cases(tmp_path_factory.mktemp("cases"), "t01", "t02")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A running Slurm of one node."""
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A new current folder, with an empty folder `submissions` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "submissions").mkdir()
    return tmp_path


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """The scoreboard of a class as a page, written by the command."""
    folder = tmp_path_factory.mktemp("class")
    path = folder / "board.html"
    result = run_hw4("scoreboard", write_class(folder / "hw4"), "--html", path)
    assert result.returncode == 3, result.stderr  # one of its journals is damaged
    return path


@pytest.fixture
def hw4_here(tmp_path, monkeypatch, capsys):
    """Run `hw4 ARGS` in a folder of its own, in this process: for mistakes that are reported at once."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        code = run_command([str(arg) for arg in args])
        return CompletedProcess(args, code, *capsys.readouterr())

    return run
