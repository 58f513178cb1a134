"""Attacks on the judge's process, and by processes: none survives, and the next program runs as the first did."""

import errno
import os
import resource
import time
from pathlib import Path

import pytest
from attacks import IS_ROOT, arena, done_by, has_capability, needs_bwrap
from helpers import wait_until
from slow import quick_of_each, slow_of_each

from hw4cli.judge.plan import RunSettings
from hw4cli.judge.runcase import judge_case
from hw4cli.judge.scoring.record import decide
from hw4cli.problem.verdict import Verdict
from hw4cli.system import process, selfguard, sweep

__all__ = ["arena"]
CAP_SYS_NICE, CAP_SYS_RESOURCE = 23, 24
AC, NA, JE = Verdict.AC, Verdict.NA, Verdict.JE

# Chains of processes: each forks its successor in a new session, and ends. Few, so that tests that run at the same time
# can still start processes; they end by themselves long after processes_naming() has given up waiting for that.
FORK_CHAINS = """
end = time.monotonic() + 90
ready, go = os.pipe()
def flee():
    while time.monotonic() < end:
        if os.fork(): os._exit(0)
        os.setsid()
for _ in range({chains}):
    if os.fork() == 0: os.close(go); os.read(ready, 1); flee(); os._exit(0)
os.close(go)
time.sleep(0.1)
os._exit(0)
"""


@slow_of_each(6)
@quick_of_each(2)
@pytest.mark.parametrize("sandbox", ["none", "processes", "bwrap"])
def test_processes_that_keep_forking_successors_are_all_killed(arena, sandbox):
    if sandbox != "none":
        needs_bwrap()
    start = time.monotonic()
    attempt = arena.attempt(f"right()\n{FORK_CHAINS.format(chains=30)}", sandbox)
    assert decide(attempt) == (AC, "")
    assert time.monotonic() - start - attempt.wall < 60, "the judge waited for the chains to end by themselves"


def test_processes_that_multiply_too_fast_are_the_programs_fault_and_stop_the_next_run(arena, monkeypatch):
    monkeypatch.setattr(sweep, "SWEEP_SECONDS", 0.3)
    end, real = time.monotonic() + 4, sweep.Descendants.members

    def members(family):
        """The real members, and for some seconds another, new one in each call."""
        return real(family) | ({10**7 + int(1e6 * time.monotonic()) % 10**6} if time.monotonic() < end else set())

    monkeypatch.setattr(sweep.Descendants, "members", members)

    def judge_two():
        command = [str(arena.programs / "program" / "hw4")]
        found = [decide(judge_case(arena.case, command, arena.cases, RunSettings())) for _ in range(2)]
        time.sleep(max(0, end - time.monotonic()))
        return [*found, decide(judge_case(arena.case, command, arena.cases, RunSettings()))]

    arena.program("right()")
    first, second, third = done_by(arena.judge, judge_two)
    assert first == (NA, "it leaves processes that multiply faster than they can be killed")
    assert (second[0], "processes of an earlier program still live" in second[1]) == (JE, True)
    assert third == (AC, "")


CHANGES = {
    "limits": (
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))"
    ),
    "priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "scheduling": "os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))",
    "processors": "os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})",
}


def checks_limits():
    """A program that is right if it finds the limits, priority and processors that this process has now."""
    nice, cores = os.getpriority(os.PRIO_PROCESS, 0), len(os.sched_getaffinity(0))
    return (
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 16\n"
        f"assert os.getpriority(os.PRIO_PROCESS, 0) == {nice}; assert len(os.sched_getaffinity(0)) == {cores}\n"
        "assert os.sched_getscheduler(0) == 0; right()"
    )


def two_in_turn(arena, first, second, user=""):
    """The verdicts and reasons of two programs that one judge runs, one after the other."""
    programs = [str(arena.program(body, name)) for body, name in ((first, "first"), (second, "second"))]
    settings = RunSettings(run_as=user)
    work = lambda: [decide(judge_case(arena.case, [one], arena.cases, settings)) for one in programs]  # noqa: E731
    return done_by(arena.judge, work, apart=True)


