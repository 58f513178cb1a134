"""The user that programs run as (`--run-as`), if it is not the judge's own."""

import getpass
import os
import pwd
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import InputError, MachineError, os_error

# Users that belong to nobody: systemd's list has them as unused, and they are few enough for containers' maps of users.
STUDENTS = range(60578, 61184)
MAX_DEPTH = 200  # of folders in each other


@dataclass(frozen=True)
class Account:
    """A user of this machine, by numbers."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def give(self, *paths: Path) -> None:
        """Change the owner of files or folders to this user. Raises MachineError if that fails."""
        for path in paths:
            try:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)
            except OSError as error:
                raise os_error(error, f"give {path} to {self.name}") from None

    def has_permission(self, path: Path, wanted: int) -> bool:
        """Whether the permissions of a file or folder grant this user these bits of access(2)."""
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in (self.gid, *self.groups) else 0
        return status.st_mode >> shift & wanted == wanted


def numbered(number: int) -> str:
    """The name by which `account` knows the user of a class's student with this number: those of a range that no system
    gives to anyone. Students share one only beyond its size."""
    return f"+{STUDENTS[number % len(STUDENTS)]}"


def account(name: str) -> Account | None:
    """A user of this machine, or one of a number only, as in +60578; None if it is the current one, or `name` is empty.
    InputError if there is no such user, MachineError if this process may not become it."""
    if not name:
        return None
    if re.fullmatch(r"\+[0-9]{1,9}", name) and os.geteuid() == 0:
        return Account(f"user {name[1:]}", int(name), int(name), ())
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise InputError(f"--run-as {name}: there is no such user here (useradd --system {name} makes one)") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise MachineError(f"--run-as {name}: only root may run programs as another user")
    return Account(name, entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)))


def give_all(folder: Path | int, who: Account) -> None:
    """Change the owner of a folder, by its path or descriptor, and of all in it. Raises OSError, and RecursionError if
    it is too deep."""
    for name, place, _ in _inside(folder):
        os.chown(name, who.uid, who.gid, dir_fd=place, follow_symlinks=False)


def take_back(folder: Path | int) -> None:
    """Own a folder that an untrusted program wrote into, and all in it: everybody may read it, nobody else may change
    it, and nothing in it runs as its owner (setuid). Files with other hard links are left alone: they may be others'.
    Raises as give_all does."""
    if isinstance(folder, int):
        os.fchmod(folder, 0o700)  # it may be closed to its owner
    for name, place, status in _inside(folder):
        is_folder = stat.S_ISDIR(status.st_mode)
        if not is_folder and status.st_nlink > 1:
            continue
        if status.st_uid != os.geteuid():
            os.chown(name, os.geteuid(), os.getegid(), dir_fd=place, follow_symlinks=False)
        if is_folder or stat.S_ISREG(status.st_mode):
            execute = 0o111 if is_folder or status.st_mode & 0o111 else 0
            os.chmod(name, (status.st_mode | 0o644 | execute) & 0o755, dir_fd=place)


def _inside(folder: Path | int) -> Iterator[tuple[str, int, os.stat_result]]:
    """A folder and all in it: name, descriptor of the folder that it is in, status. Links are not followed, in whatever
    place; a folder comes before what is in it. RecursionError where folders lie too deep in each other: each of them is
    open until those in it are done."""
    if isinstance(folder, int):
        start, parent = ".", os.dup(folder)
    else:
        start, parent = folder.name, os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield start, parent, os.stat(start, dir_fd=parent, follow_symlinks=False)
        for path, folders, files, place in os.fwalk(start, dir_fd=parent):
            if path.count("/") > MAX_DEPTH:
                raise RecursionError
            for name in (*folders, *files):
                yield name, place, os.stat(name, dir_fd=place, follow_symlinks=False)
    finally:
        os.close(parent)


def login() -> str:
    """The current user's name, or number if it has no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
