"""Signals to the judge, one or a hundred, SIGKILL included: no process and no file is left."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from attacks import IS_ROOT, JUDGES, NOBODY, needs_bwrap, processes_naming
from helpers import HANGS, JUDGE_T01, make_cases, wait_until
from slow import quick_of_each

from hw4cli.cli import run_command
from hw4cli.resources import IMPORT_PATH
from hw4cli.sandbox.sandbox import has_sized_memory
from hw4cli.system import selfguard

SLEEPS = "touch started; sleep 98758 & sleep 98758"
ANSWERS = "touch started; sleep 0.5; cp {base}/t01.out $2"


@pytest.fixture(scope="module")
def base():
    """A folder that every user may write to, with t01."""
    with tempfile.TemporaryDirectory(prefix="hw4-signals-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        make_cases(folder, "t01")
        (folder / "private").mkdir(mode=0o777)
        (folder / "private").chmod(0o777)
        # Import all modules of the command now: another user may not be able to read them.
        assert run_command(["judge", "t01", "--dir", name, "--program", "/bin/true"]) == 1
        yield folder


class Judging:
    """`hw4 judge t01` on a program, as a process that signals can be sent to."""

    def __init__(self, base, judge, body, *options, before=lambda: None):
        self.base, self.name = base, f"{judge.replace(' ', '-')}-{time.monotonic_ns()}"
        program = base / self.name
        program.write_text(f"#!/bin/sh\n{body.format(base=base, name=self.name)}\n")
        program.chmod(0o755)
        args = [*JUDGE_T01, "--dir", str(base), "--program", str(program), *options]
        self.log = base / f"{self.name}.log"
        self.pid = os.fork()
        if self.pid == 0:
            self._run_judge(judge, args, before)

    def _run_judge(self, judge, args, before):
        try:
            os.setsid()
            with self.log.open("wb") as file:
                for number in (1, 2):
                    os.dup2(file.fileno(), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            if judge == "a user" and IS_ROOT:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            tempfile.tempdir = str(self.base / "private")
            import hw4cli.sandbox.staging

            hw4cli.sandbox.staging.MEMORY = self.base / "private"
            before()
            sys.argv = ["hw4", *args]
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

    def wait_for_start(self):
        wait_until(lambda: any(self._started(process) for process in psutil.process_iter(["cmdline"])))

    def _started(self, process):
        """Whether a process is the program's, and its folder, which may be the sandbox's own, has what it makes."""
        with suppress(OSError):
            names = any(self.name in argument for argument in process.info["cmdline"] or ())
            return names and Path(f"/proc/{process.pid}/cwd/started").exists()
        return False

    def wait_for_end(self):
        """The exit status, and the output."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status, self.log.read_text() if self.log.exists() else ""

    def check_nothing_is_left(self):
        """No process of it processes_naming, and no file is left."""
        assert processes_naming(self.name, HANGS) == []
        assert list((self.base / "private").iterdir()) == []


def says_when_guarded(path):
    """Let the judge make a file when its guard knows of a program."""
    real = selfguard.kill_when_we_die

    def guard(group, *folder):
        real(group, *folder)
        if group is not None:
            path.touch()

    selfguard.kill_when_we_die = guard


