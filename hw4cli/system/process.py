"""One child process: started, timed from outside, limited; at its end no descendant of it is left."""

import fcntl
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from hw4cli.errors import SHORTAGES, MachineError, os_error
from hw4cli.system import selfguard
from hw4cli.system.account import Account
from hw4cli.system.exits import ProgramError, StartError, start_problem
from hw4cli.system.interrupts import DefaultSignalsForChildren, SignalsDeferred
from hw4cli.system.sweep import Descendants, adopted_descendants, remove_new_segments, shared_segments

STDERR_TAIL = 64 << 10  # bytes of the program's stderr that are kept
PIPE_BYTES = 1 << 20  # of the pipe for it: the larger, the less a program waits that prints much
LOOK_SECONDS = 0.1  # between two checks of what a program has written
END_SECONDS = 1.0  # in which a program should end that is asked to
GATE_SECONDS = 60.0  # for the sandbox to be ready
F_SETPIPE_SZ = 1031

MAX_PROCESSES = 4096  # and threads of a program in a sandbox, so that its user can start others

# A shell that enters the folder that is its first argument, reports on stdin (a socket) that it is ready, waits for a
# line there, and becomes the program that the other arguments name. The sandbox before it is complete by then, and is
# not timed. (The limit of processes is -p in some shells, -u in others.)
GATE = (
    *("/bin/sh", "-c"),
    f"{{ ulimit -p {MAX_PROCESSES} || ulimit -u {MAX_PROCESSES}; }} 2>/dev/null; "
    'cd -- "$1" && shift && echo >&0 && read -r _ && exec "$@" </dev/null',
    "sh",
)


# The same without a sandbox: in the folder where it is started, and without a limit of its user's other processes. It
# reports the number of its process, which will be the program's.
OPEN_GATE = ("/bin/sh", "-c", 'echo $$ >&0 && read -r _ && exec "$@" </dev/null', "sh")


class GateError(MachineError):
    """What stands before a program's start cannot be made: the sandbox, or the gate itself."""


@dataclass(frozen=True)
class Run:
    """How a program ended. Times in seconds: wall, and processor time including its children's; `exit_code` -n is
    signal n; `peak_rss` in bytes, of the largest of its processes, None if that is not known; `stderr` is the end of
    its stderr; `excess` is what it wrote too much of, if it was killed for that."""

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
    """What a program may use: seconds, bytes of each file that it writes, and `excess`, which is called while it runs:
    as soon as it returns a sentence, the program is killed."""

    kill_at: float
    max_file: int | None = None
    excess: Callable[[], str | None] = lambda: None


@dataclass(frozen=True)
class Gate:
    """A sandbox that a program starts behind: the descriptors that it inherits, and `ready`, which is called when it is
    complete, before the program and the clock start. `is_open`: there is no sandbox, but OPEN_GATE."""

    files: Sequence[int] = ()
    ready: Callable[[], None] = lambda: None
    is_open: bool = False


