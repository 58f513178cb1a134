"""A class of 50 submissions, of which 21 attack: the others get the verdicts that they get alone."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from attacks import IS_ROOT, OVERWRITES, arena, done_by, needs_bwrap
from helpers import set_kill_after
from slow import slow

from hw4cli.judge.classroom import Classroom
from hw4cli.judge.plan import Plan, RunSettings
from hw4cli.judge.scoring import standings
from hw4cli.judge.scoring.record import Rules

__all__ = ["arena"]

TIMES = re.compile(r"\d+\.\d+")

# Programs that attack nothing, and how many hand in one like it.
HONEST = {
    "right": ("right()", 12),
    "wrong": ("open(output, 'wb').write(bytes(2560))", 5),
    "crash": ("ctypes.string_at(0)", 5),
    "silent": ("pass", 4),
    "late": ("time.sleep(2.5); right()", 1),
    "daemon": ("daemon(lambda: time.sleep(100)); right()", 2),
}
FORK_CHAINS = (
    "end = time.monotonic() + 3\nfor _ in range(20):\n if os.fork() == 0:\n"
    "  while time.monotonic() < end:\n   if os.fork(): os._exit(0)\n   os.setsid()\n  os._exit(0)\nos._exit(0)"
)
PROGRAMS = {
    "steals": "steal(answer, *(f'/proc/{pid}/root{answer}' for pid in os.listdir('/proc')))",
    "overwrites": OVERWRITES,
    "forks": FORK_CHAINS,
    "kills": "for pid in (-1, 1, os.getppid(), *range(2, 500)):\n try: os.kill(pid, 9)\n except OSError: pass",
    "fills": "file = open('big', 'wb')\nwhile True: file.write(bytes(1 << 20))",
    "litters": "for n in range(20000): open(f'f{n}', 'w')",
    "stops": "os.kill(os.getpid(), signal.SIGSTOP)",
    "speaks": "sys.exit('bwrap: No permissions to create new namespace')",
    "lowers": "resource.prlimit(os.getppid() or 1, resource.RLIMIT_NOFILE, (9, 9))",
    "talks": "for _ in range(64): os.write(2, b'gpu ' * (1 << 14))\nsys.exit(1)",
    "mounts": "libc.umount2(answer.encode(), 2); libc.mount(None, b'/', None, 0x1020, None); steal(answer)",
    "hides": "file = open('big', 'wb'); os.remove('big'); file.write(bytes(1 << 24)); right('gone'); os.remove('gone')",
    "shares": "libc.shmget(0x1234, 1 << 20, 0o1666)",
    "remembers": "os.memfd_create('big'); open('/dev/shm/left', 'wb').write(bytes(1 << 20))",
}
BUILDS = {
    "loops": "hw4:\n\tln -s hw4 hw4\n",
    "asks": "MAKEFLAGS += -q\nhw4:\n\ttouch hw4\n",
    "piles": "hw4:\n\tfor n in $$(seq 3000); do : > f$$n; done; touch hw4\n",
    "floods": "hw4:\n\thead -c 20000000 /dev/zero > big; touch hw4; sleep 60\n",
    "prints": "hw4:\n\t@echo 'bwrap: Creating new namespace failed' >&2; exit 1\n",
    "robs": "hw4:\n\tcp {answer} answer; printf '\\043!/bin/sh\\ncp answer $$2' > hw4; chmod +x hw4\n",
    "lingers": "hw4:\n\t(sleep 1; echo > hw4) & sleep 600\n",
}


@pytest.fixture
def course(arena, monkeypatch):
    """An arena with a folder `submissions`, and small limits."""
    monkeypatch.setattr("hw4cli.judge.submission.MAX_BUILD_FILES", 1000)
    monkeypatch.setattr("hw4cli.judge.submission.MAX_BUILD_BYTES", 16 << 20)
    monkeypatch.setattr("hw4cli.judge.runcase.TOTAL_SLACK", 64 << 20)
    set_kill_after(monkeypatch, 1.0)
    (arena.base / "submissions").mkdir()
    yield arena


def hand_in(arena, user, program=None, makefile=None):
    """Make a submission with a program of this body, or a Makefile."""
    folder = arena.base / "submissions" / user
    folder.mkdir()
    if program is not None:
        shutil.copy(arena.program(program), folder / "hw4")
    if makefile is not None:
        (folder / "Makefile").write_text(makefile.replace("{answer}", str(arena.answer)))


def judged(arena, output, only=()):
    """The notes, verdicts and reasons of a class that is judged in the sandbox, by root with programs of nobody. A
    failure of the judge is a verdict JE."""
    submissions, results = arena.base / "submissions", arena.base / output
    hidden = (str(submissions), str(results))
    settings = RunSettings(sandbox="bwrap", run_as=arena.users[-1], hidden=hidden)
    cases = [replace(arena.case, limit=2.0)]  # a Python that starts on a busy machine is within it

    def work():
        results.mkdir(exist_ok=True)
        plan = Plan(
            cases, arena.cases, results, settings=settings, submissions=submissions, only=only, build_seconds=2.0
        )
        Classroom(plan).judge()
        return {
            one.user: (
                one.note,
                [("JE", one.note)] * one.session.get("fault", False)
                + [(str(r.verdict), TIMES.sub("", r.reason)) for r in one.results.values()],
            )
            for one in standings.load(results, Rules())
        }

    return done_by(arena.judge, work, apart=True)


@slow
def test_right_submissions_of_a_class_with_attackers_have_the_verdicts_that_they_have_alone(course):
    arena = course
    needs_bwrap(arena.users[-1])
    honest = {f"{name}{copy}": body for name, (body, copies) in HONEST.items() for copy in range(copies)}
    attacks = {**PROGRAMS, **BUILDS}
    assert (len(honest), len(attacks)) == (29, 21)
    for user, body in honest.items():
        hand_in(arena, user, program=body)
    open_to(arena)
    one_of_each = judged(arena, "alone", only=[f"{name}0" for name in HONEST])
    alone = {user: one_of_each[f"{user.rstrip('0123456789')}0"] for user in honest}
    for user, body in attacks.items():
        hand_in(arena, f"{'ahmz'[len(user) % 4]}-{user}", **{"makefile" if user in BUILDS else "program": body})
    open_to(arena)
    before = {path: path.read_bytes() for path in (arena.base / "submissions").rglob("*") if path.is_file()}
    together = judged(arena, "results")
    assert {user: found for user, found in together.items() if user in honest} == alone
    assert {found[1][0][0] for user, found in alone.items() if user.startswith("right")} == {"AC"}
    attackers = {user: found for user, found in together.items() if user not in honest}
    assert len(attackers) == len(attacks)
    for user, (note, results) in attackers.items():
        assert note or results
        assert {verdict for verdict, _ in results} <= {"NA", "TLE", "TLE+"}, (user, results)
    assert {path: path.read_bytes() for path in before} == before
    assert [path for path in arena.base.rglob("*") if "mine" in path.name] == []


def open_to(arena):
    if arena.judge == "a user" and IS_ROOT:
        subprocess.run(["chown", "-R", "nobody", arena.base / "submissions"], check=True)
        arena.base.chmod(0o777)
