"""Cases made elsewhere: a folder of inputs, with answers or without, is a suite by itself."""

import json
import shutil

import numpy as np
import pytest
from helpers import OPEN, fails, make_cases, random_block, run_here, write_case
from slow import slow

from hw4cli.problem import suite
from hw4cli.problem.oracle import exact_attention

SHAPES = {"1.in": (1, 40, 8), "2.in": (2, 16, 4), "10.in": (1, 8, 4), "大-case": (2, 64, 32), "t01": (1, 16, 4)}
ANSWERS = {"1.in": "1.out", "大-case": "大-case.out", "t01": "t01.ans"}  # the others have none
COPIES = """#!/bin/sh
cd {folder}
for case in 1 大-case t01; do
    for input in $case.in $case; do
        cmp -s "$1" $input && cat $case.out $case.ans > "$2" 2>/dev/null
    done
done
exit 0
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A course's folder of cases, and a cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    folder.mkdir()
    for number, (name, shape) in enumerate(SHAPES.items()):
        block = random_block(*shape, seed=number)
        write_case(folder / name, block)
        if name in ANSWERS:
            np.asarray(exact_attention(block, lambda _: None), "<f4").tofile(folder / ANSWERS[name])
    (folder / "README").write_text("the cases of the course\n")
    return folder


@pytest.fixture
def program(theirs, tmp_path):
    """Copies the answers that the folder has; where it has none, it writes nothing."""
    path = tmp_path / "program"
    path.write_text(COPIES.format(folder=theirs))
    path.chmod(0o755)
    return path


def judged(tmp_path, *args, code=1):
    result = run_here("judge", *map(str, args), "-o", str(tmp_path / "out"))
    assert result.returncode == code, result.stdout + result.stderr
    [one] = json.loads((tmp_path / "out" / "results.json").read_text())["standings"]
    return {row["case"]: row for row in one["results"]}, " ".join(result.stderr.split()), one


def test_a_folder_of_any_names_is_judged_and_what_is_assumed_is_said(theirs, program, tmp_path):
    before = {path.name: path.read_bytes() for path in theirs.iterdir()}
    rows, said, one = judged(tmp_path, "--suite", theirs, "--program", program, "--limit", "2.in=3")
    assert list(rows) == ["1.in", "2.in", "10.in", "t01", "大-case"]
    assert {name for name, row in rows.items() if row["verdict"] == "AC"} == set(ANSWERS)
    assert {name: row["reason"] for name, row in rows.items() if row["verdict"] == "NA"} == dict.fromkeys(
        ["2.in", "10.in"], "no output file"
    )
    assert {name: row["limit"] for name, row in rows.items()} == {**dict.fromkeys(SHAPES, 10), "2.in": 3}
    assert rows["大-case"]["shape"] == [2, 64, 32]
    assert "no cases: README" in said and "for 2.in, 10.in: computed in float64" in said
    assert "limit of 10 s for 1.in, 10.in, t01, 大-case" in said
    after = {path.name: path.read_bytes() for path in theirs.iterdir() if path.name != ".hw4-sums.json"}
    assert after == before, "nothing is written into the course's folder but the record of hashes"
    assert (one["score"], one["upper_bound"]) == (54, False)
    shown = run_here("scoreboard", tmp_path / "out").stdout
    assert "at most" not in shown, "all of their cases are judged, which the assignment's thirty do not change"


def test_an_answer_that_is_missing_is_computed_once(theirs, program, tmp_path):
    first, _, _ = judged(tmp_path, "2.in", "--suite", theirs, "--program", "/bin/true")
    [answer] = (tmp_path / "cache/hw4/answers").glob("*.out")
    inode = answer.stat().st_ino
    shutil.copy(answer, theirs / "copy")
    program.write_text(f'#!/bin/sh\ncp {theirs}/copy "$2"\n')
    (tmp_path / "out" / "journal.jsonl").unlink()
    again, said, _ = judged(tmp_path, "2.in", "--suite", theirs, "--program", program, code=0)
    assert (first["2.in"]["verdict"], again["2.in"]["verdict"]) == ("NA", "AC")
    assert answer.stat().st_ino == inode and "computed" not in said
    assert run_here("gen", "--suite", theirs).returncode == 0
    assert len(list((tmp_path / "cache/hw4/answers").glob("*.out"))) == 2, "gen computes those of all cases"


def test_a_case_of_theirs_that_has_changed_since_it_was_seen_is_the_judges_failure(theirs, tmp_path):
    judged(tmp_path, "t01", "--suite", theirs, "--program", "/bin/true")
    answer = theirs / "t01.ans"
    answer.write_bytes(bytes(len(answer.read_bytes())))
    rows, _, _ = judged(tmp_path, "t01", "--suite", theirs, "--program", "/bin/true", "--resume", code=1)
    assert rows["t01"]["verdict"] == "NA", "what the journal has stays"
    rows, _, _ = judged(tmp_path, "t01", "--suite", theirs, "--program", "/bin/true", "--restart", code=3)
    assert (
        rows["t01"]["verdict"] == "JE" and "t01.ans has changed since it was made: restore it" in rows["t01"]["reason"]
    )


def test_a_foreign_case_of_a_known_name_names_the_way_to_take_it(theirs, tmp_path):
    shutil.copy(theirs / "t01.ans", theirs / "t01.out")
    rows, _, _ = judged(tmp_path, "t01", "--dir", theirs, "--program", "/bin/true", code=3)
    assert rows["t01"]["verdict"] == "JE"
    large = (
        write_case(tmp_path / "large" / "t01", random_block(320, 128, 32))
        if (tmp_path / "large").mkdir() is None
        else 0
    )
    np.zeros(320 * 128 * 32, "<f4").tofile(f"{large}.out")
    rows, _, _ = judged(tmp_path, "t01", "--dir", tmp_path / "large", "--program", "/bin/true", "--restart", code=3)
    assert "is not the suite's t01" in rows["t01"]["reason"] and "--suite" in rows["t01"]["reason"]


def test_what_is_no_case_is_refused_in_one_sentence(theirs, tmp_path):
    (tmp_path / "empty").mkdir()
    fails(run_here("judge", "--suite", tmp_path / "empty"), 2, "holds no case")
    fails(run_here("judge", "--suite", tmp_path / "nothing"), 2, "there is no suite")
    (theirs / "cut").write_bytes((theirs / "t01").read_bytes()[:-4])
    (theirs / "cut.out").write_bytes(b"")
    fails(run_here("judge", "--suite", theirs), 2, "cut has an answer, but is no input")


def test_their_cases_have_the_assignments_limits_for_its_shapes(theirs):
    write_case(theirs / "like t01", random_block(*suite.assignment()["t01"].shape.sizes))
    found = suite.read_folder(theirs)
    assert (found["like t01"].limit, found["1.in"].limit) == (2.0, 10.0)


@slow
def test_a_class_is_judged_by_their_cases_and_by_secret_ones_of_the_same_shapes(theirs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = (theirs / "t01.ans").read_bytes()
    student = tmp_path / "submissions" / "ann"
    student.mkdir(parents=True)
    (student / "answer").write_bytes(answer)
    (student / "hw4").write_text('#!/bin/sh\ncp "$(dirname "$0")/answer" "$2"\n')
    (student / "hw4").chmod(0o755)
    args = ("judge", "t01", "--suite", theirs, "--class", "submissions", *OPEN)
    assert run_here(*args, "-o", "open").returncode == 0
    assert run_here(*args, "-o", "secret", "--secret-seeds").returncode == 0

    def verdict(folder):
        [one] = json.loads((tmp_path / folder / "results.json").read_text())["standings"]
        return [row["verdict"] for row in one["results"]], one["results"][0]["public_right"]

    assert verdict("open") == (["AC"], False)
    assert verdict("secret") == (["NA"], True), "the stored answer is right on the course's case alone"


def test_a_suites_file_without_hashes_is_made_and_says_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own.toml"
    own.write_text("[cases]\na = {shape = [1, 16, 4], seed = 3, limit = 2}\nb = {shape = [1, 8, 4], limit = 2}\n")
    made = run_here("gen", "--suite", own)
    assert made.returncode == 0, made.stderr
    lines = [line.split('"')[1] for line in made.stderr.splitlines() if "sha256 = " in line]
    assert len(lines) == 2 and all(len(line) == 64 for line in lines)
    before = (tmp_path / "testcases" / "a").read_bytes()
    assert "2 of 2 cases there already" in run_here("gen", "--suite", own).stderr
    assert (tmp_path / "testcases" / "a").read_bytes() == before
    rows, _, _ = judged(tmp_path, "--suite", own, "--program", "/bin/true")
    assert {row["reason"] for row in rows.values()} == {"no output file"}
    hashed = "[cases]\n" + "".join(
        f'{name} = {{shape = {shape}, seed = {seed}, limit = 2, sha256 = "{line}"}}\n'
        for name, shape, seed, line in zip("ab", ([1, 16, 4], [1, 8, 4]), (3, 0), lines, strict=True)
    )
    own.write_text(hashed)
    (tmp_path / "again").mkdir()
    make_cases(tmp_path / "again", *suite.read(own).values())
    assert (tmp_path / "again" / "a").read_bytes() == before
