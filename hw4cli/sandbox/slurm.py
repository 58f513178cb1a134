"""Slurm by its own commands: srun starts a program or a whole session of judging, sbatch an array of tasks.

A failure of Slurm to start something is distinguished from a failure of what it started: it is the judge's failure, and
its message quotes Slurm's.
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

from hw4cli.errors import READER_GONE, MachineError
from hw4cli.resources import python_command
from hw4cli.sandbox.gpu import GpuUsage
from hw4cli.sandbox.step import MARK, RunRequest, parse_report
from hw4cli.system.exits import start_problem
from hw4cli.system.process import Run
from hw4cli.text.words import printable

SILENCE_SECONDS = 1.0  # after a launcher's end: its children may still write, until they are silent so long
END_SECONDS = 40.0  # for a launcher to end what it started: Slurm itself takes up to KillWait, 30 s
# Exit codes for srun's own failures, which by default are 1, as a program's may be.
SRUN_EXIT_CODES = {"SLURM_EXIT_ERROR": "125", "SLURM_EXIT_IMMEDIATE": "124"}
HW4_EXIT_CODES = {0, 1, 2, 3, 130, READER_GONE}
HW4_EXIT = re.compile(r"task \d+: Exited with exit code")  # srun's message about hw4's own exit: no failure of Slurm
WAITING = re.compile(r"queued and waiting|waiting for (resources|GPU)|has been allocated|step creation .*disabled")
LEVEL = re.compile(r"^([\w.-]+: )?(fatal|error): ")  # srun's, and slurmstepd-NODE's
MAX_LINES = 3  # lines of Slurm's that a message quotes


def run_step(
    launcher: Sequence[str], request: RunRequest, env: Mapping[str, str], say: Callable[[str], None]
) -> tuple[Run, GpuUsage]:
    """Execute a request behind a launcher, such as srun with options. `say` gets messages while the launcher waits.

    Raises StartError if the program cannot be started there, and MachineError, with the launcher's message, if the
    launcher does not run it.
    """
    command = [*launcher, *python_command("sandbox.step", "-P"), str(request.write())]
    with tempfile.TemporaryFile() as output:
        code, lines = run_launcher(command, {**env, **SRUN_EXIT_CODES}, output, say)
        output.seek(0)
        reports = [line for line in output.read().decode(errors="replace").splitlines() if MARK in line]
    if len(reports) == 1:
        return parse_report(reports[0])
    if reports:
        raise MachineError(f"the launcher started the program {len(reports)} times: ask it for one task (-n1)")
    raise MachineError(f"{Path(launcher[0]).name} did not run the program ({_exit_text(code)}): {error_lines(lines)}")


def run_in_allocation(options: Sequence[str], arguments: Sequence[str]) -> int:
    """Run `hw4 ARGUMENTS` in an allocation of its own, with its output on this process's streams; its exit code.

    Raises MachineError, with Slurm's message, if Slurm does not start it, or ends it.
    """
    command = ["srun", "-N1", "-n1", *options, *python_command("entry", "-P"), *arguments]
    lines: list[str] = []

    def pass_on(line: str) -> None:
        lines.append(line)
        if not LEVEL.match(line):
            print(printable(line), file=sys.stderr, flush=True)

    code, _ = run_launcher(command, {**os.environ, **SRUN_EXIT_CODES}, None, pass_on, every_line=True)
    levels = [found[2] for line in lines if (found := LEVEL.match(line)) and not HW4_EXIT.search(line)]
    # srun itself may end with 2 or 130, too, and with 1 after a fatal error.
    if code in HW4_EXIT_CODES and not (levels and code > 1) and "fatal" not in levels:
        return code
    raise MachineError(f"Slurm did not run the judge to its end ({_exit_text(code)}): {error_lines(lines)}")


def submit(options: Sequence[str], script: str, tasks: int, parallel: int, log: Path) -> str:
    """Submit a script as an array of so many tasks, `parallel` at a time; the job's number. `log` is the folder for the
    tasks' output. Raises MachineError, with Slurm's message, if Slurm refuses it."""
    array = f"--array=0-{tasks - 1}%{parallel}"
    where = f"--output={str(log.absolute()).replace('%', '%%')}/%A_%a.txt"
    reply = _slurm("sbatch", "--parsable", "--job-name=hw4-class", "-N1", "-n1", *options, array, where, script=script)
    return reply.split(";")[0].strip()


def max_array_tasks() -> int:
    """How many tasks an array may have: MaxArraySize, or fewer, by SchedulerParameters=max_array_tasks."""
    found = re.findall(r"\b(?:MaxArraySize\s*|max_array_tasks)=\s*(\d+)", _slurm("scontrol", "show", "config"))
    return max(1, min(map(int, found))) if found else 1000


def is_active(job: str) -> bool:
    """Whether a job still waits or runs. Raises MachineError if Slurm does not answer."""
    try:
        return bool(_slurm("squeue", "--noheader", "--format=%i", f"--jobs={job}").strip())
    except MachineError as error:
        if "Invalid job id" in str(error):  # Slurm forgets a job some minutes after its end
            return False
        raise


def cancel(job: str) -> None:
    """Cancel a job, and wait up to END_SECONDS for its tasks to end."""
    with suppress(MachineError):
        _slurm("scancel", job)
        deadline = time.monotonic() + END_SECONDS
        while is_active(job) and time.monotonic() < deadline:
            time.sleep(0.2)


def job_info() -> dict[str, str]:
    """Job, node and partition of the Slurm job that this process runs in; empty outside one."""
    names = {"job": "SLURM_JOB_ID", "node": "SLURMD_NODENAME", "partition": "SLURM_JOB_PARTITION"}
    return {fact: value for fact, name in names.items() if (value := os.environ.get(name))}


def error_lines(lines: Sequence[str]) -> str:
    """The lines of Slurm's output that are errors, or else the last ones, joined for a message."""
    texts = [line.strip() for line in lines if line.strip()]
    errors = [LEVEL.sub("", line) for line in texts if LEVEL.match(line)]
    return "; ".join(list(dict.fromkeys(errors))[:MAX_LINES] or texts[-MAX_LINES:]) or "it printed no message"


