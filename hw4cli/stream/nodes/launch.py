"""Several nodes by one call of srun: each of its processes computes a share, and this one completes the output."""

import math
import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hw4cli.errors import InputError, MachineError
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.workload import Workload
from hw4cli.resources import python_command
from hw4cli.sandbox.slurm import LEVEL, SRUN_EXIT_CODES, WAITING, error_lines, run_launcher
from hw4cli.stream.nodes.jointfile import JointFile, key_of
from hw4cli.stream.team import Notify
from hw4cli.system.files import check_different
from hw4cli.text.progress import Progress

OWN = "hw4: "  # how a line of hw4's begins
LABEL = re.compile(r"^ *\d+: ")  # of srun --label
FAILED = re.compile(rf"{OWN}(rank (\d+) on \S+ failed: .*)")
EXIT = re.compile(r"task (\d+): Exited with exit code (\d+)")
PERIOD = 1.0  # seconds between two looks at how much is written
SILENT = 15.0  # seconds after which it is said that in an allocation no process has begun
# Seconds after which a file system shows on one node what was written on another: NFS keeps for 60 the list of a folder
# that the node has read, as this one does all the time (JointFile.share). For the folder itself see jointfile.PAUSES.
LAG, SHORT_LAG = 75.0, 5.0


def compute_by_slurm(
    source: Path,
    target: Path,
    srun: Sequence[str],
    arguments: Sequence[str],
    options: Sequence[object],
    go_on: bool,
    progress: Progress,
    notify: Notify,
) -> Workload:
    """Compute a file by `srun SRUN hw4 SOURCE TARGET ARGUMENTS`, a process or several a node; return its shape.

    `options` decide about the output's bytes, as they do for the processes. `go_on`: with what an earlier run has left
    written. `notify` gets what processes say, and that Slurm lets them wait. Raises InputError and MachineError, which
    name the node and the reason; what is written then stays for a later run, as on Ctrl-C, and so does the old output.
    """
    with InputFile(source) as inputs:
        check_different(source, target)
        key = key_of(source, target, options)
        joint = JointFile(target, inputs.shape.output_bytes, key)
        with joint.begun(go_on):
            progress.total = joint.size
            if joint.share < 1:
                paths = (str(path.absolute()) for path in (source, target))
                step = [*python_command("entry", "-P"), "run", *paths, "--ranks", f"--step={key}", *arguments]
                _compute(["srun", "--job-name=hw4", "--kill-on-bad-exit=1", *srun, *step], joint, progress, notify)
            inputs.check_unchanged()
            joint.complete()
        return inputs.shape


def _compute(command: Sequence[str], joint: JointFile, progress: Progress, notify: Notify) -> None:
    """Run srun until the output is whole."""
    with _Watch(joint, progress, notify):
        try:
            problems = _run(command, notify)
        except MachineError as error:
            raise MachineError(f"{error}{_kept(joint)}") from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(*filter(None, [_kept(joint).removeprefix("; ")])) from None
    _wait_until_whole(joint, problems)


def _kept(joint: JointFile) -> str:
    share = joint.share
    return f"; {share:.0%} of the output is written, and --resume goes on with it" if share else ""


def _run(command: Sequence[str], notify: Notify) -> list[str]:
    """Run srun to its end; what went wrong though it ended well: so it does where a node was lost and the processes on
    others are through. Raises InputError or MachineError with the reason of the first process that failed."""
    failed: list[str] = []

    def pass_on(labelled: str) -> None:
        line = LABEL.sub("", labelled)
        if found := FAILED.match(line):
            failed.append(found[1])
        elif WAITING.search(line) or (line.startswith(OWN) and "interrupted" not in line):
            notify(line.removeprefix(OWN))

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
            why = error_lines(problems) if problems else f"do all nodes see the same {joint.folder.parent}?"
            raise MachineError(f"all processes have ended, but parts of the output are missing: {why}{_kept(joint)}")
        time.sleep(PERIOD / 5)


class _Watch:
    """A block during which the progress shows how much is written, and that srun waits where it does not say so
    itself: inside an allocation."""

    def __init__(self, joint: JointFile, progress: Progress, notify: Notify) -> None:
        self._joint, self._progress, self._ended = joint, progress, threading.Event()
        self._silent_until = time.monotonic() + SILENT if "SLURM_JOB_ID" in os.environ else math.inf
        self._notify = notify
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._ended.wait(PERIOD):
            with suppress(MachineError):  # a list that cannot be read now, maybe later
                self._progress.done = int(self._joint.share * self._joint.size)
            if time.monotonic() > self._silent_until:
                self._silent_until = math.inf
                if not self._joint.has_writers:
                    self._notify("no process has begun: job steps may hold the allocation (then srun needs --overlap)")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
