"""The journal: a file of JSON lines, one for each run and session, from which all results are made.

A line is a header ({"kind": "header", "schema": 1, …}: user, machine, time) or a run ({"kind": "run", "key": …} and the
fields of an Attempt). Lines are only appended, so that a crash loses at most the line being written.

A line is damaged if it is cut short, or if a field has a value that no judge writes (journalfields). Damaged lines are
skipped and counted: since their content is unknown, a case without a result may have been run.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.judge.scoring.journalfields import HEADER, REQUIRED, RUN, wrong_fields
from hw4cli.judge.scoring.record import Attempt
from hw4cli.system.reading import read_regular

SCHEMA = 1
NAME = "journal.jsonl"
ATTEMPT_FIELDS = {field.name for field in fields(Attempt)}


@dataclass
class Journal:
    """A journal's content: the headers, of which the last counts; the attempts with their keys, in order; the numbers
    of the `damaged` lines, from 1. `in_doubt`: a damaged line follows the last header, so the last session may have
    results that are lost. (Results lost before it were judged again by it.)"""

    headers: list[Mapping[str, Any]] = field(default_factory=list)
    runs: list[tuple[str, Attempt]] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    in_doubt: bool = False

    def add_header(self, header: Mapping[str, Any]) -> None:
        """Add the header of a new session."""
        self.headers.append(header)
        self.in_doubt = False

    @property
    def header(self) -> Mapping[str, Any]:
        """The last session's header: user, program, host, gpu, cases and so on; {} without one."""
        return self.headers[-1] if self.headers else {}

    def attempts(self) -> dict[str, list[Attempt]]:
        """The attempts that count, by case: those with the case's key in the header, or, if it has none, with the key
        of the case's last run. Runs from before a change of the program, the limit or the GPU do not count. A repeat
        that ran again, after a failure of the judge, replaces the earlier one."""
        last = self.header.get("keys", {attempt.case: key for key, attempt in self.runs})
        chosen: dict[str, dict[int, Attempt]] = {}
        for key, attempt in self.runs:
            if last.get(attempt.case) == key:
                chosen.setdefault(attempt.case, {})[attempt.repeat] = attempt
        return {case: list(repeats.values()) for case, repeats in chosen.items()}


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Append one line and flush it to the disk. Raises OSError."""
    text = json.dumps(_without_infinity(line), allow_nan=False)
    with path.open("ab") as file:
        if file.tell() and not _ends_with_newline(path):
            file.write(b"\n")  # the last line was cut short by a crash
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def header_line(**fields: Any) -> dict[str, Any]:
    """A header's line."""
    return {"kind": "header", "schema": SCHEMA, **fields}


def run_line(key: str, attempt: Attempt) -> dict[str, Any]:
    """A run's line. Runs of the same program, case, limit and GPU have the same `key`."""
    return {"kind": "run", "key": key, **asdict(attempt)}


def read(path: Path) -> Journal:
    """A journal's content. InputError if it cannot be read, or has another schema."""
    try:
        lines = read_regular(path).split(b"\n")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    journal = Journal()
    for number, text in enumerate(lines, 1):
        if text.strip() and not _add_line(journal, text, f"{path}, line {number}"):
            journal.damaged.append(number)
            journal.in_doubt = True
    return journal


def _add_line(journal: Journal, text: bytes, where: str) -> bool:
    """Add a line to a journal's content; False if the line is damaged."""
    try:
        line = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return False
    kind = line.get("kind") if isinstance(line, dict) else None
    if kind == "header" and type(schema := line.get("schema")) is int and not wrong_fields(line, HEADER):
        if schema != SCHEMA:
            raise InputError(f"{where}: schema {schema}, but this hw4 reads schema {SCHEMA}")
        if line.get("note") and "said" not in line:
            note, _, said = line["note"].partition(": ")
            line = {**line, "note": note, "said": said}
        journal.add_header(line)
        return True
    if kind == "run" and line.keys() >= set(REQUIRED) and not wrong_fields(line, RUN):
        values = {name: value for name, value in line.items() if name in ATTEMPT_FIELDS}
        values["shape"] = tuple(values["shape"])
        if values.get("max_error") == "inf":
            values["max_error"] = math.inf
        if "said" not in values:
            values.update(_split_quote(values))
        journal.runs.append((line["key"], Attempt(**values)))
        return True
    return False


def _split_quote(values: Mapping[str, Any]) -> dict[str, str]:
    """The judge's sentence and the program's output as two fields; older versions wrote both into one."""
    separator = ": " if values.get("exit_code") else "; it said: "
    for name in ("problem", "wrong"):
        sentence, _, said = (values.get(name) or "").partition(separator)
        if said:
            return {name: sentence, "said": said}
    return {}


def _reject_constant(name: str) -> Any:
    """Python's JSON reads NaN and Infinity, which JSON does not have."""
    raise ValueError(name)


def _without_infinity(line: Mapping[str, Any]) -> dict[str, Any]:
    """The line with "inf" for infinity, which JSON does not have."""
    return {key: "inf" if value == math.inf else value for key, value in line.items()}


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
