"""The standings of all users whose journals are in a folder of results: of one program, or of a class."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.judge.scoring import journal, storedrules
from hw4cli.judge.scoring.journal import Journal
from hw4cli.judge.scoring.record import JUDGE_FAILED, RANKS, Rules, Standing, combine, make_standing, rank
from hw4cli.problem import suite
from hw4cli.system.exits import with_message
from hw4cli.text.dates import parse_timestamp


@dataclass(frozen=True)
class UserJournal:
    """One user's journal. `damage` is why it cannot be used."""

    user: str
    journal: Journal
    damage: str = ""


def load(folder: Path, rules: Rules) -> list[Standing]:
    """The ranked standings in a folder by these rules. Raises as `read` does."""
    return compute(read(folder), rules)


def read(folder: Path) -> list[UserJournal]:
    """The journals in a folder: FOLDER/journal.jsonl, and FOLDER/USER/journal.jsonl of each user.

    A journal that cannot be read is included, with its damage. InputError if there is no journal.
    """
    return [read_one(path, str(path.relative_to(folder))) for path in journal_paths(folder)]


def journal_paths(folder: Path) -> list[Path]:
    """The files of these journals. InputError if there is none."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: name the one that `hw4 judge --output` wrote")
    paths = find_journals(folder)
    if not paths:
        raise InputError(f"{folder} and its folders hold no {journal.NAME}: name what `hw4 judge --output` wrote")
    return paths


def find_journals(folder: Path) -> list[Path]:
    """The files of these journals; none if there is none. InputError if the folder cannot be read."""
    try:
        places = [folder, *sorted(folder.iterdir())]
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from None
    paths = [place / journal.NAME for place in places if _may_exist(place / journal.NAME)]
    if paths and paths[0].is_dir() and paths[0].parent == folder:  # of a student who is called so
        del paths[0]
    return paths


def _may_exist(path: Path) -> bool:
    """Whether anything has this name, or may have it: whatever cannot be read is reported when it is read."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_one(path: Path, name: str) -> UserJournal:
    """A user's journal, called `name` in messages."""
    user = Path(os.path.realpath(path.parent)).name  # which ends at a loop of links
    try:
        found = journal.read(path)
    except InputError as error:
        return UserJournal(user, Journal(), str(error).replace(str(path), name))
    damage = "" if found.headers or found.runs else f"{name} is empty or damaged"
    return UserJournal(found.header.get("user") or user, found, damage)


def recorded_rules(entries: Iterable[UserJournal]) -> Rules:
    """The rules that the first header with settings records; a class is judged by one set of rules. Limits are those
    of each run."""
    settings: Mapping[str, Any] = next(
        (entry.journal.header["settings"] for entry in entries if "settings" in entry.journal.header), {}
    )
    kept = {name: settings[name] for name in ("tolerance", "penalty") if name in settings}
    rank_by = settings["rank_by"] if settings.get("rank_by") in RANKS else RANKS[0]
    return Rules(**kept, rank_by=rank_by, due=parse_timestamp(settings.get("due")))


def rules_of(folder: Path, entries: Iterable[UserJournal] | None = None) -> Rules:
    """The rules of a folder of results: the stored ones; of an older folder, those that the first of its journals
    (`entries`, if they are read already) records. InputError if the stored ones cannot be read."""
    found = storedrules.read(folder)
    if found is None and entries is None:
        entries = (read_one(path, str(path)) for path in (find_journals(folder) if folder.is_dir() else ()))
    return found or recorded_rules(entries or ())


def with_changes(rules: Rules, limits: Mapping[str, float], **wanted: Any) -> Rules:
    """The rules with these limits in place of the same cases', and with those of `wanted` that are not None."""
    named = {name: value for name, value in wanted.items() if value is not None}
    return replace(rules, limits={**rules.limits, **limits}, **named)


def compute(entries: Sequence[UserJournal], rules: Rules) -> list[Standing]:
    """The ranked standings of these journals. The same cases count for everyone: all in any header or run."""
    cases = _cases(entry.journal for entry in entries)
    return rank([_standing(entry, cases, rules) for entry in entries], rules)


def _cases(journals: Iterable[Journal]) -> list[str]:
    """The names of the cases that count: those of the suite in its order, then others."""
    named: set[str] = set()
    for found in journals:
        named.update(attempt.case for _, attempt in found.runs)
        for header in found.headers:
            named.update(header.get("cases", ()))
    known = list(suite.cases())
    return [name for name in known if name in named] + sorted(named.difference(known))


def _standing(entry: UserJournal, cases: Sequence[str], rules: Rules) -> Standing:
    """One user's standing. With a note in the last header, which is why the program could not be run, older runs do
    not count."""
    found, header, damage = entry.journal, entry.journal.header, entry.damage
    public_note = header.get("note") or ""
    note = with_message(public_note, header.get("said"))
    if header.get("fault"):  # the judge's own
        damage = damage or note
    if damage:  # not the program's fault
        failed = header.get("public_note") or JUDGE_FAILED
        public_note = failed if header.get("fault") else "the journal is damaged"
        standing = make_standing(entry.user, [], cases, rules, damage, public_note, damaged=found.damaged, lost=True)
        return replace(standing, lost=not header.get("fault"))
    attempts = {} if note else found.attempts()
    judged = [combine(runs, rules) for runs in attempts.values()]
    lost = found.in_doubt or bool(found.damaged and not note and set(cases) - set(attempts))
    standing = make_standing(
        entry.user, judged, cases, rules, note, public_note, session=header, damaged=found.damaged, lost=lost
    )
    if note and not lost:  # nothing was run: no case that was not chosen could have been right either
        standing = replace(standing, score=0)
    handed_in = parse_timestamp(header.get("settings", {}).get("handed_in"))
    late = (handed_in - rules.due).total_seconds() if handed_in and rules.due else 0.0
    return replace(standing, handed_in=handed_in, late=max(0.0, late))


def anonymize(standings: Iterable[Standing], names: Mapping[str, str], rules: Rules) -> list[Standing]:
    """Standings that can be published: with other `names`, no quotes of programs, and nothing that identifies users."""
    return rank([_anonymized(standing, names[standing.user]) for standing in standings], rules)


def _anonymized(standing: Standing, name: str) -> Standing:
    session = {key: standing.session[key] for key in ("gpu",) if key in standing.session}
    return replace(in_public(standing), user=name, session=session, handed_in=None)


def in_public(standing: Standing) -> Standing:
    """The standing without quotes of programs and builds, and without suspicions."""
    results = {
        case: replace(result, reason=result.public_reason, public_right=False)
        for case, result in standing.results.items()
    }
    return replace(standing, results=results, note=standing.public_note)
