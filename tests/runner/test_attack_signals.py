"""Signals to the judge, one or a hundred, and its violent death: nothing lives on, and nothing of ours is left."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pytest
from attacks import IS_ROOT, JUDGES, NOBODY, lives, needs_bwrap
from helpers import make_cases

from hw4cli.cli import run_command
from hw4cli.resources import IMPORT_PATH

SLEEPS = "touch started; sleep 98758 & sleep 98758"
KNOWS = "touch started; sleep 0.5; cp {base}/t01.out $2"


@pytest.fixture(scope="module")
def base():
    """A folder for everyone, with t01."""
    with tempfile.TemporaryDirectory(prefix="hw4-signals-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        make_cases(folder, "t01")
        (folder / "private").mkdir(mode=0o777)
        (folder / "private").chmod(0o777)
        # All that it imports is imported now: another user may not be able to read it.
        assert run_command(["judge", "t01", "--dir", name, "--program", "/bin/true"]) == 1
        yield folder


class Judging:
    """`hw4 judge t01` on a program, as a process that signals can be sent to."""

    def __init__(self, base, judge, body, *options, before=lambda: None):
        self.base, self.name = base, f"{judge.replace(' ', '-')}-{time.monotonic_ns()}"
        program = base / self.name
        program.write_text(f"#!/bin/sh\n{body.format(base=base, name=self.name)}\n")
        program.chmod(0o755)
        words = ["judge", "t01", "--dir", str(base), "--program", str(program), *options]
        self.said = base / f"{self.name}.said"
        self.pid = os.fork()
        if self.pid == 0:
            self._be_the_judge(judge, words, before)

    def _be_the_judge(self, judge, words, before):
        try:
            os.setsid()
            with self.said.open("wb") as file:
                for number in (1, 2):
                    os.dup2(file.fileno(), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            if judge == "a user" and IS_ROOT:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            tempfile.tempdir = str(self.base / "private")
            import hw4cli.runner.staging

            hw4cli.runner.staging.MEMORY = self.base / "private"
            before()
            sys.argv = ["hw4", *words]
            from hw4cli.entry import main

            main()
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(99)

    def starts(self):
        deadline = time.monotonic() + 30
        while not list((self.base / "private").glob("hw4-judge-*/run/started")):
            assert time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.005)

    def ends(self):
        """The exit status, and what was said."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status, self.said.read_text() if self.said.exists() else ""

    def is_gone(self):
        """Nothing of it lives, and nothing is left."""
        assert lives(self.name) == []
        assert list((self.base / "private").iterdir()) == []


SANDBOXES = ["none", "bwrap"]


@pytest.fixture(params=SANDBOXES)
def sandbox(request):
    if request.param == "bwrap":
        needs_bwrap()
    return request.param


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize(
    ("number", "times", "pause"), [(signal.SIGINT, 2, 0.005), (signal.SIGTERM, 100, 0.0005), (signal.SIGHUP, 30, 0)]
)
def test_signals_that_come_again_while_it_cleans_up_change_nothing(base, judge, sandbox, number, times, pause):
    judging = Judging(base, judge, SLEEPS, "--sandbox", sandbox)
    judging.starts()
    for _ in range(times):
        with suppress(ProcessLookupError):
            os.kill(judging.pid, number)
        time.sleep(pause)
    status, said = judging.ends()
    assert (status, said.splitlines()[-1][:16]) == (130, "hw4: interrupted"), said
    assert "Traceback" not in said
    judging.is_gone()


@pytest.mark.parametrize("judge", JUDGES)
def test_signals_at_any_time_leave_nothing_behind(base, judge):
    """From the first moments to the last, some in the middle of making or removing a folder."""
    for tenths in range(0, 10):
        judging = Judging(base, judge, "cp {base}/t01.out $2")
        time.sleep(0.03 * tenths)
        for number in (signal.SIGTERM, signal.SIGINT) * 4:
            with suppress(ProcessLookupError):
                os.kill(judging.pid, number)
            time.sleep(0.002)
        status, said = judging.ends()
        assert status in (0, 130) or (tenths == 0 and status < 0), said  # there is a moment before it hears
        assert "Traceback" not in said
        judging.is_gone()


@pytest.mark.parametrize("judge", JUDGES)
def test_a_signal_that_was_ignored_when_it_started_stays_ignored(base, judge):
    judging = Judging(base, judge, KNOWS, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    judging.starts()
    for _ in range(20):
        os.kill(judging.pid, signal.SIGHUP)
    status, said = judging.ends()
    assert status == 0, said
    judging.is_gone()


@pytest.mark.parametrize("judge", JUDGES)
def test_children_whose_end_a_parent_chose_not_to_hear_of_are_heard_of(base, judge, sandbox):
    def before():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    judging = Judging(base, judge, KNOWS.replace("{base}/t01", "$(dirname $0)/t01"), "--sandbox", "none", before=before)
    status, said = judging.ends()
    assert status == 0, said
    judging = Judging(base, judge, SLEEPS, "--sandbox", sandbox, before=before)
    judging.starts()
    os.kill(judging.pid, signal.SIGTERM)
    assert judging.ends()[0] == 130
    judging.is_gone()


@pytest.mark.parametrize("judge", JUDGES)
def test_a_judge_that_is_killed_takes_the_program_with_it_and_the_next_removes_what_is_left(base, judge, sandbox):
    judging = Judging(base, judge, SLEEPS, "--sandbox", sandbox)
    judging.starts()
    os.kill(judging.pid, signal.SIGKILL)
    judging.ends()
    assert lives(judging.name) == []
    assert len(list((base / "private").iterdir())) == 1
    Judging(base, judge, "exit 1").ends()
    judging.is_gone()


def test_what_is_ignored_or_blocked_is_not_passed_on_to_programs(tmp_path):
    """As nohup and some launchers leave it."""
    program = (
        "import signal; [line] = [line for line in open('/proc/self/status') if line.startswith('SigBlk')]\n"
        "assert int(line.split()[1], 16) == 0, line\n"
        "assert not [n for n in (1, 2, 3, 15) if signal.getsignal(n) is signal.SIG_IGN]"
    )
    judge = (
        "import sys; from hw4cli.system import interrupts; interrupts.end_at_once()\n"
        "from hw4cli.system.process import Limits, run_program\n"
        "run = run_program(sys.argv[1:], Limits(30)); sys.exit(run.stderr or run.exit_code)"
    )
    words = [sys.executable, "-c", judge, sys.executable, "-S", "-c", program]
    ignoring = ["env", "--ignore-signal=HUP,INT,QUIT,TERM", "--block-signal=TERM,USR1", *words]
    result = subprocess.run(ignoring, capture_output=True, text=True, cwd=IMPORT_PATH, check=False)
    assert result.returncode == 0, result.stderr
