"""The judge's own limits and priority while a program runs, and a process that kills the program if the judge dies.

A program of the same user may change its parent's limits (prlimit), priority and processors, and the next program would
inherit them; or it may kill its parent and go on.
"""

import os
import resource
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hw4cli.errors import MachineError, os_error

LIMITS = {name: number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}
del LIMITS["RLIMIT_OFILE"]  # another name of RLIMIT_NOFILE
State = dict[str, Any]

# A shell that reads lines of a process group and a folder. At the end of its input its parent is dead: then it kills
# the last group, and removes the last folder, which the parent would have removed.
WATCH = (
    'trap "" HUP INT TERM; while read -r group folder; do last=$group place=$folder; done; '
    '[ -z "$last" ] || kill -9 "-$last"; [ -z "$place" ] || { sleep 0.1; rm -rf -- "$place"; }'
)

_lost: list[str] = []  # limits that an earlier program lowered and that cannot be raised again
_watch: subprocess.Popen[bytes] | None = None


def snapshot() -> State:
    """The limits, the priority and the processors of this process. MachineError if an earlier program lowered
    them: only root may raise a limit or a priority again."""
    if _lost:
        raise MachineError(
            f"the judge's {', '.join(_lost)} was lowered while a program ran, and cannot be raised again: "
            "start again (with --resume), in the sandbox"
        )
    return _now()


def _now() -> State:
    return {
        **{name: resource.getrlimit(number) for name, number in LIMITS.items()},
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority),
        "processors": os.sched_getaffinity(0),
    }


def restore(before: State) -> list[str]:
    """Restore what has changed since the snapshot; the names of the limits that had changed."""
    changed = [name for name, value in _now().items() if value != before[name]]
    for name in changed:
        with suppress(OSError, ValueError):
            _set(name, before[name])
    now = _now() if changed else before
    _lost.extend(name for name in changed if now[name] != before[name] and name != "processors")
    return [name for name in changed if name in LIMITS]


def _set(name: str, value: Any) -> None:
    if name == "priority":
        os.setpriority(os.PRIO_PROCESS, 0, value)
    elif name == "scheduling":
        os.sched_setscheduler(0, value[0], os.sched_param(value[1]))
    elif name == "processors":
        os.sched_setaffinity(0, value)  # an administrator may have taken some away: those are not restored
    else:
        resource.setrlimit(LIMITS[name], value)


def stand_by() -> None:
    """Start the process that kills a group when this one dies, unless it runs; nothing is to be killed yet.

    Raises MachineError if no process can be started for that.
    """
    global _watch
    if _watch is None or _watch.poll() is not None:
        try:
            _watch = subprocess.Popen(
                ["/bin/sh", "-c", WATCH],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise os_error(error, "start a process") from None
        prefer_for_oom_kill(_watch.pid)  # rather than the judge
    kill_when_we_die(None)


def kill_when_we_die(group: int | None, folder: Path | None = None) -> None:
    """Let this group of processes be killed when this process dies, even by SIGKILL, and a folder be removed; None: no
    group any more. The program may end this guard, too, if it runs as our user.

    Raises MachineError if no process can be started for that.
    """
    if group is not None and (_watch is None or _watch.poll() is not None):
        stand_by()
    if _watch is None:
        return
    assert _watch.stdin is not None
    with suppress(BrokenPipeError):
        place = b"" if folder is None or "\n" in str(folder) else os.fsencode(folder)
        os.write(_watch.stdin.fileno(), b"\n" if group is None else b"%d %s\n" % (group, place))


def prefer_for_oom_kill(pid: int, tries: int = 50) -> None:
    """If memory runs out, the kernel kills this process and those that it has started before any other."""
    for _ in range(tries):
        try:
            with open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file:  # noqa: PTH123
                file.write(b"1000")
            break
        except PermissionError:  # it is between fork and exec, and still not dumpable
            time.sleep(0.0002)
        except OSError:  # it has ended
            return
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123
        for child in file.read().split():
            prefer_for_oom_kill(int(child), tries=1)  # or inherit it
