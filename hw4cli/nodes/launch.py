"""Several nodes by one call of srun: each of its processes computes a share, and this one completes the output."""

import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.nodes.jointfile import JointFile, key_of
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.shape import Shape
from hw4cli.resources import python_command
from hw4cli.runner.slurm import LEVEL, SRUN_EXIT_CODES, error_lines, run_launcher
from hw4cli.system.files import check_different
from hw4cli.text.progress import Progress
from hw4cli.text.words import printable

OWN = "hw4: "  # how a line of hw4's begins
LABEL = re.compile(r"^ *\d+: ")  # of srun --label
FAILED = re.compile(rf"{OWN}(rank (\d+) on \S+ failed: .*)")
EXIT = re.compile(r"task (\d+): Exited with exit code (\d+)")
PERIOD = 1.0  # seconds between two looks at how much is written
LAG, SHORT_LAG = 30.0, 5.0  # seconds after which a file system shows on one node what was written on another


def compute_by_slurm(
    source: Path,
    target: Path,
    srun: Sequence[str],
    arguments: Sequence[str],
    options: Sequence[object],
    go_on: bool,
    progress: Progress,
) -> Shape:
    """Compute a file by `srun SRUN hw4 SOURCE TARGET ARGUMENTS`, a process or several a node; return its shape.

    `options` decide about the output's bytes, as they do for the processes. `go_on`: with what an earlier run has left
    written. Raises InputError and MachineError, which name the node and the reason; what is written then stays for a
    later run, as on Ctrl-C, and so does the old output.
    """
    with InputFile(source) as inputs:
        shape = inputs.shape
    check_different(source, target)
    key = key_of(source, target, options)
    joint = JointFile(target, shape.output_bytes, key)
    with joint.begun(go_on):
        progress.total = joint.size
        if joint.share < 1:
            paths = (str(path.absolute()) for path in (source, target))
            step = [*python_command("entry", "-P"), "run", *paths, "--ranks", f"--step={key}", *arguments]
            command = ["srun", "--kill-on-bad-exit=1", *srun, *step]
            with _Watch(joint, progress):
                try:
                    problems = _run(command)
                except Hw4Error as error:
                    raise type(error)(f"{error}{_kept(joint)}") from None
                except KeyboardInterrupt:
                    raise KeyboardInterrupt(*filter(None, [_kept(joint).removeprefix("; ")])) from None
            _wait_until_whole(joint, problems)
        joint.complete()
    return shape


def _kept(joint: JointFile) -> str:
    share = joint.share
    return f"; {share:.0%} of the output is written, and --resume goes on with it" if share else ""


def _run(command: Sequence[str]) -> list[str]:
    """Run srun to its end; what went wrong though it ended well: so it does where a node was lost and the processes on
    others are through. Raises InputError or MachineError with the reason of the first process that failed."""
    failed: list[str] = []

    def pass_on(labelled: str) -> None:
        line = LABEL.sub("", labelled)
        if found := FAILED.match(line):
            failed.append(found[1])
        elif line.startswith(OWN) and "interrupted" not in line:
            print(printable(line), file=sys.stderr, flush=True)

    code, lines = run_launcher(command, {**os.environ, **SRUN_EXIT_CODES}, None, pass_on, every_line=True)
    if not code:
        return [line for line in lines if LEVEL.match(line)]
    if not failed:
        raise MachineError(f"srun ended with exit code {code}: {error_lines(lines)}")
    exits = {found[1]: int(found[2]) for line in lines if (found := EXIT.search(line))}
    rank = failed[0].split()[1]
    raise (InputError if exits.get(rank) == InputError.exit_code else MachineError)(failed[0])


def _wait_until_whole(joint: JointFile, problems: Sequence[str]) -> None:
    """Wait until this node, too, sees all as written. MachineError, with the problems, if that takes too long."""
    deadline = time.monotonic() + (SHORT_LAG if problems else LAG)
    while joint.share < 1:
        if time.monotonic() > deadline:
            why = f": {error_lines(problems)}" if problems else ""
            raise MachineError(f"all processes have ended, but parts of the output are missing{why}{_kept(joint)}")
        time.sleep(PERIOD / 5)


class _Watch:
    """A block during which the progress shows how much is written."""

    def __init__(self, joint: JointFile, progress: Progress) -> None:
        self._joint, self._progress, self._ended = joint, progress, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._ended.wait(PERIOD):
            self._progress.done = int(self._joint.share * self._joint.size)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
