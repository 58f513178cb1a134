"""Tokens in the names of temporary files: they name the process that made a file, so that only dead ones' are removed.

A token is HOST-BOOT-NAMESPACE-PID-START, as in gpu07-5e0c1f2a9b3d-4026531836-4711-123456: the host, the random id of
its boot, the namespace of process numbers (a container has its own), the process, and when it started, in clock ticks
since the boot: a number may be given to another process later, but not with the same start. A process of another host,
boot or namespace counts as alive.
"""

import os
import re
from functools import cache
from pathlib import Path

HOST_LETTERS = 24
STATE, THREADS, START = 0, 17, 19  # fields of /proc/PID/stat, counted behind the process's name: proc(5)
TOKEN = rf"(?P<machine>\w{{1,{HOST_LETTERS}}}-[0-9a-f]{{12}}-\d+)-(?P<pid>\d+)-(?P<start>\d+)"


def token() -> str:
    """The token of this process."""
    return f"{_machine()}-{os.getpid()}-{start_ticks(os.getpid()) or 0}"


def is_dead(owner: str) -> bool:
    """Whether the process of a token has certainly ended."""
    match = re.fullmatch(TOKEN, owner)
    if not match or match["machine"] != _machine():
        return False
    pid = int(match["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's, or no process's number
        pass
    fields = _stat(pid)
    return fields is not None and (int(fields[START]) != int(match["start"]) or _is_zombie(fields))


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None if there is none, or that cannot be seen."""
    fields = _stat(pid)
    return None if fields is None else int(fields[START])


def _stat(pid: int) -> list[str] | None:
    """What /proc/PID/stat says of a process, behind its name; None if there is none, or that cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()  # the name may hold blanks


def _is_zombie(fields: list[str]) -> bool:
    """Whether a process has ended and its parent has not asked how: it writes no more, unless a thread outlives the
    main one. Who was killed together with its parent stays one until the first process of the container asks."""
    return fields[STATE] in "ZX" and int(fields[THREADS]) <= 1


@cache
def _machine() -> str:
    host = re.sub(r"\W", "_", os.uname().nodename, flags=re.ASCII)[:HOST_LETTERS] or "_"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")[:12]
        namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:  # no /proc: nobody's end can be known
        boot, namespace = "0" * 12, "0"
    return f"{host}-{boot}-{namespace}"
