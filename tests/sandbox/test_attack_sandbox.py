"""Programs that try to break out of the sandbox, judged by root and by a user: none is accepted."""

import os
import socket
from pathlib import Path

import pytest
from attacks import IS_ROOT, arena, needs_bwrap
from slow import quick_of_each

from hw4cli.problem.verdict import Verdict

__all__ = ["arena"]
AC, NA, JE = Verdict.AC, Verdict.NA, Verdict.JE
MOUNTS = "[line.split()[4] for line in open('/proc/self/mountinfo')]"
# open_by_handle_at(2) on the handle of a file system's root, and from there to the answer, as the exploit "shocker".
BY_HANDLE = """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
for place in ("/", "/etc", "/usr", "/tmp", "/dev/shm", "/proc"):
    there = os.open(place, os.O_RDONLY)
    for number in (2, 128, 256):
        handle = Handle(8, 1, (ctypes.c_ubyte * 128)(*struct.pack("<II", number, 0)))
        libc.open_by_handle_at.restype = ctypes.c_int
        found = libc.open_by_handle_at(there, ctypes.byref(handle), os.O_RDONLY)
        if found >= 0:
            steal(f"/proc/self/fd/{found}{answer}")
            right()
"""
# How an unprivileged user gets privileges over mounts.
OWN_NAMESPACE = """
uid, gid = os.getuid(), os.getgid()
if libc.unshare(0x10000000 | 0x20000) == 0:
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        try:
            open(f"/proc/self/{name}", "w").write(text)
        except OSError:
            pass
"""
UNMOUNT = f"""
for place in sorted({MOUNTS}, key=len, reverse=True):
    if place not in ("/proc", os.getcwd()):
        libc.umount2(place.encode(), 2)
steal(answer)
"""
REMOUNT = f"""
for place in {MOUNTS}:
    if place in (os.getcwd(), "/tmp", "/dev/shm"):
        continue
    libc.mount(None, place.encode(), None, 0x20 | 0x1000, None)
    try:
        open(os.path.join(place, "hw4-escaped"), "w").close()
        os.remove(os.path.join(place, "hw4-escaped"))
        right()
    except OSError:
        pass
steal(answer)
"""
BREAKOUTS = {
    "looks for the answer": "steal(answer, *(f'/proc/{pid}/root{answer}' for pid in os.listdir('/proc')))",
    "looks at the judge": "steal(*(f'/proc/{os.getppid()}/{name}/tiny.out' for name in ('cwd', 'root')))",
    "looks in its open files": "steal(*(f'/proc/self/fd/{n}' for n in range(3, 64)))",
    "unmounts what hides the answer": UNMOUNT,
    "mounts everything writable": REMOUNT,
    "opens by handle": BY_HANDLE,
    "unmounts in a namespace of its own": OWN_NAMESPACE + UNMOUNT,
    "mounts in a namespace of its own": OWN_NAMESPACE + REMOUNT,
    "opens by handle in a namespace of its own": OWN_NAMESPACE + BY_HANDLE,
    "joins the judge's namespaces": (
        "for name in ('mnt', 'user', 'pid'):\n for pid in (1, os.getppid()):\n  try: libc.setns("
        "os.open(f'/proc/{pid}/ns/{name}', os.O_RDONLY), 0)\n  except OSError: pass\nsteal(answer)"
    ),
    "leaves by chroot": "libc.chroot(b'.'); os.chdir('..')\nfor _ in range(64): os.chdir('..')\nsteal('.' + answer)",
    "makes a device of the disk": (
        "for major, minor in ((8, 0), (254, 0), (259, 0), (1, 1)):\n try: os.mknod('disk', 0o60600, os.makedev(major, "
        "minor)); open('disk', 'rb').read(1); right()\n except OSError: pass"
    ),
    "writes the system's settings": (
        "for name in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper'):\n"
        " try: open(name, 'r+').write(''); right()\n except OSError: pass"
    ),
    "reads root's secrets": "open('/etc/shadow').read()" if not IS_ROOT else "pass",
    "kills everyone": "os.kill(-1, signal.SIGKILL)",
    "prints what bwrap would": "sys.exit('bwrap: Creating new namespace failed: Operation not permitted')",
    "prints what bwrap would of it": "sys.exit(f'bwrap: execvp {sys.argv[0]}: No such file or directory')",
}


@quick_of_each(10)
@pytest.mark.parametrize("name", BREAKOUTS)
def test_no_breakout_from_the_sandbox_succeeds(arena, name):
    for user in arena.users:
        needs_bwrap(user)
        verdict, reason = arena.judged(BREAKOUTS[name], "bwrap", user)
        assert verdict is NA, (user, reason)


def test_a_right_program_is_accepted_in_the_sandbox(arena):
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged("right()", "bwrap", user) == (AC, "")


CLASSMATE = "steal({mate!r})\nif not os.path.exists(output): os.execv({mate!r}, [{mate!r}, source, output])"


