"""Boards: the entries on one workload and one GPU, ranked, with ties where nothing shows which is faster."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hw4cli.show.leaderboard.contest import KERNEL, Contest
from hw4cli.show.leaderboard.entries import RANKED, Entry
from hw4cli.show.leaderboard.published import PUBLISHED, Published


@dataclass(frozen=True)
class Place:
    """An entry's rank; `tied` if others have the same."""

    rank: int
    tied: bool
    entry: Entry

    @property
    def text(self) -> str:
        """The rank as tables show it: "2", or "=2" where others have it, too."""
        return f"{'=' * self.tied}{self.rank}"


@dataclass(frozen=True)
class Board:
    """The ranked entries on a workload and a GPU, in the order of submission, and what others published of it, the
    fastest first."""

    workload: Contest
    machine: str
    entries: tuple[Entry, ...] = ()
    published: tuple[Published, ...] = ()

    @property
    def title(self) -> str:
        """The workload, what is timed, and the GPU."""
        timed = "" if self.workload.timed == KERNEL else ", whole programs"
        return f"{self.workload.words}{timed}, {self.machine}"

    def places(self, best_per_user: bool = False) -> list[Place]:
        """The entries by their rank: all, or the best of each user."""
        return ranked(best_of_each(self.entries) if best_per_user else self.entries)

    def leader(self) -> tuple[Entry, datetime] | None:
        """The fastest entry, and since when its user has led; None without entries."""
        if not self.entries:
            return None
        best, since = self.entries[0], self.entries[0].date
        for entry in self.entries[1:]:
            if entry.times.mean < best.times.mean:
                since = since if entry.user == best.user else entry.date
                best = entry
        return best, since


def boards(entries: Sequence[Entry], published: Sequence[Published] = PUBLISHED) -> list[Board]:
    """The boards of some entries, that with the last entry first; then those of which only published results are known.

    An entry that was not ranked is on none of them.
    """
    found: dict[tuple[Contest, str], list[Entry]] = {}
    for entry in entries:
        if entry.status == RANKED:
            found.setdefault((entry.workload, entry.machine), []).append(entry)
    others: dict[tuple[Contest, str], list[Published]] = {}
    for one in published:
        others.setdefault((one.workload, one.machine), []).append(one)
    latest = sorted(found, key=lambda key: max(entry.date for entry in found[key]), reverse=True)
    keys = dict.fromkeys([*latest, *others])
    return [
        Board(
            *key,
            tuple(sorted(found.get(key, []), key=lambda entry: entry.date)),
            tuple(sorted(others.get(key, []), key=lambda one: one.ms)),
        )
        for key in keys
    ]


def ranked(entries: Sequence[Entry]) -> list[Place]:
    """The entries by their mean, with ranks. An entry shares the rank of the fastest one above it whose interval
    overlaps its own, and which shares none itself: so two that are certainly apart never have the same rank."""
    order = sorted(entries, key=lambda entry: (entry.times.mean, entry.date))
    ranks: list[int] = []
    first = 0  # the fastest of the current rank
    for at, entry in enumerate(order):
        if at and entry.times.interval[0] > order[first].times.interval[1]:
            first = at
        ranks.append(first + 1)
    return [Place(rank, ranks.count(rank) > 1, entry) for rank, entry in zip(ranks, order, strict=True)]


def best_of_each(entries: Sequence[Entry]) -> list[Entry]:
    """The fastest entry of each user, the first of equal ones."""
    best: dict[str, Entry] = {}
    for entry in entries:
        if entry.user not in best or entry.times.mean < best[entry.user].times.mean:
            best[entry.user] = entry
    return list(best.values())
