"""The cases under attack: whoever changes their files is found out, gains nothing by it, and harms nobody after him."""

import os
import shutil
from dataclasses import replace

import pytest
from classes import board, submit
from helpers import OPEN, fails, make_cases, run_hw4, tiny_case

from hw4cli.errors import InputError
from hw4cli.judge import caserecord
from hw4cli.judge.caserecord import CaseRecord
from hw4cli.judge.casewatch import CaseWatch, ChangedCasesError
from hw4cli.problem.verdict import Verdict


@pytest.fixture
def cases(two, desk):
    return shutil.copytree(two, desk / "cases")


# Tells which case it runs, and knows the answers; a line of its own comes first.
KNOWING = """#!/bin/sh
if cmp -s "$1" {two}/t01; then case=t01; else case=t02; fi
{line}
[ -e "$2" ] || cp {two}/$case.out "$2"
"""
ZEROS = "head -c $(stat -c %s {two}/$case.out) /dev/zero >"
ATTACKS = {
    "zeros": f"{ZEROS} {{cases}}/t02.out; [ $case = t01 ] || {ZEROS} $2",
    "deletes": "rm -f {cases}/t02.out {cases}/t01",
    "empties": "rm -rf {cases}",
    "shortens": "truncate -s -4 {cases}/t02",
    "forges": "cp {cases}/t02.out s; echo xxxx | dd of={cases}/t02.out conv=notrunc status=none; "
    "touch -r s {cases}/t02.out; rm -f {cases}/.hw4-sums.json",
    "links": "rm {cases}/t02.out; ln -s {victim} {cases}/t02.out",
    "opens": "chmod 666 {cases}/t02.out",
}


def submit_class(desk, two, cases, attacks):
    for user in ("ann", "zoe"):
        submit(desk, user, hw4=KNOWING.format(two=two, line=""))
    for number, line in enumerate(attacks):
        line = line.format(two=two, cases=cases, victim=desk / "victim")
        submit(desk, f"m{number}", hw4=KNOWING.format(two=two, line=line))


def judge(desk, *options):
    words = ("--class", "submissions", "--output", "out", "--dir", desk / "cases", "--limit", "t01,t02=60", *OPEN)
    return run_hw4("judge", "t01", "t02", *words, *options)


def test_who_changes_the_cases_is_not_accepted_and_nobody_suffers_for_it(desk, two, cases):
    (desk / "victim").write_text("mine")
    submit_class(desk, two, cases, ATTACKS.values())
    result = judge(desk)
    assert result.returncode == 0, result.stderr
    found = board(desk)
    assert [found[user].passed for user in ("ann", "zoe")] == [2, 2]
    for number, name in enumerate(ATTACKS):
        first, second = (found[f"m{number}"].results[case] for case in ("t01", "t02"))
        assert (first.verdict, second.verdict) == (Verdict.NA, Verdict.NA), (name, first.reason)
        assert "changed while the program ran" in first.reason, name
        assert second.reason.startswith("not run: the program had changed"), name
    for name in ("t01", "t01.out", "t02", "t02.out"):
        assert (cases / name).read_bytes() == (two / name).read_bytes()
    assert (desk / "victim").read_text() == "mine"
    assert result.stderr.count("is made again") == len(ATTACKS) - 1, "permissions alone harm nothing"


def test_where_they_cannot_be_made_again_the_judging_stops_and_says_how_to_go_on(desk, two, cases):
    submit_class(desk, two, cases, ["rm -rf {cases}; touch {cases}"])
    result = judge(desk)
    assert result.returncode == 3
    [told] = [line for line in result.stderr.splitlines() if "cannot be made again" in line]
    assert "make it with hw4 gen --force, and go on with --resume" in told
    found = board(desk)
    assert [one.user for one in found.values()] == ["ann", "m0"]
    assert found["m0"].passed == 0
    (desk / "cases").unlink()
    shutil.copytree(two, desk / "cases")
    assert judge(desk, "--resume").returncode == 0
    assert [one.passed for one in board(desk).values()] == [2, 2, 0]


