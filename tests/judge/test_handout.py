"""The handout of each student, and the board with pseudonyms."""

import json
import os
import re
import stat
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from boards import RIGHT, write
from classes import correct, judge_class, submit
from helpers import fails, run_here
from needs import needs

from hw4cli.judge import handout
from hw4cli.judge.handout import Handout
from hw4cli.judge.scoring import pseudonyms, results, scoreboard
from hw4cli.judge.scoring.record import Rules, combine, make_standing
from hw4cli.problem import suite
from hw4cli.text.dates import duration, from_timestamp

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NASTY = "<script>alert(1)</script> | `` ``` *x* \x1b[31m"


def attempts():
    for number in (3, 4, 5):
        yield replace(
            RIGHT, case=f"t0{number}", problem="exit code 1", said=f"row {number}: oh", exit_code=1, limit=6.0
        )
    yield replace(RIGHT, case="t06", wall=7.0, limit=3.0)
    yield replace(RIGHT, case="t01", limit=6.0)


def handout_of(*attempts, **fields):
    cases = [attempt.case for attempt in attempts] + ["t30"]
    standing = make_standing("ann", [combine([attempt]) for attempt in attempts], cases, **fields)
    return Handout(standing, fields.get("rules", Rules()), 3, "amber otter", "")


def commands(text):
    return [line for line in text.splitlines() if line.startswith("hw4 ")]


def test_a_handout_groups_failures_and_has_the_commands_that_reproduce_them():
    text = handout_of(*attempts(), session={"settings": {"repeat": 3}}).markdown()
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["NA: t03-t05", "TLE: t06"]
    assert "exit code 1: row 3: oh" in text
    assert commands(text) == [
        "hw4 gen t03-t05",
        "hw4 judge t03-t05 --program ./hw4 --limit t03-t05=6 --repeat 3",
        "hw4 gen t06",
        "hw4 judge t06 --program ./hw4 --limit t06=3 --repeat 3",
    ]
    assert re.search(r"^\| t30 \|.*not judged", text, re.MULTILINE)
    page = handout_of(*attempts(), session={"settings": {"repeat": 3}}).page()
    shown = re.sub(r"</?(pre|span)>", "", page)
    assert commands(shown) == commands(text)
    assert "<span>--limit t03-t05=6</span> <span>--repeat 3</span>" in page, "no line breaks within an option"
    assert page.count("<tr>") == 1 + 6


def test_commands_have_the_mask_and_cases_of_others_are_said_to_need_their_suite():
    handed = handout_of(*attempts(), session={"settings": {"causal": True, "suite": ["t01", "t06"]}})
    assert commands(handed.markdown())[2:4] == [
        "hw4 gen t06 --causal",
        "hw4 judge t06 --program ./hw4 --causal --limit t06=3",
    ]
    for form in (handed.markdown(), handed.page()):
        assert "give these commands --suite" in form
        assert "secret seeds" not in form


def test_where_part_of_the_suite_is_judged_every_view_calls_the_score_an_upper_bound():
    one = handout_of(*attempts())
    judged = "6 of the suite's 30 cases judged"
    assert f"score at most 45 of 60: {judged}" in one.markdown()
    for view in (results.markdown([one.standing], one.rules), scoreboard.page([one.standing], one.rules, "x", NOW)):
        assert f"Scores are upper bounds: {judged}." in view
    whole = make_standing("ann", [], list(suite.cases()))
    assert "upper bound" not in scoreboard.page([whole], Rules(), "x", NOW)


def test_the_commands_of_a_handout_reproduce_the_failure(workdir, folder):
    submit(workdir, "ann", hw4="#!/bin/sh\necho oh dear >&2\nexit 3\n")
    assert judge_class(folder, "--limit", "t01=7").returncode == 0
    text = (workdir / "out" / "ann" / handout.TEXT).read_text()
    [judge] = [line for line in commands(text) if "judge" in line]
    assert judge == "hw4 judge t01 --program ./hw4 --limit t01=7"
    args = judge.split()[1:]
    result = run_here(*args, "--dir", folder, cwd=workdir / "submissions" / "ann")
    assert result.returncode == 1
    assert "exit code 3: oh dear" in result.stdout


