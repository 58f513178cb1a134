"""Changes of the cases' files by programs: they are detected, refused, and do not affect the next program."""

import os
import shutil
from dataclasses import replace

import pytest
from classes import board, submit
from helpers import OPEN, fails, make_cases, run_hw4, tiny_case
from slow import slow

from hw4cli.errors import InputError
from hw4cli.judge import casemanifest
from hw4cli.judge.casemanifest import CaseManifest
from hw4cli.judge.casewatch import CaseWatch, ChangedCasesError
from hw4cli.problem.verdict import Verdict


@pytest.fixture
def cases(two, workdir):
    return shutil.copytree(two, workdir / "cases")


# Finds its case, runs `line`, and copies the answer.
PROGRAM = """#!/bin/sh
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


def submit_class(workdir, two, cases, attacks):
    for user in ("ann", "zoe"):
        submit(workdir, user, hw4=PROGRAM.format(two=two, line=""))
    for number, line in enumerate(attacks):
        line = line.format(two=two, cases=cases, victim=workdir / "victim")
        submit(workdir, f"m{number}", hw4=PROGRAM.format(two=two, line=line))


def judge(workdir, *options):
    args = ("--class", "submissions", "--output", "out", "--dir", workdir / "cases", "--limit", "t01,t02=60", *OPEN)
    return run_hw4("judge", "t01", "t02", "--limit", "t01-t02=120", *args, *options)


@slow
def test_a_program_that_changes_the_cases_is_refused_and_the_next_is_judged_by_restored_ones(workdir, two, cases):
    (workdir / "victim").write_text("mine")
    submit_class(workdir, two, cases, ATTACKS.values())
    result = judge(workdir)
    assert result.returncode == 0, result.stderr
    found = board(workdir)
    assert [found[user].passed for user in ("ann", "zoe")] == [2, 2]
    for number, name in enumerate(ATTACKS):
        first, second = (found[f"m{number}"].results[case] for case in ("t01", "t02"))
        assert (first.verdict, second.verdict) == (Verdict.NA, Verdict.NA), (name, first.reason)
        assert "changed while the program ran" in first.reason, name
        assert second.reason.startswith("not run: the program had changed"), name
    for name in ("t01", "t01.out", "t02", "t02.out"):
        assert (cases / name).read_bytes() == (two / name).read_bytes()
    assert (workdir / "victim").read_text() == "mine"
    assert result.stderr.count("making it again") == len(ATTACKS) - 1, "changed permissions need no new case"


@slow
def test_judging_stops_with_the_next_step_if_changed_cases_cannot_be_restored(workdir, two, cases):
    submit_class(workdir, two, cases, ["rm -rf {cases}; touch {cases}"])
    result = judge(workdir)
    assert result.returncode == 3
    [message] = [line for line in result.stderr.splitlines() if "cannot be made again" in line]
    assert "make it with hw4 gen --force, and continue with --resume" in message
    found = board(workdir)
    assert [one.user for one in found.values()] == ["ann", "m0"]
    assert found["m0"].passed == 0
    (workdir / "cases").unlink()
    shutil.copytree(two, workdir / "cases")
    assert judge(workdir, "--resume").returncode == 0
    assert [one.passed for one in board(workdir).values()] == [2, 2, 0]


@slow
def test_a_change_while_others_are_judged_is_the_judges_failure(workdir, two, cases):
    """The tasks of an array run at the same time, so another task's program may have changed it."""
    submit_class(workdir, two, cases, ["rm {cases}/t02.out"])
    assert judge(workdir, "--only", "ann").returncode == 0
    result = judge(workdir, "--task", "--resume", "--only", "m0", "--only", "zoe")
    assert result.returncode == 3
    assert "t02 in" in result.stderr and "continue with --resume" in result.stderr
    assert board(workdir)["m0"].results["t01"].verdict is Verdict.JE
    assert "zoe" not in board(workdir)
    result = judge(workdir, "--task", "--resume", "--only", "zoe")
    assert result.returncode == 3 and "zoe" not in board(workdir)
    shutil.copy(two / "t02.out", cases)
    assert judge(workdir, "--resume", "--only", "zoe").returncode == 0
    assert board(workdir)["zoe"].passed == 2


