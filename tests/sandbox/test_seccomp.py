"""The filter of system calls, tried by programs in the sandbox that make them."""

import errno
import re
from pathlib import Path

import pytest
from attacks import arena, needs_bwrap

from hw4cli.errors import MachineError
from hw4cli.problem.verdict import Verdict
from hw4cli.sandbox import seccomp

__all__ = ["arena"]
AC = Verdict.AC
SANDBOXES = ["bwrap", "processes"]

# Calls that are refused, as (number, arguments): of the first process, of further namespaces and mounts, of keys.
CALLS = seccomp.MACHINES[seccomp.platform.machine()][0]
REFUSED = {
    "ptrace": (0x4206, 1, 0, 0),
    "ptrace with bits that the kernel drops": (16, 1 | 1 << 32, 0, 0),
    "process_vm_readv": (1, 0, 0, 0, 0, 0),
    "process_vm_writev": (1, 0, 0, 0, 0, 0),
    "kcmp": ("os.getpid()", 1, 0, 0, 0),
    "pidfd_open": (1, 0),
    "pidfd_getfd": (0, 0, 0),
    "sched_setaffinity": (1, 128, "bytes([1]) + bytes(127)"),
    "sched_setscheduler": (1, 5, "bytes(4)"),
    "sched_setparam": (1, "bytes(4)"),
    "sched_setattr": (1, "struct.pack('<II40x', 48, 5)", 0),
    "prlimit64": (1, 7, "bytes(16)", 0),
    "setpriority": (0, 1, 19),
    "setpriority of its group": (1, 0, 19),
    "setpriority of its user": (2, "os.getuid()", 19),
    "ioprio_set": (1, 1, 3 << 13),
    "ioprio_set of its user": (3, "os.getuid()", 3 << 13),
    "keyctl": (0, -3, 1),
    "add_key": ("b'user'", "b'hw4'", "b'secret'", 6, -3),
    "request_key": ("b'user'", "b'hw4'", 0, -3),
    "mount": ("b'none'", "b'/tmp'", "b'tmpfs'", 0, 0),
    "umount2": ("b'/tmp'", 2),
    "open_tree": (-100, "b'/tmp'", 1),
    "fsopen": ("b'tmpfs'", 0),
    "move_mount": (-100, "b'/tmp'", -100, "b'/usr'", 0),
    "unshare": (0x10000000,),
    "unshare of the mounts": (0x20000,),
    "clone": (0x10000000 | 17, 0, 0, 0, 0),
    "setns": ("os.open('/proc/self/ns/net', 0)", 0),
    "userfaultfd": (1,),
    "bpf": (0, 0, 0),
    "perf_event_open": ("struct.pack('<II120x', 1, 128)", 0, -1, -1, 0),
    "open_by_handle_at": (-100, "bytes(136)", 0),
    "syslog": (3, "bytes(4096)", 4096),
    "fchmod": ("os.open('.', 0)", 0o4755),
    "fchmodat": (-100, "b'.'", 0o2755),
    "fchmodat2": (-100, "b'.'", 0o6755, 0),
    "chmod": ("b'.'", 0o4755),
    "creat": ("b'x'", 0o4755),
    "open": ("b'x'", 0o102, 0o4755),
    "openat": (-100, "b'x'", 0o102, 0o4755),
    "openat of a file without a name": (-100, "b'.'", 0o20200002, 0o4755),
    "mknodat": (-100, "b'x'", 0o104755, 0),
}
OTHERWISE = {  # the errors that are not EPERM
    "setxattr": (errno.ENOTSUP, ("b'.'", "b'user.x'", "b'1'", 1, 0)),
    "clone3": (errno.ENOSYS, ("bytes(88)", 88)),
    "openat2": (errno.ENOSYS, (-100, "b'.'", "bytes(24)", 24)),
    "io_uring_setup": (errno.ENOSYS, (4, "bytes(120)")),
    "socket": (errno.EAFNOSUPPORT, (38, 5, 0)),
    "socket of the machine's host": (errno.EAFNOSUPPORT, (40, 1, 0)),
}
# What programs with threads, children and debuggers do.
ALLOWED = """
import threading
one = threading.Thread(target=lambda: os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0)))
one.start(); one.join()
assert subprocess.run(["/bin/sh", "-c", "echo $$"], capture_output=True, check=True).stdout
os.setpriority(os.PRIO_PROCESS, 0, 19); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
child = subprocess.Popen(["/bin/sleep", "9"])
os.setpriority(os.PRIO_PROCESS, child.pid, 19); resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (32, 32))
assert libc.ptrace(0x4206, child.pid, 0, 0) == 0, "it may trace its own processes"
os.close(os.pidfd_open(child.pid)); child.kill()
os.mkdir("d"); os.chmod("d", 0o1777); os.close(os.open("mine", os.O_RDWR | os.O_CREAT, 0o755)); os.chmod("mine", 0o700)
socket.socketpair(); socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(); os.memfd_create("x")
assert libc.unshare(0x400) == 0
os.remove("mine"); right()
"""


