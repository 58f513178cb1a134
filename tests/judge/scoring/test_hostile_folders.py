"""Folders of results with what no judge leaves there: nobody is made up, and nobody goes missing without a word."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from boards import RIGHT, write
from helpers import hw4_env, run_here, run_hw4

from hw4cli.judge.scoring import journal, standings
from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.submission import Submission
from hw4cli.text.dates import SkippedTimeError, due_date, from_timestamp, parse_timestamp


@pytest.fixture
def results(tmp_path):
    """The results of a class of one."""
    write(tmp_path / "ann", replace(RIGHT, case="t01"), cases=["t01"])
    return tmp_path


def test_a_student_who_is_called_as_a_journal_is_one_student(results):
    write(results / journal.NAME, replace(RIGHT, case="t01"), cases=["t01"])
    found = run_here("scoreboard", results)
    assert found.returncode == 0, found.stderr
    assert sorted(one.user for one in standings.load(results, Rules())) == ["ann", journal.NAME]


def _loop(path):
    path.symlink_to(path.name)


def _nowhere(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [_loop, _nowhere, os.mkfifo, os.mkdir])
def test_a_journal_that_cannot_be_read_is_a_student_without_a_score(results, make):
    (results / "ben").mkdir()
    make(results / "ben" / journal.NAME)
    found = run_here("scoreboard", results)
    assert found.returncode == 3
    assert "ben" in found.stdout and "damaged" in found.stderr and "ben" in found.stderr
    assert [one.score for one in standings.load(results, Rules()) if one.user == "ben"] == [None]


def test_a_students_folder_that_is_a_loop_of_links_is_a_student_without_a_score(results):
    _loop(results / "ben")
    found = run_here("scoreboard", results)
    assert found.returncode == 3 and "ben" in found.stderr


@pytest.mark.parametrize(("stamp", "late"), [(2**40, True), (2**33, True), (1, False), (-(2**40), False)])
def test_a_file_of_any_time_stamp_is_late_or_in_time(tmp_path, stamp, late):
    """Whatever the file system can hold; where it holds less, the nearest."""
    (tmp_path / "hw4").write_text("")
    os.utime(tmp_path / "hw4", (0, stamp))
    handed_in = Submission("ann", tmp_path).handed_in
    assert (handed_in > datetime(2026, 5, 1, tzinfo=UTC)) is late


def test_a_time_stamp_beyond_all_dates_is_late(tmp_path):
    """Not every file system holds it."""
    handed_in = from_timestamp(2.0**62)
    assert from_timestamp(-(2.0**62)) < datetime(2, 1, 1, tzinfo=UTC) < handed_in
    write(tmp_path / "out", cases=["t01"], settings={"handed_in": handed_in.isoformat()})
    (found,) = standings.load(tmp_path / "out", Rules(due=datetime(2026, 5, 1, tzinfo=UTC)))
    assert found.late > 0
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12", "UTC+99"):
        shown = run_hw4("scoreboard", tmp_path / "out", "--due", "2026-05-01T00:00Z", env={"TZ": zone})
        assert (shown.returncode, "late" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.parametrize("zone", ["+23:59", "-23:59", "+00:00"])
@pytest.mark.parametrize("year", [1, 9999])
def test_a_date_that_some_zone_cannot_show_is_none(year, zone):
    assert parse_timestamp(f"{year:04}-{'01-01' if year == 1 else '12-31'}T12:00:00{zone}") is None


@pytest.fixture
def new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_due_date_that_clocks_skip_is_refused(new_york, results):
    """On 8 March 2026, 2:00 is followed by 3:00."""
    with pytest.raises(SkippedTimeError):
        due_date("2026-03-08T02:30")
    assert due_date("2026-03-08T03:00").isoformat() == "2026-03-08T03:00:00-04:00"
    found = run_here("scoreboard", results, "--due", "2026-03-08T02:30")
    assert (found.returncode, "skip" in found.stderr, "Traceback" in found.stderr) == (2, True, False)


def test_a_due_date_that_clocks_show_twice_is_the_second(new_york):
    """On 1 November 2026, 1:59 is followed by 1:00: nobody is late by the first."""
    assert due_date("2026-11-01T01:30").isoformat() == "2026-11-01T01:30:00-05:00"
    assert due_date("2026-11-01T01:30-04:00").isoformat() == "2026-11-01T01:30:00-04:00"
    assert due_date("2026-11-01").isoformat() == "2026-11-01T23:59:59-05:00"


@pytest.mark.parametrize(
    "text", ["0001-01-01", "9999-12-31", "0001-01-01T00:00+23:00", "2026-13-01", "", "2026-05-01T25"]
)
def test_a_due_date_out_of_range_is_refused(text, results):
    found = run_here("scoreboard", results, "--due", text)
    assert (found.returncode, "is not a date" in found.stderr) == (2, True), found.stderr


def test_a_board_is_made_in_a_time_zone_that_no_place_has(results):
    page = results / "board.html"
    found = run_hw4("scoreboard", results, "-o", page, env={"TZ": "UTC+99"})
    assert found.returncode == 0, found.stderr
    assert " UTC</time>" in page.read_text()


@pytest.mark.parametrize("wall", [1e-9, 4e8, 1e9])
def test_a_board_of_any_times_is_drawn(results, wall):
    write(results / "ben", replace(RIGHT, case="t01", wall=wall, limit=1e9), cases=["t01"])
    page = results / "board.html"
    found = run_here("scoreboard", results, "-o", page)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("page", ["/dev/full", "/proc/board.html", "no/such/folder.html", "ann", "/dev/null/x"])
def test_a_page_that_cannot_be_written_is_one_sentence(results, page):
    found = run_here("scoreboard", results, "-o", results / page)
    assert found.returncode in (2, 3) and found.stderr.count("\n") == 1 and "Traceback" not in found.stderr


def test_a_table_that_cannot_be_printed_is_an_error(results):
    command = [sys.executable, "-m", "hw4cli", "scoreboard", str(results)]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=hw4_env())
    assert (found.returncode, "Traceback" in found.stderr) == (3, False)
