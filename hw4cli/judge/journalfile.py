"""The journal's file in a folder of results: written by one session at a time, and never lost to the next one."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from hw4cli.errors import BusyError, InputError, os_error
from hw4cli.scoring import journal


@contextmanager
def locked_journal(folder: Path, resume: bool = False, restart: bool = False) -> Iterator[Path]:
    """The path of a folder's journal, with no other session writing it. Both are made where they are not. With
    `restart`, an older journal first gets a name of its own; InputError if it is there without `resume` either.
    BusyError if another session writes there, MachineError where nothing can be written."""
    path = folder / journal.NAME
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise InputError(f"{path} is no regular file: remove it")
            _lock(held.enter_context(path.open("ab")), folder)
            if holds_judging(folder) and not resume:
                if not restart:
                    raise InputError(
                        f"{folder} holds a judging: --resume goes on with it, --restart keeps it and begins anew"
                    )
                path.rename(next(name for name in _numbered(path) if not name.exists()))
                _lock(held.enter_context(path.open("ab")), folder)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise InputError(f"{folder} is no folder for results: it, or what it lies in, is a file") from None
        except OSError as error:
            raise os_error(error, f"write into {folder}") from None
        yield path


def _numbered(path: Path) -> Iterator[Path]:
    """journal-1.jsonl, journal-2.jsonl, …"""
    return (path.with_stem(f"{path.stem}-{number}") for number in count(1))


def _lock(file: IO[bytes], folder: Path) -> None:
    """Take a lock that goes with the file, even when the process is killed. Some file systems have none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(
            f"another hw4 judge is writing into {folder}: wait for it, or choose another --output"
        ) from None
    except OSError:
        return


def write_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to a journal, at once on the disk. MachineError if that cannot be."""
    try:
        journal.append(path, line)
    except OSError as error:
        raise os_error(error, f"write {path}, and judging stops (go on with --resume)") from None


def set_aside(output: Path) -> None:
    """Give a folder's journal, if there is one, a name of its own: what is judged next begins anew."""
    if holds_judging(output):
        with locked_journal(output, restart=True) as path:
            path.unlink()


def holds_judging(output: Path) -> bool:
    """Whether a folder has a journal with something in it."""
    path = output / journal.NAME
    return path.is_file() and path.stat().st_size > 0