def _exit_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _slurm(*command: str, script: str | None = None) -> str:
    """The output of a command of Slurm. MachineError, with its message, if it fails."""
    try:
        # Bytes, because a student's name need not be valid UTF-8.
        result = subprocess.run(command, input=os.fsencode(script or ""), capture_output=True, timeout=60)
    except OSError as error:
        raise MachineError(f"{start_problem(command[0], error)}: is Slurm installed here?") from None
    except subprocess.TimeoutExpired:
        raise MachineError(f"{command[0]} does not answer for a minute: is Slurm running?") from None
    if result.returncode:
        raise MachineError(f"{command[0]} failed: {error_lines(result.stderr.decode(errors='replace').splitlines())}")
    return result.stdout.decode(errors="replace")


def run_launcher(
    command: Sequence[str],
    env: Mapping[str, str],
    output: IO[bytes] | None,
    say: Callable[[str], None],
    every_line: bool = False,
) -> tuple[int, list[str]]:
    """Run a launcher to its end; its exit code and its lines on stderr. `say` gets a line as it comes: those about
    waiting, or every line. Children that it leaves running may write for SILENCE_SECONDS more."""
    lines = []
    with _launcher(command, env, output) as process:
        assert process.stderr is not None
        for line in _lines(process.stderr.fileno(), process.pid):
            lines.append(line)
            if every_line or WAITING.search(line):
                say(line)
        code = process.wait()
    return code, lines


def _lines(source: int, pid: int) -> Iterator[str]:
    """The lines from a pipe until its end, or until its process has ended and the pipe stays silent."""
    ended = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(ended, select.POLLIN)
        partial, timeout = b"", None
        while ready := {number for number, _ in poll.poll(timeout)}:
            if ended in ready:
                poll.unregister(ended)
                timeout = SILENCE_SECONDS * 1000
            if source in ready:
                chunk = os.read(source, 65536)
                *complete, partial = (partial + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in complete)
                if not chunk:
                    break
        if partial:
            yield partial.decode(errors="replace")
    finally:
        os.close(ended)


@contextmanager
def _launcher(
    command: Sequence[str], env: Mapping[str, str], output: IO[bytes] | None
) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher in a session of its own, so that Ctrl-C interrupts only the judge; it is terminated with the block."""
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
