"""One run of a judged program, on the machine where this is called: the clock, the limits, the GPU's lock, the kill.

Behind a launcher that machine is another one. Then this module is what the launcher starts (`main`): it takes an order
as its only argument and prints a report as its only line, so that whatever happens on the way, waiting in a queue
included, is not the program's.
"""

import base64
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from hw4cli import sandbox
from hw4cli.environment import environment
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.exits import StartError
from hw4cli.gpuwatch import Sight, gpu_lock, watched
from hw4cli.process import Run, run_program
from hw4cli.words import print_message

MARK = "hw4-report "  # a report's line begins so: a launcher may print lines of its own


@dataclass(frozen=True)
class Order:
    """What to run, and within which limits: a command and its two files, its private folder, the answer that is to be
    kept from it, seconds after which it is killed, the bytes that a file of its own may have, and the names of the
    variables that it gets besides those that every program gets."""

    command: tuple[str, ...]
    files: tuple[str, str]
    folder: str
    answer: str
    kill_at: float
    max_file: int
    sandbox: str = "none"
    pass_env: tuple[str, ...] = ()

    def packed(self) -> str:
        """The order as one word that no shell takes apart."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def unpacked(cls, word: str) -> Self:
        """The order in such a word."""
        facts: dict[str, Any] = json.loads(base64.urlsafe_b64decode(word))
        lists = {name: tuple(value) for name, value in facts.items() if isinstance(value, list)}
        return cls(**{**facts, **lists})


def execute(order: Order, base: Mapping[str, str], say: Callable[[str], None]) -> tuple[Run, Sight]:
    """Run the program with the GPU to itself; how it ended, and what was seen of the GPU meanwhile.

    `base` is the environment that its own is made of. Raises StartError if it cannot be started, MachineError if this
    machine cannot run it as ordered.
    """
    folder, answer = Path(order.folder), Path(order.answer)
    env = environment(base, folder, answer, order.pass_env)
    words = list(order.command)
    if order.sandbox == "bwrap":
        sandbox.check()
        words = sandbox.wrap(words, folder, env, answer.parent)
    with gpu_lock(env, say), watched(env) as sight:
        run = run_program([*words, *order.files], order.kill_at, env, folder, order.max_file)
    if order.sandbox == "bwrap":
        run = sandbox.unwrap(run, order.command[0])
    return run, sight


def main() -> None:
    """Run the order that is this process's last argument, and print the report."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)  # nothing of the program stays behind when Slurm ends the step
    try:
        print(MARK + json.dumps(_report(Order.unpacked(sys.argv[-1]))), flush=True)
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupted(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _report(order: Order) -> dict[str, Any]:
    try:
        run, sight = execute(order, os.environ, print_message)
    except StartError as error:
        return {"problem": str(error)}
    except (Hw4Error, OSError, ValueError) as error:
        return {"fault": str(error)}
    return {"run": asdict(run), "sight": asdict(sight)}


def reported(line: str) -> tuple[Run, Sight]:
    """What a report's line tells. Raises StartError and MachineError as `execute` did there."""
    report = json.loads(line.partition(MARK)[2])
    if "problem" in report:
        raise StartError(report["problem"])
    if "fault" in report:
        raise MachineError(report["fault"])
    return Run(**report["run"]), Sight(**report["sight"])
