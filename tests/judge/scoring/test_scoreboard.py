"""The scoreboard of a folder of journals, in the terminal and as a page."""

import csv
import json
import re
import resource
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from boards import ARABIC, ATTACK, COMPILER, LONG, QUOTED, RIGHT, write, write_class
from helpers import fails, folder_is_clean, run_here, run_hw4
from rich.cells import cell_len

from hw4cli import __version__
from hw4cli.errors import InputError
from hw4cli.judge.scoring import journal
from hw4cli.judge.scoring.reasons import score_words
from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.scoring.standings import load
from hw4cli.problem import suite
from hw4cli.problem.verdict import Verdict

LATE = replace(RIGHT, case="t02", wall=2.5)
RULES = Rules()


def test_a_single_journal_is_a_board_of_one(tmp_path):
    write(tmp_path / "mine", RIGHT, LATE, cases=["t01", "t02", "t03"])
    (one,) = load(tmp_path / "mine", RULES)
    assert (one.user, one.rank, one.passed, one.time, one.penalty, one.score) == ("mine", 1, 1, 0.5, 120.0, 54)
    assert one.cases == ["t01", "t02", "t03"]
    assert one.results["t02"].verdict is Verdict.TLE


def test_all_users_of_a_class_are_ranked_by_the_same_cases(tmp_path):
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


def test_other_rules_give_another_ranking(tmp_path):
    write(tmp_path / "ann", RIGHT, LATE)
    (strict,) = load(tmp_path, Rules(penalty=7, limits={"t01": 0.1}))
    assert (strict.passed, strict.penalty) == (0, 14.0)
    (lenient,) = load(tmp_path, Rules(limits={"t02": 3}))
    assert lenient.passed == 2


def test_a_program_that_does_not_compile_is_listed_with_its_note(tmp_path):
    write(tmp_path / "ann", RIGHT, cases=["t01", "t02"])
    write(tmp_path / "bob", cases=["t01", "t02"], note="does not compile: hw4.cu(3): error")
    _, bob = load(tmp_path, RULES)
    assert (bob.rank, bob.passed, bob.penalty, bob.score, dict(bob.results)) == (2, 0, 120.0, 0, {})
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
        b'{"kind": "run", "key": "k", "case": "t01", "shape": [1, 2], "limit": 2, "wall": 1}\n',
        b'{"kind": "run", "key": "k", "case": "t01", "shape": [1, 2, 3], "limit": "soon", "problem": "x"}\n',
        b'{"kind": "run", "key": "k", "case": "t01", "shape": [1, 2, 3], "limit": 2, "fault": {}}\n',
    ],
)
def test_a_damaged_journal_does_not_hide_other_users(tmp_path, text):
    write(tmp_path / "ann", RIGHT, cases=["t01"])
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / journal.NAME).write_bytes(text)
    ann, bob = load(tmp_path, RULES)
    assert (ann.user, ann.passed, ann.note) == ("ann", 1, "")
    assert (bob.user, bob.rank, bob.penalty, bob.score) == ("bob", 0, 0.0, None)
    assert "journal" in bob.note


def test_a_folder_without_a_journal_is_refused(tmp_path):
    with pytest.raises(InputError, match="and its folders hold no"):
        load(tmp_path, RULES)
    with pytest.raises(InputError, match="is not a folder"):
        load(tmp_path / "none", RULES)


