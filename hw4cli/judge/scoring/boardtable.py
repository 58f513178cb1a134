"""The table of a board, and a panel for each of its users: a row and its reasons, as HTML."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from hw4cli.judge.scoring.boardcharts import against_best, strip, style
from hw4cli.judge.scoring.figures import Board, CaseFigures, Private, geometric_mean, total
from hw4cli.judge.scoring.reasons import case_names, groups, is_upper_bound, score_text, score_words, suspicion
from hw4cli.judge.scoring.record import Result, Standing
from hw4cli.problem.verdict import Verdict
from hw4cli.text.dates import duration, local
from hw4cli.text.page import escaped

SHADES = 10
GRAVE = (Verdict.TLE, Verdict.TLE_PLUS, Verdict.NA, Verdict.JE)  # in this order after the accepted ones
DAY = 86400.0
MEDALS = 3
NOT_RUN = "not run, counts as not accepted"
Middle = Callable[[Sequence[float]], float]  # of several values
LOST = "no result, and the journal is damaged"


def head(board: Board) -> str:
    """The headings' cells."""
    columns = {"User": "", "Rank": ' aria-sort="ascending"', "Passed": ' data-first="descending"'}
    columns |= {"Time": "", "Penalty": "", "Total": "", "Score": ' data-first="descending"'}
    cells = [f'<th scope="col"{more}><span>{name}</span></th>' for name, more in columns.items()]
    for case in board.cases:
        about = "({}, {}, {}), limit {:g} s".format(*case.shape, case.limit) if case.shape else ""
        title = f' title="{about}"' if about else ""
        cells.append(f'<th scope="col"{_begins(case)}><span{title}>{escaped(case.name)}</span></th>')
    return "".join(cells)


def _begins(case: CaseFigures) -> str:
    return ' class="part"' if case.begins else ""


def row(board: Board, place: int) -> str:
    """A user's row."""
    one = board.standings[place]
    name = escaped(one.user)
    shown, mark, title = f'<a href="#{board.ids[place]}"><bdi>{name}</bdi></a>', "", name
    if one.late:
        shown, mark = f"{shown}<small>late</small>", ' class="late"'
        title = f"{name}\nhanded in {duration(one.late)} late"
    user = f'<th scope="row"{mark} title="{title}"><div>{shown}</div></th>'
    passed = f"{one.passed} of {len(one.cases)} cases"
    cells = [
        f'<tr data-place="{place}">{user}{_rank(one)}',
        f'<td class="passed" data-v="{one.passed}" title="{passed}">{one.passed}{strip(one, board.cases)}</td>',
        f'<td data-v="{one.time:.4f}">{one.time:.2f}</td>',
        f"<td>{one.penalty:g}</td>",
        f'<td data-v="{total(one):.4f}">{total(one):.2f}</td>',
        '<td title="open: not every case could be judged">–</td>' if one.score is None else _score(one),
    ]
    if one.note and not one.results:
        note, colspan = escaped(one.note), max(1, len(one.cases))
        cells.append(f'<td class="note" colspan="{colspan}" title="{note}"><span>{note}</span></td>')
    else:
        cells += [_cell(one, case) for case in board.cases]
    return "".join(cells) + "</tr>\n"


def _score(one: Standing) -> str:
    bound = f' data-v="{one.score}" title="{escaped(score_words(one))}"' if is_upper_bound(one) else ""
    return f"<td{bound}>{score_text(one)}</td>"


def _rank(one: Standing) -> str:
    if not one.rank:
        return '<td class="rank">–</td>'
    shown = f'<b class="m{one.rank}">{one.rank}</b>' if one.rank <= MEDALS and one.passed else one.rank
    return f'<td class="rank">{shown}</td>'


def _cell(one: Standing, case: CaseFigures) -> str:
    """A case's cell: the time if it is accepted, else the verdict's word; the reason is its title."""
    result = one.results.get(case.name)
    styles = ["c", style(result), *(["part"] if case.begins else [])]
    if result is None:
        return f'<td class="{" ".join(styles)}" title="{LOST if one.lost else NOT_RUN}">–</td>'
    wall = result.wall or 0.0
    if result.verdict is Verdict.AC:
        text, key = f"{wall:.2f}", ""  # which sorts by what it shows
        if case.best is not None:
            styles.append(f"s{min(SHADES - 1, int(SHADES * case.best / wall)) if wall else SHADES - 1}")
            if round(wall, 2) <= round(case.best, 2):
                styles.append("best")
    else:
        worth = wall + DAY * (1 + GRAVE.index(result.verdict))
        text, key = str(result.verdict), f' data-v="{worth:.2f}"'
    if result.borderline:
        styles.append("edge")
        text = f"~{text}"
    return f'<td class="{" ".join(styles)}"{key} title="{escaped(_reason(result))}">{text}</td>'


def _reason(result: Result) -> str:
    """One result in a sentence."""
    if result.verdict is Verdict.AC:
        parts = [f"AC: {result.wall or 0.0:.3f} s of {result.limit:g} s"]
    else:
        parts = [str(result.verdict)]
    if result.reason:
        parts = [f"{parts[0]}{'; ' if result.verdict is Verdict.AC else ': '}{result.reason}"]
    if result.verdict is Verdict.AC and result.max_error is not None:
        parts.append(f"max error {result.max_error:.2g}")
    if result.attempts > 1 and result.spread:
        parts.append("median of {} runs, {:.3f} to {:.3f} s".format(result.attempts, *result.spread))
    return "\n".join(parts)


