"""A made-up class of 40: one command judges it, one prints the gradebook, one finds the two copies, every verdict is as
decided beforehand, and nothing of anyone's is lost, whenever any of this is interrupted.

The compiler is a stand-in for nvcc that compiles on the host, so that the programs really compute."""

import json
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from course import HOLE, check, command, make_course, source
from helpers import run_hw4, start_hw4, wait_until
from needs import needs
from slow import slow

from hw4cli.judge.scoring import journal

pytestmark = [needs("g++"), slow]

# A stand-in for nvcc: it wants the words that are the judge's default, and compiles the text as C++, each text once:
# most hand in the same, and are judged again and again.
NVCC = """#!/bin/sh
case " $* " in
    *" -arch=sm_61 "*) echo "nvcc fatal   : Unsupported gpu architecture 'sm_61'" >&2; exit 1;;
esac
for word in "$@"; do
    case $word in *.cu) source=$word;; esac
done
made="$(dirname "$0")/made-$(cksum <"$source" | tr ' ' -)"
if [ ! -e "$made" ]; then
    g++ -x c++ -O1 "$source" -o "$made.$$" && mv "$made.$$" "$made" || exit 1
fi
cp "$made" hw4
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The class's folder, the course's cases, and a PATH on which nvcc is the stand-in."""
    base = tmp_path_factory.mktemp("course")
    students = make_course(base)
    (base / "bin").mkdir()
    (base / "bin" / "nvcc").write_text(NVCC)
    (base / "bin" / "nvcc").chmod(0o755)
    env = {"PATH": f"{base / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(base / "cache")}
    return base, students, env


def test_one_command_judges_the_class_and_one_prints_the_gradebook(course):
    base, students, env = course
    output = base / "whole"
    result = run_hw4(*command(base, output), env=env, timeout=1500)
    assert result.returncode == 3, "one archive is of a kind that is not unpacked" + result.stderr
    said = " ".join(result.stderr.split())
    assert "no answer in" in said and "for last: computed in float64" in said and "rar.rar is no zip" in said
    check(base, students, output, env)
    log = (output / "pascal" / "build.txt").read_text()
    assert "Unsupported gpu architecture 'sm_61'" in log
    board = {one["user"]: one for one in json.loads((output / "results.json").read_text())["standings"]}
    assert board["pascal"]["note"] == "make hw4 failed: nvcc fatal   : Unsupported gpu architecture 'sm_61'"
    assert "$ " in (output / "copy-a" / "build.txt").read_text().splitlines()[0]
    assert "-O3 -std=c++14 -arch=native hw4.cu -o hw4" in (output / "copy-a" / "build.txt").read_text()
    assert (output / "copy-a" / "build" / "hw4").read_bytes()[:4] == b"\x7fELF"


def starter(base):
    """The course's own program, which most handed in, in a folder."""
    folder = base / "starter"
    folder.mkdir(exist_ok=True)
    (folder / "hw4.cu").write_text(source())
    return folder


def test_the_two_copies_are_the_top_pair(course):
    base, students, env = course
    result = run_hw4("similar", base / "export", "--exclude", starter(base), "--json", env=env)
    assert result.returncode == 3, "one archive is of a kind that is not unpacked" + result.stderr
    found = json.loads(result.stdout)
    assert [(one["first"], one["second"], one["similarity"]) for one in found["pairs"]] == [("copy-a", "copy-b", 100)]
    assert {one["label"] for one in found["submissions"]} == {"copy-a", "copy-b", "Ünal Şen"}
    assert {one["label"] for one in found["submissions"]} | found["not_compared"].keys() == students.keys()
    without = json.loads(run_hw4("similar", base / "export", "--json", env=env).stdout)
    pairs = {(one["first"], one["second"]) for one in without["pairs"]}
    assert ("copy-a", "copy-b") in pairs and ("copy-a", "crlf") not in pairs and ("crlf", "nested") in pairs


def runs_of(output):
    """How many runs each student's journals have of each case."""
    found = {}
    for path in output.glob("*/journal.jsonl"):
        for _, attempt in journal.read(path).runs:
            found[path.parent.name, attempt.case] = found.get((path.parent.name, attempt.case), 0) + 1
    return found


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_nothing_of_anyones_is_lost_when_it_is_interrupted_at_any_point(course, kind):
    """Interrupted after some lines of the journals and at some moment behind, all drawn at random, and resumed: each
    run that was recorded stays the only one. At the end, while the results are written, it is interrupted, too."""
    base, students, env = course
    drawn = random.Random(kind.name)
    output, interruptions = base / f"interrupted-{kind.name}", 0

    def lines():
        return sum(path.read_bytes().count(b"\n") for path in output.glob("*/journal.jsonl"))

    for _ in range(5):
        before, recorded = lines(), runs_of(output)
        words = command(base, output) + (["--resume"] if before else [])
        process = start_hw4(*words, env=env)
        enough = before + drawn.randrange(1, 30)
        wait_until(lambda: lines() >= enough or process.poll() is not None)  # noqa: B023
        time.sleep(drawn.random() / 2)
        if process.poll() is None:
            process.send_signal(kind)
            interruptions += 1
        process.communicate(timeout=120)
        now = runs_of(output)
        assert all(now.get(key, 0) >= count for key, count in recorded.items()), "a run was lost"
    assert interruptions >= 3
    deadline = time.monotonic() + 1500
    resumed = (*command(base, output), "--resume")
    result = run_hw4(*resumed, env=env, timeout=deadline - time.monotonic())
    assert result.returncode == 3 and "1 of 40" in result.stdout, result.stderr
    check(base, students, output, env)
    whole = contents(output)
    takes = seconds_of(lambda: run_hw4(*resumed, env=env))
    for _ in range(4):
        interrupt(start_hw4(*resumed, env=env), kind, takes * drawn.random())
        assert contents(output).keys() >= whole.keys(), "a file of the results is gone"
        json.loads((output / "results.json").read_text())
    assert run_hw4(*resumed, env=env).returncode == 3
    check(base, students, output, env)
    assert contents(output).keys() == whole.keys(), "nothing is left of what was interrupted"
    assert set(runs_of(output).values()) == {1}, "what was recorded is not run again"
    regraded = output / "regrades.csv"
    assert not regraded.exists(), regraded.read_text()


def contents(folder):
    """The bytes of all files in a folder, by their names; of the hole, when it was written, and how many it has."""
    return {path.relative_to(folder): content(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def content(path):
    if path.name != HOLE:
        return path.read_bytes()
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def seconds_of(function):
    """How long a call takes."""
    start = time.monotonic()
    function()
    return time.monotonic() - start


def interrupt(process, kind, seconds):
    """Send a signal to a process after so many seconds, unless it has ended by then; wait for its end."""
    time.sleep(seconds)
    if process.poll() is None:
        process.send_signal(kind)
    process.communicate(timeout=120)


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_grades_and_similar_and_a_kit_are_whole_or_as_they_were_whenever_they_are_interrupted(course, tmp_path, kind):
    """At moments drawn at random over the time that each takes: what was written before stays until the new is whole,
    submissions and results are not touched, and once more, the command makes what it would have made."""
    base, _, env = course
    drawn = random.Random(kind.name)
    results = tmp_path / "results"
    judged = run_hw4(
        *command(base, results), "--only", "crlf", "--only", "slow", "--only", "typo", env=env, timeout=600
    )
    assert judged.returncode == 0, judged.stderr
    book, page, kit = tmp_path / "book.csv", tmp_path / "pairs.html", tmp_path / "kit"
    env = {**env, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    commands = {
        book: ("grades", results, "-o", book),
        page: ("similar", base / "export", "--exclude", starter(base), "-o", page),
        kit: ("kit", kit, "t01"),
    }
    before = contents(base / "export"), contents(results)
    for target, words in commands.items():
        takes = seconds_of(lambda: run_hw4(*words, env=env))  # noqa: B023
        made = made_of(target)
        assert made
        for _ in range(4):
            older = {}
            if target == kit:
                shutil.rmtree(kit, ignore_errors=True)
            else:
                target.write_text("older")
                older = {Path(): b"older"}
            interrupt(start_hw4(*words, env=env), kind, takes * drawn.random())
            for name, text in made_of(target).items():
                assert text in (older.get(name), made[name]), f"{target}/{name} is not whole"
            if target == kit and kit.exists():
                (kit / "hw4.cu").write_text("my work")
                again = run_hw4(*words, env=env)
                assert (kit / "hw4.cu").read_text() == "my work"
                assert again.returncode == (2 if "take another folder" in again.stderr else 0), again.stderr
                assert made_of(kit).keys() == made.keys()
                assert not list(kit.rglob("*.hw4-part")), "what a killed command left is removed by the next one"
    assert (contents(base / "export"), contents(results)) == before
    assert run_hw4(*commands[page], env=env).returncode == 3
    assert list((tmp_path / "tmp").iterdir()) == [], "copies of submissions"


def made_of(target):
    """What a command has made: bytes by their names, without the time of writing; hidden files are none of it."""
    files = contents(target) if target.is_dir() else {Path(): target.read_bytes()} if target.exists() else {}
    whole = {name: data for name, data in files.items() if not name.name.startswith(".")}
    return {name: re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d", b"", data) for name, data in whole.items()}
