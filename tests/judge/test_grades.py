"""`hw4 grades`: the gradebook, Gradescope's documents, what lateness costs, and the log of regrades."""

import csv
import io
import json
import shutil

import pytest
from helpers import fails

from hw4cli.judge.scoring import journal, storedrules
from hw4cli.judge.scoring.gradebook import read_table
from hw4cli.judge.scoring.late import LatePolicy
from hw4cli.judge.scoring.record import Attempt, Rules
from hw4cli.problem import suite

CASES = list(suite.assignment().values())
DUE = "2026-05-01T12:00:00+00:00"


def judged(
    folder, user, passed=30, handed_in="2026-05-01T11:00:00+00:00", cases=CASES, note="", fault=None, **settings
):
    """Write a student's journal: the first `passed` cases are right, the others have no output."""
    own = folder / user
    own.mkdir(parents=True)
    settings = {"handed_in": handed_in, "due": DUE, **settings}
    head = journal.header_line(
        user=user, cases=[case.name for case in CASES], settings=settings, **({"note": note} if note else {})
    )
    lines = [{**head, **({"fault": True} if fault else {})}]
    for number, case in enumerate([] if note else cases):
        problem = None if number < passed else "no output file"
        attempt = Attempt(case.name, case.shape.sizes, case.limit, wall=0.5, max_error=0.0, problem=problem)
        lines.append(journal.run_line("k", attempt))
    (own / journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    judged(folder, "ann")
    judged(folder, "wang_12345", 26, "2026-05-02T11:00:00+00:00", notes=["no report.pdf", "unpacked hw4.zip"])
    judged(folder, "=cmd", 30, note="make hw4 failed")
    judged(folder, "dan", 10, cases=CASES[:20])
    judged(folder, "eve", note="the disk is full", fault=True)
    return folder


def gradebook(path):
    return {row["user"]: row for row in csv.DictReader(io.StringIO(path.read_text()))}


def test_the_gradebook_has_a_row_a_student_and_no_score_of_anyone_who_was_not_judged(hw4_in_process, results, tmp_path):
    book = tmp_path / "book.csv"
    result = hw4_in_process("grades", results, "-o", book)
    assert result.returncode == 0, result.stderr
    rows = gradebook(book)
    assert {user: row["score"] for user, row in rows.items()} == {
        "ann": "60",
        "wang_12345": "48",
        "'=cmd": "0",
        "dan": "at most 30",
        "eve": "",
    }
    assert rows["dan"]["total"] == "", "ten of the cases are not judged yet"
    assert (rows["wang_12345"]["id"], rows["ann"]["id"]) == ("12345", "ann")
    assert rows["wang_12345"]["late_hours"] == "23.00" and rows["ann"]["late_hours"] == "0.00"
    assert rows["wang_12345"]["notes"] == "no report.pdf; unpacked hw4.zip"
    assert rows["wang_12345"]["reasons"] == "4 NA: no output file"
    assert rows["'=cmd"]["reasons"] == "broken build: make hw4 failed"
    assert (rows["ann"]["total"], rows["ann"]["performance"], rows["ann"]["report"]) == ("60", "", "")
    assert rows["eve"]["total"] == ""


def test_the_tas_columns_are_read_from_the_gradebook_that_was_filled_and_lateness_costs_of_all(
    hw4_in_process, results, tmp_path
):
    book = tmp_path / "book.csv"
    hw4_in_process("grades", results, "-o", book)
    rows = list(csv.DictReader(io.StringIO(book.read_text())))
    for row in rows:
        row.update(performance="15", report="18.5", bonus="1")
    with book.open("w") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    result = hw4_in_process("grades", results, "--points", book, "--late-policy", "10%/day", "-o", book)
    assert result.returncode == 0, result.stderr
    rows = gradebook(book)
    assert [rows["ann"][name] for name in ("performance", "report", "bonus", "total")] == ["15", "18.5", "1", "94.5"]
    assert (rows["wang_12345"]["late_factor"], rows["wang_12345"]["total"]) == ("0.9", f"{(48 + 34.5) * 0.9:g}")
    assert rows["eve"]["total"] == "", "who was not judged has no total, whatever the table says"


def test_rows_of_a_spreadsheet_without_anything_in_them_are_nobodys(tmp_path):
    (tmp_path / "points.csv").write_text("id,report\nann,3\n,\n , \n")
    assert read_table(tmp_path / "points.csv") == {"ann": {"report": 3.0}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no column id"),
        ("id,report\nann,4\n,3\n", "line 3: the column id is empty"),
        ("name,report\nann,3\n", "has no column id"),
        ("id,report\nann,21\n", "report is 21, but must be from 0 to 20"),
        ("id,report\nann,nan\n", "must be a number"),
        ("id,report\nann,3\nann,4\n", "ann comes twice"),
        ("id,report\nnobody,3\n", "nobody, whom the results have not"),
    ],
)
def test_a_wrong_table_of_points_is_one_sentence(hw4_in_process, results, tmp_path, text, words):
    (tmp_path / "points.csv").write_text(text)
    fails(hw4_in_process("grades", results, "--points", tmp_path / "points.csv"), 2, words)


