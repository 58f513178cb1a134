"""The scoreboard as a page: one file that asks for nothing else, opens anywhere and needs no script to be read.

It is public: it tells verdicts and reasons in our words, and nothing that a program or a compiler said.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from string import Template

from hw4cli import __version__
from hw4cli.problem import suite
from hw4cli.problem.verdict import KILL_AFTER, Verdict
from hw4cli.resources import data_path
from hw4cli.scoring.record import Result, Rules, Standing
from hw4cli.text.dates import span
from hw4cli.text.page import escaped, policy
from hw4cli.text.words import counted

CLASS = {Verdict.AC: "ac", Verdict.TLE: "tle", Verdict.TLE_PLUS: "plus", Verdict.NA: "na", Verdict.JE: "je"}
SHADES = 10
GRAVE = (Verdict.TLE, Verdict.TLE_PLUS, Verdict.NA, Verdict.JE)  # in this order after the accepted ones
DAY = 86400.0


def page(standings: Sequence[Standing], rules: Rules, title: str, now: datetime) -> str:
    """The whole page. `now` (with its time zone) is the date it shows."""
    template = data_path("templates/scoreboard.html").read_text(encoding="utf-8")
    cases = standings[0].cases if standings else []
    best = fastest(standings)
    return Template(template).substitute(
        policy=policy(template),
        title=escaped(title),
        facts=_facts(standings, len(cases), now),
        legend="".join(
            f'<li><span class="c {style}">{sample}</span> {words}</li>\n' for style, sample, words in LEGEND
        ),
        head=_head(standings, cases),
        rows="".join(_row(place, one, best) for place, one in enumerate(standings)),
        rules="".join(f"<p>{sentence}</p>\n" for sentence in _rules(rules)),
    )


def fastest(standings: Sequence[Standing]) -> dict[str, float]:
    """The best accepted time of each case, in seconds; no entry where nobody was accepted."""
    best: dict[str, float] = {}
    for one in standings:
        for case, result in one.results.items():
            if result.verdict is Verdict.AC and result.wall is not None:
                best[case] = min(result.wall, best.get(case, result.wall))
    return best


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


def _facts(standings: Sequence[Standing], cases: int, now: datetime) -> str:
    date = f'<time datetime="{now.isoformat(timespec="seconds")}">{now:%Y-%m-%d %H:%M %Z}</time>'
    gpus = {
        escaped(gpu["name"]) for one in standings if isinstance(gpu := one.session.get("gpu"), dict) and "name" in gpu
    }
    where = " · judged on " + " and ".join(sorted(gpus)) if gpus else ""
    return f"{counted(len(standings), 'user')} · {counted(cases, 'case')}{where} · {date}"


def _head(standings: Sequence[Standing], cases: Sequence[str]) -> str:
    cells = ['<th scope="col"><span>User</span></th>', '<th scope="col" aria-sort="ascending"><span>Rank</span></th>']
    cells.append('<th scope="col" data-first="descending"><span>Passed</span></th>')
    cells += [f'<th scope="col"><span>{name}</span></th>' for name in ("Time", "Penalty")]
    about: dict[str, str] = {}
    for one in standings:
        for case, result in one.results.items():
            about.setdefault(case, "({}, {}, {}), limit {:g} s".format(*result.shape, result.limit))
    for case in cases:
        title = f' title="{escaped(about[case])}"' if case in about else ""
        cells.append(f'<th scope="col"><span{title}>{escaped(case)}</span></th>')
    return "".join(cells)


def _row(place: int, one: Standing, best: Mapping[str, float]) -> str:
    name = escaped(one.user)
    user = f'<th scope="row" data-v="{name}" title="{name}"><bdi>{name}</bdi></th>'
    if one.late:
        title = f"{name}\nhanded in {span(one.late)} late"
        user = (
            f'<th scope="row" class="late" data-v="{name}" title="{title}"><bdi>{name}</bdi> <small>late</small></th>'
        )
    score = "score open: not every case could be judged" if one.score is None else f"score {one.score}"
    total = f"{one.time + one.penalty:.2f} s with the penalty"
    cells = [
        f'<tr data-place="{place}">{user}',
        f'<td class="rank" data-v="{one.rank}">{one.rank}</td>' if one.rank else '<td class="rank">–</td>',
        f'<td data-v="{one.passed}" title="{one.passed} of {len(one.cases)} cases, {score}">{one.passed}</td>',
        f'<td data-v="{one.time:.4f}" title="{total}">{one.time:.2f}</td>',
        f'<td class="penalty" data-v="{one.penalty:.4f}" title="{total}">{one.penalty:g}</td>',
    ]
    if one.public_note and not one.results:
        note, colspan = escaped(one.public_note), max(1, len(one.cases))
        cells.append(f'<td class="note" colspan="{colspan}" title="{note}"><span>{note}</span></td>')
    else:
        cells += [_cell(one, case, best.get(case)) for case in one.cases]
    return "".join(cells) + "</tr>\n"


def _cell(one: Standing, case: str, best: float | None) -> str:
    """A case's cell: the time if it is accepted, else the verdict's word; the reason is its title."""
    result = one.results.get(case)
    if result is None:
        why = "no result, and the journal is damaged" if one.lost else "not run, counts as not accepted"
        return f'<td class="c none" title="{why}">–</td>'
    styles = ["c", CLASS[result.verdict]]
    wall = result.wall or 0.0
    if result.verdict is Verdict.AC:
        text, key = f"{wall:.2f}", wall
        if best is not None:
            styles.append(f"s{min(SHADES - 1, int(SHADES * best / wall)) if wall else SHADES - 1}")
            if round(wall, 2) <= round(best, 2):
                styles.append("best")
    else:
        text, key = str(result.verdict), wall + DAY * (1 + GRAVE.index(result.verdict))
    if result.borderline:
        styles.append("edge")
        text = f"~{text}"
    return f'<td class="{" ".join(styles)}" data-v="{key:.4f}" title="{escaped(_reason(result))}">{text}</td>'


def _reason(result: Result) -> str:
    """One result in a sentence."""
    if result.verdict is Verdict.AC:
        parts = [f"AC: {result.wall or 0.0:.3f} s of {result.limit:g} s"]
    else:
        parts = [str(result.verdict)]
    if result.public_reason:
        parts = [f"{parts[0]}{'; ' if result.verdict is Verdict.AC else ': '}{result.public_reason}"]
    if result.verdict is Verdict.AC and result.max_error is not None:
        parts.append(f"max error {result.max_error:.2g}")
    if result.attempts > 1 and result.spread:
        parts.append("median of {} runs, {:.3f} to {:.3f} s".format(result.attempts, *result.spread))
    return "\n".join(parts)


def _rules(rules: Rules) -> list[str]:
    """The rules of the ranking, a sentence each."""
    by = {"time": "Time + Penalty", "passed": "the number of passed cases, then by Time"}[rules.rank_by]
    sentences = [
        f"Ranked by {by}. Time is the sum over accepted cases, in seconds; Penalty is {rules.penalty:g} s for each "
        "case that is not accepted. A JE, the judge's own error, costs nothing and leaves the rank open.",
        f"An output is right if every element is within {rules.tolerance:g} of the answer. "
        "Limits are of wall time; a case's shape (B, N, d) and limit are shown on its heading.",
    ]
    if rules.due:
        sentences.append(f"What was handed in after {rules.due:%Y-%m-%d %H:%M %Z} is marked as late.")
    if rules.limits:
        known = {name: place for place, name in enumerate(suite.cases())}
        changed = sorted(rules.limits.items(), key=lambda item: known.get(item[0], len(known)))
        sentences.append(
            "Limits other than when it ran: " + ", ".join(f"{escaped(c)} {s:g} s" for c, s in changed) + "."
        )
    return [*sentences, f"Made by hw4 {__version__}."]
