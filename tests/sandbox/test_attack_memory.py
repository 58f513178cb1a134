"""Programs that fill the memory: they are killed, and the judge is not; and the judge's count of free memory."""

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from attacks import arena, done_by, has_capability, needs_bwrap
from helpers import wait_until
from slow import quick_of_each

from hw4cli.judge.plan import RunSettings
from hw4cli.judge.runcase import judge_case
from hw4cli.judge.scoring.record import decide
from hw4cli.problem.verdict import Verdict
from hw4cli.sandbox import staging

__all__ = ["arena"]
MB = 1 << 20
SYS_RESOURCE = 24  # the number of the capability

# Private memory; and files in memory without a name, which no process's memory use includes.
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
    """A cgroup with a limit of 200 MB above this process's memory, which counts as the judge's: it is a fork of this
    process, and the kernel chooses by size. In the version of cgroups that the system has."""
    most = 200 * MB + psutil.Process().memory_info().rss
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
            (folder / limit).write_text(str(most))
            (folder / "cgroup.procs").chmod(0o666)
            break
        except OSError:
            folder.rmdir()
    else:
        pytest.skip("no cgroup with a limit of memory can be made here")
    yield folder
    wait_until(lambda: removed(folder))


def removed(folder):
    """Whether a cgroup could be removed: as soon as all processes in it have ended."""
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


@quick_of_each(2)
@pytest.mark.parametrize(
    ("kind", "sandbox"),
    [("private", "none"), ("nameless files", "none"), ("nameless files", "bwrap"), ("many processes", "bwrap")],
)
def test_a_program_that_fills_a_jobs_memory_does_not_kill_the_judge(arena, small_cgroup, kind, sandbox):
    if sandbox == "bwrap":
        needs_bwrap(arena.users[-1])
    programs = [str(arena.program(body, name)) for name, body in (("fill", FILLS[kind]), ("right", "right()"))]
    settings = RunSettings(sandbox=sandbox, run_as=arena.users[-1] if sandbox == "bwrap" else "")

    def work():
        (small_cgroup / "cgroup.procs").write_text(str(os.getpid()))
        return [decide(judge_case(arena.case, [program], arena.cases, settings)) for program in programs]

    found = done_by(arena.judge, work, apart=True)
    assert found[0][0] is Verdict.NA, found
    assert found[1] == (Verdict.AC, "")


def test_a_jobs_free_memory_is_its_limit_less_its_use_without_the_page_cache(tmp_path):
    def cgroup(folder, **files):
        folder.mkdir(parents=True)
        for name, value in files.items():
            (folder / name.replace("__", ".")).write_text(f"{value}\n")

    own = tmp_path / "own"
    new = {"memory__max": 1000 * MB, "memory__current": 700 * MB, "memory__stat": f"anon 5\ninactive_file {200 * MB}"}
    cgroup(tmp_path / "job", **new)
    cgroup(tmp_path / "job" / "step", memory__max="max", memory__current=600 * MB, memory__stat="inactive_file 0")
    own.write_text("0::/job/step\n")
    assert staging._cgroup_free(tmp_path, own) == 500 * MB

    old = {"memory__limit_in_bytes": 300 * MB, "memory__usage_in_bytes": 280 * MB}
    cgroup(tmp_path / "memory" / "old", **old, memory__stat=f"total_inactive_file {10 * MB}")
    own.write_text("4:memory:/old\n0::/job/step\n")
    assert staging._cgroup_free(tmp_path, own) == 30 * MB

    own.write_text("0::/elsewhere\n")
    assert staging._cgroup_free(tmp_path, own) >= 1 << 50


def test_the_reason_of_sigkill_mentions_exhausted_memory(arena):
    reason = arena.judged("os.kill(os.getpid(), 9)")[1]
    assert "signal 9 (SIGKILL), which the system sends where memory runs out" in reason


def test_programs_are_the_first_to_be_killed_when_memory_runs_out(arena):
    """They start with the highest score. In the sandbox they cannot lower it where the judge has the right to say so:
    CUDA needs a /proc that can be written to."""
    lower = "\ntry: open('/proc/self/oom_score_adj', 'w').write('0')\nexcept OSError: pass"
    show = "\ntime.sleep(0.1)\nsys.exit(open('/proc/self/oom_score_adj').read().strip())"
    for user in arena.users:
        assert arena.judged(show, "none", user)[1] == "exit code 1: 1000"
        needs_bwrap(user)
        assert arena.judged(show, "bwrap", user)[1] == "exit code 1: 1000"
        if arena.judge == "root" and has_capability(SYS_RESOURCE):
            assert arena.judged(lower + show, "bwrap", user)[1] == "exit code 1: 1000"
