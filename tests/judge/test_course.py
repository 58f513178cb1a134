"""A made-up class of 40 as a learning platform exports it, with cases made elsewhere: one command judges it, one prints
the gradebook, one finds the two copies, every verdict is as decided beforehand, and nothing of anyone's is lost,
whenever any of this is interrupted.

Most hand in the program that the course gave to all, which computes right; three wrote another. The compiler is a
stand-in for nvcc that compiles on the host, so that the programs really compute."""

import csv
import io
import json
import os
import random
import re
import shutil
import signal
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from helpers import OPEN, random_block, run_hw4, start_hw4, wait_until, write_case
from needs import needs
from slow import slow
from solutions import MATRICES, STREAMED, renamed

from hw4cli.judge.scoring import journal
from hw4cli.problem.oracle import exact_attention

pytestmark = [needs("g++"), slow]

DUE, LATE = "2026-05-01T18:00+00:00", 1777745000  # 2026-05-02, 18:03:20
EARLY = 1777600000
CASES = {"small.in": (2, 24, 8), "中-2": (1, 40, 16), "last": (3, 8, 4)}
LIMITS = {"small.in": 120, "中-2": 120, "last": 15}  # seconds: of the last, one student takes one more

SOURCE = """\
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
{extra}
// O = softmax(Q K^T / sqrt(d)) V of each batch, a row at a time.
int main(int argc, char **argv) {{
    FILE *in = fopen(argv[1], "rb");
    int size[3];
    if (argc < 3 || !in || fread(size, 4, 3, in) != 3) return 1;
    int B = size[0], N = size[1], d = size[2];
    std::vector<float> {q}(N * d), {k}(N * d), {v}(N * d), {o}(N * d), score(N);
    FILE *out = fopen(argv[2], "wb");
    for (int b = 0; b < B; ++b) {{
        for (auto *part : {{&{q}, &{k}, &{v}}})
            if (fread(part->data(), 4, N * d, in) != size_t(N * d)) return 2;
        for (int row = 0; row < N; ++row) {{
            float largest = -1e30f, sum = 0;
            for (int key = 0; key < N; ++key) {{
                float dot = 0;
                for (int c = 0; c < d; ++c) dot += {q}[row * d + c] * {k}[key * d + c];
                score[key] = dot {scale};
                largest = std::fmax(largest, score[key]);
            }}
            for (int c = 0; c < d; ++c) {o}[row * d + c] = 0;
            for (int key = 0; key < N; ++key) {{
                float p = std::exp(score[key] - largest);
                sum += p;
                for (int c = 0; c < d; ++c) {o}[row * d + c] += p * {v}[key * d + c];
            }}
            for (int c = 0; c < d; ++c) {o}[row * d + c] /= sum;
        }}
        fwrite({o}.data(), 4, N * d, out);
    }}
    fclose(out);
    return 0;
}}
"""
# A stand-in for nvcc: it wants the words that are the judge's default, and compiles the text as C++.
NVCC = """#!/bin/sh
case " $* " in
    *" -arch=sm_61 "*) echo "nvcc fatal   : Unsupported gpu architecture 'sm_61'" >&2; exit 1;;
esac
for word in "$@"; do
    case $word in *.cu) source=$word;; esac
done
exec g++ -x c++ -O1 "$source" -o hw4
"""


def source(scale="/ std::sqrt(float(d))", extra="", names="qkvo"):
    q, k, v, o = names if isinstance(names, tuple) else tuple(names)
    return SOURCE.format(scale=scale, extra=extra, q=q, k=k, v=v, o=o)


SIZES = "int B = size[0], N = size[1], d = size[2];\n"
SLEEP = f"    if (d == 4) sleep({LIMITS['last'] + 1});\n"
RIGHT = source()
MAKE = "hw4: hw4.cu\n\tnvcc -O3 $< -o $@\n"


@dataclass
class Student:
    """What a student hands in, as the class's folder holds it, and what was decided beforehand."""

    files: dict  # by path in the class's folder
    score: str = "60"
    reasons: str = ""
    notes: tuple = ()
    late: bool = False
    packed: str = ""  # the archive that holds the files
    size: int = 0  # of a hole that is handed in, too
    verdicts: str = "AC AC AC"


