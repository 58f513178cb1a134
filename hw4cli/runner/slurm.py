"""Slurm, by its own commands: a program or a whole judging started with srun, an array of tasks with sbatch.

What Slurm says when it does not start something is kept apart from what the started program does: that is the judge's
failure, told in Slurm's words.
"""

import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from hw4cli.errors import MachineError
from hw4cli.resources import python_words
from hw4cli.runner.gpuwatch import Sight
from hw4cli.runner.step import MARK, Order, reported
from hw4cli.system.exits import start_problem
from hw4cli.system.process import Run
from hw4cli.text.words import printable

SILENCE_SECONDS = 1.0  # of what a launcher that has ended left running, after which it is not listened to
END_SECONDS = 40.0  # for a launcher to end what it started: Slurm itself takes up to KillWait, 30 s
NOT_STARTED = {"SLURM_EXIT_ERROR": "125", "SLURM_EXIT_IMMEDIATE": "124"}  # srun's own failures, else 1 as a program's
OUR_CODES = {0, 1, 2, 3, 130}
OWN_EXIT = re.compile(r"task \d+: Exited with exit code")  # of srun's words: the judge's own, and no failure of Slurm's
WAITING = re.compile(r"queued and waiting|waiting for (resources|GPU)|has been allocated")
LEVEL = re.compile(r"^([\w.-]+: )?(fatal|error): ")  # srun's, and slurmstepd-NODE's
WORDS = 3  # lines of Slurm's that are told at most


def run_step(
    launcher: Sequence[str], order: Order, env: Mapping[str, str], say: Callable[[str], None]
) -> tuple[Run, Sight]:
    """Have an order executed behind a launcher (srun and its options, say). `say` is told what it waits for.

    Raises StartError if the program cannot be started there, MachineError, with the launcher's words, if the launcher
    does not get so far.
    """
    command = [*launcher, *python_words("runner.step", "-P"), str(order.write())]
    with tempfile.TemporaryFile() as output:
        code, words = _talk(command, {**env, **NOT_STARTED}, output, say)
        output.seek(0)
        reports = [line for line in output.read().decode(errors="replace").splitlines() if MARK in line]
    if len(reports) == 1:
        return reported(reports[0])
    if reports:
        raise MachineError(f"the launcher started the program {len(reports)} times: ask it for one task (-n1)")
    raise MachineError(f"{Path(launcher[0]).name} did not run the program ({_ending(code)}): {slurm_words(words)}")


def judge_inside(options: Sequence[str], arguments: Sequence[str]) -> int:
    """Run `hw4 ARGUMENTS` in an allocation of its own, its words on our streams; its exit code.

    Raises MachineError, with Slurm's words, if it does not start there, or Slurm ends it.
    """
    command = ["srun", "-N1", "-n1", *options, *python_words("entry", "-P"), *arguments]
    seen: list[str] = []

    def pass_on(line: str) -> None:
        seen.append(line)
        if not LEVEL.match(line):
            print(printable(line), file=sys.stderr, flush=True)

    code, _ = _talk(command, {**os.environ, **NOT_STARTED}, None, pass_on, every_line=True)
    slurms = [found[2] for line in seen if (found := LEVEL.match(line)) and not OWN_EXIT.search(line)]
    # srun itself may end with 2 or 130, too, and with 1 after a fatal error.
    if code in OUR_CODES and not (slurms and code > 1) and "fatal" not in slurms:
        return code
    raise MachineError(f"Slurm did not run the judge to its end ({_ending(code)}): {slurm_words(seen)}")


def submit(options: Sequence[str], script: str, tasks: int, parallel: int, log: Path) -> str:
    """Submit a script as an array of so many tasks, `parallel` at a time; the job's number. `log` is a folder for what
    the tasks say. Raises MachineError, with Slurm's words, if Slurm does not take it."""
    array = f"--array=0-{tasks - 1}%{parallel}"
    where = f"--output={str(log.absolute()).replace('%', '%%')}/%A_%a.txt"
    told = _ask("sbatch", "--parsable", "--job-name=hw4-class", "-N1", "-n1", *options, array, where, script=script)
    return told.split(";")[0].strip()