def test_a_late_policy_is_a_rule_that_is_stored_and_changes_no_score(hw4_in_process, results, tmp_path):
    assert hw4_in_process("judge", "--rescore", results, "--late-policy", "10%/day, grace 15 min").returncode in (0, 3)
    assert storedrules.read(results).late_policy == "10%/day, grace 15 min"
    hw4_in_process("grades", results, "-o", tmp_path / "a.csv")
    rows = gradebook(tmp_path / "a.csv")
    assert (rows["wang_12345"]["score"], rows["wang_12345"]["total"]) == ("48", "43.2")
    hw4_in_process("judge", "--rescore", results, "--penalty", "30")
    assert storedrules.read(results).late_policy == "10%/day, grace 15 min", "rules that are not named stay"
    hw4_in_process("judge", "--rescore", results, "--late-policy", "none")
    assert json.loads((results / storedrules.NAME).read_text())["late_policy"] is None
    fails(hw4_in_process("grades", results, "--late-policy", "ten a day"), 2, "no rule of lateness")


def test_what_lateness_costs():
    rule = LatePolicy.parse("10%/day, grace 15 min, max 3 days")
    day = 86400
    seconds = (0, 900, 901, day, day + 1, 3 * day, 3 * day + 1)
    assert [rule.factor(late) for late in seconds] == [1, 1, 0.9, 0.9, 0.8, 0.7, 0]
    assert LatePolicy.parse("40%/hour").factor(3 * 3600) == 0
    for wrong in ("", "10", "10%/week", "200%/day", "10%/day, grace", "10%/day, grace 1 min, grace 2 min", "nan%/day"):
        with pytest.raises(ValueError, match="no rule of lateness"):
            LatePolicy.parse(wrong)


def test_gradescope_gets_the_score_a_test_a_case_and_the_leaderboard(hw4_in_process, results, tmp_path):
    metadata = tmp_path / "submission_metadata.json"
    metadata.write_text(
        json.dumps(
            {
                "id": 1,
                "created_at": "2026-05-03T10:00:00.123456-07:00",
                "assignment": {"due_date": "2026-05-02T23:00:00.000000-07:00", "title": "hw4"},
                "users": [{"email": "w@x.org", "id": 7, "name": "Wang Mei"}],
            }
        )
    )
    out = tmp_path / "results.json"
    judged(tmp_path / "gs", "student", 29, due=None)
    args = ("grades", tmp_path / "gs" / "student", "--metadata", metadata, "--late-policy", "10%/day")
    result = hw4_in_process(*args, "-o", out)
    assert result.returncode == 0 and "Wang Mei" in result.stdout
    document = json.loads(out.read_text())
    assert document["score"] == pytest.approx(57 * 0.9)
    assert [test["status"] for test in document["tests"]] == ["passed"] * 29 + ["failed"]
    assert document["tests"][0]["name"] == "t01 (320, 128, 32)"
    assert document["tests"][29]["output"] == "NA, 0.50/10 s: no output file"
    assert {test["visibility"] for test in document["tests"]} == {"visible"}
    assert document["leaderboard"] == [
        {"name": "passed", "value": 29},
        {"name": "seconds", "value": 74.5, "order": "asc"},
    ]
    assert "11 h late" in document["output"]
    hidden = json.loads(hw4_in_process(*args, "--hidden", "--json").stdout)
    assert {test["visibility"] for test in hidden["tests"]} == {"after_published"}


def test_gradescope_gets_no_score_where_the_judge_failed_and_of_a_class_nothing(hw4_in_process, results, tmp_path):
    result = hw4_in_process("grades", results / "eve", "-o", tmp_path / "r.json")
    assert result.returncode == 3 and "score" not in json.loads((tmp_path / "r.json").read_text())
    fails(hw4_in_process("grades", results, "-o", tmp_path / "all.json"), 2, "are of one student")
    (tmp_path / "bad.json").write_text("{}")
    fails(hw4_in_process("grades", results / "ann", "--metadata", tmp_path / "bad.json"), 2, "it has no created_at")


def test_a_score_that_changes_after_it_was_known_is_in_the_log(hw4_in_process, results):
    hw4_in_process("judge", "--rescore", results)
    assert not (results / "regrades.csv").exists(), "the first results are no regrade"
    hw4_in_process("judge", "--rescore", results, "--limit", "t01-t02=0.4")
    hw4_in_process("judge", "--rescore", results, "--rank-by", "passed")
    rows = list(csv.DictReader(io.StringIO((results / "regrades.csv").read_text())))
    known = {row["user"]: (row["score_before"], row["score_after"]) for row in rows}
    assert (known["ann"], known["wang_12345"]) == (("60", "54"), ("48", "42"))
    assert "eve" not in known and "=cmd" not in known and "'=cmd" not in known
    assert {row["why"] for row in rows} == {"limit of t01 none → 0.4, limit of t02 none → 0.4"}
    assert all(row["date"] and row["by"] for row in rows)


def test_a_score_of_a_part_of_the_cases_is_no_grade_and_one_that_was_known_is_remembered(hw4_in_process, tmp_path):
    """As when a judging is interrupted, and one that begins again is."""
    folder = tmp_path / "results"

    def now(passed, cases):
        shutil.rmtree(folder / "ann", ignore_errors=True)
        judged(folder, "ann", passed, cases=cases)
        hw4_in_process("judge", "--rescore", folder)
        log = folder / "regrades.csv"
        return [row["score_after"] for row in csv.DictReader(io.StringIO(log.read_text()))] if log.exists() else []

    assert now(5, CASES[:10]) == [] and now(30, CASES) == []
    assert now(5, CASES[:10]) == [] and now(29, CASES) == ["57"], "60 was known before the second interruption"
    assert now(29, CASES) == ["57"]
    assert Rules().late_policy == ""
