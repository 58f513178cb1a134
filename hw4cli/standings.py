"""The standings of everyone whose judging left a journal in a folder: one program's, or a class's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from hw4cli import journal, suite
from hw4cli.errors import InputError
from hw4cli.journal import Journal
from hw4cli.record import RANKS, Attempt, Rules, Standing, combine, rank, standing


@dataclass(frozen=True)
class Entry:
    """One user's journal. `damage` tells why it cannot be used."""

    user: str
    journal: Journal
    damage: str = ""


def load(folder: Path, rules: Rules) -> list[Standing]:
    """The standings in FOLDER by these rules, ranked. Raises as `read` does."""
    return decide(read(folder), rules)


def read(folder: Path) -> list[Entry]:
    """The journals in FOLDER: FOLDER/journal.jsonl, and FOLDER/USER/journal.jsonl of each user.

    One that cannot be read is there, with its damage. InputError if there is none at all.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: name the one that `hw4 judge --output` wrote")
    paths = [path for path in (folder / journal.NAME, *sorted(folder.glob(f"*/{journal.NAME}"))) if _is_there(path)]
    if not paths:
        raise InputError(f"{folder} and its folders hold no {journal.NAME}: name what `hw4 judge --output` wrote")
    return [entry(path, str(path.relative_to(folder))) for path in paths]


def _is_there(path: Path) -> bool:
    """Whether it is a file, or may be one: what cannot be looked at is told when it cannot be read."""
    try:
        return path.is_file()
    except OSError:
        return True


def entry(path: Path, name: str) -> Entry:
    """A user's journal, called `name` in what is told of it."""
    user = path.parent.resolve().name
    try:
        found = journal.read(path)
    except InputError as error:
        return Entry(user, Journal(), str(error).replace(str(path), name))
    except (LookupError, RecursionError) as error:  # JSON, but not what we wrote
        return Entry(user, Journal(), f"{name} is damaged: {error!r}")
    damage = "" if found.headers or found.runs else f"{name} is empty or damaged"
    return Entry(str(found.header.get("user") or user), found, damage)


def as_judged(entries: Iterable[Entry]) -> Rules:
    """The rules of the judging, as they stand in the journals: a class is judged by the same."""
    headers = [entry.journal.header for entry in entries]
    settings = next((found for one in headers if isinstance(found := one.get("settings"), dict)), {})
    kept: dict[str, Any] = {
        name: value for name in ("tolerance", "penalty") if isinstance(value := settings.get(name), int | float)
    }
    return Rules(**kept, rank_by=settings["rank_by"] if settings.get("rank_by") in RANKS else RANKS[0])


def changed(rules: Rules, limits: Mapping[str, float], **wanted: Any) -> Rules:
    """Rules with other limits, and with what else is wanted and not None."""
    return replace(rules, limits=limits, **{name: value for name, value in wanted.items() if value is not None})


def decide(entries: Sequence[Entry], rules: Rules) -> list[Standing]:
    """The standings of these journals, ranked. The cases that count are the same for everyone: all that any header
    names or any run is of."""
    cases = _cases(entry.journal for entry in entries)
    return rank([_standing(entry, cases, rules) for entry in entries], rules)


def _cases(journals: Iterable[Journal]) -> list[str]:
    """The names of the cases that count: the suite's in its order, then others."""
    named: set[str] = set()
    for found in journals:
        named.update(attempt.case for _, attempt in found.runs)
        for header in found.headers:
            named.update(_strings(header.get("cases")))
    known = list(suite.cases())
    return [name for name in known if name in named] + sorted(named.difference(known))


def _strings(value: Any) -> Sequence[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _standing(entry: Entry, cases: Sequence[str], rules: Rules) -> Standing:
    """One user's standing. A note in the last header says why that program could not be run: older runs are history."""
    header, damage = entry.journal.header, entry.damage
    note = str(header.get("note") or "")
    if header.get("fault"):  # the judge's own
        damage = damage or note
    try:
        attempts = {} if note else entry.journal.attempts()
        for attempt in chain(*attempts.values()):
            _check(attempt)
        judged = [combine(runs, rules) for runs in attempts.values()]
        one = standing(entry.user, judged, cases, rules, note, session=header)
    except (AttributeError, TypeError, ValueError) as error:
        damage = f"the journal is damaged: {error}"
    if not damage:
        return one
    return replace(standing(entry.user, [], cases, rules, damage), score=None, penalty=0.0)  # not the program's fault


def _check(attempt: Attempt) -> None:
    """ValueError if a value is not of its kind: what is made of it must not fail for everyone else."""
    numbers = (attempt.limit, attempt.wall or 0.0, attempt.max_error or 0.0)
    words = (attempt.fault, attempt.problem, attempt.wrong, attempt.note)
    if not (
        [type(size) for size in attempt.shape] == [int, int, int]
        and all(isinstance(number, int | float) for number in numbers)
        and all(word is None or isinstance(word, str) for word in words)
    ):
        raise ValueError(f"a run of {attempt.case} holds what no judge writes")
