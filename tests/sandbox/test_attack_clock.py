"""Attacks on the clock: a program's time runs from its start until the last process of its namespace is gone."""

import pytest
from attacks import arena, needs_bwrap
from slow import few, slow, slow_of_each

from hw4cli.judge.scoring.record import decide
from hw4cli.problem.verdict import Verdict
from hw4cli.sandbox import seccomp

__all__ = ["arena"]
AC = Verdict.AC
OFFSETS = [0.2 + 0.05 * number for number in range(10)]  # seconds of work, most of it behind the end that is reported

# What follows reports the program's end early, and works on in a process that nothing ends yet.
WORK = """
os.setpgid(0, 0)  # whoever kills the group that the sandbox was started in does not end what follows
def work():
    end = time.monotonic() + {seconds}
    while time.monotonic() < end: time.sleep(0.005)
    right()
if os.fork() == 0:
    work(); os._exit(0)
"""
# Writes "exit code 0" where bwrap's first process would, in the event file that the second one waits for. Meanwhile the
# first gets no time: it has the lowest priority on a processor that others use, so that it dies late.
FORGED_END = """
pidfd_open, pidfd_getfd = 434, 438
busy = min(os.sched_getaffinity(0))
for change in (lambda: os.sched_setaffinity(1, {busy}), lambda: os.sched_setscheduler(1, 5, os.sched_param(0))):
    try: change()
    except OSError: pass
for _ in range(3):
    if os.fork() == 0:
        os.sched_setaffinity(0, {busy})
        end = time.monotonic() + 0.7
        while time.monotonic() < end: pass
        os._exit(0)
time.sleep(0.03)
first = libc.syscall(pidfd_open, 1, 0)
for number in range(32):
    taken = libc.syscall(pidfd_getfd, first, number, 0)
    if taken >= 0 and "eventfd" in os.readlink(f"/proc/self/fd/{taken}"):
        os.write(taken, struct.pack("<Q", 1))
        time.sleep(1)
        break
else:
    os._exit(0)
"""
ATTACKS = {
    "forges its end": FORGED_END,
    "ends itself": "os._exit(0)",
    "ends behind a crowd": """
for _ in range(60):
    if os.fork() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        end = time.monotonic() + 0.7
        while time.monotonic() < end: pass
        os._exit(0)
os._exit(0)
""",
    "starves the first process": """
for which, who in ((os.PRIO_PROCESS, 1), (os.PRIO_PGRP, 0), (os.PRIO_USER, os.getuid())):
    try: os.setpriority(which, who, 19)
    except OSError: pass
for _ in range(6):
    if os.fork() == 0:
        end = time.monotonic() + 0.7
        while time.monotonic() < end: pass
        os._exit(0)
os._exit(0)
""",
    "stops the first process": """
os.kill(1, signal.SIGSTOP); os.kill(1, signal.SIGCONT)
os._exit(0)
""",
}


def assert_counted(arena, name, offsets, sandbox, user):
    for seconds in offsets:
        attempt = arena.attempt(WORK.format(seconds=seconds) + ATTACKS[name], sandbox, user)
        verdict, reason = decide(attempt)
        assert verdict is not Verdict.JE, reason
        assert verdict is not AC or attempt.wall >= seconds, (user, seconds, attempt.wall)


@slow_of_each(4)
@slow
@pytest.mark.parametrize("is_filtered", [True, False])
def test_work_behind_a_forged_end_counts_at_ten_offsets(arena, monkeypatch, is_filtered):
    """The filter of system calls refuses what the forgery needs; without it, the clock still runs on."""
    if not is_filtered:
        monkeypatch.setattr(seccomp, "REFUSALS", ())
    seccomp.program.cache_clear()
    try:
        for user in arena.users:
            needs_bwrap(user)
            assert_counted(arena, "forges its end", OFFSETS, "bwrap", user)
    finally:
        seccomp.program.cache_clear()


@slow_of_each(20)
@pytest.mark.parametrize("sandbox", few(["bwrap", "processes", "none"], quick=1))
@pytest.mark.parametrize("name", few([name for name in ATTACKS if "forges" not in name], quick=1))
def test_work_behind_the_reported_end_counts(arena, name, sandbox):
    """An output that was finished so many seconds after the start has at least this time."""
    if sandbox == "none" and name == "stops the first process":
        pytest.skip("without a namespace a program may stop the judge itself: docs/judging.md says so")
    for user in arena.users:
        if sandbox != "none":
            needs_bwrap(user)
        assert_counted(arena, name, OFFSETS[::5], sandbox, user)