def the_class():
    """The 40 by name: whoever is handed in twice, or by a name of a platform, too."""
    found = {}
    for number in range(11):  # an hw4.cu alone, as a platform names it
        found[f"王{number}_10{number:02}"] = Student({f"王{number}_10{number:02}_hw4.cu": RIGHT})
    for number in range(4):
        found[f"lin_20{number:02}"] = Student(
            {f"lin_20{number:02}_77{number}_hw4.cu": RIGHT, f"lin_20{number:02}_77{number}_report.pdf": ""},
            late=number == 3,
        )
    for number in range(4):  # a folder of Moodle's
        user = f"Mei Lee_30{number:02}"
        found[user] = Student(
            {f"{user}_assignsubmission_file_/hw4.cu": RIGHT, f"{user}_assignsubmission_file_/Makefile": MAKE},
            late=number == 2,
        )
    for number in range(4):  # nested, in a zip or a tar
        archive = f"s40{number}.{'zip' if number % 2 else 'tar.gz'}"
        found[f"s40{number}"] = Student(
            {"s40/hw4/hw4.cu": RIGHT, "s40/hw4/report.pdf": ""}, packed=archive, notes=("its files lie in s40/hw4/",)
        )
    found["copy-a"] = Student({"copy-a/hw4.cu": MATRICES})
    found["copy-b"] = Student({"copy-b/hw4.cu": renamed(MATRICES)})
    found["crlf"] = Student(
        {"crlf/hw4.cu": RIGHT.replace("\n", "\r\n"), "crlf/Makefile": MAKE.replace("\n", "\r\n")},
        notes=("line ends of Windows in Makefile, hw4.cu",),
    )
    found["nested"] = Student(
        {"nested/a/b/Makefile": MAKE, "nested/a/b/hw4.cu": RIGHT}, notes=("its files lie in a/b/",)
    )
    found["Ünal Şen"] = Student({"Ünal Şen/hw4.cu": STREAMED}, late=True)
    found["own-name"] = Student({"own-name/my kernel.cu": RIGHT})
    found["noscale"] = Student({"noscale/hw4.cu": source(scale="")}, "51", "3 NA: ", verdicts="NA NA NA")
    found["crash"] = Student({"crash/hw4.cu": "int main() { return 3; }\n"}, "51", "exit code 3", verdicts="NA NA NA")
    found["only-d8"] = Student(
        {"only-d8/hw4.cu": RIGHT.replace("int B = ", "if (size[2] != 8) return 5;\n    int B = ")},
        "54",
        "2 NA: exit code 5",
        verdicts="NA AC NA",  # of last, small.in and 中-2
    )
    found["slow"] = Student(
        {"slow/hw4.cu": source("/ std::sqrt(float(d))", "#include <unistd.h>").replace(SIZES, f"{SIZES}{SLEEP}")},
        "57",
        "1 TLE",
        verdicts="TLE AC AC",
    )
    broken = {"verdicts": "", "score": "0"}
    found["typo"] = Student({"typo/hw4.cu": "int main( { }\n"}, reasons="broken build: nvcc hw4.cu failed", **broken)
    found["pascal"] = Student(
        {"pascal/hw4.cu": RIGHT, "pascal/Makefile": "hw4: hw4.cu\n\tnvcc -arch=sm_61 $< -o $@\n"},
        reasons="broken build: make hw4 failed",
        **broken,
    )
    found["empty"] = Student({"empty/": ""}, reasons="the folder is empty", **broken)
    found["huge"] = Student({"huge/hw4.cu": RIGHT}, reasons="it is larger than 1,024 MB", size=3 << 30, **broken)
    found["cut"] = Student({"cut.zip": "PK\3\4 not all of it"}, reasons="hw4.zip is damaged", **broken)
    found["two"] = Student({"two/x/hw4.cu": RIGHT, "two/y/hw4.cu": RIGHT}, reasons="which one is meant?", **broken)
    found["rar"] = Student({"rar.rar": "Rar!"}, "", "not judged: handed in as a file", verdicts="")
    return found


