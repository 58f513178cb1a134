"""The journal of a judging: JSON lines, one written as each run ends, from which everything else is made.

A line is a header ({"kind": "header", "schema": 1, …}: who was judged, where, when) or a run ({"kind": "run", "key": …}
and the fields of an Attempt). A journal is only ever added to, so that a crash loses at most the line in writing.

A line that is cut short, or holds what no judge writes (journalfields), is damaged. It is left out and counted: what
it held is not known, so nobody may take a case for one that was not run.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.scoring.journalfields import HEADER, NEEDED, RUN, wrong_fields
from hw4cli.scoring.record import Attempt

SCHEMA = 1
NAME = "journal.jsonl"
ATTEMPT_FIELDS = {field.name for field in fields(Attempt)}


@dataclass
class Journal:
    """What a journal holds: its headers, the last one counting, and the attempts with their keys, in order; and which
    lines are `damaged` (from 1). `in_doubt` if one of these lies behind the last header, so that the session it begins
    may have seen what is not known any more: a later session has judged it again."""

    headers: list[Mapping[str, Any]] = field(default_factory=list)
    runs: list[tuple[str, Attempt]] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    in_doubt: bool = False

    def begin(self, header: Mapping[str, Any]) -> None:
        """Add the header of a new session."""
        self.headers.append(header)
        self.in_doubt = False

    @property
    def header(self) -> Mapping[str, Any]:
        """What is known of the last session: user, program, host, gpu, cases and what else was written."""
        return self.headers[-1] if self.headers else {}

    def attempts(self) -> dict[str, list[Attempt]]:
        """The attempts that count, by case: those with the case's key in the header, or else with that of its last
        run. What ran before the program, the limit or the GPU changed is history; a repeat that ran again (after the
        judge's own failure) takes the place of the first."""
        last = self.header.get("keys", {attempt.case: key for key, attempt in self.runs})
        chosen: dict[str, dict[int, Attempt]] = {}
        for key, attempt in self.runs:
            if last.get(attempt.case) == key:
                chosen.setdefault(attempt.case, {})[attempt.repeat] = attempt
        return {case: list(repeats.values()) for case, repeats in chosen.items()}


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add one line, at once on the disk. OSError if that cannot be."""
    text = json.dumps(_finite(line), allow_nan=False)
    with path.open("ab") as file:
        if file.tell() and not _ends_whole(path):
            file.write(b"\n")  # a crash cut the last line short
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def header(**facts: Any) -> dict[str, Any]:
    """A header's line."""
    return {"kind": "header", "schema": SCHEMA, **facts}


def run(key: str, attempt: Attempt) -> dict[str, Any]:
    """A run's line. `key` is equal for runs of the same program, case, limit and GPU."""
    return {"kind": "run", "key": key, **asdict(attempt)}


def read(path: Path) -> Journal:
    """A journal's content. InputError if there is none, or it is of another schema."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    journal = Journal()
    for number, text in enumerate(lines, 1):
        if text.strip() and not _add(journal, text, f"{path}, line {number}"):
            journal.damaged.append(number)
            journal.in_doubt = True
    return journal


def _add(journal: Journal, text: bytes, where: str) -> bool:
    """Add a line to what is known of a journal; False if it is damaged."""
    try:
        line = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    kind = line.get("kind") if isinstance(line, dict) else None
    if kind == "header" and type(schema := line.get("schema")) is int and not wrong_fields(line, HEADER):
        if schema != SCHEMA:
            raise InputError(f"{where}: schema {schema}, but this hw4 reads schema {SCHEMA}")
        if line.get("note") and "said" not in line:
            note, _, said = line["note"].partition(": ")
            line = {**line, "note": note, "said": said}
        journal.begin(line)
        return True
    if kind == "run" and line.keys() >= set(NEEDED) and not wrong_fields(line, RUN):
        facts = {name: value for name, value in line.items() if name in ATTEMPT_FIELDS}
        facts["shape"] = tuple(facts["shape"])
        if facts.get("max_error") == "inf":
            facts["max_error"] = math.inf
        if "said" not in facts:
            facts.update(_parted(facts))
        journal.runs.append((line["key"], Attempt(**facts)))
        return True
    return False


def _parted(facts: Mapping[str, Any]) -> dict[str, str]:
    """What an older hw4 wrote in one, in two: what was wrong, and what the program said."""
    parting = ": " if facts.get("exit_code") else "; it said: "
    for name in ("problem", "wrong"):
        words, _, said = (facts.get(name) or "").partition(parting)
        if said:
            return {name: words, "said": said}
    return {}


def _no_number(word: str) -> Any:
    """Python's JSON reads NaN and Infinity; JSON has none."""
    raise ValueError(word)


def _finite(line: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: it is written as "inf"."""
    return {key: "inf" if value == math.inf else value for key, value in line.items()}


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
