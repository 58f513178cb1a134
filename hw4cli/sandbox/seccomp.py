"""The system calls that judged programs may make: a filter for seccomp(2), written as classic BPF.

A namespace hides files and processes; the filter closes what namespaces leave open: the sandbox's own first process
(its memory, its open files, its priority), the user's keyrings, further namespaces and mounts, files that would run
as their owner (setuid), and kernel interfaces that no program of this assignment needs. All other calls are allowed,
those of a program upon its own processes and threads too.
"""

import errno
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hw4cli.errors import MachineError

# The numbers of the calls, as the kernel's unistd.h has them; from 424 on all machines have the same.
COMMON = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429},
    **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_open": 434, "clone3": 435},
    **{"openat2": 437, "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "fchmodat2": 452},
    **{"setxattrat": 463, "open_tree_attr": 467},
}
X86_64 = {
    **{"open": 2, "socket": 41, "clone": 56, "creat": 85, "chmod": 90, "fchmod": 91, "ptrace": 101, "syslog": 103},
    **{"mknod": 133, "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144, "pivot_root": 155},
    **{"chroot": 161, "mount": 165, "umount2": 166, "quotactl": 179, "setxattr": 188, "lsetxattr": 189},
    **{"fsetxattr": 190, "sched_setaffinity": 203, "add_key": 248, "request_key": 249, "keyctl": 250},
    **{"ioprio_set": 251, "migrate_pages": 256, "openat": 257, "mknodat": 259, "fchmodat": 268, "unshare": 272},
    **{"move_pages": 279, "perf_event_open": 298, "prlimit64": 302, "open_by_handle_at": 304, "setns": 308},
    **{"process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "sched_setattr": 314, "bpf": 321},
    **{"userfaultfd": 323, **COMMON},
}
AARCH64 = {
    **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "ioprio_set": 30, "mknodat": 33, "umount2": 39, "mount": 40},
    **{"pivot_root": 41, "chroot": 51, "fchmod": 52, "fchmodat": 53, "openat": 56, "quotactl": 60, "unshare": 97},
    **{"syslog": 116, "ptrace": 117, "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122},
    **{"setpriority": 140, "socket": 198, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220},
    **{"migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "prlimit64": 261, "open_by_handle_at": 265},
    **{"setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "sched_setattr": 274},
    **{"bpf": 280, "userfaultfd": 282, **COMMON},
}
# A machine's calls, and its number among the kernel's architectures (AUDIT_ARCH).
MACHINES = {"x86_64": (X86_64, 0xC000003E), "aarch64": (AARCH64, 0xC00000B7)}

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of BPF, with constants (K)
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
X32 = 0x40000000  # this bit in a call's number on x86-64 asks for another table of calls

NEW_NAMESPACES = 0x7E020080  # CLONE_NEW...
SETS_ID = 0o6000  # the permission bits setuid and setgid
CREATES = 0o20000100  # O_CREAT and O_TMPFILE: only then open has a mode
PROCESS, IO_PROCESS = 0, 1  # PRIO_PROCESS, IOPRIO_WHO_PROCESS
FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK


@dataclass(frozen=True)
class Test:
    """A test of the low 32 bits of an argument; so many has the kernel's own type of each that is tested here."""

    argument: int
    instruction: int
    value: int
    wanted: bool = True


@dataclass(frozen=True)
class Refusal:
    """A call that fails with an error if all its tests hold; without tests, always."""

    call: str
    error: int = errno.EPERM
    tests: tuple[Test, ...] = ()


def _of_first_process(call: str, argument: int = 0) -> Refusal:
    """The first process of the sandbox has the number 1 in its namespace, and no other one can be made."""
    return Refusal(call, tests=(Test(argument, EQUAL, 1),))


def _with_bits(call: str, argument: int, bits: int, *further: Test) -> Refusal:
    return Refusal(call, tests=(Test(argument, ANY_BIT, bits), *further))


_FIRST_PROCESS = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "prlimit64")
_NEVER = (
    *("add_key", "request_key", "keyctl"),
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "setns", "open_by_handle_at", "quotactl", "quotactl_fd"),
    *("pidfd_getfd", "bpf", "perf_event_open", "userfaultfd", "syslog"),
)
# Programs try something else where the kernel lacks these: the arguments of two are in memory, which a filter does not
# see, and io_uring makes calls that it would not see either.
_MISSING = ("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register")
REFUSALS = (
    *map(Refusal, _NEVER),
    *(Refusal(call, errno.ENOSYS) for call in _MISSING),
    *(Refusal(call, errno.ENOTSUP) for call in ("setxattr", "lsetxattr", "fsetxattr", "setxattrat")),
    *map(_of_first_process, (*_FIRST_PROCESS, "pidfd_open", "process_vm_readv", "process_vm_writev", "kcmp")),
    *map(_of_first_process, ("migrate_pages", "move_pages")),
    *(_of_first_process(call, argument=1) for call in ("ptrace", "kcmp", "setpriority", "ioprio_set")),
    # Of a process group or of all the user's processes: the first process may be one of them.
    Refusal("setpriority", tests=(Test(0, EQUAL, PROCESS, wanted=False),)),
    Refusal("ioprio_set", tests=(Test(0, EQUAL, IO_PROCESS, wanted=False),)),
    _with_bits("unshare", 0, NEW_NAMESPACES),
    _with_bits("clone", 0, NEW_NAMESPACES & ~0xFF),  # the lowest byte is a signal's number there
    *(_with_bits(call, 1, SETS_ID) for call in ("chmod", "fchmod", "creat", "mknod")),
    *(_with_bits(call, 2, SETS_ID) for call in ("fchmodat", "fchmodat2", "mknodat")),
    _with_bits("open", 2, SETS_ID, Test(1, ANY_BIT, CREATES)),
    _with_bits("openat", 3, SETS_ID, Test(2, ANY_BIT, CREATES)),
    Refusal("socket", errno.EAFNOSUPPORT, tuple(Test(0, EQUAL, family, wanted=False) for family in FAMILIES)),
)


@cache
def program(machine: str = platform.machine()) -> bytes:
    """The filter for a machine, as bwrap --seccomp reads it. MachineError for a machine whose calls are not known."""
    if machine not in MACHINES:
        raise MachineError(f"the sandbox knows the system calls of {' and '.join(MACHINES)}, not of {machine}")
    calls, architecture = MACHINES[machine]
    # Another architecture's calls have other numbers; a 64-bit kernel has those of 32 bits besides.
    start = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), _error(errno.ENOSYS), (LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        start += [(AT_LEAST, 0, 1, X32), _error(errno.ENOSYS)]
    blocks: dict[int, list[tuple[int, int, int, int]]] = {}
    for refusal in REFUSALS:
        if refusal.call in calls:
            blocks.setdefault(calls[refusal.call], []).extend(_checked(refusal))
    for number, block in blocks.items():
        start += [(EQUAL, 0, len(block) + 1, number), *block, (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in [*start, (RETURN, 0, 0, ALLOW)])


def _checked(refusal: Refusal) -> Sequence[tuple[int, int, int, int]]:
    """Instructions that return the error if all tests hold, and else go on behind themselves."""
    found = []
    for number, test in enumerate(refusal.tests):
        # Instructions from here to the end: two for each further test, and the error.
        behind = 2 * (len(refusal.tests) - number - 1) + 1
        jumps = (0, behind) if test.wanted else (behind, 0)
        found += [(LOAD, 0, 0, ARGUMENTS + 8 * test.argument), (test.instruction, *jumps, test.value)]
    return [*found, _error(refusal.error)]


def _error(number: int) -> tuple[int, int, int, int]:
    return RETURN, 0, 0, ERROR | number
