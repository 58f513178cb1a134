"""The board of a class: what it shows of all together and of each, and what stays out of the public one."""

import re
import stat
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from boards import RIGHT, crowd, write
from helpers import run_here

from hw4cli.judge.scoring.figures import Private
from hw4cli.judge.scoring.record import Rules, combine, make_standing, rank
from hw4cli.judge.scoring.scoreboard import page
from hw4cli.judge.submission import BOARD, RESERVED
from hw4cli.problem import suite
from hw4cli.problem.verdict import Verdict

NAMES = list(suite.cases())
LIMIT_BYTES = 1_000_000


def of(standings, private=None):
    return page(standings, Rules(), "hw4", datetime(2026, 5, 3, tzinfo=UTC), private)


def user(name, *walls, cases=NAMES, **facts):
    """A user with these times, None where there is no result."""
    made = [replace(RIGHT, case=case, wall=wall) for case, wall in zip(cases, walls, strict=False) if wall]
    return make_standing(name, [combine([one]) for one in made], cases, **facts)


def words(text):
    """A part of a page as a reader sees it."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def part(text, start, end):
    return text[text.index(start) :].partition(end)[0]


def panel(text, name):
    found = [one for one in text.split('<section class="panel"')[1:] if f"<bdi>{name}</bdi>" in one]
    assert len(found) == 1
    return found[0].partition("</section>")[0]


def test_the_class_is_told_in_four_figures():
    board = rank([user("ann", *[1.0] * 30), user("ben", *[0.5] * 30), user("cid", *[0.5] * 28)])
    tiles = words(part(of(board), '<ul class="tiles"', "</ul>"))
    assert "3 students all ranked" in tiles
    assert "2 all AC 67 % of the class" in tiles
    assert "30.00 s median total 30 of 30 cases" in tiles
    assert "15.00 s fastest, all AC ben" in tiles


def test_the_bottom_tells_of_each_case_who_solved_it_the_best_and_the_median():
    text = of(rank([user("ann", 1.0, 0.5), user("ben", 2.0), user("cid", 1.25, 1.5), user("dan", 2.5, 0.75)]))
    rows = [words(row).split() for row in part(text, "<tfoot>", "</tfoot>").split("</tr>")[:-1]]
    assert [row[0] for row in rows] == ["Solved", "Best", "Median"]
    assert [row[-30:][:3] for row in rows] == [["3", "3", "0"], ["1.00", "0.50", "–"], ["1.25", "0.75", "–"]]


def test_the_first_three_ranks_are_marked_and_those_who_share_them():
    text = of(rank([user(name, wall) for name, wall in zip("abcd", (0.1, 0.2, 0.2, 0.3), strict=True)]))
    assert re.findall(r'<b class="m(\d)">(\d)</b>', text) == [("1", "1"), ("2", "2"), ("2", "2")]
    assert 'class="m1"' not in of(rank([user("ann"), user("ben")])), "nobody wins who passes nothing"


def test_a_time_of_no_hundredth_is_shaded_as_the_best():
    made = make_standing("ann", [combine([replace(RIGHT, wall=0.0)])], NAMES)
    assert re.findall(r'<td class="c ac (s\d) best"', of(rank([made]))) == ["s9"]


@pytest.mark.parametrize("cases, begin", [(NAMES, ["t11", "t21"]), (["t01", "t15", "mine"], ["t15", "mine"])])
def test_a_line_stands_where_a_part_of_the_suite_begins(cases, begin):
    heads = part(of([user("ann", *[1.0] * 30, cases=cases)]), "<thead>", "</thead>")
    assert re.findall(r'class="part"><span[^>]*>(\w+)<', heads) == begin


def test_the_chart_has_a_dot_for_every_time():
    board = crowd(40, wall=20.0)
    results = [result for one in board for result in one.results.values()]
    ended = [sum(result.verdict is verdict for result in results) for verdict in (Verdict.AC, Verdict.TLE)]
    chart = part(of(board), '<g class="dots"', '<path class="median"')
    drawn = [chart.count("h.1") - (late := "".join(re.findall(r'"late" d="(.*?)"', chart)).count("h.1")), late]
    assert drawn == ended and all(ended)
    ticks = re.findall(r">([\d.]+) s</text>", of(board))
    walls = [one.wall for one in results if one.verdict in (Verdict.AC, Verdict.TLE)]
    assert float(ticks[0]) <= min(walls) and max(walls) <= float(ticks[-1])


def test_a_panel_puts_like_reasons_together():
    wrong = [
        combine([replace(RIGHT, case=case, max_error=1.0, wrong=f"{count} elements are off")])
        for case, count in (("t02", "12"), ("t03", "1,234"), ("t04", "5"), ("t09", "6"))
    ]
    text = words(panel(of(rank([make_standing("ann", wrong, NAMES[:10]), user("ben", 1.0)])), "ann"))
    assert "Not accepted NA t02-t04 t09 12 elements are off (t02)" in text
    assert "– t01 t05-t08 t10 not run" in text


def test_a_panel_compares_with_the_best_of_each_case():
    text = of(rank([user("ann", 1.0, 0.5, 1.0), user("ben", 0.5, 1.0)]))
    assert "×1.26 on average, from ×1.00 (t02) to ×2.00 (t01)" in words(panel(text, "ann"))
    assert "×1.41 on average" in words(panel(text, "ben"))


def test_each_user_has_a_panel_of_their_own_even_two_of_one_name():
    text = of(rank([user("ann", 1.0), user("ann", 2.0), user("ben", 3.0)]))
    links = re.findall(r'<a href="#(u[^"]+)"><bdi>', text)
    assert links == re.findall(r'<section class="panel" id="([^"]+)"', text)
    assert len(set(links)) == 3
    other = of(rank([user("ann", 9.0), user("ben", 3.0)]))
    assert links[2] in other and links[0] in other, "a link to a user stays when the ranking changes"


class Checker(HTMLParser):
    """Whether every element is closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


