"""The finding of a check of `hw4 doctor`, and calls of the machine's programs with a time limit."""

import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hw4cli.system.children import Children

State = Literal["ok", "warning", "missing"]
CHILDREN = Children()  # the programs that checks wait for
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
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT if errors else subprocess.PIPE}
    try:
        done = CHILDREN.run([path, *command[1:]], timeout=seconds, text=True, errors="replace", env=env, **streams)
    except OSError as error:
        raise UnansweredError(f"{path} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UnansweredError(f"{command[0]} does not answer within {seconds:g} s") from None
    if done.returncode:
        lines = ((done.stderr or "").strip() or done.stdout.strip()).splitlines()
        raise UnansweredError(lines[-1] if lines else f"{command[0]} {_ending(done.returncode)}")
    return str(done.stdout)


def _ending(status: int) -> str:
    return f"ends with status {status}" if status > 0 else f"is ended by {signal.Signals(-status).name}"


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
