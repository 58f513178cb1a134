"""What a check of `hw4 doctor` finds, and how it asks the programs of the machine without waiting for ever."""

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
SECONDS = 5.0  # that a program may take to tell its version; nvidia-smi on a cold GPU takes two


@dataclass(frozen=True)
class Finding:
    """One line: what was looked for, how it stands, what was found, and, where something is off, what to do."""

    name: str
    state: State
    found: str
    advice: str = ""


class UnansweredError(Exception):
    """A program did not do what it was asked to: its first words, or that it took too long."""


def ask(
    command: Sequence[str], seconds: float = SECONDS, env: Mapping[str, str] | None = None, errors: bool = False
) -> str | None:
    """What a program prints, on stderr too if `errors`; None if there is no such program.

    Raises UnansweredError if it fails or takes too long. A program stuck in a driver cannot be killed: it is told to
    end, and not waited for.
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
        words = ((err or "").strip() or out.strip()).splitlines()
        raise UnansweredError(words[-1] if words else f"{command[0]} {_ending(process.returncode)}")
    return out


def _ending(status: int) -> str:
    return f"ends with status {status}" if status > 0 else f"is ended by {signal.Signals(-status).name}"


_running: set[subprocess.Popen[str]] = set()
_starting = threading.Lock()  # held from before a program is there until it is known
_ended = False


def end_all() -> None:
    """End the programs that are still being asked, from whichever thread; from now on none is started."""
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


def tool(name: str, purpose: str, get: str, flag: str = "--version") -> Finding:
    """A program: its version, or that it does not work, or that it is missing, who needs it and how to get it."""
    try:
        told = ask([name, flag])
    except UnansweredError as reason:
        return Finding(name, "warning", str(reason), get)
    if told is None:
        return Finding(name, "missing", f"not on PATH; for {purpose}", get)
    version = re.search(r"\d+\.\d[\w.-]*", told)
    return Finding(name, "ok", " ".join(filter(None, (version and version[0], shutil.which(name)))))
