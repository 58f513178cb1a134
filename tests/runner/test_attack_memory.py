"""Memory that a program fills: the program dies of it, and not the judge; and the judge counts what there is left."""

import os
import time
from pathlib import Path

import pytest
from attacks import arena, done_by, needs_bwrap

from hw4cli.judge.runcase import Settings, judge_case
from hw4cli.problem.verdict import Verdict
from hw4cli.runner import staging
from hw4cli.scoring.record import decide

__all__ = ["arena"]
MB = 1 << 20

# Private memory, as any program takes it; and memory in files without a name, which no process is seen to have.
FILLS = {
    "private": "blocks = []\nwhile True: blocks.append(b'x' * (1 << 23))",
    "nameless files": (
        "while True:\n file = os.memfd_create('x')\n try:\n  for _ in range(4): os.write(file, bytes(1 << 23))\n"
        " except OSError: pass"
    ),
    "many processes": (
        "for _ in range(4): os.fork()\nblocks = []\nend = time.monotonic() + 30\n"
        "while time.monotonic() < end: blocks.append(b'x' * (1 << 20))"
    ),
}


@pytest.fixture
def small_cgroup():
    """A cgroup of 200 MB that a process can be put into, in whatever version the system has."""
    for place, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = Path(place) / f"hw4-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if not (folder / limit).exists():
            folder.rmdir()
            continue
        try:
            (folder / limit).write_text(str(200 * MB))
            (folder / "cgroup.procs").chmod(0o666)
            break
        except OSError:
            folder.rmdir()
    else:
        pytest.skip("no cgroup with a limit of memory can be made here")
    yield folder
    deadline = time.monotonic() + 10
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:  # somebody is still dying in it
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("kind", "sandbox"),
    [("private", "none"), ("nameless files", "none"), ("nameless files", "bwrap"), ("many processes", "bwrap")],
)
def test_where_a_job_has_little_memory_the_judge_survives_who_fills_it(arena, small_cgroup, kind, sandbox):
    if sandbox == "bwrap":
        needs_bwrap(arena.users[-1])
    programs = [str(arena.program(body, name)) for name, body in (("fill", FILLS[kind]), ("right", "right()"))]
    settings = Settings(sandbox=sandbox, run_as=arena.users[-1] if sandbox == "bwrap" else "")

    def work():
        (small_cgroup / "cgroup.procs").write_text(str(os.getpid()))
        return [decide(judge_case(arena.case, [program], arena.cases, settings)) for program in programs]

    found = done_by(arena.judge, work, apart=True)
    assert found[0][0] is Verdict.NA, found
    assert found[1] == (Verdict.AC, "")


def test_what_is_left_of_a_jobs_memory_is_its_limit_less_what_it_uses(tmp_path):
    def cgroup(folder, **files):
        folder.mkdir(parents=True)
        for name, value in files.items():
            (folder / name.replace("__", ".")).write_text(f"{value}\n")

    own = tmp_path / "own"
    new = {"memory__max": 1000 * MB, "memory__current": 700 * MB, "memory__stat": f"anon 5\ninactive_file {200 * MB}"}
    cgroup(tmp_path / "job", **new)
    cgroup(tmp_path / "job" / "step", memory__max="max", memory__current=600 * MB, memory__stat="inactive_file 0")
    own.write_text("0::/job/step\n")
    assert staging._cgroup_rest(tmp_path, own) == 500 * MB

    old = {"memory__limit_in_bytes": 300 * MB, "memory__usage_in_bytes": 280 * MB}
    cgroup(tmp_path / "memory" / "old", **old, memory__stat=f"total_inactive_file {10 * MB}")
    own.write_text("4:memory:/old\n0::/job/step\n")
    assert staging._cgroup_rest(tmp_path, own) == 30 * MB

    own.write_text("0::/elsewhere\n")
    assert staging._cgroup_rest(tmp_path, own) >= 1 << 50


def test_a_program_that_the_system_kills_is_told_why_it_may_have_been(arena):
    reason = arena.judged("os.kill(os.getpid(), 9)")[1]
    assert "signal 9 (SIGKILL), which the system sends where memory runs out" in reason


def test_where_memory_runs_out_the_program_dies_first(arena):
    """And cannot take it back; nor can an ordinary user's outside of a sandbox begin with less."""
    wish = "\ntry: open('/proc/self/oom_score_adj', 'w').write('0')\nexcept OSError: pass"
    tell = "\ntime.sleep(0.1)\nsys.exit(open('/proc/self/oom_score_adj').read().strip())"
    for user in arena.users:
        assert arena.judged(tell, "none", user)[1] == "exit code 1: 1000"
        needs_bwrap(user)
        assert arena.judged(wish + tell, "bwrap", user)[1] == "exit code 1: 1000"
