"""Lines of a leaderboard's file that no leaderboard writes: each is skipped and named, and no other is lost by it."""

import json

import pytest
from fuzzing import a_folder, fuzz, json_values
from helpers import run_hw4
from hypothesis import given
from hypothesis import strategies as st
from leaderboards import ATTACK, entry
from slow import slow

from hw4cli.show.leaderboard import ranking, tables
from hw4cli.show.leaderboard.entries import LONGEST, NAME, SHORTEST, append, read
from hw4cli.show.leaderboard.page import page
from hw4cli.text.dates import now


@pytest.mark.parametrize(
    "change",
    [
        {"ranked": [1e308, 1e308]},
        {"ranked": [1e300, 1e300]},
        {"ranked": [1e-300, 1e-300]},
        {"ranked": ["1", "2"]},
        {"ranked": [True, True]},
        {"benchmark": [1e308, 1e308]},
        {"max_error": True},
        {"max_error": "0"},
        {"schema": 2},
    ],
)
def test_one_line_stops_no_board(hw4_here, tmp_path, change):
    append(tmp_path, entry(ms=1))
    line = json.loads((tmp_path / NAME).read_text())
    with (tmp_path / NAME).open("a") as file:
        file.write(json.dumps({**line, "user": "mallory", **change}) + "\n")
    append(tmp_path, entry("ben", 11))
    result = hw4_here("leaderboard", "--board", tmp_path, "-o", tmp_path / "page.html")
    assert result.returncode == 3, result.stderr
    assert all(user in result.stdout for user in ("ann", "ben")) and "mallory" not in result.stdout
    assert f"{NAME} is" in result.stderr and "in line 2: what stood there is not shown" in result.stderr
    assert "ben" in (tmp_path / "page.html").read_text()


def test_the_shortest_and_the_longest_time_share_a_page(hw4_here, tmp_path):
    for ms in (SHORTEST, LONGEST, 1.0, 1e300):
        append(tmp_path, entry(ms=ms, spread=0))
    result = hw4_here("leaderboard", "--board", tmp_path, "-o", tmp_path / "page.html")
    assert (result.returncode, read(tmp_path).damaged) == (3, [4])
    assert len(read(tmp_path).entries) == 3


def test_a_time_zone_that_no_place_has_is_utc(tmp_path):
    append(tmp_path, entry())
    page = tmp_path / "page.html"
    result = run_hw4("leaderboard", "--board", tmp_path, "-o", page, env={"TZ": "UTC+99"})
    assert result.returncode == 0, result.stderr
    assert "UTC</time>" in page.read_text()


dates = st.sampled_from(
    [f"{year:04}-01-01T00:00:00{zone}" for year in (1, 2, 1969, 9999) for zone in ("+23:59", "-23:59", "", "Z")]
)
values = json_values | dates | st.floats(0, 1e12) | st.lists(st.floats(0) | st.integers(), max_size=4)


@st.composite
def files(draw):
    """The bytes of a leaderboard's file with three lines, of which some are not as they were written."""
    lines = []
    for number, user in enumerate(("ann", "ben", ATTACK)):
        line = {**entry(user, 10 + number, day=number, machine="GPU").as_json()}
        line = json.loads(json.dumps(line))
        for _ in range(draw(st.integers(0, 2))):
            place = draw(st.sampled_from([line, line["workload"] if isinstance(line["workload"], dict) else line]))
            place[draw(st.sampled_from(sorted(place)) | st.text(max_size=4))] = draw(values)
        lines.append(json.dumps(line).encode())
    text = b"\n".join(lines) + b"\n"
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=4)) + text[at + draw(st.integers(0, 40)) :]
    return text


@slow
@fuzz
@given(text=files(), best=st.booleans())
def test_a_leaderboards_file_may_hold_anything(text, best):
    """Whatever its lines are, those that can be read are shown in a table, as a history, in JSON and on the page."""
    with a_folder() as folder:
        append(folder, entry("zoe", 5))
        first = (folder / NAME).read_bytes()
        (folder / NAME).write_bytes(first + text)
        found = read(folder)
        assert found.entries[0].user == "zoe"
        boards = ranking.boards(found.entries)
        json.dumps(tables.as_json(boards, found.entries, best), allow_nan=False)
        shown = "".join(tables.board_text(board, best, width, True) for board in boards for width in (None, 40))
        shown += tables.index_text(boards, 80)
        for user in {one.user for one in found.entries}:
            shown += tables.history_text(user, [one for one in found.entries if one.user == user], 80)
        for one in found.entries:
            if one.status == "ranked":
                shown += tables.standing_words(one, found.entries)
        assert "\x1b" not in shown
        made = page(boards, found.entries, "x", best, now())
        assert ATTACK not in made and len(made) < 1 << 20
        append(folder, entry("yan", 6))
        assert (folder / NAME).read_bytes().startswith(first + text) and read(folder).entries[-1].user == "yan"
