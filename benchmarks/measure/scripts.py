"""How the programs of this folder take the name of a record, and end: a problem is a sentence and an exit status."""

import argparse
import csv
import io
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from hw4cli.errors import Hw4Error, InputError
from hw4cli.system.files import write_text
from hw4cli.text.records import record_text

BEGAN = time.monotonic()


def say(words: str) -> None:
    """Print what was found, at once, and how many seconds after the start."""
    print(f"[{time.monotonic() - BEGAN:5.1f} s] {words}", flush=True)


def new_file(text: str) -> Path:
    """A file to write, in a folder that is there: what is measured for minutes is not lost for a typing error."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path.parent} is not a folder")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    return path


def listed(path: Path) -> list[Any]:
    """What a file of JSON lists. Raises InputError for anything else in it, OSError where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # of the text's encoding, or of JSON
        found = None
    if not isinstance(found, list):
        raise InputError(f"{path} is no list in JSON, as this program writes it")
    return found


def at_least_one(text: str) -> int:
    """A whole number from 1 on, as an argument."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 on")
    return int(text)


def write_record(path: Path, record: object) -> None:
    """Write a record as JSON, whole or not at all. Raises as hw4cli.system.files.write_text does."""
    write_text(path, record_text(record))


def write_lines(path: Path, lines: Iterable[Iterable[object]]) -> None:
    """Write a CSV file, whole or not at all. Raises as hw4cli.system.files.write_text does."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    write_text(path, text.getvalue())


def end_with(main: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit as hw4 does: 2 for what the user gave, 3 for the machine, 130 if interrupted."""
    try:
        sys.exit(main() or 0)
    except Hw4Error as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # of a file that the user named
        print(f"{Path(sys.argv[0]).name}: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