def test_an_interpreter_outside_the_sandbox_is_not_visible(arena):
    """The first line of a student's program may name another student's build."""
    mate = arena.program("right()", "mate")
    mate.parent.chmod(0o755)
    thief = arena.program("", "thief")
    for line in (f"#!{mate}", f"#!/usr/bin/env {mate}", f"#!/bin/sh {mate}"):
        thief.write_text(f"{line}\n")
        for user in arena.users:
            needs_bwrap(user)
            verdict, reason = arena.judged("", "bwrap", user, command=[str(thief)])
            assert verdict is NA, reason
    thief.write_text(f"#!{mate}\n")
    reason = arena.judged("", "bwrap", command=[str(thief)])[1]
    assert reason == f"{thief} cannot be started: its first line names {mate}, which is not shown to it"


@pytest.fixture
def course_in_the_system(arena, monkeypatch):
    """The arena lies in a folder that the sandbox shows, like /opt."""
    from hw4cli.sandbox import sandbox

    monkeypatch.setattr(sandbox, "SYSTEM", (*sandbox.SYSTEM, str(arena.base)))
    return arena


@quick_of_each(2)
@pytest.mark.parametrize("name", ["looks for the answer", "unmounts what hides the answer", "opens by handle"])
def test_cases_results_and_submissions_are_hidden_even_in_a_system_folder(course_in_the_system, name):
    arena = course_in_the_system
    mate = arena.program("right()", "mate")
    link = arena.base / "alias"
    link.symlink_to(arena.programs)
    body = f"{BREAKOUTS[name]}\n{CLASSMATE.format(mate=str(mate))}"
    for user in arena.users:
        needs_bwrap(user)
        verdict, reason = arena.judged(body, "bwrap", user, hidden=(str(link),))
        assert (verdict, "No such file or directory" in reason) == (NA, True), reason
        assert arena.judged("right()", "bwrap", user, hidden=(str(link),)) == (AC, "")


@quick_of_each(2)
@pytest.mark.parametrize("name", ["looks for the answer", "unmounts what hides the answer"])
@pytest.mark.parametrize("place", ["beside", "above"])
def test_answers_beside_or_below_the_program_are_hidden(arena, place, name):
    beside = arena.cases / "hw4" if place == "beside" else arena.base / "hw4"
    needs_bwrap()
    try:
        for body, verdict in ((BREAKOUTS[name], NA), ("right()", AC)):
            arena.program(body).rename(beside)
            assert arena.judged("", "bwrap", command=[str(beside)])[0] is verdict
    finally:
        beside.unlink()


def test_a_program_cannot_write_to_the_sandboxs_own_file_systems(arena):
    """A writable file system in memory would be outside of all quotas."""
    body = (
        "for place in ('/', '/dev', '/proc', '/run', '/usr'):\n"
        " try: open(os.path.join(place, 'mine'), 'w'); sys.exit(place)\n"
        " except OSError: pass\n"
        "open('/tmp/mine', 'w'); open('/dev/shm/mine', 'w'); right()"
    )
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(body, "bwrap", user) == (AC, "")


def test_terminals_sockets_network_and_shared_memory_are_unreachable(arena):
    """A tmux server's socket is in /tmp, an X server's is abstract; a process that may open a terminal can type."""
    needs_bwrap()
    ours, theirs = os.openpty()
    unix, internet = socket.AF_UNIX, socket.AF_INET
    with socket.socket(unix) as plain, socket.socket(unix) as abstract, socket.socket(internet) as local:
        plain.bind(str(arena.base / "tmux"))
        abstract.bind(f"\0{arena.base}")
        local.bind(("127.0.0.1", 0))
        (arena.base / "tmux").chmod(0o777)
        for listener in (plain, abstract, local):
            listener.setblocking(False)
            listener.listen()
        tty = os.ttyname(theirs)
        Path(tty).chmod(0o666)
        body = f"""
for family, name in ((1, {str(arena.base / "tmux")!r}), (1, "\\0{arena.base}"), (2, {local.getsockname()})):
    try: socket.socket(family).connect(name); right()
    except OSError: pass
for name in ({tty!r}, "/dev/tty", "/dev/pts/0", "/dev/pts/1"):
    try:
        terminal = os.open(name, os.O_RDWR)
        os.write(terminal, b"seen"); right()
        fcntl.ioctl(terminal, 0x5412, b"x")
    except OSError: pass
libc.shmget(0x1234, 5 << 20, 0o1666)
"""
        for user in arena.users:
            assert arena.judged(body, "bwrap", user) == (NA, "no output file")
        for listener in (plain, abstract, local):
            with pytest.raises(BlockingIOError):  # no connection was made
                listener.accept()
    for handle in (ours, theirs):
        os.close(handle)
    assert "5242880" not in Path("/proc/sysvipc/shm").read_text()
    (arena.base / "tmux").unlink()
