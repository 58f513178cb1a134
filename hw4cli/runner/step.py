"""One run of a judged program, on the machine where this is called: the clock, the limits, the GPU's lock, the kill.

Behind a launcher that machine is another one. Then this module is what the launcher starts (`main`): it takes an order
from the file that is its only argument, and prints a report as its only line, so that whatever happens on the way,
waiting in a queue included, is not the program's.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from hw4cli.errors import Hw4Error, MachineError
from hw4cli.runner import confine
from hw4cli.runner.confine import Confinement, Place
from hw4cli.runner.environment import environment
from hw4cli.runner.gpulock import gpu_lock
from hw4cli.runner.gpuwatch import Sight, watched
from hw4cli.runner.quota import Quota
from hw4cli.system import interrupts
from hw4cli.system.exits import ProgramError
from hw4cli.system.files import write_text
from hw4cli.system.process import Run
from hw4cli.text.words import print_message

MARK = "hw4-report "  # a report's line begins so: a launcher may print lines of its own
ORDER = "order.json"  # in the folder that holds a run's
MAX_FILES = 10_000  # that a run may make


@dataclass(frozen=True)
class Order:
    """What to run, and within which limits: a command and its two files; the folder that holds its private one and its
    scratch, by their names; the answer that is to be kept from it, seconds after which it is killed, the bytes that a
    file of its own may have, and all of them; and the variables that it gets besides those that every program gets."""

    command: tuple[str, ...]
    files: tuple[str, str]
    whole: str
    folder: str
    scratch: str
    answer: str
    kill_at: float
    max_file: int
    max_bytes: int
    confinement: Confinement = field(default_factory=Confinement)
    pass_env: tuple[str, ...] = ()

    def write(self) -> Path:
        """Write the order where the program's private folder is, for a step that may be on another machine. Its command
        line, which any process can read, then tells nothing. Raises as NewFile does."""
        path = Path(self.whole) / ORDER
        write_text(path, json.dumps(asdict(self)))
        path.chmod(0o600)
        return path

    @classmethod
    def taken(cls, path: Path) -> Self:
        """The order in such a file, which is removed: the program is not to find it."""
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        confinement = {**facts["confinement"], "hidden": tuple(facts["confinement"]["hidden"])}
        lists = {name: tuple(value) for name, value in facts.items() if isinstance(value, list)}
        return cls(**{**facts, **lists, "confinement": Confinement(**confinement)})


def execute(order: Order, base: Mapping[str, str], say: Callable[[str], None]) -> tuple[Run, Sight]:
    """Run the program with the GPU to itself; how it ended, and what was seen of the GPU meanwhile.

    `base` is the environment that its own is made of. Raises ProgramError for what is its fault, as that it cannot be
    started; MachineError if this machine cannot run it as ordered.
    """
    folder = Path(order.folder)
    env = environment(base, folder, Path(order.answer), order.pass_env)
    place = Place(folder, Path(order.scratch), Quota((Path(order.whole),), order.max_bytes, MAX_FILES))
    with gpu_lock(env, say), watched(env) as sight:
        run = confine.run(order.command, order.files, place, env, order.confinement, order.kill_at, order.max_file)
    return run, sight


def main() -> None:
    """Run the order whose file is this process's last argument, and print the report."""
    interrupts.end_at_once()
    try:
        interrupts.raise_from_now_on()  # nothing of the program stays behind when Slurm ends the step
        print(MARK + json.dumps(_report(Path(sys.argv[-1]))), flush=True)
    except KeyboardInterrupt:
        sys.exit(130)


def _report(path: Path) -> dict[str, Any]:
    try:
        order = Order.taken(path)
        run, sight = execute(order, os.environ, print_message)
    except ProgramError as error:
        return {"problem": str(error)}
    except (Hw4Error, OSError, ValueError) as error:
        return {"fault": str(error)}
    return {"run": asdict(run), "sight": asdict(sight)}


def reported(line: str) -> tuple[Run, Sight]:
    """What a report's line tells. Raises ProgramError and MachineError as `execute` did there."""
    report = json.loads(line.partition(MARK)[2])
    if "problem" in report:
        raise ProgramError(report["problem"])
    if "fault" in report:
        raise MachineError(report["fault"])
    return Run(**report["run"]), Sight(**report["sight"])
