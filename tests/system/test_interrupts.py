"""Ctrl-C, `kill` and a closed terminal, whenever they come: one word, status 130, and nothing half-done is left."""

import random
import signal
import subprocess
import sys
import time

import pytest
from helpers import HANGS, ROOT, folder_is_clean, hw4_env, random_block, start_hw4, write_case
from slow import slow

from hw4cli.system import interrupts
from hw4cli.system.importing import Importing


def stopped_after(seconds, command, **settings):
    """Status and stderr of a command that gets SIGINT after so many seconds."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=hw4_env(), **settings
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=HANGS)
    return process.returncode, stderr.strip()


@slow
def test_ctrl_c_at_any_moment_of_the_start_shows_no_traceback_of_ours(tmp_path):
    case = write_case(tmp_path / "case", random_block(3, 130, 32))
    command = [sys.executable, "-m", "hw4cli", "--device", "cpu", str(case), str(tmp_path / "out")]
    start = time.monotonic()
    subprocess.run(command, cwd=ROOT, env=hw4_env(), stdout=subprocess.DEVNULL, check=True)
    whole, moments = time.monotonic() - start, random.Random(0)
    for _ in range(15):
        status, stderr = stopped_after(moments.uniform(0, whole), command)
        # Before the first line of ours runs it is Python's to answer: by the signal, or with a traceback of its own.
        assert "hw4cli" not in stderr.replace(str(ROOT), "")
        if "hw4" in stderr:
            assert (status, stderr) == (130, "hw4: interrupted")
    assert {path.name for path in tmp_path.iterdir()} <= {"case", "out"}


def test_the_first_lines_of_ours_import_nothing_that_python_has_not(tmp_path):
    """The signals are answered before anything is imported that takes time."""
    script = "import sys; before = set(sys.modules); import hw4cli.entry; print(*set(sys.modules) - before)"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) <= {"hw4cli", "hw4cli.entry", "hw4cli.system", "hw4cli.system.interrupts", "time"}


SLOW_PACKAGE = "import sys, time; print(*sys.modules, flush=True); time.sleep(5); main = lambda: sys.exit(9)"


@pytest.mark.parametrize(("ignored", "ends"), [(False, -signal.SIGINT), (True, 9)])
def test_the_installed_script_has_no_traceback_while_it_imports_and_a_signal_that_is_ignored_stays_so(
    tmp_path, ignored, ends
):
    """What pip writes as a script imports re and enum first: 10 ms in which Python answered by a traceback."""
    (tmp_path / "hw4cli").mkdir()
    (tmp_path / "hw4cli/__init__.py").touch()
    (tmp_path / "hw4cli/entry.py").write_text(SLOW_PACKAGE.replace("5", "0.5" if ignored else "5"))
    process = subprocess.Popen(
        [sys.executable, "-S", str(ROOT / "hw4cli/hw4")],  # without the packages of the environment
        env={**hw4_env(), "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )
    assert not {"re", "enum", "signal"} & set(process.stdout.readline().split())
    process.send_signal(signal.SIGINT)
    assert (process.wait(HANGS), process.stderr.read()) == (ends, "")


# A wait without a limit in the main thread, and a signal as it comes between two instructions, just before the wait: no
# system call is interrupted by it.
WAITING = """
import _thread, os, queue, select, signal, subprocess, sys, threading, time
from hw4cli.system import interrupts

def child():  # it ends with this process
    return subprocess.Popen(["cat"], stdin=os.pipe()[0], stdout=subprocess.PIPE, start_new_session=True)

def signal_once_it_waits(task):
    while open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)
    time.sleep(0.1)
    _thread.interrupt_main(signal.SIGTERM)

interrupts.exit_on_signals()
interrupts.raise_on_signals()
threading.Thread(target=signal_once_it_waits, args=(threading.get_native_id(),), daemon=True).start()
try:
    %s
except KeyboardInterrupt:
    os._exit(7)
"""
WAITS = {
    "a child's end": "child().wait()",
    "a child's output": "child().communicate()",
    "an event": "threading.Event().wait()",
    "a queue": "queue.SimpleQueue().get()",
    "a thread": "thread = threading.Thread(target=time.sleep, args=(300,), daemon=True); thread.start(); thread.join()",
    "a pipe": "poll = select.poll(); poll.register(os.pipe()[0], select.POLLIN); poll.poll(None)",
}


@pytest.mark.parametrize("what", WAITS)
def test_a_signal_that_comes_just_before_a_wait_without_a_limit_ends_it(what):
    process = subprocess.Popen([sys.executable, "-c", WAITING % WAITS[what]], cwd=ROOT)
    try:
        assert process.wait(HANGS) == 7
    finally:
        process.kill()


def test_a_second_interrupt_does_not_disturb_the_clean_up_after_the_first(monkeypatch):
    monkeypatch.setattr(interrupts, "_last", 0.0)
    raised = []
    for _ in range(2):
        try:
            interrupts._raise()
            raised.append(False)
        except KeyboardInterrupt:
            raised.append(True)
    assert raised == [True, False]


@pytest.mark.parametrize("stops", [[signal.SIGINT] * 5, [signal.SIGTERM] * 5, [signal.SIGINT, signal.SIGTERM]])
def test_a_burst_of_signals_is_as_one_and_the_clean_up_is_done(tmp_path, stops):
    source = write_case(tmp_path / "in", random_block(1, 16384, 64))
    process = start_hw4("--device", "cpu", source, tmp_path / "out")
    while not list(tmp_path.glob(".out.*")) and process.poll() is None:
        time.sleep(0.01)
    for stop in stops:
        process.send_signal(stop)
        time.sleep(0.002)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert stderr.strip() == "hw4: interrupted"
    folder_is_clean(tmp_path, "in")


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(tmp_path, ignored):
    """As under nohup, and for `command &` in a script."""
    source = write_case(tmp_path / "in", random_block(2, 8, 4))
    command = [sys.executable, "-m", "hw4cli", "--device", "cpu", str(source), str(tmp_path / "out")]
    process = subprocess.Popen(
        command,
        env=hw4_env(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(ignored, signal.SIG_IGN),
    )
    while process.poll() is None:
        process.send_signal(ignored)
        time.sleep(0.01)
    assert process.returncode == 0, process.stderr.read()
    assert (tmp_path / "out").stat().st_size == 2 * 8 * 4 * 4


def test_without_the_commands_handlers_importing_changes_nothing():
    before = signal.getsignal(signal.SIGINT)
    with Importing():
        assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGINT) is before


@slow
def test_the_tests_of_ctrl_c_pass_where_it_is_ignored():
    """`make test &` in a script: the shell has SIGINT ignored there."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/stream/test_stream_failures.py"]
    result = subprocess.run(
        [*command, "-k", "test_ctrl_c_ends_all_threads"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert result.returncode == 0, result.stdout


def test_an_interrupt_that_pythons_own_locks_make_another_error_of_is_one(tmp_path):
    """Between the release of a lock by threading and its being taken again, it becomes a RuntimeError."""
    script = (
        "import hw4cli.cli, hw4cli.entry, threading\n"
        "def run_command():\n"
        "    lock = threading.Lock()\n"
        "    with lock:\n"
        "        lock.release()\n"
        "        raise KeyboardInterrupt\n"
        "hw4cli.cli.run_command = run_command\n"
        "hw4cli.entry.main()"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (130, "hw4: interrupted\n")
