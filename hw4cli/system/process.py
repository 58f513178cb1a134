"""One child process: started, timed from outside, held to limits; and nothing of it lives on."""

import fcntl
import os
import resource
import select
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hw4cli.errors import SHORTAGES, MachineError, os_error
from hw4cli.system import selfguard, sharedmemory
from hw4cli.system.account import Account
from hw4cli.system.exits import ProgramError, StartError, start_problem
from hw4cli.system.interrupts import DefaultsForChildren, Held
from hw4cli.system.sweep import Family, descendants

STDERR_TAIL = 64 << 10  # bytes of the program's stderr that are kept
PIPE_BYTES = 1 << 20  # of the pipe for it: the more, the fewer turns a talkative program waits
LOOK_SECONDS = 0.1  # between two looks at what a program has written
GATE_SECONDS = 60.0  # for what stands around a program to be ready
F_SETPIPE_SZ = 1031

# A shell that enters the folder behind it in the command, says that it is ready, waits for the word, and becomes the
# program that comes next. What stands before it, a sandbox, is made by then, and is not timed. Its stdin is the way to
# tell, and to be told.
GATE = ("/bin/sh", "-c", 'cd -- "$1" && shift && echo >&0 && read -r _ && exec "$@" </dev/null', "sh")


class GateError(MachineError):
    """What should stand around a program cannot be made."""


@dataclass(frozen=True)
class Run:
    """How a program ended. Times in seconds: on the wall, and of the processors (its children's too); `exit_code` -n
    is signal n; `peak_rss` in bytes, None where it is below what this process takes itself (the kernel cannot tell);
    `stderr` is the end of what it said; `excess` tells what it wrote too much of, if it was ended for that."""

    wall: float
    killed: bool = False
    exit_code: int = 0
    user: float = 0.0
    system: float = 0.0
    peak_rss: int | None = None
    stderr: str = ""
    excess: str | None = None


@dataclass(frozen=True)
class Limits:
    """What a program may take: seconds, bytes of each file that it writes, and what `excess` looks at while it runs:
    once that has something to tell, the program is ended."""

    kill_at: float
    max_file: int | None = None
    excess: Callable[[], str | None] = lambda: None


def run_program(
    arguments: Sequence[str],
    limits: Limits,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    account: Account | None = None,
    gated: bool = False,
) -> Run:
    """Run a program to its end, or end it at its limits; nothing of it lives on either way.

    It runs as the user of `account`, if that is not ours. `gated` says that GATE stands in the command.

    Raises StartError if it cannot be started, ProgramError if what it leaves cannot be got rid of or it changed our
    limits; GateError if GATE is not reached, MachineError for lack of memory or the like.
    """
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state, segments = selfguard.state(), sharedmemory.segments()
    if not gated:
        selfguard.outlived_by_nobody(None)
    changed: list[str] = []
    with _Words() as words, _Gate() as gate, descendants() as family:
        try:
            start = time.monotonic()
            with Held():
                stdin = gate.theirs if gated else subprocess.DEVNULL
                process = _start(arguments, limits, env, cwd, account, stdin, words.writer)
                words.close_writer()
                if not gated:
                    selfguard.outlived_by_nobody(process.pid)
            if gated:
                start = gate.open(process.pid, words)
            ended, excess = _ends_by(process.pid, start, limits, words, family)
            wall = time.monotonic() - start
        finally:
            with Held():
                changed += selfguard.put_back(state)
                try:
                    family.sweep()
                finally:
                    selfguard.outlived_by_nobody(None)
                    changed += selfguard.put_back(state)
        words.drain()
        sharedmemory.remove_new(segments, family.reaped)
    process.returncode = os.waitstatus_to_exitcode(family.reaped[process.pid][0])
    if changed:
        raise ProgramError(f"it changed the judge's own limits while it ran: {', '.join(dict.fromkeys(changed))}")
    usages = [usage for _, usage in family.reaped.values()]
    peak_rss = max(usage.ru_maxrss for usage in usages)
    return Run(
        wall=wall,
        killed=not ended and excess is None,
        exit_code=process.returncode,
        user=sum(usage.ru_utime for usage in usages),
        system=sum(usage.ru_stime for usage in usages),
        # A child starts in our memory, and its peak with ours.
        peak_rss=peak_rss << 10 if peak_rss > own_peak else None,
        stderr=words.text(),
        excess=excess,
    )


