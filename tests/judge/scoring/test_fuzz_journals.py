"""Journals with random damage: it is reported, undamaged lines count, and other users' results are unchanged."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock

from boards import RIGHT, write
from fuzzing import a_folder, fuzz, json_values
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from slow import slow

from hw4cli.cli.terminal import ranking
from hw4cli.errors import Hw4Error
from hw4cli.judge.handout import Handout
from hw4cli.judge.scoring import journal, results, standings
from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.scoring.scoreboard import page

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEADER_LINE = journal.header_line(
    user="ben", cases=["t01", "t02"], keys={"t01": "key", "t02": "key"}, gpu={"name": "GPU", "uuid": "1"}, note=None,
    settings={"tolerance": 5e-3, "penalty": 60.0, "rank_by": "time", "handed_in": "2026-01-01T00:00:00+00:00"},
)  # fmt: skip
LINES = [HEADER_LINE, *(journal.run_line("key", replace(RIGHT, case=case)) for case in ("t01", "t02"))]


@st.composite
def journals(draw):
    """The bytes of a journal with one or two changes."""
    lines = [json.loads(json.dumps(line)) for line in LINES]
    texts: list[bytes] = []
    for line in lines:
        objects = [line] + [value for value in line.values() if isinstance(value, dict)]
        if draw(st.booleans()):
            changed = draw(st.sampled_from(objects))
            name = draw(st.sampled_from(sorted(changed)) if changed else st.just("x"))
            if draw(st.integers(0, 4)):
                changed[name] = draw(json_values)
            else:
                changed.pop(name, None)
        texts.append(json.dumps(line).encode())
    text = b"\n".join(draw(st.permutations(texts)) if draw(st.booleans()) else texts) + b"\n"
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=4)) + text[at + draw(st.integers(0, 40)) :]
    return text


@slow
@fuzz
@given(
    text=journals(),
    rules=st.builds(Rules, rank_by=st.sampled_from(["time", "passed"]), due=st.sampled_from([None, NOW])),
)
def test_a_journal_with_any_content_leaves_the_results_of_other_users_unchanged(text, rules):
    with a_folder() as folder:
        write(folder / "ann", replace(RIGHT, case="t01"), replace(RIGHT, case="t02"), cases=["t01", "t02"])
        path = folder / "ben" / journal.NAME
        path.parent.mkdir()
        path.write_bytes(text)
        entries = standings.read(folder)
        found = standings.compute(entries, rules)
        standings.recorded_rules(entries)
        assert [one.passed for one in found if one.user == "ann"][:1] == [2]
        assert len(found) == 2
        results.write(folder, found, rules)
        page(found, rules, "x", NOW)
        hidden = {one.user: f"n{number}" for number, one in enumerate(found)}
        page(standings.anonymize(found, hidden, rules), rules, "x", NOW)
        for one in found:
            handout = Handout(one, rules, 2, "amber otter", "")
            handout.page(), handout.markdown()
        try:
            before = journal.read(path)
        except Hw4Error:
            before = None
        journal.append(path, journal.run_line("key", replace(RIGHT, case="t03")))
        assert path.read_bytes().startswith(text), "nothing of it is lost"
        if before is not None:
            after = journal.read(path)
            assert after.runs[: len(before.runs)] == before.runs and after.runs[-1][1].case == "t03"


@slow
@fuzz
@given(text=journals())
def test_scoreboard_and_rescore_accept_a_damaged_journal(text):
    with a_folder() as folder:
        (folder / "ben").mkdir()
        (folder / "ben" / journal.NAME).write_bytes(text)
        found = standings.load(folder, Rules())
        shown = io.StringIO()
        with mock.patch.object(ranking, "stdout_console", lambda: (Console(file=shown, width=100), 100)):
            ranking.print_board(found, Rules())
        assert found[0].user in shown.getvalue() or "?" in shown.getvalue()
        assert "\x1b" not in shown.getvalue()
