"""Damaged files of every kind: what is wrong is told in a sentence, and nothing is lost.

A few hundred of them each; HW4_FUZZ=10000 tries as many as one likes.
"""

import io
import json
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from boards import RIGHT, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from hw4cli import caserecord, journal, pseudonyms, results, standings
from hw4cli.casefile import HEADER, InputFile
from hw4cli.caserecord import CaseRecord
from hw4cli.casewatch import CaseWatch
from hw4cli.cli import board
from hw4cli.errors import Hw4Error
from hw4cli.handout import Handout
from hw4cli.judge import check_case
from hw4cli.record import Rules
from hw4cli.scoreboard import page
from hw4cli.shape import Shape
from hw4cli.submission import BrokenError, Submission, program_of
from hw4cli.suite import Case

EXAMPLES = int(os.environ.get("HW4_FUZZ", "200"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="HW4_FUZZ" not in os.environ,
)

numbers = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 2**63, 1e308])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8) | st.sampled_from(["inf", "t01", "\ud800", "\x1b[31m"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEADER_LINE = journal.header(
    user="ben", cases=["t01", "t02"], keys={"t01": "key", "t02": "key"}, gpu={"name": "GPU", "uuid": "1"}, note=None,
    settings={"tolerance": 5e-3, "penalty": 60.0, "rank_by": "time", "handed_in": "2026-01-01T00:00:00+00:00"},
)  # fmt: skip
LINES = [HEADER_LINE, *(journal.run("key", replace(RIGHT, case=case)) for case in ("t01", "t02"))]


@contextmanager
def a_folder():
    """A new folder for each example, without pytest's bookkeeping."""
    folder = Path(tempfile.mkdtemp(prefix="hw4-fuzz-"))
    try:
        yield folder
    finally:
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(folder)


@st.composite
def journals(draw):
    """The bytes of a journal in which one thing, or two, are not as they were written."""
    lines = [json.loads(json.dumps(line)) for line in LINES]
    texts: list[bytes] = []
    for line in lines:
        places = [line] + [value for value in line.values() if isinstance(value, dict)]
        if draw(st.booleans()):
            place = draw(st.sampled_from(places))
            name = draw(st.sampled_from(sorted(place)) if place else st.just("x"))
            if draw(st.integers(0, 4)):
                place[name] = draw(json_values)
            else:
                place.pop(name, None)
        texts.append(json.dumps(line).encode())
    text = b"\n".join(draw(st.permutations(texts)) if draw(st.booleans()) else texts) + b"\n"
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=4)) + text[at + draw(st.integers(0, 40)) :]
    return text


@fuzz
@given(
    text=journals(),
    rules=st.builds(Rules, rank_by=st.sampled_from(["time", "passed"]), due=st.sampled_from([None, NOW])),
)
def test_a_journal_may_hold_anything_and_everyone_elses_results_stand(text, rules):
    with a_folder() as folder:
        write(folder / "ann", replace(RIGHT, case="t01"), replace(RIGHT, case="t02"), cases=["t01", "t02"])
        path = folder / "ben" / journal.NAME
        path.parent.mkdir()
        path.write_bytes(text)
        entries = standings.read(folder)
        found = standings.decide(entries, rules)
        standings.as_judged(entries)
        assert [one.passed for one in found if one.user == "ann"][:1] == [2]
        assert len(found) == 2
        results.write(folder, found, rules)
        page(found, rules, "x", NOW)
        hidden = {one.user: f"n{number}" for number, one in enumerate(found)}
        page(standings.anonymous(found, hidden, rules), rules, "x", NOW)
        for one in found:
            handout = Handout(one, rules, 2, "amber otter", "")
            handout.page(), handout.markdown()
        try:
            before = journal.read(path)
        except Hw4Error:
            before = None
        journal.append(path, journal.run("key", replace(RIGHT, case="t03")))
        assert path.read_bytes().startswith(text), "nothing of it is lost"
        if before is not None:
            after = journal.read(path)
            assert after.runs[: len(before.runs)] == before.runs and after.runs[-1][1].case == "t03"


@fuzz
@given(text=journals())
def test_a_damaged_journal_is_shown_in_the_terminal(text):
    with a_folder() as folder:
        (folder / "ben").mkdir()
        (folder / "ben" / journal.NAME).write_bytes(text)
        found = standings.load(folder, Rules())
        shown = io.StringIO()
        board.Console = lambda **_: Console(file=shown, width=100)
        try:
            board.print_board(found, Rules())
        finally:
            board.Console = Console
        assert "\x1b" not in shown.getvalue()


