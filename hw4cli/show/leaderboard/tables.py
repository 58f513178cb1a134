"""Boards for a terminal, and as JSON."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hw4cli.lab.times import milliseconds
from hw4cli.show.leaderboard.entries import RANKED, Entry
from hw4cli.show.leaderboard.published import Published
from hw4cli.show.leaderboard.ranking import Board, Place, boards
from hw4cli.text.bars import shares
from hw4cli.text.tables import Bars, plain
from hw4cli.text.words import counted, printable, wrapped

HEADER = ["rank", "user", "program", "ms", "±", "fastest", "slowest", "TFLOP/s", "submitted"]
PUBLISHED_HEADER = ["ms", "±", "TFLOP/s", "program"]
HISTORY = ["submitted", "workload and GPU", "program", "ms", "±", "outcome"]
NONE = "-"


def index_text(found: Sequence[Board], width: int | None) -> str:
    """The list of all boards with entries: a line for each, with the fastest time and its user."""
    rows = []
    for board in found:
        if led := board.leader():
            rows.append([str(len(board.entries)), milliseconds(led[0].times.mean), led[0].user, board.title])
    return plain(["entries", "ms", "leader", "board"], rows, width)


def board_text(board: Board, best_per_user: bool, width: int | None, blocks: bool) -> str:
    """A board: its title, who leads it, its ranks; below them what others published."""
    places = board.places(best_per_user)
    text = f"{wrapped(printable(board.title), width)}\n"
    if places:
        bars = Bars("time", shares([place.entry.times.mean for place in places]), blocks, HEADER.index("submitted"))
        rows = [_cells(board, place) for place in places]
        text += wrapped(leader_words(board), width) + "\n" + plain(HEADER, rows, width, bars)
    if board.published:
        bars = Bars("time", shares([one.ms for one in board.published]), blocks, len(PUBLISHED_HEADER))
        text += wrapped(f"{published_words(board)}:", width) + "\n"
        text += plain(PUBLISHED_HEADER, [_published_cells(board, one) for one in board.published], width, bars)
        sources = dict.fromkeys(one.source for one in board.published)
        text += "".join(f"{wrapped(f'source: {source}', width)}\n" for source in sources)
    return text


def published_words(board: Board) -> str:
    """What the published results of a board are, in a sentence."""
    others = "" if board.workload.is_of_files else "; `hw4 leaderboard KERNEL WORKLOAD` submits to this board"
    return f"published by others, not measured here and not ranked{others}"


def leader_words(board: Board) -> str:
    """Who leads a board, and since when; "" where nobody does."""
    led = board.leader()
    if not led:
        return ""
    return f"{printable(led[0].user)} leads since {_date(led[1])}; {counted(len(board.entries), 'entry', 'entries')}"


def standing_words(entry: Entry, entries: Sequence[Entry]) -> str:
    """Where an entry stands among all: its rank, on which board, and with whom it shares it."""
    (board,) = (one for one in boards(entries) if entry in one.entries)
    places = board.places()
    own = next(place for place in places if place.entry == entry)
    others = dict.fromkeys(p.entry.user for p in places if p.rank == own.rank and p.entry != entry)
    tied = f", shared with {', '.join(others)}: the intervals overlap" if others else ""
    return printable(f"rank {own.text} of {len(places)} on {board.title}{tied}")


def history_text(user: str, entries: Sequence[Entry], width: int | None) -> str:
    """All submissions of a user, in the order of submission, those that were not ranked, too."""
    rows = [
        [
            _date(entry.date),
            f"{entry.workload.words}, {entry.machine}",
            entry.program,
            milliseconds(entry.times.mean) if entry.status == RANKED else NONE,
            f"{entry.times.error:.2g}" if entry.status == RANKED else NONE,
            entry.status if entry.status == RANKED else f"{entry.status}, {entry.reason}",
        ]
        for entry in entries
    ]
    return f"{printable(user)}, {counted(len(entries), 'submission')}\n" + plain(HISTORY, rows, width)


def as_json(found: Sequence[Board], entries: Sequence[Entry], best_per_user: bool) -> dict[str, Any]:
    """The boards and all entries as one document."""
    return {
        "schema": 1,
        "boards": [
            {
                "title": board.title,
                "places": [_figures(place) for place in board.places(best_per_user)],
                "published": [
                    {"program": one.program, "ms": one.ms, "error": one.error, "source": one.source}
                    for one in board.published
                ],
            }
            for board in found
        ],
        "entries": [entry.as_json() for entry in entries],
    }


def _figures(place: Place) -> dict[str, Any]:
    entry, times = place.entry, place.entry.times
    figures = {"mean": times.mean, "error": times.error, "fastest": times.fastest, "slowest": times.slowest}
    return {
        "rank": place.rank,
        "tied": place.tied,
        "user": entry.user,
        "program": entry.program,
        "date": entry.date.isoformat(timespec="seconds"),
        **figures,
        "samples": times.count,
    }


def _cells(board: Board, place: Place) -> list[str]:
    entry, times = place.entry, place.entry.times
    figures = [milliseconds(times.mean), f"{times.error:.2g}", milliseconds(times.fastest), milliseconds(times.slowest)]
    return [f"{place.text:>4}", entry.user, entry.program, *figures, _rate(board, times.mean), _date(entry.date)]


def _published_cells(board: Board, one: Published) -> list[str]:
    error = f"{one.error:g}" if one.error else NONE
    return [milliseconds(one.ms), error, _rate(board, one.ms), one.program]


def _date(date: datetime) -> str:
    return f"{date:%Y-%m-%d %H:%M %Z}"


def _rate(board: Board, ms: float) -> str:
    rate = board.workload.tflops(ms)
    return NONE if rate is None else f"{rate:#.4g}".rstrip(".")