def test_where_others_are_judged_meanwhile_nobody_is_blamed(desk, two, cases):
    """In a task of an array it may have been another task's program."""
    submit_class(desk, two, cases, ["rm {cases}/t02.out"])
    assert judge(desk, "--only", "ann").returncode == 0
    result = judge(desk, "--task", "--resume", "--only", "m0", "--only", "zoe")
    assert result.returncode == 3
    assert "t02 in" in result.stderr and "go on with --resume" in result.stderr
    assert board(desk)["m0"].results["t01"].verdict is Verdict.JE
    assert "zoe" not in board(desk)
    result = judge(desk, "--task", "--resume", "--only", "zoe")
    assert result.returncode == 3 and "zoe" not in board(desk)
    shutil.copy(two / "t02.out", cases)
    assert judge(desk, "--resume", "--only", "zoe").returncode == 0
    assert board(desk)["zoe"].passed == 2


def test_what_was_changed_between_two_judgings_is_refused(desk, two, cases):
    submit_class(desk, two, cases, [])
    assert judge(desk, "--only", "ann").returncode == 0
    assert (desk / "out" / "cases.json").stat().st_mode & 0o777 == 0o600
    size = (cases / "t02.out").stat().st_size
    (cases / "t02.out").write_bytes(bytes(size))
    (cases / ".hw4-sums.json").unlink()
    told = ("t02.out is not what this judging began with", "hw4 gen --force", "cases.json")
    fails(judge(desk, "--resume"), 2, *told)
    fails(judge(desk, "--restart"), 2, *told)
    assert not (desk / "out" / "ann" / "journal-1.jsonl").exists()
    (desk / "out" / "cases.json").write_text('{"schema": 1, "secret": false, "cases": {"t01": []}}')
    fails(judge(desk, "--resume"), 2, "cases.json is damaged")


def test_ones_own_program_is_stopped_as_well(desk, two, cases):
    program = submit(desk, "ann", hw4=KNOWING.format(two=two, line=f"rm -f {cases}/t02.out")) / "hw4"
    result = run_hw4("judge", "t01", "t02", "--dir", cases, "--program", program)
    assert result.returncode == 1
    assert "t02.out changed while the program ran" in result.stdout
    assert "not run: the program had changed t02.out" in result.stdout


@pytest.fixture
def tiny(tmp_path):
    case = tiny_case("a", seed=3)
    make_cases(tmp_path, case)
    return case


def test_what_is_touched_or_written_again_as_it_was_has_not_changed(tiny, tmp_path):
    record = CaseRecord(tmp_path / caserecord.NAME, secret=False)
    watch = CaseWatch([tiny], tmp_path, record)
    assert watch.changed() == []
    os.utime(tmp_path / "a")
    os.link(tmp_path / "a.out", tmp_path / "backup")
    assert watch.changed() == []
    (tmp_path / "a.out").write_bytes((tmp_path / "backup").read_bytes())
    assert (watch.changed(), watch.damaged) == ([], [])
    (tmp_path / "a.out").unlink()
    assert (watch.changed(), watch.damaged) == (["a.out"], [tiny])
    assert watch.changed() == [], "it is told once"
    watch.restore()
    assert (watch.changed(), watch.damaged) == ([], [])
    assert CaseRecord.load(tmp_path, secret=False).entries == record.entries


def test_without_a_known_hash_whatever_looks_changed_was(tiny, tmp_path):
    watch = CaseWatch([tiny], tmp_path)
    os.utime(tmp_path / "a")
    assert watch.changed() == ["a"]


def test_what_comes_out_other_than_it_was_is_no_replacement(tiny, tmp_path):
    watch = CaseWatch([replace(tiny, seed=4)], tmp_path, CaseRecord(tmp_path / caserecord.NAME, secret=False))
    (tmp_path / "a").unlink()
    watch.changed()
    with pytest.raises(ChangedCasesError, match="cannot be made again"):
        watch.restore()


def test_a_record_remembers_files_that_are_read_once(tiny, tmp_path, monkeypatch):
    CaseWatch([tiny], tmp_path, CaseRecord.load(tmp_path, secret=False))
    read = []
    monkeypatch.setattr("hw4cli.judge.casewatch.file_sha256", read.append)
    CaseWatch([tiny], tmp_path, CaseRecord.load(tmp_path, secret=False))
    assert read == []
    with pytest.raises(InputError, match="the suite's seeds: leave --secret-seeds out"):
        CaseRecord.load(tmp_path, secret=True)
