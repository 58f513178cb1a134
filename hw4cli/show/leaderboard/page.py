"""The leaderboard as a page: one file with an index of boards, each board, and each user's history; it asks for nothing
else and needs no script to be read."""

import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from hw4cli import __version__
from hw4cli.lab.times import Times, milliseconds
from hw4cli.plans.measured import RUN_SPREAD
from hw4cli.show.leaderboard.chart import bar, progress
from hw4cli.show.leaderboard.contest import KERNEL
from hw4cli.show.leaderboard.entries import RANKED, Entry
from hw4cli.show.leaderboard.published import Published
from hw4cli.show.leaderboard.ranking import Board, Place
from hw4cli.show.leaderboard.tables import published_words
from hw4cli.text.page import escaped, filled
from hw4cli.text.words import counted

MEDALS = 3
MORE = ' class="more"'  # of rows that are not the best of their user
BAR = '<span class="unseen">Time as a bar</span>'
COLUMNS = {"Rank": "number", "User": "", "Program": "", "Time, ms": "number", BAR: "bar", "Fastest": "number"}
COLUMNS |= {"Slowest": "number", "TFLOP/s": "number", "Submitted": "text"}
NOBODY = (
    '<p class="nobody">Nobody has submitted yet: <code>hw4 leaderboard ./mine.cu t28</code> submits a kernel on a '
    "case, <code>hw4 leaderboard t28 --program ./mine</code> a program.</p>\n"
)
CHOICE = (
    '<p class="choice"><label><input type="checkbox" id="best"{}> Rank only the best entry of each user</label></p>\n'
)
NOTES = (
    "A submission is tested against float64, timed on the same data, and timed again in a new process, on new random "
    "data, with a cold L2 cache (a program: with its input not in the page cache). This ranked run counts.",
    "Times are means ± standard error. Entries share a rank (=) where their intervals, two standard errors to either "
    f"side, overlap. From one run to another the same kernel may differ by {RUN_SPREAD:.1%}: ranks that are nearer "
    "than that may change places on another day.",
)


def page(boards: Sequence[Board], entries: Sequence[Entry], title: str, best_per_user: bool, now: datetime) -> str:
    """The whole page. `now` (with its time zone) is the date it shows."""
    users = list(dict.fromkeys(entry.user for entry in entries))
    own = [board for board in boards if board.entries]
    others = [board for board in boards if not board.entries]
    index = "".join(map(_card, own))
    if others:
        index += "<h2>Published by others, not measured here</h2>\n" + "".join(map(_card, others))
    return filled(
        "leaderboard",
        title=escaped(title),
        facts=f"{counted(len(entries), 'submission')} · {_time(now)}",
        tiles=_tiles(own, entries, users),
        index=index,
        nobody="" if entries else NOBODY,
        choice=CHOICE.format(" checked" * best_per_user) if own else "",
        boards="".join(map(_board, boards)),
        notes="".join(f"<p>{note}</p>\n" for note in (*NOTES, f"Made by hw4 {__version__}.")),
        panels="".join(_panel(user, [entry for entry in entries if entry.user == user], own) for user in users),
    )


def _tiles(own: Sequence[Board], entries: Sequence[Entry], users: Sequence[str]) -> str:
    refused = sum(entry.status != RANKED for entry in entries)
    last = max((entry.date for entry in entries), default=None)
    figures = [
        ("boards", f"{len(own):,}", "with entries"),
        ("users", f"{len(users):,}", ""),
        ("submissions", f"{len(entries):,}", f"{refused} not ranked" if refused else "all ranked" if entries else ""),
        ("last submission", f"{last:%Y-%m-%d}" if last else "–", f"{last:%H:%M %Z}" if last else ""),
    ]
    return "".join(
        f"<li><b>{figure}</b> <span>{name}</span> <small>{escaped(more)}</small></li>\n"
        for name, figure, more in figures
    )