def foot(board: Board) -> str:
    """The rows at the bottom: of each case how many solved it, the best time and the median one."""
    rows = {
        "Solved": [f"{case.solved}" for case in board.cases],
        "Best": ["–" if case.best is None else f"{case.best:.2f}" for case in board.cases],
        "Median": ["–" if case.median is None else f"{case.median:.2f}" for case in board.cases],
    }
    beside = {
        "Best": _beside(board, board.complete, min, max),
        "Median": _beside(board, board.ranked, median, median),
    }
    return "".join(
        f'<tr><th scope="row">{name}</th><td class="rank"></td>{beside.get(name, "<td></td>" * 5)}'
        + "".join(f"<td{_begins(case)}>{text}</td>" for case, text in zip(board.cases, texts, strict=True))
        + "</tr>\n"
        for name, texts in rows.items()
        if board.cases
    )


def _beside(board: Board, timed: Sequence[Standing], least: Middle, most: Middle) -> str:
    """The bottom rows of the columns beside the cases: the best of each, or the median. Times are compared of those
    who are `timed`: with fewer cases passed, the sum of times is smaller."""
    ranked = board.ranked
    if not ranked:
        return "<td></td>" * 5
    columns = [
        f"{most([one.passed for one in ranked]):g}",
        f"{least([one.time for one in timed]):.2f}" if timed else "–",
        f"{least([one.penalty for one in ranked]):g}",
        f"{least([total(one) for one in ranked]):.2f}",
        f"{most([one.score or 0 for one in ranked]):g}",
    ]
    return "".join(f"<td>{text}</td>" for text in columns)


def panel(board: Board, place: int) -> str:
    """All that is to be said of a user: it is shown when its address is asked for, by the link in the row."""
    one, name = board.standings[place], board.ids[place]
    private = (board.private or {}).get(one.user)
    parts = [
        f'<section class="panel" id="{name}" tabindex="-1" aria-labelledby="{name}-name">',
        '<a class="close" href="#all" aria-label="Close">×</a>',
        f'<h2 id="{name}-name"><bdi>{escaped(one.user)}</bdi></h2>\n<p class="facts">{_facts(board, one)}</p>',
        *(_private(one, private) if private else []),
        f'<p class="why">{escaped(one.note)}</p>' if one.note else "",
        _reasons(one),
        f"<h3>The end of the build</h3>\n<pre>{escaped(private.log)}</pre>" if private and private.log else "",
        _against(board, one),
        "</section>\n",
    ]
    return "\n".join(filter(None, parts))


def _facts(board: Board, one: Standing) -> str:
    rank = f"rank {one.rank} of {len(board.ranked)}" if one.rank else "no rank yet"
    facts = [rank, f"{one.passed} of {len(one.cases)} cases", score_words(one), f"total {total(one):.2f}\u00a0s"]
    return " · ".join([*facts, *([f"{duration(one.late)} late"] if one.late else [])])


def _private(one: Standing, private: Private) -> Iterator[str]:
    facts = [f'<a href="{escaped(private.handout)}">handout</a>'] if private.handout else []
    facts += [f"“{escaped(private.pseudonym)}” on a board with pseudonyms"] if private.pseudonym else []
    facts += [f"handed in {local(one.handed_in):%Y-%m-%d %H:%M %Z}"] if one.handed_in else []
    if facts:
        yield f'<p class="facts">{" · ".join(facts)}</p>'
    if words := suspicion(one):
        yield f'<p class="why">{escaped(words)}</p>'


def _reasons(one: Standing) -> str:
    """Why cases are not accepted, those with like reasons together."""
    items = []
    for group in groups(one):
        first, *others = group.results
        shown = group.reason + (f" ({first.case})" if any(other.reason != group.reason for other in others) else "")
        items.append((style(first), str(group.verdict), group.cases, shown))
    missing = [case for case in one.cases if case not in one.results]
    if missing and not one.note:
        items.append(("none", "–", case_names(missing), LOST if one.lost else NOT_RUN))
    rows = "".join(
        f'<li><span class="c {kind}">{word}</span><span><b>{escaped(cases)}</b> {escaped(reason)}</span></li>\n'
        for kind, word, cases, reason in items
    )
    return f'<h3>Not accepted</h3>\n<ul class="reasons">\n{rows}</ul>' if rows else ""


def _against(board: Board, one: Standing) -> str:
    """The times against the best ones, in a sentence and as a drawing."""
    accepted = {case: ratio for case, ratio in board.ratios(one).items() if one.results[case].verdict is Verdict.AC}
    drawing = against_best(one, board)
    if not drawing:
        return ""
    facts = ""
    if accepted:
        nearest, farthest = min(accepted, key=accepted.__getitem__), max(accepted, key=accepted.__getitem__)
        facts = f"×{geometric_mean(list(accepted.values())):.2f} on average"
        if len(accepted) > 1:
            facts += f", from ×{accepted[nearest]:.2f} ({nearest}) to ×{accepted[farthest]:.2f} ({farthest})"
        facts = f'<p class="facts">{escaped(facts)}. The longer a bar, the slower.</p>\n'
    return f"<h3>Time against the fastest</h3>\n{facts}{drawing}"
