"""The finding of a check of `hw4 doctor`, and calls of the machine's programs with a time limit."""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "missing"]
SECONDS = 5.0  # that a program may take to print its version; nvidia-smi on a cold GPU takes two


@dataclass(frozen=True)
class Finding:
    """One line: what was checked, its state, what was found, and what to do if something is wrong."""

    name: str
    state: State
    found: str
    advice: str = ""


class UnansweredError(Exception):
    """A program failed or took too long; with the last line of its message."""


def output_of(
    command: Sequence[str], seconds: float = SECONDS, env: Mapping[str, str] | None = None, errors: bool = False
) -> str | None:
    """What a program prints, on stderr too if `errors`; None if there is no such program.

    Raises UnansweredError if it fails or takes too long. It is killed then, but not waited for: a program that is stuck
    in a driver does not end.
    """
    path = shutil.which(command[0])
    if path is None:
        return None
    with _starting:
        if _ended:
            raise UnansweredError("interrupted")
        process = _start([path, *command[1:]], env, errors)
        _running.add(process)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        raise UnansweredError(f"{command[0]} does not answer within {seconds:g} s") from None
    finally:
        _running.discard(process)
    if process.returncode:
        lines = ((err or "").strip() or out.strip()).splitlines()
        raise UnansweredError(lines[-1] if lines else f"{command[0]} {_ending(process.returncode)}")
    return out


def _ending(status: int) -> str:
    return f"ends with status {status}" if status > 0 else f"is ended by {signal.Signals(-status).name}"


_running: set[subprocess.Popen[str]] = set()
_starting = threading.Lock()  # held while a program is started and added to _running
_ended = False


def kill_all() -> None:
    """Kill the programs that are still running, in all threads; from now on none is started."""
    global _ended
    with _starting:
        _ended = True
        for process in list(_running):
            _end(process)


def _start(command: list[str], env: Mapping[str, str] | None, errors: bool) -> "subprocess.Popen[str]":
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.PIPE,
            text=True,
            errors="replace",
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        raise UnansweredError(f"{command[0]} cannot be started: {error.strerror}") from None


def _end(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def tool(name: str, purpose: str, get: str) -> Finding:
    """A program: its version, or that it does not work, or that it is missing, with its purpose and how to get it."""
    try:
        printed = output_of([name, "--version"])
    except UnansweredError as reason:
        return Finding(name, "warning", str(reason), get)
    if printed is None:
        return Finding(name, "missing", f"not on PATH; for {purpose}", get)
    version = re.search(r"\d+\.\d[\w.-]*", printed)
    return Finding(name, "ok", " ".join(filter(None, (version and version[0], shutil.which(name)))))
