"""The scoreboard as a page: one file that asks for nothing else, opens anywhere and needs no script to be read.

The public one has verdicts and reasons in our words, and nothing that a program or a compiler said. The private one,
for whoever judges, quotes both and links to the handouts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from urllib.parse import quote

from hw4cli import __version__
from hw4cli.judge.scoring.boardcharts import times_chart
from hw4cli.judge.scoring.boardtable import foot, head, panel, row
from hw4cli.judge.scoring.figures import Board, Private, total
from hw4cli.judge.scoring.reasons import upper_bounds
from hw4cli.judge.scoring.record import Rules, Standing
from hw4cli.judge.scoring.standings import in_public
from hw4cli.problem import suite
from hw4cli.problem.rules import KILL_AFTER
from hw4cli.text.page import escaped, filled
from hw4cli.text.words import counted


def page(
    standings: Sequence[Standing],
    rules: Rules,
    title: str,
    now: datetime,
    private: Mapping[str, Private] | None = None,
    index: str = "",
) -> str:
    """The whole page, for the public unless `private` has, by user, what only the judge may see. `now` (with its
    time zone) is the date it shows; `index` the file's name of an index that it leads to."""
    board = Board(standings if private is not None else [in_public(one) for one in standings], rules, private)
    places = range(len(standings))
    return filled(
        "scoreboard",
        title=escaped(title),
        tab=f"{escaped(title)}: scoreboard",
        facts=_facts(board, now) + (f' · <a href="{quote(index)}">all boards</a>' if index else ""),
        warning="" if private is None else f'<p class="warning">{WARNING}</p>\n',
        tiles="".join(
            f"<li><b>{figure}</b> <span>{name}</span> <small>{more}</small></li>\n"
            for name, figure, more in _tiles(board)
        ),
        chart=_chart(board),
        nobody="" if standings else "nobody is judged yet",
        legend="".join(
            f'<li><span class="c {style}">{sample}</span> {words}</li>\n' for style, sample, words in LEGEND
        ),
        size=' class="few-cases"' if len(board.cases) <= FEW_CASES else "",
        head=head(board),
        rows="".join(row(board, place) for place in places),
        foot=foot(board),
        panels="".join(panel(board, place) for place in places),
        rules="".join(f"<p>{sentence}</p>\n" for sentence in _rules(board)),
    )


@dataclass(frozen=True)
class Named:
    """A board of several."""

    name: str
    standings: Sequence[Standing]
    rules: Rules


def index_page(boards: Sequence[Named], places: Mapping[str, str], title: str, now: datetime) -> str:
    """A page that leads to each board, by the names of their files."""
    cards = []
    for one in boards:
        board = Board([in_public(standing) for standing in one.standings], one.rules, None)
        figures = "".join(
            f"<li><b>{figure}</b> {name} <small>{more}</small></li>" for name, figure, more in _tiles(board)
        )
        link = f'<a href="{quote(places[one.name])}"><bdi>{escaped(one.name)}</bdi></a>'
        cards.append(f"<section>\n<h2>{link}</h2>\n<p>{_where(board)}</p>\n<ul>{figures}</ul>\n</section>\n")
    return filled("boards", title=escaped(title), facts=_date(now), cards="".join(cards))


FEW_CASES = 12  # beside so many, names have more room
WARNING = (
    "This is your own copy: it quotes programs and compilers, and links to the handouts. "
    "<code>hw4 scoreboard DIR -o FILE</code> makes the one to publish."
)
LEGEND = [
    ("ac s5", "0.44", "AC: right and in time, in seconds; the deeper, the nearer to the fastest"),
    ("ac s9 best", "0.31", "fastest of its case"),
    ("tle", "TLE", "late: over the time limit"),
    ("plus", "TLE+", f"killed, {KILL_AFTER:g} s past the limit"),
    ("na", "NA", "not accepted: wrong, crashed or no output"),
    ("je", "JE", "judge error, not the program's"),
    ("ac s2 edge", "~1.98", "borderline: repeats on both sides of the limit"),
    ("none", "–", "not run"),
]


