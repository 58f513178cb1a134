"""The scoreboard: what a folder of journals comes to, in the terminal and as a page."""

import json
from dataclasses import replace

import pytest

from hw4cli import journal
from hw4cli.errors import InputError
from hw4cli.record import Attempt, Rules
from hw4cli.standings import load
from hw4cli.verdict import Verdict

RIGHT = Attempt("t01", (320, 128, 32), 2.0, wall=0.5, exit_code=0, max_error=1e-5)
LATE = replace(RIGHT, case="t02", wall=2.5)
RULES = Rules()


def write(folder, *attempts, **facts):
    """A journal as the judge writes it, in one go."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [journal.header(**facts), *(journal.run("key", attempt) for attempt in attempts)]
    (folder / journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_single_journal_is_a_board_of_one(tmp_path):
    write(tmp_path / "mine", RIGHT, LATE, cases=["t01", "t02", "t03"])
    (one,) = load(tmp_path / "mine", RULES)
    assert (one.user, one.rank, one.passed, one.time, one.penalty, one.score) == ("mine", 1, 1, 0.5, 120.0, 54)
    assert one.cases == ["t01", "t02", "t03"]
    assert one.results["t02"].verdict is Verdict.TLE


def test_a_class_is_ranked_and_measured_by_the_same_cases(tmp_path):
    write(tmp_path / "ann", RIGHT, LATE, cases=["t02", "t01"], user="Ann")
    write(tmp_path / "bob", RIGHT, replace(LATE, wall=1.0), cases=["t01", "t02"])
    write(tmp_path / "cy", RIGHT, cases=["t01"])
    (tmp_path / "notes.txt").touch()
    board = load(tmp_path, RULES)
    assert [(one.rank, one.user, one.passed, one.penalty) for one in board] == [
        (1, "bob", 2, 0.0),
        (2, "Ann", 1, 60.0),
        (2, "cy", 1, 60.0),
    ]
    assert all(one.cases == ["t01", "t02"] for one in board)


def test_other_rules_make_another_board(tmp_path):
    write(tmp_path / "ann", RIGHT, LATE)
    (strict,) = load(tmp_path, Rules(penalty=7, limits={"t01": 0.1}))
    assert (strict.passed, strict.penalty) == (0, 14.0)
    (lenient,) = load(tmp_path, Rules(limits={"t02": 3}))
    assert lenient.passed == 2


def test_a_program_that_does_not_compile_stands_there_with_its_note(tmp_path):
    write(tmp_path / "ann", RIGHT, cases=["t01", "t02"])
    write(tmp_path / "bob", cases=["t01", "t02"], note="does not compile: hw4.cu(3): error")
    _, bob = load(tmp_path, RULES)
    assert (bob.rank, bob.passed, bob.penalty, bob.score, dict(bob.results)) == (2, 0, 120.0, 54, {})
    assert bob.note == "does not compile: hw4.cu(3): error"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\xff\xfe no journal",
        b"[" * 100_000,
        b'{"kind": "header", "schema": 99}\n',
        b'{"kind": "run", "case": "t01", "shape": [1, 2, 3]}\n',
        b'{"kind": "run", "key": "k", "case": "t01", "shape": [1, 2, 3], "limit": "soon", "wall": 1}\n',
    ],
)
def test_one_damaged_journal_does_not_stop_the_rest(tmp_path, text):
    write(tmp_path / "ann", RIGHT, cases=["t01"])
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / journal.NAME).write_bytes(text)
    ann, bob = load(tmp_path, RULES)
    assert (ann.user, ann.passed, ann.note) == ("ann", 1, "")
    assert (bob.user, bob.passed, bob.penalty, bob.score) == ("bob", 0, 60.0, None)
    assert "journal" in bob.note


def test_a_folder_without_a_journal_is_told(tmp_path):
    with pytest.raises(InputError, match="and its folders hold no"):
        load(tmp_path, RULES)
    with pytest.raises(InputError, match="is no folder"):
        load(tmp_path / "none", RULES)