def run_program(
    arguments: Sequence[str],
    limits: Limits,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    account: Account | None = None,
    gate: Gate | None = None,
    removed: Path | None = None,
) -> Run:
    """Run a program to its end, or kill it at its limits; its descendants are killed in any case.

    The clock stops when the last of its processes has ended: what one of them does behind the program's end counts. It
    runs as the user of `account`, if that is given. With a `gate`, GATE or OPEN_GATE is part of the command. If this
    process is killed meanwhile, the folder `removed` is removed, too.

    The kernel counts as a process's peak of memory also that of the process it was started from, before its own
    program (exec). So behind an open gate it is not started from this one, which is large, but from a small one that
    ends at once (`_launcher`); a sandbox starts it from one of its own.

    Raises StartError if it cannot be started, ProgramError if its descendants cannot be killed or it changed this
    process's limits; GateError if GATE is not reached, MachineError for lack of memory or the like.
    """
    state, segments = selfguard.snapshot(), shared_segments()
    if not gate or gate.is_open:
        selfguard.stand_by()  # before it is among the processes that the program leaves
    changed: list[str] = []
    with _blaming(changed), _StderrPipe() as stderr, _GateSocket() as door, adopted_descendants() as children:
        try:
            start = time.monotonic()
            with SignalsDeferred():
                stdin = door.theirs if gate else subprocess.DEVNULL
                launcher = _launcher() if gate and gate.is_open else ()
                words = [*launcher, *arguments]
                process = _start(words, limits, env, cwd, account, stdin, stderr.writer, gate.files if gate else ())
                stderr.close_writer()
                own_peak, pid = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process.pid
                if not gate:
                    _bound(pid, limits)
                    selfguard.kill_when_we_die(pid, removed)
            if gate:
                reached = door.wait(stderr)
                with SignalsDeferred():
                    if gate.is_open:
                        pid = reached
                        selfguard.kill_when_we_die(pid, removed)
                    if launcher:
                        process.wait()  # then this process has adopted the other
                    _bound(pid, limits)
                gate.ready()
                start = door.open()
            ended, excess = _wait(pid, start, limits, stderr, children)
            wall = time.monotonic() - start
        finally:
            with SignalsDeferred():
                changed += selfguard.restore(state)
                try:
                    children.sweep()
                finally:
                    selfguard.kill_when_we_die(None)
                    changed += selfguard.restore(state)
        stderr.drain()
        remove_new_segments(segments, children.reaped)
    exit_code = os.waitstatus_to_exitcode(children.reaped[pid][0])
    process.returncode = exit_code  # so that Popen does not wait for it
    if changed:
        raise _limits_changed(changed)
    usages = [usage for _, usage in children.reaped.values()]
    # What was started from this process itself has a peak of at least this one's.
    peaks = {number: usage.ru_maxrss for number, (_, usage) in children.reaped.items()}
    known = [peak for number, peak in peaks.items() if number != process.pid or peak > own_peak]
    return Run(
        wall=max(wall, children.last_end - start) if ended else wall,
        killed=not ended and excess is None,
        exit_code=exit_code,
        user=sum(usage.ru_utime for usage in usages),
        system=sum(usage.ru_stime for usage in usages),
        peak_rss=max(known) << 10 if known else None,
        stderr=stderr.text(),
        excess=excess,
    )


@contextmanager
def _blaming(changed: Sequence[str]) -> Iterator[None]:
    """What this process cannot do is the program's fault if it has changed this process's limits: with few open files
    a process may be unable to wait for its child."""
    try:
        yield
    except (OSError, MachineError):
        if changed:
            raise _limits_changed(changed) from None
        raise


def _limits_changed(names: Sequence[str]) -> ProgramError:
    return ProgramError(f"it changed the judge's own limits while it ran: {', '.join(dict.fromkeys(names))}")


def run_with_descendants(
    command: Sequence[str],
    env: Mapping[str, str],
    stderr: int | None = subprocess.PIPE,
    timeout: float | None = None,
) -> tuple[bytes, bytes, int]:
    """Run a program to its end, in a session of its own: its stdout, its stderr and its status. On Ctrl-C, and after
    `timeout` seconds, all of the session ends, first asked to, then killed. `stderr` None is that of this process.

    Raises OSError if it cannot be started, TimeoutExpired if it takes too long.
    """
    with ExitStack() as stack:
        with SignalsDeferred():  # an interrupt on the way out of Popen would leave it running
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=env,
                start_new_session=True,
            )
            stack.enter_context(process)
            stack.push(lambda exception, *_: _end_session(process) if exception else None)
        printed, messages = process.communicate(timeout=timeout)
    return printed, messages or b"", process.returncode