@needs("make")
def test_each_student_gets_a_handout_that_only_its_owner_can_read(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    submit(workdir, "ben", Makefile="hw4:\n\t@echo 'hw4.cu(7): error: no ;' >&2; exit 2\n")
    submit(workdir, "<b>'$x", hw4=f"#!/bin/sh\necho '{NASTY}' >&2; exit 1\n")
    (workdir / "mine").write_text("mine")
    (workdir / "out" / "ann").mkdir(parents=True)
    (workdir / "out" / "ann" / handout.PAGE).symlink_to(workdir / "mine")
    old = os.umask(0)
    try:
        assert judge_class(folder).returncode == 0
    finally:
        os.umask(old)
    for user in ("ann", "ben", "<b>'$x"):
        for name in handout.NAMES:
            path = workdir / "out" / user / name
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert "\x1b" not in path.read_text()
    assert (workdir / "mine").read_text() == "mine"
    ben = (workdir / "out" / "ben" / handout.TEXT).read_text()
    assert "make hw4 failed: hw4.cu(7): error: no ;" in ben
    assert "```\nhw4.cu(7): error: no ;\nmake: ***" in ben
    page = (workdir / "out" / "<b>'$x" / handout.PAGE).read_text()
    assert "<script>" not in page and "<b>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page and "script-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    names = json.loads((workdir / "out" / pseudonyms.NAME).read_text())["names"]
    assert f"you are “{names['ben']}”" in ben


def test_a_users_name_in_a_journal_cannot_redirect_its_handout(tmp_path):
    (tmp_path / "else").mkdir()
    for name, user in (("a", "../else"), ("b", str(tmp_path / "else")), ("c", ".."), ("d", "d")):
        write(tmp_path / "out" / name, RIGHT, user=user, cases=["t01"])
    assert run_here("judge", "--rescore", tmp_path / "out").returncode == 0
    assert list((tmp_path / "else").iterdir()) == []
    assert sorted(path.parent.name for path in tmp_path.rglob(handout.PAGE)) == ["d"]


def test_rescore_writes_handouts_by_the_new_rules(tmp_path):
    for user in ("ann", "ben"):
        write(tmp_path / "out" / user, RIGHT, user=user, cases=["t01"])
    assert run_here("judge", "--rescore", tmp_path / "out", "--limit", "t01=0.1").returncode == 0
    text = (tmp_path / "out" / "ann" / handout.TEXT).read_text()
    assert "0 of 1 cases AC" in text
    assert "--limit t01=0.1" in text


def test_a_late_submission_is_marked_everywhere_without_a_penalty(workdir, folder):
    for user, hour in (("ann", 11), ("ben", 14)):
        own = submit(workdir, user, hw4=correct(folder, workdir / "runs"))
        moment = datetime(2026, 5, 1, hour, 5, tzinfo=UTC).timestamp()
        os.utime(own / "hw4", (moment, moment))
    result = judge_class(folder, "--due", "2026-05-01T12:00+00:00")
    assert result.returncode == 0, result.stderr
    rows = {line.split()[3]: line for line in result.stdout.splitlines() if " of 2 " in line}
    assert "late" not in rows["ann"] and "2 h 5 min late" in rows["ben"]
    assert "ben: handed in 2 h 5 min late" in result.stdout
    document = json.loads((workdir / "out" / "results.json").read_text())
    assert {one["user"]: (one["late"], one["score"]) for one in document["standings"]} == {
        "ann": (0, 60),
        "ben": (7500, 60),
    }
    assert "Handed in" in (workdir / "out" / "ben" / handout.TEXT).read_text()
    page = workdir / "board.html"
    assert run_here("scoreboard", "out", "-o", page).returncode == 0
    assert page.read_text().count("<small>late</small>") == 1
    other = run_here("scoreboard", "out", "--due", "2026-05-01T10:00+00:00").stdout
    assert "ann: handed in 1 h 5 min late" in other
    assert judge_class(folder, "--resume", "--due", "2026-05-03").stdout.count("judged before") == 2, "no new judging"
    for wrong in ("soon", "2026-13-01", "0001-01-01T00:00", "9999-12-31"):
        result = judge_class(folder, "--resume", "--due", wrong)
        assert result.returncode in (0, 2) and "Traceback" not in result.stderr, wrong
    fails(judge_class(folder, "--resume", "--due", "soon"), 2, "'soon' is not a date, such as 2026-05-01")


@pytest.mark.parametrize("stamp", [1e18, -1e18, float("inf"), float("nan")])
def test_a_time_stamp_outside_of_all_dates_is_the_first_or_the_last(stamp):
    assert from_timestamp(stamp).year == (9999 if stamp > 0 else 1)


@needs("make")
def test_a_board_with_pseudonyms_names_no_student(workdir, folder):
    users = ("alice.secretname", "bob.secretname", "cid.secretname")
    submit(workdir, users[0], hw4=correct(folder, workdir / "runs"))
    submit(workdir, users[1], hw4="#!/no/such/file\n")
    submit(workdir, users[2], Makefile="hw4:\n\t@echo $$PWD >&2; exit 1\n")
    assert judge_class(folder).returncode == 0
    page = workdir / "board.html"
    result = run_here("scoreboard", "out", "--anonymous", "-o", page)
    assert result.returncode == 0, result.stderr
    as_json = run_here("scoreboard", "out", "--anonymous", "--json").stdout
    for text in (page.read_text(), result.stdout, as_json):
        assert "secretname" not in text
    record = workdir / "out" / pseudonyms.NAME
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    names = json.loads(record.read_text())["names"]
    assert set(names) == set(users) and len(set(names.values())) == 3
    assert all(name in result.stdout and name in page.read_text() for name in names.values())
    before = record.read_bytes()
    assert run_here("scoreboard", "out", "--anonymous").stdout == result.stdout, "the names stay"
    assert record.read_bytes() == before
    record.write_text("{}")
    fails(run_here("scoreboard", "out", "--anonymous"), 2, "pseudonyms.json is damaged")


def test_pseudonyms_do_not_run_out(tmp_path, monkeypatch):
    monkeypatch.setattr(pseudonyms, "FIRST", "red blue")
    monkeypatch.setattr(pseudonyms, "SECOND", "ant bee")
    users = [f"u{number}" for number in range(40)]
    names = pseudonyms.pseudonyms(tmp_path, users)
    assert len(set(names.values())) == 40
    assert pseudonyms.pseudonyms(tmp_path, [*users, "new"])["u7"] == names["u7"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (7500, "2 h 5 min"),
        (90000, "1 day 1 h"),
        (2e5, "2 days 7 h"),
    ],
)
def test_spans_of_time_have_readable_units(seconds, text):
    assert duration(seconds) == text


@needs("make")
def test_rows_of_a_class_show_reasons_and_progress(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    submit(workdir, "ben", Makefile="hw4:\n\t@echo 'hw4.cu(7): error: no ;' >&2; exit 2\n")
    submit(workdir, "cid", hw4="#!/bin/sh\necho no GPU here >&2; exit 1\n")
    rows = judge_class(folder).stdout.splitlines()[:3]
    assert [row[:12] for row in rows] == ["1 of 3  ann ", "2 of 3  ben ", "3 of 3  cid "]
    assert rows[0].endswith(" s")
    assert rows[1].endswith("broken build: make hw4 failed: hw4.cu(7): error: no ;")
    assert rows[2].endswith("1 NA: exit code 1: no GPU here")
