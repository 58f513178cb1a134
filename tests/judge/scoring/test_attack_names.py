"""Names and messages of students with characters that control the direction of text, or are invisible."""

import json

import pytest
from helpers import run_here

from hw4cli.judge.scoring import journal
from hw4cli.judge.scoring.record import Attempt

HIDDEN = "\u202e\u202d\u2066\u2067\u2069\u200e\u200f\u061c\ufeff\u2028\U000e0041"


@pytest.fixture
def board(tmp_path):
    """The scoreboard, as a page and as text, of a student whose name and program's output hold these characters."""

    def make(hidden):
        folder = tmp_path / "results" / "ann"
        folder.mkdir(parents=True, exist_ok=True)
        attempt = Attempt("t01", (320, 128, 32), 2.0, wall=1.0, problem=f"exit code 1: {hidden}desrever")
        header = journal.header_line(user=f"ann{hidden}nna", cases=["t01"], settings={})
        lines = [header, journal.run_line("key", attempt)]
        (folder / journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
        page = tmp_path / "board.html"
        result = run_here("scoreboard", tmp_path / "results", "-o", page)
        assert result.returncode == 0, result.stderr
        return page.read_text(encoding="utf-8"), result.stdout

    return make


def test_invisible_and_direction_changing_characters_are_replaced(board):
    page, shown = board(HIDDEN)
    for hidden in HIDDEN:
        assert hidden not in page, f"U+{ord(hidden):04X}"
        assert hidden not in shown, f"U+{ord(hidden):04X}"
    assert "\ufffd" in page


def test_names_in_other_scripts_are_shown_unchanged(board):
    name = "می\u200cخواهم 👩\u200d💻 אבג"
    page, _ = board(name)
    assert name in page