def _end_session(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def _start(
    arguments: Sequence[str],
    limits: Limits,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    account: Account | None,
    stdin: int,
    stderr: int,
    files: Sequence[int],
) -> subprocess.Popen[bytes]:
    """Start a process with limits, soft ones, inherited from its first instant.

    Raises StartError if it cannot be started, MachineError if no process can.
    """
    old = {limit: resource.getrlimit(limit) for limit in _bounds(limits)}
    try:
        for limit, value in _bounds(limits).items():
            resource.setrlimit(limit, (value, old[limit][1]))
        with DefaultSignalsForChildren():
            process = subprocess.Popen(
                arguments,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=files,
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
    return process


def _bounds(limits: Limits) -> dict[int, int]:
    """The values of the kernel's limits, as far as this process may set them."""
    wanted = {resource.RLIMIT_CORE: 0}
    if limits.max_file is not None:
        wanted[resource.RLIMIT_FSIZE] = limits.max_file
    hard = {limit: resource.getrlimit(limit)[1] for limit in wanted}
    return {
        limit: value if hard[limit] == resource.RLIM_INFINITY else min(value, hard[limit])
        for limit, value in wanted.items()
    }


def _bound(pid: int, limits: Limits) -> None:
    """Make a process's limits hard ones, and let it be the first to be killed where memory runs out."""
    with suppress(OSError):  # it has ended, or is a setuid program
        for limit, value in _bounds(limits).items():
            resource.prlimit(pid, limit, (value, value))
    selfguard.prefer_for_oom_kill(pid)


def _launcher() -> tuple[str, ...]:
    """The beginning of a command that starts the rest of it in a session of its own, and ends; () if this machine has
    none (util-linux's setsid)."""
    program = shutil.which("setsid")
    try:
        return (program, "--fork") if program and _forks(program) else ()
    except (OSError, subprocess.TimeoutExpired):  # another time, perhaps
        return ()


@cache
def _forks(program: str) -> bool:
    """Whether this setsid knows --fork."""
    return subprocess.run([program, "--fork", "true"], capture_output=True, timeout=30).returncode == 0


def _wait(
    pid: int, start: float, limits: Limits, stderr: "_StderrPipe", children: Descendants
) -> tuple[bool, str | None]:
    """Wait for a process and read its stderr; whether it has ended, or else what it wrote too much of. A pidfd wakes at
    once, where Popen.wait(timeout) polls. Adopted descendants that end meanwhile are reaped."""
    deadline = start + limits.kill_at
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(stderr.reader, select.POLLIN)
        look_at = start + LOOK_SECONDS
        while (left := deadline - (now := time.monotonic())) > 0:
            if now >= look_at:
                if excess := limits.excess():
                    return False, excess
                children.reap(children.members() - {pid})
                look_at = time.monotonic() + LOOK_SECONDS
            ready = {number for number, _ in poll.poll(min(left, max(0, look_at - now)) * 1000 + 1)}
            if descriptor in ready:
                return True, None
            if stderr.reader in ready and not stderr.read():
                poll.unregister(stderr.reader)
        return False, None
    finally:
        os.close(descriptor)


class _StderrPipe:
    """A pipe for a process's stderr, of which the end is kept."""

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
        """Take what is left, but not for ever: a writer that cannot be killed may go on."""
        for _ in range(16):
            if not self.read():
                return

    def text(self) -> str:
        """The end of the stderr."""
        return self._kept.decode(errors="replace")


class _GateSocket:
    """The two ends of the socket to GATE."""

    def __enter__(self) -> Self:
        self._ours, self._theirs = socket.socketpair()
        self.theirs = self._theirs.fileno()
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._theirs.close()

    def wait(self, stderr: _StderrPipe) -> int:
        """Wait until GATE is reached; the number that OPEN_GATE reports. GateError if it is not."""
        self._theirs.close()
        self._ours.settimeout(GATE_SECONDS)
        line = b""
        with suppress(OSError):  # it took too long, or ended just now
            while not line.endswith(b"\n") and (part := self._ours.recv(64)):
                line += part
        if not line.endswith(b"\n"):
            stderr.drain()
            raise GateError(stderr.text().strip().rpartition("\n")[2] or "it printed nothing")
        return int(line.strip() or 0)

    def open(self) -> float:
        """Open it; the time of that."""
        start = time.monotonic()
        with suppress(OSError):  # it ended just now, as will be seen
            self._ours.send(b"\n")
        return start
