"""Whom programs run as, and in what: what a class is judged in, and what is told before it is."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from attacks import IS_ROOT, NOBODY, OVERWRITES, arena, done_by, needs_bwrap
from helpers import fails, make_cases, run_hw4

from hw4cli.errors import InputError, MachineError
from hw4cli.problem.verdict import Verdict
from hw4cli.scoring import standings
from hw4cli.scoring.record import Rules
from hw4cli.system.account import account

__all__ = ["arena"]
TELLS = "#!/bin/sh\nid -u >&2\nls -d {folder}/t01.out >&2 2>/dev/null\nexit 1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with t01 and its answer, that everyone may enter."""
    with tempfile.TemporaryDirectory(prefix="hw4-run-as-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield make_cases(Path(name), "t01")


@pytest.fixture
def desk(folder, monkeypatch):
    """A folder of its own for a test, with one submission that tells who it is."""
    desk = Path(tempfile.mkdtemp(dir=folder))
    desk.chmod(0o755)
    (desk / "submissions" / "ann").mkdir(parents=True)
    hw4 = desk / "submissions" / "ann" / "hw4"
    hw4.write_text(TELLS.format(folder=folder))
    hw4.chmod(0o700)
    monkeypatch.chdir(desk)
    yield desk
    shutil.rmtree(desk)


def judge_class(folder, *options, **env):
    words = ("judge", "t01", "--class", "submissions", "--output", "out", "--dir", folder)
    return run_hw4(*words, *options, env=env)


def reason(desk):
    [one] = standings.load(desk / "out", Rules())
    return one.results["t01"].reason


def without_bwrap(desk):
    """A PATH on which bubblewrap does not work."""
    (desk / "bin").mkdir()
    (desk / "bin" / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no' >&2; exit 1\n")
    (desk / "bin" / "bwrap").chmod(0o755)
    return f"{desk / 'bin'}:{os.environ['PATH']}"


def test_a_class_runs_in_the_sandbox_and_as_nobody_where_the_judge_is_root(desk, folder):
    needs_bwrap("nobody" if IS_ROOT else "")
    result = judge_class(folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"exit code 1: {NOBODY if IS_ROOT else os.getuid()}" == reason(desk)
    header = standings.load(desk / "out", Rules())[0].session["settings"]
    assert (header["sandbox"], header["contained"], header["run_as"]) == ("bwrap", True, "nobody" if IS_ROOT else None)


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
def test_root_chooses_whom_programs_run_as(desk, folder):
    for user, uid in (("nobody", NOBODY), ("root", 0)):
        for sandbox in ("none", "bwrap"):
            needs_bwrap(user)
            shutil.rmtree(desk / "out", ignore_errors=True)
            result = judge_class(folder, "--run-as", user, "--sandbox", sandbox)
            assert result.returncode == 0, result.stderr
            told = f"exit code 1: {uid}" if sandbox == "bwrap" else f"exit code 1: {folder}/t01.out"
            assert reason(desk) == told, (user, sandbox)
    program = desk / "submissions" / "ann" / "hw4"
    words = ("judge", "t01", "--dir", folder, "--program", program)
    assert "exit code 1: 0" in run_hw4(*words, "--sandbox", "bwrap").stdout
    assert "nobody may not run" in run_hw4(*words, "--run-as", "nobody").stdout
    program.chmod(0o755)
    assert f"exit code 1: {NOBODY}" in run_hw4(*words, "--run-as", "nobody", "--sandbox", "bwrap").stdout


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
@pytest.mark.parametrize("arena", ["root"], indirect=True)
def test_without_a_sandbox_another_user_reads_and_changes_only_what_that_user_may(arena):
    """What is as it was in the end, the arena looks at."""
    arena.cases.chmod(0o700)
    for body in (f"steal(answer){OVERWRITES}", f"{OVERWRITES}steal(answer)"):
        assert arena.judged(body, "none", "nobody") == (Verdict.NA, "no output file")


def test_a_user_who_cannot_be_is_told(desk, folder):
    fails(judge_class(folder, "--run-as", "no-such-user"), 2, "--run-as no-such-user: there is no such user here")
    with pytest.raises(InputError):
        account("no-such-user")

    def another():
        with pytest.raises(MachineError, match="only root may run programs as another user"):
            account("daemon")
        return account("nobody" if IS_ROOT else "")

    assert done_by("a user", another) is None


def test_without_a_sandbox_a_class_is_judged_only_if_that_is_said_and_then_it_is_told_what_is_open(desk, folder):
    path = without_bwrap(desk)
    fails(judge_class(folder, PATH=path), 3, "the sandbox does not work here", "say --sandbox none")
    assert not (desk / "out").exists()
    fails(judge_class(folder, "--sandbox", "bwrap", PATH=path), 3, "the sandbox does not work here")
    result = judge_class(folder, "--sandbox", "none", PATH=path)
    assert result.returncode == 0
    assert "--sandbox none: programs read and write what" in result.stderr
    assert "reach other processes" in " ".join(result.stderr.split())


def test_without_a_sandbox_programs_of_a_class_still_have_processes_of_their_own(desk, folder):
    needs_bwrap("nobody" if IS_ROOT else "")
    hw4 = desk / "submissions" / "ann" / "hw4"
    hw4.write_text("#!/bin/sh\necho $$ >&2; [ $$ -lt 9 ] || exit 2; exit 1\n")
    result = judge_class(folder, "--sandbox", "none")
    assert "reach other processes" not in " ".join(result.stderr.split())
    assert reason(desk).startswith("exit code 1: ")


def test_auto_is_the_best_that_there_is_for_one_program(desk, folder):
    program = desk / "submissions" / "ann" / "hw4"
    words = ("judge", "t01", "--dir", folder, "--program", program, "--sandbox", "auto", "--output", "out")
    result = run_hw4(*words, env={"PATH": without_bwrap(desk)})
    assert result.returncode == 1, result.stderr
    assert standings.load(desk / "out", Rules())[0].session["settings"]["sandbox"] == "none"
    shutil.rmtree(desk / "out")
    needs_bwrap()
    assert run_hw4(*words).returncode == 1
    assert standings.load(desk / "out", Rules())[0].session["settings"]["sandbox"] == "bwrap"


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
def test_results_where_the_user_cannot_go_are_the_judges_failure_and_told(desk, folder):
    (desk / "out").mkdir()
    desk.chmod(0o700)
    result = judge_class(folder, "--sandbox", "none")
    assert result.returncode == 3
    assert f"nobody may not enter {desk}" in reason(desk)
    needs_bwrap("nobody")
    assert judge_class(folder, "--restart").returncode == 0, "the sandbox shows what cannot be reached"