def export(folder, students):
    """Write what they hand in, with the times of the platform."""
    for one in students.values():
        paths = []
        if one.packed:
            path = folder / one.packed
            if path.suffix == ".zip":
                with zipfile.ZipFile(path, "w") as archive:
                    for name, text in one.files.items():
                        archive.writestr(name, text)
            else:
                with tarfile.open(path, "w:gz") as archive:
                    for name, text in one.files.items():
                        info = tarfile.TarInfo(name)
                        info.size = len(text.encode())
                        archive.addfile(info, io.BytesIO(text.encode()))
            paths.append(path)
        for name, text in {} if one.packed else one.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir()
                continue
            path.write_bytes(text.encode())
            paths.append(path)
        if one.size:
            paths.append(folder / "huge" / "data.bin")
            with paths[-1].open("wb") as file:
                file.truncate(one.size)
        for path in paths:
            os.utime(path, (LATE if one.late else EARLY,) * 2)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The class's folder, the course's cases, and a PATH on which nvcc is the stand-in."""
    base = tmp_path_factory.mktemp("course")
    students = the_class()
    assert len(students) == 40
    (base / "export").mkdir()
    export(base / "export", students)
    theirs = base / "theirs"
    theirs.mkdir()
    for number, (name, shape) in enumerate(CASES.items()):
        block = random_block(*shape, seed=number)
        write_case(theirs / name, block)
        if name != "last":  # whose answer the oracle computes
            answer = "small.out" if name == "small.in" else f"{name}.ans"
            np.asarray(exact_attention(block, lambda _: None), "<f4").tofile(theirs / answer)
    (base / "bin").mkdir()
    (base / "bin" / "nvcc").write_text(NVCC)
    (base / "bin" / "nvcc").chmod(0o755)
    env = {"PATH": f"{base / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(base / "cache")}
    return base, students, env


def command(base, output):
    limits = [word for name, limit in LIMITS.items() for word in ("--limit", f"{name}={limit}")]
    theirs, classes = ("--suite", base / "theirs"), ("--class", base / "export")
    return ["judge", *map(str, (*theirs, *classes, "-o", output, "--due", DUE)), *limits, *OPEN]


def check(base, students, output, env):
    """Every verdict, score, note and time is the one that was decided beforehand."""
    book = output.with_suffix(".csv")
    printed = run_hw4("grades", output, "--late-policy", "10%/day", "-o", book, env=env)
    assert printed.returncode == 0, printed.stderr
    rows = {row["user"]: row for row in csv.DictReader(io.StringIO(book.read_text()))}
    assert rows.keys() == students.keys()
    for user, one in students.items():
        row = rows[user]
        assert (row["score"], one.reasons in row["reasons"]) == (one.score, True), (user, row)
        assert (float(row["late_hours"]) > 0) == one.late, user
        expected = "" if one.score == "" else f"{float(one.score) * (0.8 if one.late else 1):g}"
        assert row["total"] == expected, (user, row)
        assert set(one.notes) <= set(row["notes"].split("; ")), (user, row["notes"])
    assert [rows[user]["id"] for user in ("王3_1003", "lin_2001", "Mei Lee_3002", "copy-a")] == [
        *("1003", "2001", "3002", "copy-a")
    ]
    standings = json.loads((output / "results.json").read_text())["standings"]
    verdicts = {one["user"]: " ".join(row["verdict"] for row in one["results"]) for one in standings}
    assert verdicts == {user: one.verdicts for user, one in students.items()}


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
    (folder / "hw4.cu").write_text(RIGHT)
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

    for _ in range(6):
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
    assert interruptions >= 4
    deadline = time.monotonic() + 1500
    resumed = (*command(base, output), "--resume")
    result = run_hw4(*resumed, env=env, timeout=deadline - time.monotonic())
    assert result.returncode == 3 and "1 of 40" in result.stdout, result.stderr
    check(base, students, output, env)
    whole = contents(output)
    takes = seconds_of(lambda: run_hw4(*resumed, env=env))
    for _ in range(6):
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
    """The bytes of all files in a folder, by their names."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


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
        for _ in range(8):
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
