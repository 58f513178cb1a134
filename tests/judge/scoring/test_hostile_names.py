"""Sixty hostile names of students, programs and machines, in results, boards, handouts and on a leaderboard: none is
markup, a formula or a way out of a folder, and no file is overwritten."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from boards import RIGHT, write
from helpers import run_here
from leaderboards import entry

from hw4cli.judge import handout
from hw4cli.judge.scoring import journal, results, standings
from hw4cli.judge.scoring.pseudonyms import pseudonyms
from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.scoring.scoreboard import page
from hw4cli.show.leaderboard import ranking
from hw4cli.show.leaderboard.entries import append, read
from hw4cli.show.leaderboard.page import page as leaderboard_page

NAMES = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'onmouseover='alert(1)",
    "</title><script>alert(1)</script>",
    "</style><b>",
    "<!--",
    "-->",
    "]]>",
    "<bdi>",
    "&lt;b&gt;",
    "&#60;b&#62;",
    "javascript:alert(1)",
    "{{7*7}}",
    "${title}",
    "$policy",
    "$$",
    "%(name)s",
    "%n%s%x",
    "{0.__class__}",
    "=1+1",
    '=HYPERLINK("http://x")',
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "|cmd",
    "a|b",
    "a`b`c",
    "```\n# h",
    "# heading",
    "[x](javascript:alert(1))",
    "![x](http://x/y)",
    "a\nb",
    "a\r\nb",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\a\b",
    "\x7f\x9b31m",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\ufeffann",
    "ann\u200b",
    "a" * 250,
    "\U0001f469" * 60,
    "\udcff\udcfe",
    "-rf",
    "--help",
    "~",
    "~root",
    "*",
    "?",
    "a;b",
    "$(id)",
    "`id`",
    "CON",
    " ",
    "ann ",
    "journal.jsonl",
    "build",
    "...",
    "%2e%2e%2f",
    "é",
    "e\u0301",
]
BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The results of a class of these, with their names in cases' reasons, too; beside it lies a file of somebody's."""
    folder = tmp_path_factory.mktemp("hostile") / "results"
    for name in NAMES:
        wrong = replace(RIGHT, case="t02", problem=f"exit code 1: {name}", said=name)
        fields = {"user": name, "program": [name], "host": name, "gpu": {"name": "GPU", "uuid": name}}
        write(folder / name.replace("/", "_"), replace(RIGHT, case="t01"), wrong, cases=["t01", "t02"], **fields)
    for number, user in enumerate(("../outside", "/etc/passwd", "..", ".", "x/../../outside")):
        write(folder / f"plain{number}", replace(RIGHT, case="t01"), cases=["t01"], user=user)
    (folder.parent / "outside").mkdir()
    (folder.parent / "outside" / "handout.html").write_text("mine")
    return folder


class Elements(HTMLParser):
    """The elements of a page, and the attributes that run or load something."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.active = {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            own = name == "href" and ":" not in (value or "")  # a place in the page, or a file beside it
            if name.startswith("on") or (name in ("href", "src", "action") and not own and value != "data:,"):
                self.active.append((tag, name, value))


def check_page(text, harmless):
    """A page has the elements of one with harmless names, and nothing of its own runs or loads."""
    assert not BAD.search(text)
    made = Elements(text)
    assert made.active == []
    assert made.tags.get("script", 0) == harmless.tags.get("script", 0)
    assert set(made.tags) <= set(harmless.tags)


def test_no_name_is_markup_on_a_board_or_in_a_handout(judged, tmp_path):
    now, rules = datetime(2026, 5, 1, tzinfo=UTC), Rules()
    write(
        tmp_path / "ann",
        replace(RIGHT, case="t01"),
        replace(RIGHT, case="t02", problem="x", said="x"),
        cases=["t01", "t02"],
    )
    write(tmp_path / "ben", replace(RIGHT, case="t01"), replace(RIGHT, case="t02"), cases=["t01", "t02"], user="ben")
    plain, found = standings.load(tmp_path, rules), standings.load(judged, rules)
    assert len(found) == len(NAMES) + 5
    check_page(page(found, rules, NAMES[0], now), Elements(page(plain, rules, "x", now)))
    names = pseudonyms(judged, [one.user for one in found])
    hidden = page(standings.anonymize(found, names, rules), rules, "x", now)
    assert "handout" not in hidden and "ann\u200b" not in hidden
    for one in found:
        shown = handout.Handout(one, rules, 2, "amber otter", "x")
        usual = handout.Handout(plain[1], rules, 2, "amber otter", "x"), handout.Handout(plain[0], rules, 2, "", "x")
        both = Elements("".join(one.page() for one in usual))
        check_page(shown.page(), _once(both, usual[0].page()))
        assert "\x1b" not in shown.markdown()


def _once(both, text):
    """The elements of both, with the scripts of one."""
    both.tags["script"] = Elements(text).tags.get("script", 0)
    return both


def test_every_file_of_a_class_is_whole_and_no_other_is_touched(judged):
    rules = Rules()
    found = standings.load(judged, rules)
    before = {path: path.read_bytes() for path in judged.rglob(journal.NAME) if path.is_file()}
    results.write(judged, found, rules)
    handout.write(judged, found, rules, pseudonyms(judged, [one.user for one in found]))
    assert {path: path.read_bytes() for path in before} == before
    assert (judged.parent / "outside" / "handout.html").read_text() == "mine"
    assert sorted(path.name for path in judged.parent.iterdir()) == ["outside", "results"]
    assert len(json.loads((judged / "results.json").read_text())["standings"]) == len(NAMES) + 5
    for row in csv.reader(io.StringIO((judged / "results.csv").read_text())):
        for cell in row:
            assert not cell.startswith(("=", "+", "@", "\t", "\r")) and not re.match(r"-\D", cell), cell
    own = {name for name in NAMES if "/" not in name}  # the others are the names of no folder
    assert {path.parent.name for path in judged.glob("*/handout.html")} == own


@pytest.mark.parametrize("anonymous", [[], ["--anonymous"]])
def test_a_terminal_gets_no_control_character_of_a_name(judged, tmp_path, anonymous):
    shown = run_here("scoreboard", judged, "-o", tmp_path / "board.html", "--title", NAMES[0], *anonymous)
    assert shown.returncode == 0, shown.stderr
    assert not BAD.search(shown.stdout) and "\u202e" not in shown.stdout
    assert not BAD.search((tmp_path / "board.html").read_text())


def test_no_name_is_markup_on_a_leaderboards_page(tmp_path):
    now = datetime(2026, 5, 1, tzinfo=UTC)
    names = [name for name in NAMES if 0 < len(name) <= 80]
    for number, name in enumerate(names):
        append(tmp_path, entry(name, 10 + number, program=name, machine=name, authors=(name, "x")))
        append(tmp_path, entry(name, 10 + number, status="wrong", reason=name, program=name))
    found = read(tmp_path)
    assert (len(found.entries), found.damaged) == (2 * len(names), [])
    (tmp_path / "plain").mkdir()
    append(tmp_path / "plain", entry("ann", authors=("x",)))
    append(tmp_path / "plain", entry("ann", status="wrong", reason="x"))
    usual = read(tmp_path / "plain").entries
    plain = Elements(leaderboard_page(ranking.boards(usual), usual, "x", False, now))
    check_page(leaderboard_page(ranking.boards(found.entries), found.entries, NAMES[0], False, now), plain)
    shown = run_here("leaderboard", "--board", tmp_path)
    assert shown.returncode == 0 and not BAD.search(shown.stdout)
