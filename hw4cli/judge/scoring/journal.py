"""The journal: a file of JSON lines, one for each run and session, from which all results are made.

A line is a header ({"kind": "header", "schema": 1, …}: user, machine, time) or a run ({"kind": "run", "key": …} and the
fields of an Attempt). Lines are only appended, so that a crash loses at most the line being written.

A line is damaged if it is cut short, or if a field has a value that no judge writes (RUN and HEADER). Damaged lines are
skipped and counted: since their content is unknown, a case without a result may have been run.

A folder's journal is locked for one session at a time; when a new one starts, it is kept under a numbered name.
"""

import fcntl
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from math import inf
from pathlib import Path
from typing import IO, Any

from hw4cli.errors import BusyError, InputError, os_error
from hw4cli.judge.scoring.record import Attempt
from hw4cli.system.reading import read_regular

SCHEMA = 1
NAME = "journal.jsonl"
ATTEMPT_FIELDS = {field.name for field in fields(Attempt)}

Check = Callable[[Any], bool]

MAX_SECONDS = 1e9
MAX_INTEGER = 2**63 - 1


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Check:
    """A check for a finite number in a range, so not NaN."""
    return lambda value: type(value) in (int, float) and low <= value <= high and abs(value) < inf


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _object(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _fields(checks: Mapping[str, Check]) -> Check:
    return lambda value: isinstance(value, dict) and not wrong_fields(value, checks)


_seconds = _number(0, MAX_SECONDS)
_count = _integer(0, MAX_INTEGER)
_tolerance = _number(0, 1e30)
_max_error = _number(0, sys.float_info.max)

RUN: dict[str, Check] = {
    "key": _text,
    "case": _text,
    "shape": lambda value: _list(_integer(1, 2**31 - 1))(value) and len(value) == 3,
    "limit": _number(1e-9, MAX_SECONDS),
    "tolerance": _tolerance,
    "repeat": _integer(0, 10**6),
    "wall": _optional(_seconds),
    "killed": _boolean,
    "exit_code": _optional(_integer(-(2**31), 2**31 - 1)),
    "fault": _optional(_text),
    "problem": _optional(_text),
    "wrong": _optional(_text),
    "said": _optional(_text),
    "max_error": lambda value: value is None or value == "inf" or _max_error(value),
    "user": _optional(_seconds),
    "system": _optional(_seconds),
    "peak_rss": _optional(_count),
    "gpu_memory": _optional(_count),
    "gpu_clock": _optional(_count),
    "staged": _optional(_text),
    "public_right": _optional(_boolean),
    "note": _optional(_text),
}
REQUIRED = ("key", "case", "shape", "limit")  # the fields that each run has
assert {field.name for field in fields(Attempt)} | {"key"} == set(RUN)

SETTINGS: dict[str, Check] = {
    "repeat": _integer(1, 10**6),
    "warmup": _integer(0, 10**6),
    "tolerance": _tolerance,
    "penalty": _seconds,
    "rank_by": _text,
    "sandbox": _text,
    "launcher": _list(_text),
    "pass_env": _list(_text),
    "scratch": _text,
    "input_cached": _boolean,
    "clock": _text,
    "slurm": _object(_text),
    "seeds": _text,
    "submission": _text,
    "build_limit": _seconds,
    "due": _optional(_text),
    "handed_in": _optional(_text),
    "suite": _list(_text),
    "notes": _list(_text),
    "build": _text,
}

RULES: dict[str, Check] = {  # stored ones
    "tolerance": SETTINGS["tolerance"],
    "penalty": SETTINGS["penalty"],
    "limits": _object(RUN["limit"]),
    "rank_by": SETTINGS["rank_by"],
    "due": SETTINGS["due"],
    "late_policy": _optional(_text),
    "step": _optional(_seconds),
}

HEADER: dict[str, Check] = {
    "user": _text,
    "program": _list(_text),
    "program_sha256": _text,
    "host": _text,
    "gpu": _optional(_object(_text)),
    "machine": _object(_text),
    "started": _text,
    "version": _text,
    "cases": _list(_text),
    "keys": _object(_text),
    "note": _optional(_text),
    "said": _optional(_text),
    "public_note": _text,
    "fault": _boolean,
    "settings": _fields(SETTINGS),
}


def wrong_fields(line: Mapping[str, Any], checks: Mapping[str, Check]) -> list[str]:
    """The names of the fields with values that no judge writes."""
    return [name for name, check in checks.items() if name in line and not check(line[name])]


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


@contextmanager
def locked_journal(folder: Path, resume: bool = False, restart: bool = False) -> Iterator[Path]:
    """The path of a folder's journal, locked until the block ends; folder and file are made if they are missing. With
    `restart`, an older journal is first renamed to a numbered name. InputError if there is one and neither `resume` nor
    `restart` is set; BusyError if another session has the lock; MachineError if the folder cannot be written."""
    path = folder / NAME
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise InputError(f"{path} is not a regular file: remove it")
            _lock(held.enter_context(path.open("ab")), folder)
            if has_journal(folder) and not resume:
                if not restart:
                    raise InputError(
                        f"{folder} has a journal: --resume continues it, --restart keeps it and starts a new one"
                    )
                path.rename(next(name for name in _numbered_paths(path) if not name.exists()))
                _lock(held.enter_context(path.open("ab")), folder)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise InputError(f"{folder} is not a folder for results: it, or what it lies in, is a file") from None
        except OSError as error:
            raise os_error(error, f"write into {folder}") from None
        yield path


def _numbered_paths(path: Path) -> Iterator[Path]:
    """journal-1.jsonl, journal-2.jsonl, …"""
    return (path.with_stem(f"{path.stem}-{number}") for number in count(1))


def _lock(file: IO[bytes], folder: Path) -> None:
    """Take a lock that ends when the file is closed, or the process killed. Some file systems have no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(
            f"another hw4 judge is writing into {folder}: wait for it, or choose another --output"
        ) from None
    except OSError:
        return


def write_line(path: Path, line: Mapping[str, Any]) -> None:
    """Append a line to a journal and flush it to the disk. MachineError if that fails."""
    try:
        append(path, line)
    except OSError as error:
        raise os_error(error, f"write {path}, and judging stops (continue with --resume)") from None


def archive_journal(output: Path) -> None:
    """Rename a folder's journal, if there is one, to a numbered name, so that the next session starts a new one."""
    if has_journal(output):
        with locked_journal(output, restart=True) as path:
            path.unlink()


def has_journal(output: Path) -> bool:
    """Whether a folder has a journal that is not empty."""
    path = output / NAME
    return path.is_file() and path.stat().st_size > 0
