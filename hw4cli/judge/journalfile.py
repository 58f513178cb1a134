"""The journal's file in a folder of results: locked for one session at a time, and kept when a new one starts."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from hw4cli.errors import BusyError, InputError, os_error
from hw4cli.judge.scoring import journal


@contextmanager
def locked_journal(folder: Path, resume: bool = False, restart: bool = False) -> Iterator[Path]:
    """The path of a folder's journal, locked until the block ends; folder and file are made if they are missing. With
    `restart`, an older journal is first renamed to a numbered name. InputError if there is one and neither `resume` nor
    `restart` is set; BusyError if another session has the lock; MachineError if the folder cannot be written."""
    path = folder / journal.NAME
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
        journal.append(path, line)
    except OSError as error:
        raise os_error(error, f"write {path}, and judging stops (continue with --resume)") from None


def archive_journal(output: Path) -> None:
    """Rename a folder's journal, if there is one, to a numbered name, so that the next session starts a new one."""
    if has_journal(output):
        with locked_journal(output, restart=True) as path:
            path.unlink()


def has_journal(output: Path) -> bool:
    """Whether a folder has a journal that is not empty."""
    path = output / journal.NAME
    return path.is_file() and path.stat().st_size > 0
