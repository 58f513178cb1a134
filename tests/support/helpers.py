"""What the tests share: the command as a real process, small cases, and attention by the definition."""

import csv
import fcntl
import functools
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click
import definitions
import numpy as np
import pytest

from hw4cli.cli import cli, run_command
from hw4cli.problem import suite
from hw4cli.problem.casefile import HEADER
from hw4cli.problem.generate import GenerationTask, make
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.suite import Case
from hw4cli.problem.workload import Shape, Workload
from hw4cli.system.children import Children

ROOT = Path(__file__).resolve().parents[2]
JUDGE_T01 = ("judge", "t01", "--limit", "t01=120")  # no program is too slow for a machine that is busy
HANGS = 180  # seconds after which a test does not wait any longer: it says nothing about how long something may take


def hw4_env(**extra):
    """The environment for `python -m hw4cli` from any folder."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **extra}


def run_hw4(
    *args: Any,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = HANGS,
    prefix: Sequence[str] = (),
    **kwargs: Any,
) -> subprocess.CompletedProcess[str]:
    """Run `hw4 ARGS` as a process of its own; the result has returncode, stdout and stderr."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "hw4cli", *map(str, args)],
        cwd=cwd,
        env=hw4_env(**(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
        **kwargs,
    )


def run_here(*args, cwd=None, env=None):
    """As `run_hw4`, in this process, which saves the start of another: where the process is not the point. Its stdout
    and stderr are files. What functions keep, and what a command changes in the environment, does not outlive it."""
    words, environment, folder = [str(arg) for arg in args], dict(os.environ), os.open(".", os.O_RDONLY)
    try:
        with pytest.MonkeyPatch.context() as patch, _output_in_files() as (out, err):
            patch.setattr(sys, "argv", ["hw4", *words])
            os.environ.update({name: str(value) for name, value in (env or {}).items()})
            os.chdir(cwd or ".")
            _forget()
            code = run_command(words)
            sys.stdout.flush()
            sys.stderr.flush()
            texts = [(file.seek(0), file.read())[1] for file in (out, err)]
    finally:
        os.fchdir(folder)
        os.close(folder)
        os.environ.clear()
        os.environ.update(environment)
        _forget()
    return subprocess.CompletedProcess(args, code, *texts)


def _forget():
    for name, module in list(sys.modules.items()):
        if name.startswith("hw4cli"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
                elif isinstance(value, Children):  # which start no program any more where a command failed
                    Children.__init__(value)


@contextmanager
def _output_in_files():
    """A with-block in which descriptors 1 and 2, and Python's streams, are files; what reads them."""
    with TemporaryFile("r", encoding="utf-8") as out, TemporaryFile("r", encoding="utf-8") as err:
        kept = [(number, os.dup(number), name, getattr(sys, name)) for number, name in ((1, "stdout"), (2, "stderr"))]
        try:
            for (number, _, name, stream), file in zip(kept, (out, err), strict=True):
                stream.flush()
                os.dup2(file.fileno(), number)
                setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
            yield out, err
        finally:
            for number, copy, name, stream in kept:
                setattr(sys, name, stream)
                os.dup2(copy, number)
                os.close(copy)


def start_hw4(*args, env=None):
    """`hw4 ARGS` as a process that runs on; in a session of its own, so that a signal to it is to it alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "hw4cli", *map(str, args)],
        env=hw4_env(**(env or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(condition, process=None):
    """Wait until a condition holds, and return what it returned. Fails if `process` ends before, or if it hangs."""
    deadline = time.monotonic() + HANGS
    while not (found := condition()):
        assert process is None or process.poll() is None, f"{process.args} ended ({process.returncode}) before"
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.02)
    return found


def holds_once(condition, tries):
    """Whether a condition on milliseconds holds in one of so many tries. Where it does not, and this machine has more
    to do than it has processors, the test is skipped."""
    if any(condition() for _ in range(tries)):
        return True
    if os.getloadavg()[0] > 1.5 * len(os.sched_getaffinity(0)):
        pytest.skip("this machine is too busy to measure milliseconds")
    return False


def all_threads_wait(pid):
    """Whether no thread of a process has anything to do: it is as far as it gets without an event."""
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states == {"S"}


def on_a_terminal(width, *args, env=None, start=("-m", "hw4cli"), when=None):
    """Run `hw4 ARGS` on a terminal so many columns wide, which takes no colours unless TERM is set; the exit code, and
    what the terminal gets. `start` are Python's arguments before ARGS; `when`: a pattern, and what is done once as
    soon as the terminal shows it."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 40, width, 0, 0))
        ours = {name: value for name, value in hw4_env().items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
        words = [sys.executable, *start, *map(str, args)]
        os.execvpe(words[0], words, {**ours, "TERM": "dumb", **(env or {})})
    shown = b""
    with suppress(OSError):  # the other side has closed
        while part := os.read(terminal, 65536):
            shown += part
            if when and re.search(when[0], shown.decode(errors="ignore")):
                when[1]()
                when = None
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode().replace("\r\n", "\n")


def fits(text, width):
    """Whether no line is wider, but for words that are themselves."""
    return all(len(line) <= width or len(line.split()) == 1 for line in text.splitlines())


def commands():
    """The commands by their names."""
    ctx = click.Context(cli)
    return {name: cli.get_command(ctx, name) for name in cli.list_commands(ctx)}


def write_case(path, block):
    """Write an input file from an array (B, 3, N, d)."""
    B, _, N, d = block.shape
    path.write_bytes(HEADER.pack(B, N, d) + np.ascontiguousarray(block, "<f4").tobytes())
    return path


def make_cases(folder, *cases):
    """Make cases, and their answers, in a folder; those of the suite by name. The folder."""
    for case in cases:
        case = suite.cases()[case] if isinstance(case, str) else case
        job = replace(GenerationTask.of(case, folder, answers=True), sha256=case.sha256 or None)
        make(job, exact_attention, lambda _: None)
    return folder


def tiny_case(name="tiny", seed=1, limit=30.0):
    """A case so small that it is made at once."""
    return Case(name, Shape(2, 40, 8), seed, limit, "")


def set_kill_after(monkeypatch, seconds):
    """Have the judge kill programs so many seconds past their limit."""
    for module in ("judge.runcase", "judge.scoring.record"):
        monkeypatch.setattr(f"hw4cli.{module}.KILL_AFTER", seconds)


def random_block(B, N, d, seed=0):
    values = np.concatenate(list(suite.uniform(seed, 3 * B * N * d)))
    return values.reshape(B, 3, N, d)


def definition(block):
    """softmax(QKᵀ/sqrt(d))V in float64, by the definition and nothing else."""
    return definitions.of_block(block)


def read_output(path, shape: Workload):
    return np.fromfile(path, "<f4").reshape(shape.B, shape.N, shape.d)


# Programs of a class, in tests that are not about sandboxes: they may look up the answer, and write what they did.
OPEN = ("--sandbox", "none", *(("--run-as", "root") if os.geteuid() == 0 else ()))


def csv_rows(path):
    """The lines of a CSV file, which is removed: a later command writes it anew."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    path.unlink()
    return rows


def fails(result, code, *words):
    """One sentence on stderr with these words, this exit code, no traceback, nothing on stdout."""
    assert result.returncode == code, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("hw4: ")
    for word in words:
        assert word in lines[0]
    assert result.stdout == ""


def folder_is_clean(folder, *names):
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