class Reader(HTMLParser):
    """The page's table as rows of (text, attributes), its foot, and every tag's attributes."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.tags, self._cell = [], [], None
        self.feed(page.read_text(encoding="utf-8"))
        self.rows, self.foot = self.rows[:-3], self.rows[-3:]

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = len(self.rows[-1])
            self.rows[-1].append(("", dict(attributes)))

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data):
        if self._cell is not None:
            text, attributes = self.rows[-1][self._cell]
            self.rows[-1][self._cell] = text + data, attributes


def test_the_page_has_the_columns_of_the_courses_board(page):
    head, *rows = Reader(page).rows
    names = list(suite.cases())
    assert [text for text, _ in head] == ["User", "Rank", "Passed", "Time", "Penalty", "Total", "Score", *names]
    assert [row[0][0] for row in rows] == [QUOTED, ATTACK, ARABIC, "eve", "f", LONG]
    shown = {row[0][0]: [text for text, _ in row] for row in rows}
    assert shown[QUOTED][:10] == [QUOTED, "1", "30", "18.00", "0", "18.00", "60", "0.60", "0.60", "0.60"]
    assert shown[ARABIC][7:10] == ["0.40", "TLE", "TLE+"]
    assert (shown[ARABIC][4:7], shown[ARABIC][-1]) == (["150", "160.80", "51"], "–")
    assert (shown[ATTACK][10], shown[ATTACK][12], shown[LONG][11]) == ("NA", "~5.95", "JE")
    assert shown["eve"] == ["eve", "4", "0", "0.00", "1500", "1500.00", "0", "does not compile"]
    assert (shown[LONG][1], shown["f"][1], shown[LONG][6]) == ("–", "–", "–")
    text = page.read_text()
    legend = text[text.index('<details class="legend"') : text.index("<table")]
    assert all(f">{word}</span>" in legend for word in ("TLE", "TLE+", "NA", "JE")) and "AC" in legend
    assert "judged on NVIDIA &lt;GeForce&gt; GTX 1080" in text
    assert "Penalty is 50 s" in text and "within 0.005" in text and f"hw4 {__version__}" in text


def test_every_result_has_its_reason(page):
    rows = {row[0][0]: [attributes.get("title") for _, attributes in row] for row in Reader(page).rows[1:]}
    assert rows[QUOTED][7] == "AC: 0.600 s of 6 s\nmax error 1e-05"
    assert rows[ARABIC][8] == "TLE: 7.31/6.00 s, output correct"
    assert rows[ARABIC][9] == "TLE+: killed after 16.00 s, the limit is 6 s"
    assert rows[ATTACK][10] == 'NA: 7 of 9 elements are off, stderr: "<b>&"'
    assert rows[LONG][11] == "JE: the judge failed, not the program"
    assert "borderline: 5.90 to 6.10 s" in rows[ATTACK][12]
    assert rows["eve"][7] == "does not compile"
    assert all(all(titles[7:]) for titles in rows.values())


def test_the_fastest_time_of_a_case_is_marked_and_the_others_are_shaded_by_it(page):
    rows = {row[0][0]: [attributes.get("class", "").split() for _, attributes in row] for row in Reader(page).rows[1:]}
    assert rows[ARABIC][7] == ["c", "ac", "s9", "best"]
    assert rows[ATTACK][7] == ["c", "ac", "s8"]  # 0.4 / 0.5
    assert rows[QUOTED][7] == ["c", "ac", "s6"]
    assert rows[ATTACK][8] == ["c", "ac", "s9", "best"]  # where the faster one is late
    assert rows[ATTACK][12] == ["c", "ac", "s0", "edge"]


def test_names_and_reasons_are_text(page):
    reader = Reader(page)
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert not any(name.startswith("on") or name == "style" for _, attributes in reader.tags for name in attributes)
    text = page.read_text()
    assert "<script>alert" not in text and "<GeForce>" not in text and '"<b>&"' not in text
    assert "&lt;script&gt;alert(1)" in text


def test_the_page_loads_nothing_from_other_addresses(page):
    text = page.read_text()
    for word in ("http:", "https:", "@import", "url(", "src=", "<iframe", "fetch("):
        assert word not in text, word
    links = [attributes["href"] for _, attributes in Reader(page).tags if "href" in attributes]
    assert [link for link in links if not link.startswith("#")] == ["data:,"]
    policy = next(a["content"] for _, a in Reader(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy


def test_invalid_characters_do_not_break_the_page(tmp_path):
    write(tmp_path / "x", replace(RIGHT, case="[/]\udcffcase\x00", shape=(1, 2, 3)), user="ann\x1b[31m\u202e")
    result = run_here("scoreboard", tmp_path, "-o", tmp_path / "board.html")
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout and "\u202e" not in result.stdout
    head, row = Reader(tmp_path / "board.html").rows
    assert (head[7][0], row[0][0]) == ("[/]\ufffdcase\ufffd", "ann\ufffd[31m\ufffd")


def test_a_failed_write_leaves_the_old_page(tmp_path):
    folder = write_class(tmp_path / "hw4")
    old = tmp_path / "board.html"
    old.write_text("old")
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))}
    fails(run_hw4("scoreboard", folder, "-o", old, **small), 3, "board.html")
    assert old.read_text() == "old"
    folder_is_clean(tmp_path, "hw4", "board.html")
    fails(run_here("scoreboard", folder, "-o", tmp_path / "none/board.html"), 2, "none", "does not exist")
    (tmp_path / "folder.html").mkdir()
    fails(run_here("scoreboard", folder, "-o", tmp_path / "folder.html"), 2, "is a directory")


def test_a_pipe_gets_the_ranking_in_plain_text(tmp_path):
    result = run_here("scoreboard", write_class(tmp_path / "hw4"))
    message = "hw4: 1 of 6 journals damaged, judge with --resume: f\n"
    assert (result.returncode, result.stderr) == (3, message)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["User", "Rank", "Passed", "Time", "Penalty", "Score", "t01", "t11", "t21"]
    rows = {line.split()[-1]: line.split()[-6:-1] for line in lines[1:7]}
    assert rows["." * 30] == ["1", "30", "18.00", "0", "60"]
    assert rows[".T+" + "." * 26 + "-"] == ["3", "27", "10.80", "150", "51"]
    assert rows["....J" + "." * 25] == ["-", "29", "20.30", "0", "-"]
    assert lines[8] == ". AC   T TLE   + TLE+   N NA   J JE   - not run   ranked by Time + Penalty"
    assert lines[9:] == [f"{ATTACK}: borderline in t06", f"eve: {COMPILER}", f"f: f/{journal.NAME} is empty or damaged"]
    assert "\x1b" not in result.stdout


def test_a_terminal_of_80_columns_shows_each_user_in_one_line(tmp_path):
    folder = write_class(tmp_path / "hw4")
    environment = {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    coloured = run_here("scoreboard", folder, env=environment).stdout
    lines = re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()[:7]
    assert "\x1b[31mN" in coloured
    assert all(cell_len(line) <= 80 for line in lines)
    assert [line[-30:] for line in lines[1:3]] == ["." * 30, "...N" + "." * 26]
    assert "\x1b[3" not in run_here("scoreboard", folder, env={**environment, "NO_COLOR": "1"}).stdout


def test_the_rules_are_options(tmp_path):
    folder = write_class(tmp_path / "hw4")
    cheap = run_here("scoreboard", folder, "--penalty", "1").stdout.splitlines()
    assert cheap[1].startswith(ARABIC)
    page = tmp_path / "board.html"
    run_here("scoreboard", folder, "--limit", "t01=0.45", "--limit", "t02=8", "--tolerance", "0.2", "-o", page)
    rows = {row[0][0]: [text for text, _ in row] for row in Reader(page).rows}
    assert (rows[ARABIC][7:10], rows[ATTACK][7:11]) == (["0.40", "7.31", "TLE+"], ["TLE", "0.50", "0.50", "0.50"])
    assert "Limits set by rule: t01 0.45 s, t02 8 s." in page.read_text()
    assert "within 0.2 of the answer" in page.read_text()
    assert "ranked by Passed, then Time" in run_here("scoreboard", folder, "--rank-by", "passed").stdout
    fails(run_here("scoreboard", tmp_path / "none"), 2, "is not a folder")


def test_json_prints_the_document_of_results_json(tmp_path):
    document = json.loads(run_here("scoreboard", write_class(tmp_path / "hw4"), "--json").stdout)
    assert (document["kind"], document["rules"]["penalty"]) == ("hw4-results", 50)
    assert [one["user"] for one in document["standings"]] == [QUOTED, ATTACK, ARABIC, "eve", "f", LONG]


def test_a_program_that_does_not_build_has_no_points_however_few_cases_were_judged(tmp_path):
    write(tmp_path / "ann", replace(RIGHT, case="t01"), cases=["t01"])
    write(tmp_path / "ben", user="ben", note="make hw4 failed", cases=["t01"])
    found = {one.user: one for one in load(tmp_path, Rules())}
    assert (found["ann"].score, found["ben"].score) == (60, 0)
    assert (score_words(found["ann"]), score_words(found["ben"])) == (
        "score at most 60 of 60: 1 of the suite's 30 cases judged",
        "score 0 of 60",
    )


def test_a_score_is_a_number_only_where_something_was_judged_and_at_most_one_where_a_part_was(tmp_path):
    """In each table: 0 of 4 cases is 0 for a failed build, nothing if no case was judged, else an upper bound."""
    cases = ["t01", "t02", "t03", "t04"]
    wrong = [replace(RIGHT, case=case, problem="no output") for case in cases]
    folder = tmp_path / "class"
    write(folder / "bad", *wrong, user="bad", cases=cases)
    write(folder / "broken", user="broken", note="make hw4 failed", cases=cases)
    write(folder / "none", user="none", cases=cases)
    result = run_here("judge", "--rescore", folder)
    assert result.returncode == 0, result.stderr
    shown = {"bad": "at most 48", "broken": "0", "none": ""}
    rows = csv.DictReader((folder / "results.csv").open())
    assert {row["user"]: row["score"] for row in rows} == shown
    text = (folder / "results.md").read_text()
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("|")]
    assert {row[2]: row[4] for row in cells if row[2] in shown} == {**shown, "none": "-"}
    board = run_here("scoreboard", folder, "-o", tmp_path / "board.html").stdout
    assert re.findall(r"^(bad|broken|none) +[12-] +0 +0.00 +240 +(at most 48|0|-) [N-]{4}$", board, re.MULTILINE) == [
        ("bad", "at most 48"), ("broken", "0"), ("none", "-"),
    ]  # fmt: skip
    on_page = {row[0][0]: row[6][0] for row in Reader(tmp_path / "board.html").rows}
    assert {user: on_page[user] for user in shown} == {**shown, "none": "–"}
    assert 'data-v="48" title="score at most 48 of 60' in (tmp_path / "board.html").read_text()
    words = {"bad": "score at most 48 of 60", "broken": "score 0 of 60", "none": "no rank yet, score not known"}
    for user, sentence in words.items():
        assert sentence in (folder / user / "handout.md").read_text()
    found = json.loads((folder / "results.json").read_text())["standings"]
    assert {one["user"]: (one["score"], one["upper_bound"]) for one in found} == {
        "bad": (48, True), "broken": (0, False), "none": (None, False),
    }  # fmt: skip


def test_several_folders_are_boards_with_an_index_that_leads_to_each_and_back(tmp_path):
    """As the course has two: hw4, and hw4-amd."""
    for user, wall in (("ann", 0.5), ("bob", 0.7)):
        write(tmp_path / "hw4" / user, replace(RIGHT, wall=wall), cases=["t01"], user=user)
    write(tmp_path / "hw4-amd <2>" / "cem", LATE, cases=["t02"], user="<cem>")
    index = tmp_path / "boards.html"
    result = run_here("scoreboard", tmp_path / "hw4", tmp_path / "hw4-amd <2>", "-o", index, "--title", "The course")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("hw4\n") and "\nhw4-amd <2>\n" in result.stdout
    text = index.read_text()
    assert re.findall(r'<a href="([^"]+)">', text) == ["boards-hw4.html", "boards-hw4-amd%20%3C2%3E.html"]
    assert "The course" in text and "hw4-amd &lt;2&gt;" in text and "<2>" not in text
    assert "0.50 s" in text and ">ann<" in text, "who is the fastest stands in the index"
    for name, users in (("hw4", ("ann", "bob")), ("hw4-amd <2>", ("&lt;cem&gt;",))):
        page = (tmp_path / f"boards-{name}.html").read_text()
        assert '<a href="boards.html">all boards</a>' in page
        assert all(user in page for user in users)
    alone = run_here("scoreboard", tmp_path / "hw4", "-o", tmp_path / "alone.html")
    assert alone.returncode == 0 and "all boards" not in (tmp_path / "alone.html").read_text()


def test_several_folders_of_one_name_and_documents_of_several_are_refused(tmp_path):
    for place in ("a/hw4", "b/hw4", "c"):
        write(tmp_path / place, RIGHT)
    same = [tmp_path / "a/hw4", tmp_path / "b/hw4"]
    fails(run_here("scoreboard", *same), 2, "two folders are called hw4")
    two = [tmp_path / "a/hw4", tmp_path / "c"]
    fails(run_here("scoreboard", *two, "--json"), 2, "--json is of one DIR")
    fails(run_here("scoreboard", *two, "-o", tmp_path / "x.csv"), 2, "of several DIR there are pages alone")
    folder_is_clean(tmp_path, "a", "b", "c")