def _card(board: Board) -> str:
    led = board.leader()
    if led:
        entry, since = led
        words = f"{_name(entry.user)} leads with {milliseconds(entry.times.mean)} ms since {since:%Y-%m-%d}"
        words += f"; {counted(len(board.entries), 'entry', 'entries')}"
    else:
        words = f"{counted(len(board.published), 'published result')}, not ranked"
    kind = "card" if led else "card others"
    return (
        f'<a class="{kind}" href="#{_id(board)}"><b>{escaped(board.workload.words)}</b>'
        f"<span>{_place(board)}</span><span>{words}</span></a>\n"
    )


def _board(board: Board) -> str:
    every, best = board.places(), board.places(best_per_user=True)
    parts = [
        f'<section class="board{" others" * (not every)}" id="{_id(board)}" aria-labelledby="{_id(board)}-title">',
        '<a class="back" href="#boards">All boards</a>',
        f'<h2 id="{_id(board)}-title">{escaped(board.workload.words)}</h2>',
        f"<p>{_place(board)} · sizes are {board.workload.axes}</p>",
    ]
    if led := board.leader():
        parts.append(f"<p><b>{_name(led[0].user)}</b> leads since {_time(led[1])}</p>")
        if len(board.entries) > 1:  # one dot is no chart
            label = "Times by the date of submission; the table below has them in numbers"
            parts += [progress(board.entries, label), KEYS]
        parts.append(_table(board, every, best))
    if board.published:
        parts.append(_published(board))
    return "\n".join(parts) + "\n</section>\n"


KEYS = (
    '<figcaption><span><span class="key dot"></span>an entry and its interval</span>'
    '<span><span class="key best"></span>fastest so far</span></figcaption>'
)


def _table(board: Board, every: Sequence[Place], best: Sequence[Place]) -> str:
    own = {id(place.entry): place for place in best}
    longest = max(place.entry.times.slowest for place in every)
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in COLUMNS.items())
    rows = "".join(_row(board, place, own.get(id(place.entry)), longest) for place in every)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{_id(board)}-title"><table class="stack">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>"
    )


def _row(board: Board, place: Place, own: Place | None, longest: float) -> str:
    entry, times = place.entry, place.entry.times
    ranks = _rank(place, "all") + (_rank(own, "own") if own else "")
    members = f"<small>{escaped(', '.join(entry.authors))}</small>" if entry.authors else ""
    return (
        f"<tr{'' if own else MORE}>"
        f'<td class="rank">{ranks}</td>'
        f'<th scope="row"><a href="#{user_id(entry.user)}">{_name(entry.user)}</a>{members}</th>'
        f'<td class="text">{escaped(entry.program)}</td>'
        f'<td class="ms" data-unit="ms">{milliseconds(times.mean)} <small>± {times.error:.2g}</small></td>'
        f'<td class="bar">{bar(times.mean, longest, times)}</td>'
        f'<td data-name="fastest">{milliseconds(times.fastest)}</td>'
        f'<td data-name="slowest">{milliseconds(times.slowest)}</td>'
        f'<td data-name="TFLOP/s">{_rate(board, times.mean)}</td>'
        f'<td class="text" data-name="submitted">{_time(entry.date)}</td></tr>\n'
    )


def _rank(place: Place, kind: str) -> str:
    medal = f' class="m{place.rank}"' if place.rank <= MEDALS else ""
    tie = f'<span title="shared: the intervals overlap">{place.text}</span>' if place.tied else place.text
    inner = f"<b{medal}>{tie}</b>" if medal else tie
    return f'<span class="{kind}">{inner}</span>'


