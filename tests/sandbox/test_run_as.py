"""The user and the sandbox that programs run with: the defaults of a class, the options, and the warnings."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from attacks import IS_ROOT, NOBODY, OVERWRITES, arena, done_by, needs_bwrap
from helpers import JUDGE_T01, fails, make_cases, run_hw4
from needs import needs
from slow import slow

from hw4cli.errors import InputError, MachineError
from hw4cli.judge import plan
from hw4cli.judge.scoring import standings
from hw4cli.judge.scoring.record import Rules
from hw4cli.problem.verdict import Verdict
from hw4cli.system.account import STUDENTS, account, numbered

__all__ = ["arena"]
SHOWS_ITS_USER = "#!/bin/sh\nid -u >&2\nls -d {folder}/t01.out >&2 2>/dev/null\nexit 1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with t01 and its answer, that everyone may enter."""
    with tempfile.TemporaryDirectory(prefix="hw4-run-as-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield make_cases(Path(name), "t01")


@pytest.fixture
def workdir(folder, monkeypatch):
    """A new current folder, with one submission, which prints its user."""
    workdir = Path(tempfile.mkdtemp(dir=folder))
    workdir.chmod(0o755)
    (workdir / "submissions" / "ann").mkdir(parents=True)
    hw4 = workdir / "submissions" / "ann" / "hw4"
    hw4.write_text(SHOWS_ITS_USER.format(folder=folder))
    hw4.chmod(0o700)
    monkeypatch.chdir(workdir)
    yield workdir
    shutil.rmtree(workdir)


def judge_class(folder, *options, **env):
    args = (*JUDGE_T01, "--class", "submissions", "--output", "out", "--dir", folder)
    return run_hw4(*args, *options, env=env)


def reason(workdir):
    [one] = standings.load(workdir / "out", Rules())
    return one.results["t01"].reason


def without_bwrap(workdir):
    """A PATH on which bubblewrap does not work."""
    (workdir / "bin").mkdir()
    (workdir / "bin" / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no' >&2; exit 1\n")
    (workdir / "bin" / "bwrap").chmod(0o755)
    return f"{workdir / 'bin'}:{os.environ['PATH']}"


def test_a_class_runs_in_the_sandbox_and_as_users_of_their_own_where_the_judge_is_root(workdir, folder):
    """So that none of them can use up or look into what belongs to another's user."""
    needs_bwrap("nobody" if IS_ROOT else "")
    shutil.copytree(workdir / "submissions" / "ann", workdir / "submissions" / "ben")
    result = judge_class(folder)
    assert (result.returncode, result.stderr) == (0, "")
    found = {one.user: one for one in standings.load(workdir / "out", Rules())}
    for number, user in enumerate(("ann", "ben")):
        uid, header = STUDENTS[number] if IS_ROOT else os.getuid(), found[user].session["settings"]
        assert found[user].results["t01"].reason == f"exit code 1: {uid}"
        expected = ("bwrap", True, f"+{uid}" if IS_ROOT else None)
        assert (header["sandbox"], header["contained"], header["run_as"]) == expected


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
def test_where_root_cannot_become_a_user_of_a_number_a_class_runs_as_nobody(workdir, folder, monkeypatch):
    monkeypatch.setattr(plan, "can_run_as", lambda _: False)
    needs_bwrap("nobody")
    a_class = plan.JudgeOptions(folder, cases=("t01",), submissions=workdir / "submissions")
    assert plan.plan_of(a_class).settings.run_as == "nobody"
    assert account(numbered(len(STUDENTS))) == account(numbered(0))


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
def test_without_a_sandbox_each_student_has_a_user_where_setpriv_is_missing_too(workdir, folder, monkeypatch):
    """setpriv changes the user within a sandbox only."""
    (workdir / "bin").mkdir()
    (workdir / "bin" / "true").symlink_to(shutil.which("true"))
    monkeypatch.setenv("PATH", str(workdir / "bin"))
    a_class = plan.JudgeOptions(folder, cases=("t01",), submissions=workdir / "submissions", sandbox="none")
    found = plan.plan_of(a_class)
    assert (found.settings.run_as, found.each) == (numbered(0), True)


@slow
@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
def test_root_chooses_the_user_that_programs_run_as(workdir, folder):
    for user, uid in (("nobody", NOBODY), ("root", 0)):
        for sandbox in ("none", "bwrap"):
            needs_bwrap(user)
            shutil.rmtree(workdir / "out", ignore_errors=True)
            result = judge_class(folder, "--run-as", user, "--sandbox", sandbox)
            assert result.returncode == 0, result.stderr
            expected = f"exit code 1: {uid}" if sandbox == "bwrap" else f"exit code 1: {folder}/t01.out"
            assert reason(workdir) == expected, (user, sandbox)
    program = workdir / "submissions" / "ann" / "hw4"
    args = (*JUDGE_T01, "--dir", folder, "--program", program)
    assert "exit code 1: 0" in run_hw4(*args, "--sandbox", "bwrap").stdout
    assert "nobody may not run" in run_hw4(*args, "--run-as", "nobody").stdout
    program.chmod(0o755)
    assert f"exit code 1: {NOBODY}" in run_hw4(*args, "--run-as", "nobody", "--sandbox", "bwrap").stdout


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
@pytest.mark.parametrize("arena", ["root"], indirect=True)
def test_without_a_sandbox_another_user_reads_and_changes_only_what_that_user_may(arena):
    """The fixture checks that no file has changed."""
    arena.cases.chmod(0o700)
    for body in (f"steal(answer){OVERWRITES}", f"{OVERWRITES}steal(answer)"):
        assert arena.judged(body, "none", "nobody") == (Verdict.NA, "no output file")


def test_an_unknown_or_forbidden_user_is_refused(workdir, folder):
    fails(judge_class(folder, "--run-as", "no-such-user"), 2, "--run-as no-such-user: there is no such user here")
    with pytest.raises(InputError):
        account("no-such-user")

    def another():
        with pytest.raises(MachineError, match="only root may run programs as another user"):
            account("daemon")
        return account("nobody" if IS_ROOT else "")

    assert done_by("a user", another) is None


@needs("setpriv")
def test_a_class_without_a_sandbox_needs_an_option_and_gets_a_warning(workdir, folder):
    path = without_bwrap(workdir)
    fails(judge_class(folder, PATH=path), 3, "the sandbox does not work here", "give --sandbox none")
    assert not (workdir / "out").exists()
    fails(judge_class(folder, "--sandbox", "bwrap", PATH=path), 3, "the sandbox does not work here")
    result = judge_class(folder, "--sandbox", "none", PATH=path)
    assert result.returncode == 0
    assert "--sandbox none: programs can read and write what" in result.stderr
    assert "can reach other processes" in " ".join(result.stderr.split())
    assert "and end them, the judge too" in " ".join(result.stderr.split())


def test_without_a_sandbox_programs_of_a_class_run_in_a_process_namespace(workdir, folder):
    needs_bwrap("nobody" if IS_ROOT else "")
    hw4 = workdir / "submissions" / "ann" / "hw4"
    hw4.write_text("#!/bin/sh\necho $$ >&2; [ $$ -lt 9 ] || exit 2; exit 1\n")
    result = judge_class(folder, "--sandbox", "none")
    assert "reach other processes" not in " ".join(result.stderr.split())
    assert reason(workdir).startswith("exit code 1: ")


def test_auto_uses_the_sandbox_for_one_program_only_where_it_works(workdir, folder):
    program = workdir / "submissions" / "ann" / "hw4"
    args = (
        "judge",
        "t01",
        "--limit",
        "t01=120",
        "--dir",
        folder,
        "--program",
        program,
        "--sandbox",
        "auto",
        "--output",
        "out",
    )
    result = run_hw4(*args, env={"PATH": without_bwrap(workdir)})
    assert result.returncode == 1, result.stderr
    assert standings.load(workdir / "out", Rules())[0].session["settings"]["sandbox"] == "none"
    shutil.rmtree(workdir / "out")
    needs_bwrap()
    assert run_hw4(*args).returncode == 1
    assert standings.load(workdir / "out", Rules())[0].session["settings"]["sandbox"] == "bwrap"


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
def test_results_in_a_folder_closed_to_the_user_are_the_judges_failure(workdir, folder):
    (workdir / "out").mkdir()
    workdir.chmod(0o700)
    result = judge_class(folder, "--sandbox", "none")
    assert result.returncode == 3
    assert f"user {STUDENTS[0]} may not enter {workdir}" in reason(workdir)
    needs_bwrap("nobody")
    assert judge_class(folder, "--restart").returncode == 0, "the sandbox does not mount the closed folder"