def test_cases_changed_between_two_judgings_are_refused(workdir, two, cases):
    submit_class(workdir, two, cases, [])
    assert judge(workdir, "--only", "ann").returncode == 0
    assert (workdir / "out" / "cases.json").stat().st_mode & 0o777 == 0o600
    size = (cases / "t02.out").stat().st_size
    (cases / "t02.out").write_bytes(bytes(size))
    (cases / ".hw4-sums.json").unlink()
    texts = ("t02.out has changed since this judging began", "hw4 gen --force", "cases.json")
    fails(judge(workdir, "--resume"), 2, *texts)
    fails(judge(workdir, "--restart"), 2, *texts)
    assert not (workdir / "out" / "ann" / "journal-1.jsonl").exists()
    (workdir / "out" / "cases.json").write_text('{"schema": 1, "secret": false, "cases": {"t01": []}}')
    fails(judge(workdir, "--resume"), 2, "cases.json is damaged")


def test_a_single_program_that_changes_the_cases_is_not_run_again(workdir, two, cases):
    program = submit(workdir, "ann", hw4=PROGRAM.format(two=two, line=f"rm -f {cases}/t02.out")) / "hw4"
    result = run_hw4("judge", "t01", "t02", "--limit", "t01-t02=120", "--dir", cases, "--program", program)
    assert result.returncode == 1
    assert "t02.out changed while the program ran" in result.stdout
    assert "not run: the program had changed t02.out" in result.stdout


@pytest.fixture
def tiny(tmp_path):
    case = tiny_case("a", seed=3)
    make_cases(tmp_path, case)
    return case


def test_a_file_rewritten_with_the_same_content_has_not_changed(tiny, tmp_path):
    record = CaseManifest(tmp_path / casemanifest.NAME, secret=False)
    watch = CaseWatch([tiny], tmp_path, record)
    assert watch.check() == []
    os.utime(tmp_path / "a")
    os.link(tmp_path / "a.out", tmp_path / "backup")
    assert watch.check() == []
    (tmp_path / "a.out").write_bytes((tmp_path / "backup").read_bytes())
    assert (watch.check(), watch.damaged_cases) == ([], [])
    (tmp_path / "a.out").unlink()
    assert (watch.check(), watch.damaged_cases) == (["a.out"], [tiny])
    assert watch.check() == [], "a change is reported twice"
    watch.restore()
    assert (watch.check(), watch.damaged_cases) == ([], [])
    assert CaseManifest.load(tmp_path, secret=False).entries == record.entries


def test_without_a_known_hash_a_changed_stamp_counts_as_a_change(tiny, tmp_path):
    watch = CaseWatch([tiny], tmp_path)
    os.utime(tmp_path / "a")
    assert watch.check() == ["a"]


def test_a_restored_case_with_another_hash_is_refused(tiny, tmp_path):
    watch = CaseWatch([replace(tiny, seed=4)], tmp_path, CaseManifest(tmp_path / casemanifest.NAME, secret=False))
    (tmp_path / "a").unlink()
    watch.check()
    with pytest.raises(ChangedCasesError, match="cannot be made again"):
        watch.restore()


def test_files_in_the_manifest_are_not_read_again(tiny, tmp_path, monkeypatch):
    CaseWatch([tiny], tmp_path, CaseManifest.load(tmp_path, secret=False))
    read = []
    monkeypatch.setattr("hw4cli.judge.casewatch.file_sha256", read.append)
    CaseWatch([tiny], tmp_path, CaseManifest.load(tmp_path, secret=False))
    assert read == []
    with pytest.raises(InputError, match="the suite's seeds: leave out --secret-seeds"):
        CaseManifest.load(tmp_path, secret=True)
