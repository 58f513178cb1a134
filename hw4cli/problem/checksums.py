"""SHA-256 of the cases' files: a file is read in full once, and recognised later by its inode, size and times.

The checksum file `.hw4-sums.json` beside the cases has two tables: `hashed` has the hash of a file and the stamp by
which it is recognised; `answers` has the hash of an answer when it was made, and that of its input. The suite has the
inputs' hashes; an answer's hash depends on the machine that computed it, so only the checksum file has it.

Whoever may write into the folder may write the checksum file, too. A judge that must not trust it calls `file_sha256`.
"""

import hashlib
import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hw4cli.errors import Hw4Error, os_error
from hw4cli.problem.casefile import open_regular
from hw4cli.system.files import locked, write_text
from hw4cli.system.reading import read_json

RECORD = ".hw4-sums.json"
SCHEMA = 1
SHA256 = re.compile(r"[0-9a-f]{64}")
TICK = 0.02  # seconds: a file's times advance with the kernel's clock, every 10 ms at most

Tables = dict[str, dict[str, Any]]


class Stamp(NamedTuple):
    """The properties of a file that change when it is written to, replaced, or gets other permissions."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def stamp(path: Path) -> Stamp:
    """A file's stamp now. OSError if there is no such file."""
    status = path.stat()
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, read in full. OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, expected: str) -> bool:
    """Whether a file has this SHA-256. It is read in full unless its stamp is known. Raises as `sha256` does."""
    return sha256(path) == expected


def sha256(path: Path) -> str:
    """A file's SHA-256, from memory or the checksum file if its stamp is known there, else read in full.

    Raises InputError if it is missing or no regular file, MachineError if reading fails.
    """
    with suppress(OSError):
        known = _in_memory.get(path.absolute()) or _read(path.parent)["hashed"].get(path.name)
        if known and known == {"sha256": known.get("sha256"), "stamp": list(stamp(path))}:
            _in_memory[path.absolute()] = known
            return str(known["sha256"])
    with open_regular(path) as file:
        try:
            _wait_for_tick(path)
            before = stamp(path)
            found = hashlib.file_digest(file, "sha256").hexdigest()
            unchanged = stamp(path) == before
        except OSError as error:
            raise os_error(error, f"read {path}") from None
    if unchanged:
        _note(path, "hashed", {"sha256": found, "stamp": list(before)})
    return found


def note_file(path: Path, found: str) -> None:
    """Record the SHA-256 of a file that was just written, so that it need not be read again."""
    with suppress(OSError):
        _wait_for_tick(path)
        _note(path, "hashed", {"sha256": found, "stamp": list(stamp(path))})


def note_answer(path: Path, found: str, input_sha256: str) -> None:
    """Record the SHA-256 of an answer that was just made from an input with that SHA-256."""
    note_file(path, found)
    _note(path, "answers", {"sha256": found, "input": input_sha256})


def answer_sha256(path: Path, input_sha256: str) -> str | None:
    """The SHA-256 that an answer to this input had when it was made; None if that is not recorded."""
    made = _read(path.parent)["answers"].get(path.name, {})
    return made["sha256"] if made.get("input") == input_sha256 else None


_in_memory: dict[Path, dict[str, Any]] = {}  # the table `hashed`, also if the folder cannot be written


def _wait_for_tick(path: Path) -> None:
    """Wait until a later change to a file that was just written would get another time stamp."""
    age = time.time() - path.stat().st_ctime
    if 0 <= age < TICK:
        time.sleep(TICK - age)


def _note(path: Path, table: str, entry: dict[str, Any]) -> None:
    """Add an entry to the checksum file. If it cannot be written, the next process hashes the files again."""
    if table == "hashed":
        _in_memory[path.absolute()] = entry
    with suppress(OSError, Hw4Error), locked(path.parent):
        tables = _read(path.parent)
        tables[table][path.name] = entry
        write_text(path.parent / RECORD, json.dumps({"schema": SCHEMA, **tables}, indent=1) + "\n")


def _read(folder: Path) -> Tables:
    """The tables of a folder's checksum file, without damaged entries."""
    tables: Tables = {"hashed": {}, "answers": {}}
    try:
        found = read_json(folder / RECORD)
        if found["schema"] == SCHEMA:
            for table, is_sound in (("hashed", _is_hashed), ("answers", _is_answer)):
                tables[table] = {name: entry for name, entry in found[table].items() if is_sound(entry)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass
    return tables


def _is_hashed(entry: Any) -> bool:
    return _is_sha256(entry["sha256"]) and len(entry["stamp"]) == len(Stamp._fields)


def _is_answer(entry: Any) -> bool:
    return _is_sha256(entry["sha256"]) and _is_sha256(entry["input"])


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and bool(SHA256.fullmatch(value))