def _start(
    arguments: Sequence[str],
    limits: Limits,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    account: Account | None,
    stdin: int,
    stderr: int,
) -> subprocess.Popen[bytes]:
    """Start a process with limits: soft ones inherited from its first instant, then hard ones.

    Raises StartError if it cannot be started, MachineError if no process can.
    """
    wanted = {resource.RLIMIT_CORE: 0}
    if limits.max_file is not None:
        wanted[resource.RLIMIT_FSIZE] = limits.max_file
    old = {limit: resource.getrlimit(limit) for limit in wanted}
    try:
        for limit, value in wanted.items():
            hard = old[limit][1]
            wanted[limit] = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (wanted[limit], hard))
        with DefaultsForChildren():
            process = subprocess.Popen(
                arguments,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=env,
                cwd=cwd,
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=account.groups if account else None,
            )
    except OSError as error:
        if error.errno in SHORTAGES or (cwd and error.filename == str(cwd)):
            raise os_error(error, f"start {arguments[0]}") from None
        raise StartError(start_problem(arguments[0], error)) from None
    finally:
        for limit, pair in old.items():
            resource.setrlimit(limit, pair)
    with suppress(OSError):  # it has ended, or is a setuid program
        for limit, value in wanted.items():
            resource.prlimit(process.pid, limit, (value, value))
    selfguard.first_to_die(process.pid)
    return process


def _ends_by(pid: int, start: float, limits: Limits, words: "_Words", family: Family) -> tuple[bool, str | None]:
    """Wait for a process and listen to its stderr; whether it has ended, and else what it has too much of. A pidfd
    wakes at once, where Popen.wait(timeout) looks at times. What falls to us meanwhile is looked after."""
    deadline = start + limits.kill_at
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(words.reader, select.POLLIN)
        look_at = start + LOOK_SECONDS
        while (left := deadline - (now := time.monotonic())) > 0:
            if now >= look_at:
                if excess := limits.excess():
                    return False, excess
                family.reap(family.members() - {pid})
                look_at = time.monotonic() + LOOK_SECONDS
            ready = {number for number, _ in poll.poll(min(left, max(0, look_at - now)) * 1000 + 1)}
            if descriptor in ready:
                return True, None
            if words.reader in ready and not words.read():
                poll.unregister(words.reader)
        return False, None
    finally:
        os.close(descriptor)


class _Words:
    """A pipe for what a process says, of which the end is kept."""

    def __enter__(self) -> Self:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        with suppress(OSError):
            fcntl.fcntl(self.reader, F_SETPIPE_SZ, PIPE_BYTES)
        self._kept = bytearray()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reader)
        self.close_writer()

    def close_writer(self) -> None:
        """Leave the other end to the process alone."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def read(self) -> bool:
        """Take what the pipe holds; False at its end, or if it is empty."""
        try:
            data = os.read(self.reader, PIPE_BYTES)
        except BlockingIOError:
            return False
        self._kept += data[-STDERR_TAIL:]
        del self._kept[:-STDERR_TAIL]
        return bool(data)

    def drain(self) -> None:
        """Take what is left, from writers that are dead, or cannot be killed: then it may never end."""
        for _ in range(16):
            if not self.read():
                return

    def text(self) -> str:
        """The end of what was said."""
        return self._kept.decode(errors="replace")


class _Gate:
    """Our end of the way to GATE, and theirs."""

    def __enter__(self) -> Self:
        self._ours, self._theirs = socket.socketpair()
        self.theirs = self._theirs.fileno()
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._theirs.close()

    def open(self, pid: int, words: _Words) -> float:
        """Wait until GATE is reached, and open it; when that was. GateError if it is not reached."""
        self._theirs.close()
        self._ours.settimeout(GATE_SECONDS)
        try:
            if self._ours.recv(1):
                selfguard.first_to_die(pid)
                start = time.monotonic()
                self._ours.send(b"\n")
                return start
        except OSError:  # it took too long, or ended just now
            pass
        words.drain()
        raise GateError(words.text().strip().rpartition("\n")[2] or "it said nothing")
