"""Boards: who has which rank, who leads since when, what is shown of it, and what of a damaged file."""

import json
import multiprocessing
from dataclasses import replace
from datetime import timedelta

import pytest
from helpers import fails, fits, on_a_terminal
from hypothesis import given
from hypothesis import strategies as st
from leaderboards import START, T28, entry
from slow import slow

from hw4cli.show.leaderboard.contest import PROGRAM, Contest
from hw4cli.show.leaderboard.entries import NAME, append, read
from hw4cli.show.leaderboard.published import PUBLISHED
from hw4cli.show.leaderboard.ranking import boards, ranked


def texts(entries):
    return [(place.text, place.entry.user) for place in ranked(entries)]


def test_ranks_are_by_the_mean_and_shared_where_intervals_overlap():
    found = texts([entry("c", 11), entry("a", 10), entry("d", 11.005), entry("b", 10.5)])
    assert found == [("1", "a"), ("2", "b"), ("=3", "c"), ("=3", "d")]


def test_a_chain_of_overlaps_is_cut_where_the_first_and_the_last_are_certainly_apart():
    """Each overlaps the one before it; the third does not overlap the first."""
    found = texts([entry("a", 10, 0.01), entry("b", 10.02, 0.01), entry("c", 10.04, 0.01)])
    assert found == [("=1", "a"), ("=1", "b"), ("3", "c")]


@given(st.lists(st.tuples(st.floats(1, 2), st.floats(1e-4, 0.2)), min_size=1, max_size=12))
def test_whatever_the_times_no_two_of_a_rank_are_certainly_apart_from_its_first(times):
    places = ranked([entry(str(place), *one) for place, one in enumerate(times)])
    means = [place.entry.times.mean for place in places]
    assert means == sorted(means)
    for at, place in enumerate(places):
        first = places[place.rank - 1]
        assert first.rank == place.rank <= at + 1
        assert place is first or place.entry.times.interval[0] <= first.entry.times.interval[1]
        assert place.tied == (sum(other.rank == place.rank for other in places) > 1)


def test_every_submission_ranks_or_the_best_of_each_user():
    (board, *_) = boards([entry("a", 12), entry("b", 11), entry("a", 10, day=1), entry("b", 13)])
    assert [(p.rank, p.entry.user) for p in board.places()] == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]
    assert [(p.rank, p.entry.user) for p in board.places(best_per_user=True)] == [(1, "a"), (2, "b")]


def test_a_leader_leads_since_they_first_were_ahead_of_all_others():
    history = [entry("a", 12, day=0), entry("b", 11, day=1), entry("b", 10, day=2), entry("a", 10.5, day=3)]
    best, since = boards(history)[0].leader()
    assert (best.user, best.times.mean, since) == ("b", 10, START + timedelta(days=1))
    best, since = boards([*history, entry("a", 9, day=4)])[0].leader()
    assert (best.user, since) == ("a", START + timedelta(days=4))


def test_each_workload_gpu_and_way_of_timing_has_a_board_and_what_was_not_right_is_on_none():
    others = [
        entry(machine="NVIDIA H100"),
        entry(workload=Contest.of(2, 8, 4)),
        entry(workload=replace(T28, timed=PROGRAM)),
    ]
    found = boards([entry(), *others, entry(status="wrong", workload=Contest.of(1, 8, 4))], published=())
    assert len(found) == 4
    assert all(len(board.entries) == 1 for board in found)


def test_what_others_published_stands_apart_and_is_not_ranked():
    found = {board.title: board for board in boards([])}
    board = found["(4, 64, 8192, 128) float16, NVIDIA H100"]
    assert [one.ms for one in board.published if not one.error][:4] == [13.617, 15.192, 15.442, 17.041]
    assert round(board.workload.tflops(13.617)) == 646
    assert board.places() == [] and board.leader() is None
    assert all(one.source for one in PUBLISHED)


def test_what_is_written_is_what_is_read(tmp_path):
    made = [entry("José 李", authors=("x", "y")), entry(status="failed", reason="test: no", max_error=1e-3, seed=3)]
    for one in made:
        append(tmp_path, one)
    found = read(tmp_path)
    assert (found.entries, found.damaged) == (made, [])


def _append_many(folder, user):
    for _ in range(20):
        append(folder, entry(user))


@slow
def test_two_that_append_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(tmp_path, user)) for user in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    found = read(tmp_path)
    assert (len(found.entries), found.damaged) == (40, [])