def handles_signals(pid):
    """Whether a process that has not ended catches SIGTERM; True if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    fields = dict(line.split(":", 1) for line in lines)
    return "Z" in fields["State"] or int(fields["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1


SANDBOXES = ["none", "bwrap"]


@pytest.fixture(params=SANDBOXES)
def sandbox(request):
    if request.param == "bwrap":
        needs_bwrap()
    return request.param


@quick_of_each(3)
@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize(
    ("number", "times", "pause"), [(signal.SIGINT, 2, 0.005), (signal.SIGTERM, 100, 0.0005), (signal.SIGHUP, 30, 0)]
)
def test_repeated_signals_during_the_clean_up_change_nothing(base, judge, sandbox, number, times, pause):
    judging = Judging(base, judge, SLEEPS, "--sandbox", sandbox)
    judging.wait_for_start()
    for _ in range(times):
        with suppress(ProcessLookupError):
            os.kill(judging.pid, number)
        time.sleep(pause)
    status, output = judging.wait_for_end()
    assert (status, output.splitlines()[-1][:16]) == (130, "hw4: interrupted"), output
    assert "Traceback" not in output
    judging.check_nothing_is_left()


@pytest.mark.parametrize("judge", JUDGES)
def test_signals_at_any_time_leave_nothing_behind(base, judge):
    """From the start to the end of a session; some come while a folder is made or removed."""
    for tenths in range(0, 10):
        judging = Judging(base, judge, "cp {base}/t01.out $2")
        if tenths:
            wait_until(lambda pid=judging.pid: handles_signals(pid))
            time.sleep(0.03 * (tenths - 1))
        for number in (signal.SIGTERM, signal.SIGINT) * 4:
            with suppress(ProcessLookupError):
                os.kill(judging.pid, number)
            time.sleep(0.002)
        status, output = judging.wait_for_end()
        assert status in (0, 130) or (tenths == 0 and status < 0), output  # before it has installed its handlers
        assert "Traceback" not in output
        judging.check_nothing_is_left()


@pytest.mark.parametrize("judge", JUDGES)
def test_a_signal_ignored_at_the_start_stays_ignored(base, judge):
    judging = Judging(base, judge, ANSWERS, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    judging.wait_for_start()
    for _ in range(20):
        os.kill(judging.pid, signal.SIGHUP)
    status, output = judging.wait_for_end()
    assert status == 0, output
    judging.check_nothing_is_left()


@pytest.mark.parametrize("judge", JUDGES)
def test_the_judge_waits_for_children_although_its_parent_ignored_sigchld(base, judge, sandbox):
    def before():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    judging = Judging(
        base, judge, ANSWERS.replace("{base}/t01", "$(dirname $0)/t01"), "--sandbox", "none", before=before
    )
    status, output = judging.wait_for_end()
    assert status == 0, output
    judging = Judging(base, judge, SLEEPS, "--sandbox", sandbox, before=before)
    judging.wait_for_start()
    os.kill(judging.pid, signal.SIGTERM)
    assert judging.wait_for_end()[0] == 130
    judging.check_nothing_is_left()


@pytest.mark.parametrize("judge", JUDGES)
def test_a_killed_judge_ends_its_program_and_the_next_judge_removes_its_folder(base, judge, sandbox):
    judging = Judging(base, judge, SLEEPS, "--sandbox", sandbox, before=lambda: says_when_guarded(base / "guarded"))
    judging.wait_for_start()
    if sandbox == "none":  # the guard is a process: it must know of the program before the judge is killed
        wait_until((base / "guarded").exists)
        (base / "guarded").unlink()
    os.kill(judging.pid, signal.SIGKILL)
    judging.wait_for_end()
    assert processes_naming(judging.name, HANGS) == []
    if sandbox == "none" or has_sized_memory():  # the guard removes its folder, or it was the sandbox's own
        wait_until(lambda: not list((base / "private").iterdir()))
    Judging(base, judge, "exit 1").wait_for_end()
    judging.check_nothing_is_left()


@pytest.mark.parametrize("judge", JUDGES)
def test_without_a_sandbox_a_program_that_kills_the_judge_leaves_no_folder(base, judge):
    """As docs/judging.md says, it may end the judge."""
    judging = Judging(base, judge, "touch started; kill -9 $PPID; sleep 98758", "--sandbox", "none")
    assert judging.wait_for_end()[0] == -signal.SIGKILL
    wait_until(lambda: not list((base / "private").iterdir()))
    assert processes_naming(judging.name, HANGS) == []


def test_programs_do_not_inherit_ignored_or_blocked_signals(tmp_path):
    """nohup and some launchers start the judge with ignored or blocked signals."""
    program = (
        "import signal; [line] = [line for line in open('/proc/self/status') if line.startswith('SigBlk')]\n"
        "assert int(line.split()[1], 16) == 0, line\n"
        "assert not [n for n in (1, 2, 3, 15) if signal.getsignal(n) is signal.SIG_IGN]"
    )
    judge = (
        "import sys; from hw4cli.system import interrupts; interrupts.exit_on_signals()\n"
        "from hw4cli.system.process import Limits, run_program\n"
        "run = run_program(sys.argv[1:], Limits(30)); sys.exit(run.stderr or run.exit_code)"
    )
    command = [sys.executable, "-c", judge, sys.executable, "-S", "-c", program]
    ignoring = ["env", "--ignore-signal=HUP,INT,QUIT,TERM", "--block-signal=TERM,USR1", *command]
    result = subprocess.run(ignoring, capture_output=True, text=True, cwd=IMPORT_PATH, check=False)
    assert result.returncode == 0, result.stderr
