"""A student's submission: a folder with a program `hw4`, or with a Makefile that builds one."""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hw4cli import sandbox
from hw4cli.errors import InputError, MachineError, os_error
from hw4cli.process import Run, run_program
from hw4cli.staging import environment, remove
from hw4cli.suite import file_sha256

PROGRAM = "hw4"
COPY, LOG, STAMP = "build", "build.txt", "build.sha256"  # of a build, in the student's folder of results
MAX_BUILT = 1 << 30  # bytes of a file that a build may write
ERROR_LINE = re.compile(r"\b(error|undefined reference|No rule to make|not found|No such file)\b", re.IGNORECASE)


class BrokenError(Exception):
    """A submission has no program that could be judged; why not, in a sentence for its author."""


@dataclass(frozen=True)
class Submission:
    """A student's folder. It is only read: what is built is built in a copy."""

    user: str
    folder: Path

    @cached_property
    def files(self) -> list[Path]:
        """All its regular files, also those that links lead to, in order."""
        paths = (Path(place, name) for place, _, names in os.walk(self.folder) for name in names)
        return sorted(path for path in paths if path.is_file())

    @cached_property
    def sha256(self) -> str:
        """A hash of its files' names and bytes; of a file that cannot be read, of its name."""
        whole = hashlib.sha256()
        for path in self.files:
            try:
                content = file_sha256(path)
            except OSError:
                content = ""
            whole.update(f"{path.relative_to(self.folder)}\0{content}\0".encode(errors="surrogateescape"))
        return whole.hexdigest()


def scan(folder: Path, only: Sequence[str] = ()) -> list[Submission]:
    """The submissions in a folder, one a subfolder, by name; or `only` those of these users. InputError without any."""
    try:
        places = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot read the submissions in {folder}: {error.strerror}") from None
    if not places:
        raise InputError(f"{folder} holds no submissions: give each student a folder in it")
    for user in only:
        if user not in [path.name for path in places]:
            raise InputError(f"{folder} holds no submission {user}")
    return [Submission(path.name, path) for path in places if not only or path.name in only]


def program_of(submission: Submission, place: Path, limit: float, sandboxed: bool, cases: Path) -> Path:
    """The program of a submission, built in `place` by `make hw4` if it has a Makefile; what was built there from the
    same files is taken as it is, for another build might differ in a byte.

    The build may take `limit` seconds. In a sandbox it does not see the answers in `cases`. Raises BrokenError,
    and MachineError if it cannot be tried here.
    """
    if not any((submission.folder / name).is_file() for name in ("Makefile", "makefile", "GNUmakefile")):
        return _ready(submission)
    program = (place / COPY / PROGRAM).absolute()
    stamp = place / STAMP
    if program.is_file() and stamp.is_file() and stamp.read_text() == submission.sha256:
        return program
    if shutil.which("make") is None:
        raise MachineError("make is not installed here: the class cannot be built")
    stamp.unlink(missing_ok=True)
    _copy(submission.folder, place / COPY)
    run = _make(place / COPY, limit, sandboxed, cases)
    (place / LOG).write_text(run.stderr)
    if run.killed:
        raise BrokenError(f"make hw4 did not end within {limit:g} s")
    if run.exit_code:
        raise BrokenError(f"make hw4 failed: {_complaint(run.stderr)}")
    if not program.is_file():
        raise BrokenError("make hw4 made no hw4")
    stamp.write_text(submission.sha256)
    return program


def _ready(submission: Submission) -> Path:
    program = submission.folder.absolute() / PROGRAM
    if program.is_file():
        return program
    if (submission.folder / "hw4.cu").is_file():
        raise BrokenError("there is an hw4.cu, but no Makefile to build it with")
    found = ", ".join(sorted(path.name for path in submission.folder.iterdir())[:5])
    raise BrokenError(f"there is no hw4 and no Makefile, but {found}" if found else "the folder is empty")


def _copy(source: Path, target: Path) -> None:
    """A fresh copy of a submission, without what it brought built: that may be for another machine."""
    remove(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        raise BrokenError(f"it cannot be copied: {error.args[0][0][2]}") from None
    except OSError as error:
        raise os_error(error, f"copy {source} to {target}") from None
    if (target / PROGRAM).is_file():
        (target / PROGRAM).unlink()


def _make(folder: Path, limit: float, sandboxed: bool, cases: Path) -> Run:
    folder = folder.resolve()
    env = environment(os.environ, folder, cases.absolute() / "answer")
    words = ["sh", "-c", f"exec make {PROGRAM} >&2"]  # one stream: the compiler's words in their order
    if sandboxed:
        sandbox.check()
        words = sandbox.wrap(words, folder, env, cases)
    return run_program(words, limit, env, folder, MAX_BUILT)


def _complaint(text: str) -> str:
    """The first line of a build's words that tells of an error, or else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if ERROR_LINE.search(line)), lines[-1] if lines else "it said nothing")[:200]
