"""The cases of a record of whole calls, each in a process of its own: all compile and check their answers at once, and
are then timed one after the other, while the GPU does nothing else.

Others' attention compiles for tens of seconds for each case, on one core.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from hw4cli.errors import MachineError, first_line
from hw4cli.system.machine import others_versions

Rows = list[dict[str, Any]]
Versions = dict[str, str]  # of packages, by their names in a record's machine
Prepare = Callable[[Any], Callable[[], Rows]]  # of a case: compiles and checks, and returns what times it
PATIENCE = 180  # seconds until the last case must be ready
ALONE = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # torch compiles in the case's process, not in processes of its own


def in_turns(prepare: Prepare, cases: Sequence[Any]) -> tuple[Rows, Versions]:
    """The rows of all cases, in order, and the versions of others' packages. MachineError if a case fails, or is not
    ready in time."""
    os.environ.update(ALONE)
    context = multiprocessing.get_context("spawn")  # a GPU that is open is not for a process that is forked
    ways, processes = list[Connection](), list[Any]()
    for case in cases:
        way, childs = context.Pipe()
        processes.append(context.Process(target=_case, args=(prepare, case, childs)))
        processes[-1].start()
        childs.close()
        ways.append(way)
    try:
        deadline = time.monotonic() + PATIENCE
        for way, case in zip(ways, cases, strict=True):
            if not way.poll(max(deadline - time.monotonic(), 0)):
                raise MachineError(f"{case} is not ready after {PATIENCE} s")
            _received(way, case)
        rows, versions = Rows(), Versions()
        for way, case in zip(ways, cases, strict=True):
            way.send("your turn")
            found, its_versions = _received(way, case)
            rows += found
            versions |= its_versions
        return rows, versions
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _received(way: Connection, case: Any) -> Any:
    """What a case's process sends. MachineError if it failed or ended."""
    try:
        problem, found = way.recv()
    except EOFError:
        raise MachineError(f"{case}: its process ended") from None
    if problem:
        raise MachineError(f"{case}: {problem}")
    return found


def _case(prepare: Prepare, case: Any, way: Connection) -> None:
    """A case's process: it says when it is ready, waits for its turn, and sends rows and versions."""
    try:
        timed = prepare(case)
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()  # what others need meanwhile
        way.send((None, None))
        way.recv()
        way.send((None, (timed(), others_versions())))
    except Exception as error:  # whatever is wrong, the record's process says it
        way.send((first_line(error), None))