def call(name, arguments):
    words = ", ".join(f"ctypes.c_long({one})" if isinstance(one, int) else one for one in arguments)
    return f"libc.syscall({CALLS[name.partition(' ')[0]]}, {words})"


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_calls_that_reach_around_the_sandbox_fail(arena, sandbox):
    cases = [(name, errno.EPERM, arguments) for name, arguments in REFUSED.items()]
    cases += [(name, error, arguments) for name, (error, arguments) in OTHERWISE.items()]
    body = "".join(
        f"ctypes.set_errno(0); found = {call(name, arguments)}, ctypes.get_errno()\n"
        f"assert found == (-1, {error}), ({name!r}, found)\n"
        for name, error, arguments in cases
        if name.partition(" ")[0] in CALLS
    )
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(f"{body}right()", sandbox, user) == (AC, "")


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_calls_of_honest_programs_work(arena, sandbox):
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(ALLOWED, sandbox, user) == (AC, "")


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_the_first_process_cannot_be_read_or_written_and_threads_can_be_named(arena, sandbox):
    """CUDA names its threads by files in /proc, and does not start where it cannot."""
    body = """
import threading
started, ended = threading.Event(), threading.Event()
def named():
    started.set(); ended.wait()
other = threading.Thread(target=named); other.start(); started.wait()
open(f"/proc/self/task/{other.native_id}/comm", "w").write("named")
assert open(f"/proc/self/task/{other.native_id}/comm").read() == "named\\n"
ended.set(); other.join()
for name in ("mem", "environ", "cmdline", "root", "fd", "comm", "oom_score_adj"):
    assert not os.path.lexists(f"/proc/1/{name}"), name
right()
"""
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(body, sandbox, user) == (AC, "")


@pytest.mark.parametrize("arena", ["root"], indirect=True)
def test_root_without_privileges_changes_no_setting_of_the_system(arena):
    body = """
changed, tried = [], 0
for folder, folders, files in os.walk("/proc"):
    if folder == "/proc": folders[:] = [name for name in folders if not name.isdigit() and "self" not in name]
    for name in files:
        tried += 1
        try: os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK)); changed.append(name)
        except OSError: pass
assert tried > 500, tried
assert not changed, changed[:9]
right()
"""
    needs_bwrap()
    assert arena.judged(body, "bwrap") == (AC, "")


@pytest.mark.skipif(seccomp.platform.machine() != "x86_64", reason="only x86-64 has two more tables of calls")
def test_the_other_tables_of_calls_are_refused(arena):
    """int 0x80 makes the 32-bit getpid (20), and x32's getpid is 39 with a high bit."""
    body = """
import mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000cd8048 98c3"))
old = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
assert old == -38, old
assert libc.syscall(0x40000000 | 39) == -1 and ctypes.get_errno() == 38
right()
"""
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(body, "bwrap", user) == (AC, "")


@pytest.mark.parametrize(
    ("machine", "header", "prefix"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "__NR_"),
        ("aarch64", "/usr/include/asm-generic/unistd.h", "__NR(?:3264)?_"),
    ],
)
def test_the_numbers_of_calls_are_the_kernels(machine, header, prefix):
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed (Debian, Ubuntu: linux-libc-dev)")
    known = dict(re.findall(rf"#define {prefix}(\w+)\s+(\d+)$", Path(header).read_text(), re.MULTILINE))
    calls = seccomp.MACHINES[machine][0]
    different = {name: number for name, number in calls.items() if name in known and int(known[name]) != number}
    assert not different
    assert len(calls.keys() & known.keys()) > 30


def test_each_refusal_is_of_a_known_call_and_each_filter_is_short_enough():
    assert {one.call for one in seccomp.REFUSALS} == set(seccomp.X86_64)
    assert {one.call for one in seccomp.REFUSALS} >= set(seccomp.AARCH64)
    for machine in seccomp.MACHINES:
        assert 8 * 4096 > len(seccomp.program(machine)) > 800


def test_a_machine_whose_calls_are_not_known_has_no_sandbox():
    with pytest.raises(MachineError, match="knows the system calls of x86_64 and aarch64, not of riscv64"):
        seccomp.program("riscv64")
