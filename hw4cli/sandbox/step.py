"""One run of a judged program on this machine: it is timed, limited and killed here, with the GPU locked.

With a launcher this machine is another one than the judge's: the launcher starts this module (`main`), which reads a
request from the file that is its last argument and prints a report as one line. So the time in a queue, and whatever
else the launcher does, is not counted as the program's.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from hw4cli.errors import Hw4Error, MachineError
from hw4cli.sandbox import confine
from hw4cli.sandbox.confine import Confinement, Workspace
from hw4cli.sandbox.environment import environment
from hw4cli.sandbox.gpu import GpuUsage, failed_without_gpu, gpu_lock, watch_gpu
from hw4cli.sandbox.memory import PrivateMemory
from hw4cli.sandbox.quota import Quota
from hw4cli.system import interrupts
from hw4cli.system.exits import ProgramError
from hw4cli.system.files import write_text
from hw4cli.system.process import Run
from hw4cli.text.words import print_message

MARK = "hw4-report "  # the prefix of a report's line: a launcher may print lines of its own
REQUEST = "request.json"  # the file's name in the root of a run's private folder
MAX_FILES = 10_000  # files that a run may create


@dataclass(frozen=True)
class RunRequest:
    """What to run, and within which limits: the command and its two `files`; `root`, which holds `folder` and
    `scratch`; `answer`, which the program must not find; the seconds after which it is killed; the bytes of its largest
    file and of all its files; and the environment variables that it gets besides those of every program."""

    command: tuple[str, ...]
    files: tuple[str, str]
    root: str
    folder: str
    scratch: str
    answer: str
    kill_at: float
    max_file: int
    max_bytes: int
    confinement: Confinement = field(default_factory=Confinement)
    pass_env: tuple[str, ...] = ()

    def write(self) -> Path:
        """Write the request into the run's root folder, for a step that may be on another machine: any process could
        read it on the step's command line. Raises as NewFile does."""
        path = Path(self.root) / REQUEST
        write_text(path, json.dumps(asdict(self)), mode=0o600)
        return path

    @classmethod
    def take(cls, path: Path) -> Self:
        """Read a request and remove its file, so that the program does not find it."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        confinement = Confinement(**_with_tuples(fields["confinement"]))
        return cls(**{**_with_tuples(fields), "confinement": confinement})


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that JSON has made lists of as tuples again."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def execute(
    request: RunRequest, base: Mapping[str, str], say: Callable[[str], None], memory: PrivateMemory | None = None
) -> tuple[Run, GpuUsage]:
    """Run the program with the GPU locked; how it ended, and its use of the GPU.

    `base` is the environment from which its own is made; in `memory` are its private folders, if they are not those of
    the request. Raises ProgramError for a failure of the program, such as one that cannot be started; MachineError if
    this machine cannot run it as requested.
    """
    folder = Path(request.folder)
    env = environment(base, folder, Path(request.answer), request.pass_env)
    root = Path(request.root)
    workspace = Workspace(folder, Path(request.scratch), Quota((root,), request.max_bytes, MAX_FILES), root)
    if memory:
        workspace = Workspace(folder, memory)
    with gpu_lock(env, say), watch_gpu(env) as usage:
        run = confine.run(
            request.command, request.files, workspace, env, request.confinement, request.kill_at, request.max_file
        )
    usage.absent = failed_without_gpu(run.stderr, env)
    return run, usage


def main() -> None:
    """Execute the request in the file that is this process's last argument, and print the report."""
    interrupts.exit_on_signals()
    try:
        interrupts.raise_on_signals()  # so that no process of the program survives when Slurm ends the step
        print(MARK + json.dumps(_report(Path(sys.argv[-1]))), flush=True)
    except KeyboardInterrupt:
        sys.exit(130)


def _report(path: Path) -> dict[str, Any]:
    try:
        request = RunRequest.take(path)
        run, usage = execute(request, os.environ, print_message)
    except ProgramError as error:
        return {"problem": str(error)}
    except (Hw4Error, OSError, ValueError) as error:
        return {"fault": str(error)}
    return {"run": asdict(run), "gpu_usage": asdict(usage)}


def parse_report(line: str) -> tuple[Run, GpuUsage]:
    """The result in a report's line. Raises ProgramError and MachineError as `execute` did there."""
    report = json.loads(line.partition(MARK)[2])
    if "problem" in report:
        raise ProgramError(report["problem"])
    if "fault" in report:
        raise MachineError(report["fault"])
    return Run(**report["run"]), GpuUsage(**report["gpu_usage"])
