"""A program run in a process of its own: in one process, one program runs at a time (system/process.py)."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from hw4cli.emulator.program.build import Program
from hw4cli.emulator.program.execute import Execution, run_program
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.resources import python_command
from hw4cli.system.children import Children


def run_beside(children: Children, program: Program, arguments: Sequence[str], **how: Any) -> Execution:
    """What `run_program` returns or raises, by another process, one of these children; CancelledError if they are
    killed."""
    given = pickle.dumps((program, arguments, how))
    done = children.run([*python_command("emulator.program.beside", "-P")], input=given, stdout=subprocess.PIPE)
    if done.returncode:
        raise MachineError(f"the process that runs a program beside this one ended with status {done.returncode}")
    answer = pickle.loads(done.stdout)
    if isinstance(answer, Hw4Error):
        raise answer
    assert isinstance(answer, Execution)
    return answer


def main() -> None:
    """Run the program that comes on stdin; its execution, or what was raised, goes to stdout."""
    program, arguments, how = pickle.load(sys.stdin.buffer)
    answer: Execution | Hw4Error
    try:
        answer = run_program(program, arguments, **how)
    except Hw4Error as error:
        answer = error
    pickle.dump(answer, sys.stdout.buffer)
