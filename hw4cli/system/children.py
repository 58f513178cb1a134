"""Programs that threads start and wait for. Of a signal only the main thread learns: it ends them for all."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Self


class Children:
    """Where threads start programs by `run`: `kill` ends those that run, and no other is started.

    As a with-block inside that of a pool of threads, it does so on any exception: the pool then has nothing to wait
    for.
    """

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[Any]] = set()
        self._starting = threading.Lock()  # held while a program is started and added to those that run
        self._ended = False

    def run(
        self, command: Sequence[str], *, input: Any = None, timeout: float | None = None, **options: Any
    ) -> "subprocess.CompletedProcess[Any]":
        """Run a program to its end, in a session of its own, with options of subprocess.Popen.

        Raises OSError if it cannot be started, CancelledError after `kill`, and TimeoutExpired after so many seconds:
        it is killed then, but not waited for, as a program that is stuck in a driver does not end.
        """
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        with self._starting:
            if self._ended:
                raise CancelledError("interrupted")
            process = subprocess.Popen(command, stdin=stdin, start_new_session=True, **options)
            self._running.add(process)
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            raise
        finally:
            self._running.discard(process)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def kill(self) -> None:
        """Kill the programs that are running, with what they have started; from now on none is started."""
        with self._starting:
            self._ended = True
            for process in list(self._running):
                _end(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.kill()


def _end(process: "subprocess.Popen[Any]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