@pytest.mark.parametrize("how", CHANGES)
def test_changes_of_the_judges_limits_and_priority_are_undone(arena, how):
    first, second = two_in_turn(arena, f"{CHANGES[how]}; right()", checks_limits())
    refused = (NA, "it changed the judge's own limits while it ran: RLIMIT_NOFILE")
    assert first == (refused if how == "limits" else (AC, ""))
    if (arena.judge == "root" and has_capability(CAP_SYS_NICE)) or how in ("limits", "processors"):
        assert second == (AC, "")
    else:
        assert (second[0], "was lowered while a program ran" in second[1]) == (JE, True)


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_program_that_is_faster_than_the_judge_with_its_limits_is_refused_as_well(arena, monkeypatch, earlier):
    """It changes them before the judge opens what it waits with; from the second run on the judge's guard is there."""
    start_it = process._GateSocket.open

    def start_and_be_late(door):
        start = start_it(door)
        wait_until(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 16)
        return start

    def judge_all():
        commands = [[str(arena.program(body, body[:4]))] for body in ("right()", f"{CHANGES['limits']}; right()")]
        judged = lambda command: decide(judge_case(arena.case, command, arena.cases, RunSettings()))  # noqa: E731
        before = [judged(commands[0]) for _ in range(earlier)]
        with monkeypatch.context() as patch:
            patch.setattr(process._GateSocket, "open", start_and_be_late)
            found = judged(commands[1])
        return [*before, found, judged(commands[0])]

    *before, found, after = done_by(arena.judge, judge_all, apart=True)
    assert found == (NA, "it changed the judge's own limits while it ran: RLIMIT_NOFILE")
    assert {*before, after} == {(AC, "")}


def test_a_limit_that_cannot_be_restored_is_not_the_next_programs_fault(arena):
    change = "resource.prlimit(os.getppid(), resource.RLIMIT_MEMLOCK, (1 << 16, 1 << 16))"
    first, second = two_in_turn(arena, change, checks_limits())
    assert first[0] is NA
    assert "it changed the judge's own limits while it ran" in first[1]
    if arena.judge == "root" and has_capability(CAP_SYS_RESOURCE):
        assert second == (AC, "")
    else:
        assert (second[0], "start again (with --resume), in the sandbox" in second[1]) == (JE, True)


@pytest.mark.skipif(not IS_ROOT, reason="only root may run programs as another user")
@pytest.mark.parametrize("arena", ["root"], indirect=True)
@pytest.mark.parametrize("how", CHANGES)
def test_a_program_of_another_user_cannot_change_the_judge(arena, how):
    (verdict, reason), second = two_in_turn(arena, f"{CHANGES[how]}; right()", checks_limits(), "nobody")
    assert (verdict, "PermissionError" in reason) == (NA, True), reason
    assert second == (AC, "")


@pytest.mark.parametrize("sandbox", ["processes", "bwrap"])
def test_a_program_in_a_process_namespace_cannot_reach_the_judge(arena, sandbox):
    body = (
        "for pid in (os.getppid(), *range(2, 40000)):\n"
        " if pid == os.getpid(): continue\n"
        " try: os.setpriority(os.PRIO_PROCESS, pid, 9); resource.prlimit(pid, resource.RLIMIT_NOFILE, (9, 9))\n"
        " except (OSError, ValueError): pass\n"
        "try: os.kill(-1, 9)\nexcept OSError: pass\nright()"
    )
    needs_bwrap()
    before = os.getpriority(os.PRIO_PROCESS, 0), resource.getrlimit(resource.RLIMIT_NOFILE)
    assert arena.judged(body, sandbox) == (AC, "")
    assert (os.getpriority(os.PRIO_PROCESS, 0), resource.getrlimit(resource.RLIMIT_NOFILE)) == before


def without_processes():
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))


def without_files():
    used = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
    few = next(limit for limit in range(1000) if limit - len([number for number in used if number < limit]) == 4)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))


@pytest.mark.parametrize("shortage", [without_processes, without_files])
@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_a_judge_without_processes_or_descriptors_fails_itself_not_the_program(arena, shortage, sandbox):
    if arena.judge == "root" and shortage is without_processes:
        pytest.skip("root may always start a process")
    if sandbox == "bwrap":
        needs_bwrap()
    command = [str(arena.program("right()"))]

    def work():
        settings = RunSettings(sandbox=sandbox)
        assert decide(judge_case(arena.case, command, arena.cases, settings))[0] is AC
        shortage()
        return decide(judge_case(arena.case, command, arena.cases, settings))

    assert done_by(arena.judge, work, apart=True)[0] is JE


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE])
def test_a_failed_fork_is_the_judges_failure(arena, monkeypatch, number):
    command = [str(arena.program("right()"))]

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("hw4cli.system.process.subprocess.Popen", fail)
    monkeypatch.setattr(selfguard, "kill_when_we_die", lambda _: None)
    verdict, reason = arena.judged("", command=command)
    assert (verdict, os.strerror(number) in reason) == (JE, True), reason


def test_shared_memory_segments_of_a_program_are_removed(arena):
    body = (
        "found = libc.shmget(0, 1 << 20, 0o1600)\nassert found >= 0\n"
        "daemon(lambda: libc.shmget(0, 3 << 20, 0o1600))\ntime.sleep(0.2)\nright()"
    )
    before = segments()
    assert arena.judged(body) == (AC, "")
    assert segments() == before


def segments():
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