@pytest.mark.parametrize(
    "change",
    [
        {"user": ""},
        {"user": 5},
        {"user": "a" * 81},
        {"status": "first"},
        {"date": "yesterday"},
        {"date": "2026-05-01T12:00:00"},
        {"ranked": [1.0]},
        {"ranked": [1.0, -1.0]},
        {"ranked": [1.0, 1e999]},
        {"ranked": "12"},
        {"seed": 1.5},
        {"max_error": -1},
        {"authors": [1]},
        {"facts": {"gpu": 1}},
        {"workload": {"batch": 0, "N": 8, "d": 4}},
        {"workload": {"batch": 1, "N": 8, "d": 4, "timed": "x"}},
        {"workload": {"batch": 1, "N": 8, "d": 4, "dtype": "<b>"}},
        {"workload": {"batch": 1, "N": 8}},
        {"schema": "1"},
        {"schema": True},
    ],
)
def test_a_damaged_line_is_counted_and_the_others_are_shown(hw4_here, tmp_path, change):
    append(tmp_path, entry())
    line = json.loads((tmp_path / NAME).read_text())
    with (tmp_path / NAME).open("a") as file:
        file.write(json.dumps({**line, **change}) + "\n" + '{"schema": 1, "us')
    append(tmp_path, entry("ben", 11))
    found = read(tmp_path)
    assert ([one.user for one in found.entries], found.damaged) == (["ann", "ben"], [2, 3])
    result = hw4_here("leaderboard", "--board", tmp_path)
    assert result.returncode == 3
    assert "damaged in lines 2, 3" in result.stderr
    assert "ben" in result.stdout


@pytest.fixture
def folder(tmp_path):
    """A leaderboard with two boards, ties, a user's history, and a submission that was wrong."""
    path = tmp_path / "board"
    path.mkdir()
    for one in (
        entry("ann", 12, day=0),
        entry("ben", 0.8389, 0.001, day=1),
        entry("ann", 0.84, 0.001, day=2),
        entry("cid", 3, day=3, status="wrong", reason="test: 8 of 16 elements are off"),
        entry("ann", 6.5, day=4, machine="NVIDIA H100 80GB HBM3"),
    ):
        append(path, one)
    return path


def test_the_boards_are_shown_with_times_errors_dates_and_who_leads(hw4_here, folder):
    result = hw4_here("leaderboard", "--board", folder)
    assert result.returncode == 0, result.stderr
    board = result.stdout.split("\n\n")[2].splitlines()
    assert board[0] == "t28 (4, 16384, 64) float32, NVIDIA H200"
    assert board[1] == "ben leads since 2026-05-02 12:00 UTC; 3 entries"
    assert board[3].split()[:8] == ["=1", "ben", "flash", "0.8389", "0.00071", "0.8369", "0.8409", "327.7"]
    assert board[3].endswith("2026-05-02 12:00 UTC")
    assert "cid" not in result.stdout
    assert "source: a public GPU leaderboard" in result.stdout
    best = hw4_here("leaderboard", "--board", folder, "--gpu", "h200", "--best-per-user").stdout
    assert "12.000" not in best and "13.617" not in best and "ann" in best


def test_a_users_history_holds_what_was_wrong_too(hw4_here, folder):
    lines = hw4_here("leaderboard", "--board", folder, "--user", "ann").stdout.splitlines()
    assert lines[0] == "ann, 3 submissions"
    assert [line.split()[0] for line in lines[2:]] == ["2026-05-01", "2026-05-03", "2026-05-05"]
    assert "wrong, test: 8 of 16" in hw4_here("leaderboard", "--board", folder, "--user", "cid").stdout


def test_json_holds_boards_and_entries(hw4_here, folder):
    found = json.loads(hw4_here("leaderboard", "--board", folder, "t28", "--json").stdout)
    h100, h200 = found["boards"]
    assert [(place["rank"], place["tied"]) for place in h200["places"]] == [(1, True), (1, True), (3, False)]
    assert h100["title"].endswith("H100 80GB HBM3")
    assert len(found["entries"]) == 5


def test_a_leaderboard_without_submissions_is_a_page_that_says_how_to_begin(hw4_here, tmp_path):
    result = hw4_here("leaderboard", "--board", tmp_path / "none", "-o", tmp_path / "page.html")
    assert result.returncode == 0
    assert "holds no leaderboard yet: `hw4 leaderboard KERNEL CASE` begins one" in " ".join(result.stderr.split())
    text = (tmp_path / "page.html").read_text()
    assert "Nobody has submitted yet: <code>hw4 leaderboard ./mine.cu t28</code>" in text
    assert "<b>0</b> <span>submissions</span>" in text
    assert 'id="best"' not in text
    assert "Published by others" in text and "<code>hw4 leaderboard KERNEL WORKLOAD</code> submits" in text
    assert not (tmp_path / "none").exists()


def test_wrong_questions_are_one_sentence(hw4_here, folder, tmp_path):
    show = ("leaderboard", "--board", folder)
    none = hw4_here("leaderboard", "--board", tmp_path / "none")
    fails(none, 2, "holds no leaderboard", "`hw4 leaderboard KERNEL CASE` begins one")
    fails(hw4_here(*show, "--user", "dan"), 2, "no submission of 'dan'")
    fails(hw4_here(*show, "--gpu", "mi300"), 2, "no board like that")
    fails(hw4_here(*show, "t01"), 2, "no board like that")
    fails(hw4_here(*show, "-o", tmp_path / "no" / "page.html"), 2, "does not exist")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_boards_fit_a_terminal_and_have_bars(folder, width):
    code, text = on_a_terminal(width, "leaderboard", "--board", folder, env={"PYTHONUTF8": "1"})
    assert code == 0
    assert fits(text, width), text
    board = text.partition("ben leads since")[2].partition("\n\n")[0]
    assert "████████" in board