def most_tasks() -> int:
    """How many tasks an array may have (MaxArraySize)."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _ask("scontrol", "show", "config"))
    return max(1, int(found.group(1))) if found else 1000


def is_alive(job: str) -> bool:
    """Whether a job still waits or runs. Raises MachineError if Slurm does not answer."""
    try:
        return bool(_ask("squeue", "--noheader", "--format=%i", f"--jobs={job}").strip())
    except MachineError as error:
        if "Invalid job id" in str(error):  # Slurm forgets a job some minutes after its end
            return False
        raise


def cancel(job: str) -> None:
    """Cancel a job, and wait a while for its tasks to end."""
    with suppress(MachineError):
        _ask("scancel", job)
        deadline = time.monotonic() + END_SECONDS
        while is_alive(job) and time.monotonic() < deadline:
            time.sleep(0.2)


def task_facts() -> dict[str, str]:
    """What a record tells of the Slurm job that this process is in; empty outside one."""
    names = {"job": "SLURM_JOB_ID", "node": "SLURMD_NODENAME", "partition": "SLURM_JOB_PARTITION"}
    return {fact: value for fact, name in names.items() if (value := os.environ.get(name))}


def slurm_words(lines: Sequence[str]) -> str:
    """The lines that tell of errors, or else the last ones, in one line."""
    told = [line.strip() for line in lines if line.strip()]
    errors = [LEVEL.sub("", line) for line in told if LEVEL.match(line)]
    return "; ".join(list(dict.fromkeys(errors))[:WORDS] or told[-WORDS:]) or "it said nothing"


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _ask(*command: str, script: str | None = None) -> str:
    """What a command of Slurm prints. MachineError, with its words, if it fails."""
    try:
        # A student's name may be any bytes.
        result = subprocess.run(command, input=os.fsencode(script or ""), capture_output=True, timeout=60)
    except OSError as error:
        raise MachineError(f"{start_problem(command[0], error)}: is Slurm installed here?") from None
    except subprocess.TimeoutExpired:
        raise MachineError(f"{command[0]} does not answer for a minute: is Slurm running?") from None
    if result.returncode:
        words = result.stderr.decode(errors="replace").splitlines()
        raise MachineError(f"{command[0]}: {slurm_words(words)}")
    return result.stdout.decode(errors="replace")


def _talk(
    command: Sequence[str],
    env: Mapping[str, str],
    output: IO[bytes] | None,
    say: Callable[[str], None],
    every_line: bool = False,
) -> tuple[int, list[str]]:
    """Run a launcher to its end; its exit code and what it said on stderr, of which `say` is told as it comes: that it
    waits, or every line. What it leaves running, and still could speak, is waited for a moment and no longer."""
    lines = []
    with _launched(command, env, output) as process:
        assert process.stderr is not None
        for line in _lines(process.stderr.fileno(), process.pid):
            lines.append(line)
            if every_line or WAITING.search(line):
                say(line)
        code = process.wait()
    return code, lines


def _lines(source: int, pid: int) -> Iterator[str]:
    """The lines that come out of a pipe until its end, or until its process has ended and nothing more comes."""
    ended = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(ended, select.POLLIN)
        rest, silence = b"", None
        while ready := {number for number, _ in poll.poll(silence)}:
            if ended in ready:
                poll.unregister(ended)
                silence = SILENCE_SECONDS * 1000
            if source in ready:
                piece = os.read(source, 65536)
                *whole, rest = (rest + piece).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
                if not piece:
                    break
        if rest:
            yield rest.decode(errors="replace")
    finally:
        os.close(ended)


@contextmanager
def _launched(
    command: Sequence[str], env: Mapping[str, str], output: IO[bytes] | None
) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher in a session of its own, so that Ctrl-C comes to us alone; what it started is ended with the block."""
    try:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise MachineError(f"the launcher {start_problem(command[0], error)}") from None
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # srun cancels its step, or its job
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