KINDS = ["file", "file", "file", "folder", "link", "pipe", "program", "makefile"]
names = st.text(st.characters(blacklist_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
trees = st.lists(
    st.tuples(
        st.lists(
            names | st.sampled_from(["hw4", "Makefile", "hw4.cu", "-rf", "a b", "\udcff"]), min_size=1, max_size=3
        ),
        st.sampled_from(KINDS),
        st.sampled_from([0o777, 0o644, 0o000, 0o400]),
        st.binary(max_size=12) | st.sampled_from([b"hw4:\n\tfalse\n", b"#!/bin/sh\n", b"\x7fELF", b"#!\n", b"all:\n"]),
    ),
    max_size=6,
)


def plant(folder, tree):
    """Make what there can be made of a tree."""
    for parts, kind, mode, content in tree:
        path = folder.joinpath(*("Makefile" if kind == "makefile" and part == parts[-1] else part for part in parts))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                continue
            if kind == "folder":
                path.mkdir()
            elif kind == "link":
                path.symlink_to(os.fsdecode(content.replace(b"\0", b"x")) or "x")
            elif kind == "pipe":
                os.mkfifo(path)
            else:
                path.write_bytes(content)
                path.chmod(mode)
        except (OSError, ValueError):
            continue


def snapshot(folder):
    """Names, kinds, permissions and bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[path] = (
            status.st_mode,
            path.read_bytes() if stat.S_ISREG(status.st_mode) and status.st_mode & 0o400 else b"",
        )
    return found


@settings(fuzz, max_examples=max(20, EXAMPLES // 4))
@given(tree=trees)
def test_a_submission_may_hold_anything_and_is_only_read(tree):
    with a_folder() as folder:
        place = folder / "submissions" / "ann"
        place.mkdir(parents=True)
        plant(place, tree)
        before = snapshot(place)
        one = Submission("ann", place)
        assert len(one.sha256) == 64 and one.contents.size >= 0
        one.handed_in  # noqa: B018
        try:
            program = program_of(one, folder / "out", 10, False, folder)
            assert program.resolve().is_relative_to((folder / "out").resolve())
        except (BrokenError, Hw4Error) as error:
            assert str(error)
        assert snapshot(place) == before


@st.composite
def case_files(draw):
    """The bytes of an input file that is not quite one."""
    sizes = st.integers(0, 5) | st.sampled_from([-1, 2**31 - 1, -(2**31), 129, 4])
    text = HEADER.pack(draw(sizes), draw(sizes), draw(sizes)) + draw(st.binary(max_size=64))
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


CASE = Case("t", Shape(1, 1, 4), 1, 1.0, "0" * 64)


@fuzz
@given(source=case_files(), answer=st.binary(max_size=20), known=st.booleans())
def test_a_case_may_hold_anything(source, answer, known):
    with a_folder() as folder:
        (folder / "t").write_bytes(source)
        (folder / "t.out").write_bytes(answer)
        case = CASE if known else replace(CASE, sha256="")
        for read in (
            lambda: InputFile(folder / "t").ranges(),
            lambda: check_case(case, folder),
            lambda: CaseWatch([case], folder).changed(),
            lambda: CaseWatch([case], folder, CaseRecord(folder / caserecord.NAME, secret=False)).changed(),
        ):
            try:
                read()
            except Hw4Error as error:
                assert str(error)
        assert (folder / "t").read_bytes() == source and (folder / "t.out").read_bytes() == answer


@st.composite
def documents(draw):
    """A record of cases or of pseudonyms, damaged."""
    seen = {"sha256": "0" * 64, "stamp": [1, 2, 3, 4]}
    document = {
        "schema": 1,
        "secret": False,
        "cases": {"t": {"seed": 1, "input": seen, "answer": None}},
        "names": {"a": "b"},
    }
    places = [document, document["cases"], document["cases"]["t"], seen, document["names"]]
    place = draw(st.sampled_from(places))
    place[draw(st.sampled_from(sorted(place)))] = draw(json_values)
    text = json.dumps(document).encode()
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@fuzz
@given(text=documents() | st.binary(max_size=20))
def test_records_beside_the_results_may_hold_anything(text):
    with a_folder() as folder:
        for name, read in (
            (caserecord.NAME, lambda: CaseRecord.load(folder, secret=False).save()),
            (pseudonyms.NAME, lambda: pseudonyms.pseudonyms(folder, ["ann"])),
        ):
            (folder / name).write_bytes(text)
            try:
                read()
            except Hw4Error as error:
                assert name in str(error) or str(folder) in str(error)
                assert (folder / name).read_bytes() == text