def _facts(board: Board, now: datetime) -> str:
    return f"{_where(board)} · {_date(now)}"


def _date(now: datetime) -> str:
    return f'<time datetime="{now.isoformat(timespec="seconds")}">{now:%Y-%m-%d %H:%M %Z}</time>'


def _where(board: Board) -> str:
    """How many cases were judged, and on which GPUs."""
    gpus = {
        escaped(gpu["name"])
        for one in board.standings
        if isinstance(gpu := one.session.get("gpu"), dict) and "name" in gpu
    }
    where = " · judged on " + " and ".join(sorted(gpus)) if gpus else ""
    return f"{counted(len(board.cases), 'case')}{where}"


def _tiles(board: Board) -> list[tuple[str, str, str]]:
    """The class in four figures: name, figure, and what is to be added."""
    users, cases = len(board.standings), counted(len(board.cases), "case")
    open_scores, late = users - len(board.ranked), sum(one.late > 0 for one in board.standings)
    notes = [f"{open_scores} without a rank yet"] * (open_scores > 0) + [f"{late} late"] * (late > 0)
    middle = f"{median(map(total, board.ranked)):.2f} s" if board.ranked else "–"
    passed = f"{median(one.passed for one in board.ranked):g} of {cases}" if board.ranked else "nobody has a rank yet"
    first = board.complete[0] if board.complete else None
    share = f"{100 * len(board.complete) / users:.0f} % of the class" if users else ""
    return [
        ("student" if users == 1 else "students", f"{users:,}", ", ".join(notes) or "all ranked" * (users > 1)),
        ("all AC", f"{len(board.complete):,}", share),
        ("median total", middle, passed),
        (
            "fastest, all AC",
            f"{first.time:.2f} s" if first else "–",
            f"<bdi>{escaped(first.user)}</bdi>" if first else "nobody yet",
        ),
    ]


def _chart(board: Board) -> str:
    drawing = times_chart(board)
    if not drawing:
        return ""
    keys = CAPTION if len(board.standings) > 1 else CAPTION_OF_ONE
    caption = "\n".join(f'<span><span class="key {kind}"></span>{words}</span>' for kind, words in keys.items())
    return (
        '<details class="chart" open>\n<summary>Times of each case</summary>\n<figure>\n'
        f"{drawing}\n<figcaption>{caption}</figcaption>\n</figure>\n</details>\n"
    )


CAPTION = {
    "dot": "a student’s time, in each case the first rank on the left",
    "dot late": "too late",
    "dash": "median",
    "limit": "limit",
}
CAPTION_OF_ONE = {"dot": "time", "dot late": "too late", "limit": "limit"}


def _rules(board: Board) -> list[str]:
    """The rules of the ranking, a sentence each."""
    rules = board.rules
    by = {"time": "Total", "passed": "the number of passed cases, then by Time"}[rules.rank_by]
    sentences = [
        f"Ranked by {by}. Time is the sum over accepted cases, in seconds; Penalty is {rules.penalty:g} s for each "
        "case that is not accepted; Total is Time + Penalty. A JE, the judge's own error, costs nothing and leaves "
        "score and rank open.",
        f"An output is right if every element is within {rules.tolerance:g} of the answer. "
        "Limits are of wall time; a case's shape (B, N, d) and limit are shown on its heading.",
        *upper_bounds(board.standings),
    ]
    if rules.step:
        sentences.append(f"Times count in steps of {rules.step:g} s: each is the next multiple of what was measured.")
    if rules.due:
        sentences.append(f"What was handed in after {rules.due:%Y-%m-%d %H:%M %Z} is marked as late.")
    if rules.limits:
        known = {name: place for place, name in enumerate(suite.cases())}
        changed = sorted(rules.limits.items(), key=lambda item: known.get(item[0], len(known)))
        sentences.append("Limits set by rule: " + ", ".join(f"{escaped(c)} {s:g} s" for c, s in changed) + ".")
    return [*sentences, f"Made by hw4 {__version__}."]
