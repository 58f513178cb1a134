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
    start = start_ticks(pid)
    return start is not None and start != int(match["start"])


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None if there is none, or that cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in field 2 may hold blanks; starttime is field 22, counted from field 3 behind the name.
    return int(stat.rpartition(")")[2].split()[19])


@cache
def _machine() -> str:
    host = re.sub(r"\W", "_", os.uname().nodename, flags=re.ASCII)[:HOST_LETTERS] or "_"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")[:12]
        namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:  # no /proc: nobody's end can be known
        boot, namespace = "0" * 12, "0"
    return f"{host}-{boot}-{namespace}"
