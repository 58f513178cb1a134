"""The standings of everyone whose judging left a journal in a folder: one program's, or a class's."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hw4cli import journal, suite
from hw4cli.errors import InputError
from hw4cli.journal import Journal
from hw4cli.record import Rules, Standing, combine, rank, standing


def load(folder: Path, rules: Rules) -> list[Standing]:
    """The standings in FOLDER, ranked: from FOLDER/journal.jsonl, and from FOLDER/USER/journal.jsonl of each user.

    The cases that count are the same for everyone: all that any header names or any run is of. A user whose journal
    cannot be read stands there with a note. InputError if there is no journal at all.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: name the one that `hw4 judge --output` wrote")
    paths = [path for path in (folder / journal.NAME, *sorted(folder.glob(f"*/{journal.NAME}"))) if path.is_file()]
    if not paths:
        raise InputError(f"{folder} and its folders hold no {journal.NAME}: name what `hw4 judge --output` wrote")
    read = [(path.parent.resolve().name, *_read(path, folder)) for path in paths]
    cases = _cases(found for _, found, _ in read)
    return rank([_standing(user, found, cases, rules, damage) for user, found, damage in read], rules)


def _read(path: Path, folder: Path) -> tuple[Journal, str]:
    """A journal, and what is wrong with it if it cannot be used, told without the way to the folder."""
    name = str(path.relative_to(folder))
    try:
        found = journal.read(path)
    except InputError as error:
        return Journal(), str(error).replace(str(path), name)
    except (LookupError, RecursionError) as error:  # JSON, but not what we wrote
        return Journal(), f"{name} is damaged: {error!r}"
    return found, "" if found.headers or found.runs else f"{name} is empty or damaged"


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


def _standing(user: str, found: Journal, cases: Sequence[str], rules: Rules, damage: str) -> Standing:
    """One user's standing. A note in the last header says why that program could not be run: older runs are history."""
    user, note = str(found.header.get("user") or user), str(found.header.get("note") or "")
    try:
        attempts = {} if note else found.attempts()
        judged = [combine(runs, rules) for runs in attempts.values()]
        one = standing(user, judged, cases, rules, note, session=found.header)
    except (AttributeError, TypeError, ValueError) as error:  # a time that is no number, say
        damage = f"the journal is damaged: {error}"
    if not damage:
        return one
    return replace(standing(user, [], cases, rules, damage), score=None, penalty=0.0)  # not the program's fault