def _with_code(words: str) -> str:
    """Words as HTML, what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(words))


def _published(board: Board) -> str:
    longest = max(one.ms for one in board.published)

    def row(one: Published) -> str:
        error = f" <small>± {one.error:g}</small>" if one.error else ""
        return (
            f'<tr><th scope="row">{escaped(one.program)}<small>{escaped(one.source)}</small></th>'
            f'<td class="ms" data-unit="ms">{milliseconds(one.ms)}{error}</td>'
            f'<td class="bar">{bar(one.ms, longest)}</td>'
            f'<td data-name="TFLOP/s">{_rate(board, one.ms)}</td></tr>\n'
        )

    heads = (("", "Program and source"), ("number", "Time, ms"), ("bar", BAR), ("number", "TFLOP/s"))
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for kind, name in heads)
    rows = "".join(map(row, board.published))
    return (
        '<div class="scroll published" tabindex="0" role="region" aria-label="Published by others">'
        '<table class="stack">'
        f"<caption>{_with_code(published_words(board))}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>"
    )


def _panel(user: str, entries: Sequence[Entry], boards: Sequence[Board]) -> str:
    """All that there is of a user: members, times over time on each board, every submission."""
    members = list(dict.fromkeys(author for entry in entries for author in entry.authors))
    name = user_id(user)
    parts = [
        f'<section class="panel" id="{name}" tabindex="-1" aria-labelledby="{name}-name">',
        '<a class="close" href="#top" aria-label="Close">×</a>',
        f'<h2 id="{name}-name">{_name(user)}</h2>',
        f"<p>{escaped(', '.join(members))}</p>" if members else "",
    ]
    for board in boards:
        own = [entry for entry in board.entries if entry.user == user]
        if own:
            parts.append(f'<h3><a href="#{_id(board)}">{escaped(board.workload.words)}</a></h3><p>{_place(board)}</p>')
            parts += [progress(own, "Times by the date of submission")] * (len(own) > 1)
            parts.append(_history(own))
    refused = [entry for entry in entries if entry.status != RANKED]
    if refused:
        parts.append("<h3>Not ranked</h3>")
        parts += [
            f"<p>{_time(entry.date)}, {escaped(entry.program)} on {escaped(entry.workload.words)}<br>"
            f'<b class="late">{entry.status}</b>: {escaped(entry.reason)}</p>'
            for entry in reversed(refused)
        ]
    return "\n".join(filter(None, parts)) + "\n</section>\n"


def _history(own: Sequence[Entry]) -> str:
    """A user's ranked entries on a board, the last first, with what the benchmark had measured before."""
    rows = "".join(
        f'<tr><td class="text">{_time(entry.date)}<br><small>{escaped(entry.program)}</small></td>'
        f'<td class="ms">{milliseconds(entry.times.mean)} <small>± {entry.times.error:.2g}</small>'
        f"<br><small>{_benchmark(entry)}</small></td></tr>\n"
        for entry in reversed(own)
    )
    head = '<th scope="col">Submitted</th><th scope="col" class="number">Ranked run, ms</th>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>"


def _benchmark(entry: Entry) -> str:
    return f"benchmark {Times.of(entry.benchmark).with_error}" if len(entry.benchmark) > 1 else ""


def user_id(user: str) -> str:
    """The name of a user's part of the page, made of the user's own: a link to it lives longer than a rank."""
    return "u" + sha256(user.encode(errors="surrogatepass")).hexdigest()[:8]


def _id(board: Board) -> str:
    return "b" + sha256(board.title.encode(errors="surrogatepass")).hexdigest()[:8]


def _place(board: Board) -> str:
    timed = "time of the kernel" if board.workload.timed == KERNEL else "time of whole programs, from file to file"
    return f"{escaped(board.machine)} · {timed}"


def _rate(board: Board, ms: float) -> str:
    rate = board.workload.tflops(ms)
    return "–" if rate is None else f"{rate:.1f}"


def _name(user: str) -> str:
    return f"<bdi>{escaped(user)}</bdi>"


def _time(date: datetime) -> str:
    return f'<time datetime="{date.isoformat(timespec="seconds")}">{date:%Y-%m-%d %H:%M} {escaped(f"{date:%Z}")}</time>'
