"""Launchers that leave processes running, and adversarial programs behind launchers."""

import sys
import time
from pathlib import Path

import psutil
import pytest
from attacks import arena, needs_bwrap
from helpers import HANGS

from hw4cli.problem.verdict import Verdict

__all__ = ["arena"]
AC, NA, JE = Verdict.AC, Verdict.NA, Verdict.JE


LINGERS = "sleep 600.98763"


def end_what_lingers():
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == LINGERS.split():
            process.kill()


def launcher(arena, before, after=""):
    """A launcher that runs shell commands before and after its command."""
    path = arena.base / "launcher"
    path.write_text(f'#!/bin/sh\n{before}\n"$@"\ncode=$?\n{after}\nexit $code\n')
    path.chmod(0o755)
    return (str(path),)


@pytest.fixture
def step_python(arena, monkeypatch):
    """Skip a test where the judge's user may not run this Python, which starts the step."""
    if arena.judge == "a user" and not Path(sys.executable).resolve().is_relative_to("/usr"):
        pytest.skip("only its owner may run this Python")


@pytest.mark.usefixtures("step_python")
def test_a_process_that_a_launcher_leaves_running_does_not_delay_the_judge(arena):
    command = launcher(arena, f"{LINGERS} & # {arena.base}")
    start = time.monotonic()
    assert arena.judged("right()", launcher=command, parent=arena.private) == (AC, "")
    assert time.monotonic() - start < HANGS
    end_what_lingers()
    (arena.base / "launcher").unlink()


@pytest.mark.usefixtures("step_python")
def test_a_launcher_that_fails_and_leaves_a_process_running_is_a_failed_launch(arena):
    path = arena.base / "launcher"
    path.write_text(f"#!/bin/sh\n{LINGERS} &\necho 'srun: error: no luck' >&2\nexit 125\n")
    path.chmod(0o755)
    start = time.monotonic()
    verdict, reason = arena.judged("right()", launcher=(str(path),), parent=arena.private)
    assert (verdict, "no luck" in reason) == (JE, True), reason
    assert time.monotonic() - start < HANGS
    end_what_lingers()


# Searches the command lines of its parents, up to the one that runs the step, for the path of the answer.
PEEK = """
import base64
pid, step = os.getpid(), b""
while pid > 1 and b"hw4cli.sandbox.step" not in step:
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    step = open(f"/proc/{pid}/cmdline", "rb").read()
for word in step.split(b"\\0"):
    texts = [word, open(word, "rb").read() if os.path.exists(word) else b""]
    try: texts.append(base64.urlsafe_b64decode(word + b"==="))
    except ValueError: pass
    if any(answer.encode() in text for text in texts): steal(answer)
"""


@pytest.mark.usefixtures("step_python")
@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_the_request_for_a_launcher_cannot_be_read_from_a_command_line(arena, sandbox):
    if sandbox == "bwrap":
        needs_bwrap()
        body = "steal(answer)"
    else:
        body = PEEK
    command = launcher(arena, ":")
    assert arena.judged(body, sandbox, launcher=command, parent=arena.private) == (NA, "no output file")
    assert arena.judged("right()", sandbox, launcher=command, parent=arena.private) == (AC, "")
