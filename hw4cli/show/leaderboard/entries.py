"""The entries of a leaderboard: a file of JSON lines in its folder, to which lines are only appended.

Every submission is kept, also one that was wrong. A line holds the samples themselves: all figures are computed from
them when they are shown. A line that is cut short, or holds what no leaderboard writes, is skipped and counted.
"""

import fcntl
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError, os_error
from hw4cli.judge.scoring import journal
from hw4cli.lab.times import Times
from hw4cli.show.leaderboard.contest import KERNEL, PROGRAM, WORD, Contest
from hw4cli.system.files import make_folder
from hw4cli.system.reading import read_regular
from hw4cli.text.dates import parse_timestamp

SCHEMA = 1
NAME = "leaderboard.jsonl"
RANKED, WRONG, FAILED = "ranked", "wrong", "failed"
LONGEST_NAME = 80  # letters of a user's name
DIGITS = 6  # significant ones of a sample
SHORTEST, LONGEST = 1e-6, 1e9  # milliseconds of a sample: no clock shows less, and nobody waits for more


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the stages found. Samples are times in milliseconds: of the benchmark, and of the ranked run. `seed` is that
    of the ranked run's data; `facts` are the machine's and the software's."""

    machine: str
    status: str = FAILED
    reason: str = ""
    sha256: str = ""
    seed: int | None = None
    max_error: float | None = None
    benchmark: tuple[float, ...] = ()
    ranked: tuple[float, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Entry(Outcome):
    """One submission: its outcome, and whose it is."""

    user: str
    program: str
    workload: Contest
    date: datetime
    authors: tuple[str, ...] = ()

    @cached_property
    def times(self) -> Times:
        """The figures of the ranked run, by which the entry is ranked."""
        return Times.of(self.ranked)

    def as_json(self) -> dict[str, Any]:
        """The entry as a line of the file holds it."""
        fields = {**asdict(self), "workload": self.workload.record()}
        return {"schema": SCHEMA, **fields, "date": self.date.isoformat(timespec="seconds")}


BEGINS = "`hw4 leaderboard KERNEL CASE` begins one, as in `hw4 leaderboard ./mine.cu t28`"


def rounded(samples: Sequence[float]) -> tuple[float, ...]:
    """Samples as an entry keeps them: no clock has more digits."""
    return tuple(float(f"{ms:.{DIGITS}g}") for ms in samples)


@dataclass
class Entries:
    """The entries of a folder, in the order of submission, whether it has no file of them, and the numbers, from 1, of
    that file's lines that are damaged, and of those that a newer hw4 wrote."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    missing: bool = False
    damaged: list[int] = field(default_factory=list)
    newer: list[int] = field(default_factory=list)

    @property
    def skipped(self) -> list[str]:
        """A sentence about the lines of either kind."""
        kinds = ((self.damaged, "damaged"), (self.newer, f"of a newer schema than {SCHEMA}, which this hw4 reads,"))
        return [
            f"{self.path} is {words} in line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}: "
            "what stood there is not shown"
            for lines, words in kinds
            if lines
        ]


def read(folder: Path, begun: bool = True) -> Entries:
    """The entries of a leaderboard's folder. InputError if it has no file of them; if it need not be `begun`, none."""
    path = folder / NAME
    found = Entries(path)
    try:
        lines = read_regular(path).split(b"\n")
    except NotADirectoryError:
        raise InputError(f"{folder} is not a folder: name the one with the leaderboard") from None
    except FileNotFoundError:
        if not begun:
            found.missing = True
            return found
        raise InputError(f"{folder} holds no leaderboard: {BEGINS}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                fields = json.loads(line)
                if type(schema := fields["schema"]) is int and schema > SCHEMA:
                    found.newer.append(number)
                else:
                    found.entries.append(_entry(fields))
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
                found.damaged.append(number)
    return found


def check_folder(folder: Path) -> None:
    """Make the folder of a leaderboard, and see that an entry can be written there: before anything is measured.

    Raises InputError if it is not a folder, or holds what this hw4 cannot read; MachineError if it cannot be written.
    """
    make_folder(folder)
    path = folder / NAME
    if path.exists() and (newer := read(folder).newer):
        raise InputError(f"{path}, line {newer[0]} was written by a newer hw4: this one reads schema {SCHEMA}")
    try:
        path.open("ab").close()
    except OSError as error:
        raise os_error(error, f"write {path}") from None


def append(folder: Path, entry: Entry) -> None:
    """Append an entry; other processes may append at the same time. MachineError if it cannot be written."""
    path = folder / NAME
    try:
        with path.open("ab") as lock:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            journal.append(path, entry.as_json())
    except OSError as error:
        raise os_error(error, f"write {path}") from None


def _entry(line: Mapping[str, Any]) -> Entry:
    """An entry from a line. ValueError and others if it is damaged."""
    date = parse_timestamp(line["date"])
    samples = {name: tuple(float(ms) for ms in line[name]) for name in ("benchmark", "ranked")}
    texts = {name: line[name] for name in ("user", "program", "machine", "reason", "sha256")}
    authors, facts = line["authors"], line["facts"]
    seed, max_error = line["seed"], line["max_error"]
    sound = (
        line["schema"] == SCHEMA
        and type(line["schema"]) is int
        and all(isinstance(line[name], list) for name in (*samples, "authors"))
        and date is not None
        and line["status"] in (RANKED, WRONG, FAILED)
        and all(isinstance(text, str) for text in [*texts.values(), *authors, *facts, *facts.values()])
        and 0 < len(texts["user"]) <= LONGEST_NAME
        and (seed is None or (type(seed) is int and seed >= 0))
        and (max_error is None or (_is_number(max_error) and 0 <= max_error < inf))
        and all(_is_number(ms) for name in samples for ms in line[name])
        and all(SHORTEST <= ms <= LONGEST for times in samples.values() for ms in times)
        and (line["status"] != RANKED or len(samples["ranked"]) > 1)
    )
    if not sound or date is None:
        raise ValueError("an impossible entry")
    return Entry(
        **texts,
        benchmark=samples["benchmark"],
        ranked=samples["ranked"],
        workload=_workload(line["workload"]),
        date=date,
        status=line["status"],
        authors=tuple(authors),
        seed=seed,
        max_error=max_error,
        facts=dict(facts),
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _workload(fields: Mapping[str, Any]) -> Contest:
    contest = Contest.of(**fields)
    work = contest.work
    sizes = (work.batch, work.heads, work.N, work.d)
    sound = (
        all(type(size) is int and 0 < size < 2**31 for size in sizes)
        and all(WORD.fullmatch(word) for word in (work.dtype, contest.direction))
        and contest.timed in (KERNEL, PROGRAM)
        and type(work.causal) is bool
    )
    if not sound:
        raise ValueError("an impossible workload")
    return contest