ODD = {
    "nobody at all": [],
    "no cases": [user("ann", cases=[])],
    "nobody passes": rank([user("ann"), user("ben", public_note="make hw4 failed", note="make hw4 failed: oh")]),
    "one user": rank([user("ann", *[1.0] * 30)]),
    "one time": rank([user("ann", 1.0, cases=["t01"])]),
    "no time at all": rank([user("ann", 1e-9, 1e-9)]),
    "times far apart": rank([user("ann", 1e-4), user("ben", 1e5)]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_boards_are_whole_pages(name):
    text = of(ODD[name])
    Checker(text)
    assert not re.search(r"\b(nan|inf|None)\b", words(part(text, "<body>", "<script>")))
    assert ("nobody is judged yet" in text) == (not ODD[name])
    assert ('class="chart"' in text) == any(one.results for one in ODD[name])


def test_a_class_of_150_is_a_small_page():
    board = crowd(150)
    assert len(board) == 150 and {one.verdict for row in board for one in row.results.values()} == set(Verdict)
    repeated = [
        replace(one, results={name: replace(it, attempts=3, spread=(0.5, 0.6)) for name, it in one.results.items()})
        for one in board
    ]
    for standings in (board, repeated):
        text = of(standings)
        Checker(text)
        assert len(text.encode()) < LIMIT_BYTES


def test_only_the_private_page_quotes_programs_and_links_to_handouts():
    said = combine([replace(RIGHT, problem="exit code 1", said="hush-1", exit_code=1, max_error=None)])
    late = datetime(2026, 5, 2, 12, 0, tzinfo=UTC)
    ann = replace(make_standing("ann", [replace(said, public_right=True)], ["t01"]), handed_in=late)
    ben = make_standing("ben", [], ["t01"], note="make hw4 failed: hush-2", public_note="make hw4 failed")
    board = rank([ann, ben])
    secrets = ("hush-1", "hush-2", "hush-3", "hush-4", "handout.html", "Handed in", "answers stored", "own copy")
    public = of(board)
    assert [word for word in secrets if word.lower() in public.lower().replace(".public", "")] == []
    own = of(
        board,
        {"ann": Private("ann/handout.html", "hush-3 otter"), "ben": Private("b%20n/handout.html", "", "hush-4 <b>")},
    )
    assert [word for word in secrets if word.lower() not in own.lower()] == []
    assert 'href="b%20n/handout.html"' in panel(own, "ben") and "hush-4 &lt;b&gt;" in panel(own, "ben")


def test_a_class_folder_holds_the_private_board_for_one_pair_of_eyes(tmp_path):
    said = replace(RIGHT, problem="exit code 1", said="hush", exit_code=1, max_error=None)
    for name in ("ann", "b #?%&'\""):
        write(tmp_path / "out" / name, said, user=name, cases=["t01"])
    (tmp_path / "out" / "ann" / "build.txt").write_text("".join(f"line {n}\x1b[31m\n" for n in range(50)))
    assert run_here("judge", "--rescore", tmp_path / "out").returncode == 0
    path = tmp_path / "out" / BOARD
    assert BOARD in RESERVED and stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert 'href="ann/handout.html"' in text and 'href="b%20%23%3F%25%26%27%22/handout.html"' in text
    assert "exit code 1: hush" in text and "line 49?[31m" in text and "line 30" not in text
    assert run_here("scoreboard", tmp_path / "out", "--anonymous", "-o", tmp_path / "b.html").returncode == 0
    shown = (tmp_path / "b.html").read_text()
    assert "hush" not in shown and "ann" not in words(part(shown, "<tbody>", "</tbody>")) and "handout" not in shown
    pseudonym = re.search(r"“(.*?)” on a board with pseudonyms", text)[1]
    assert pseudonym in shown
