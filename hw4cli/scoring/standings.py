"""The standings of everyone whose judging left a journal in a folder: one program's, or a class's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.problem import suite
from hw4cli.scoring import journal
from hw4cli.scoring.journal import Journal
from hw4cli.scoring.record import JUDGE_FAILED, RANKS, Rules, Standing, combine, rank, standing
from hw4cli.system.exits import with_words
from hw4cli.text.dates import recorded


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
    damage = "" if found.headers or found.runs else f"{name} is empty or damaged"
    return Entry(found.header.get("user") or user, found, damage)


def as_judged(entries: Iterable[Entry]) -> Rules:
    """The rules of the judging, as they stand in the journals: a class is judged by the same."""
    settings: Mapping[str, Any] = next(
        (entry.journal.header["settings"] for entry in entries if "settings" in entry.journal.header), {}
    )
    kept = {name: settings[name] for name in ("tolerance", "penalty") if name in settings}
    rank_by = settings["rank_by"] if settings.get("rank_by") in RANKS else RANKS[0]
    return Rules(**kept, rank_by=rank_by, due=recorded(settings.get("due")))


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
            named.update(header.get("cases", ()))
    known = list(suite.cases())
    return [name for name in known if name in named] + sorted(named.difference(known))


def _standing(entry: Entry, cases: Sequence[str], rules: Rules) -> Standing:
    """One user's standing. A note in the last header says why that program could not be run: older runs are history."""
    found, header, damage = entry.journal, entry.journal.header, entry.damage
    public_note = header.get("note") or ""
    note = with_words(public_note, header.get("said"))
    if header.get("fault"):  # the judge's own
        damage = damage or note
    if damage:  # not the program's fault
        public_note = JUDGE_FAILED if header.get("fault") else "the journal is damaged"
        one = standing(entry.user, [], cases, rules, damage, public_note, damaged=found.damaged, lost=True)
        return replace(one, lost=not header.get("fault"))
    attempts = {} if note else found.attempts()
    judged = [combine(runs, rules) for runs in attempts.values()]
    lost = found.in_doubt or bool(found.damaged and not note and set(cases) - set(attempts))
    one = standing(
        entry.user, judged, cases, rules, note, public_note, session=header, damaged=found.damaged, lost=lost
    )
    handed_in = recorded(header.get("settings", {}).get("handed_in"))
    late = (handed_in - rules.due).total_seconds() if handed_in and rules.due else 0.0
    return replace(one, handed_in=handed_in, late=max(0.0, late))


def anonymous(standings: Iterable[Standing], names: Mapping[str, str], rules: Rules) -> list[Standing]:
    """These standings for everyone's eyes: under other `names`, in our words alone, without what tells who it is."""
    return rank([_anonymous(one, names[one.user]) for one in standings], rules)


def _anonymous(one: Standing, name: str) -> Standing:
    session = {key: one.session[key] for key in ("gpu",) if key in one.session}
    return replace(in_public(one), user=name, session=session, handed_in=None)


def in_public(one: Standing) -> Standing:
    """The same in our words alone: nothing that the program or its build said, nor what is suspected of it."""
    results = {
        case: replace(result, reason=result.public_reason, public_right=False) for case, result in one.results.items()
    }
    return replace(one, results=results, note=one.public_note)
