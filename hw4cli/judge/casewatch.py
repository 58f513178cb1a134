"""The cases' files while strangers' programs run: what one of them changes must not judge it, nor anybody after it.

Inputs and answers are known by their hashes when judging begins, and looked at after each run: inode, size and times.
What looks different is read in full. What is different was changed, and so was what is gone.
"""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.judge.caserecord import CaseRecord, Entry, Seen
from hw4cli.problem import suite
from hw4cli.problem.checksums import Stamp, answer_sha256, file_sha256, stamp
from hw4cli.problem.suite import Case
from hw4cli.resources import python_words
from hw4cli.system.files import make_folder

Access = tuple[int, int]  # permissions and owner


class ChangedCasesError(MachineError):
    """The cases are not what they were: nobody can be judged by them until they are made again."""


@dataclass
class _File:
    """A file as it has to be: its hash, where that is known, and how it looks."""

    case: Case
    real: Path  # where links lead
    sha256: str | None
    look: tuple[Stamp, Access] | None


class CaseWatch:
    """Watches the files of some cases in a folder. With a `record`, each is known by its full hash; what is not in it
    yet is read now, and recorded. `shared`: other judges run programs meanwhile, so that nobody can be blamed.
    `elsewhere`: programs run on other machines, and a network's file system tells of changes when a file is opened."""

    def __init__(
        self,
        cases: Sequence[Case],
        folder: Path,
        record: CaseRecord | None = None,
        shared: bool = False,
        elsewhere: bool = False,
    ) -> None:
        """InputError if a file is not the recorded one, or not the suite's; OSError if it cannot be read."""
        self.folder, self.shared, self._record, self._elsewhere = folder, shared, record, elsewhere
        self.found: list[str] = []  # the names of the files that were seen to have changed last
        self.damaged: list[Case] = []  # whose files are not what they were
        self._files: dict[Path, _File] = {}
        for case in cases:
            if record:
                record.entries[case.name] = self._entry(case, record.entries.get(case.name), record)
            for path, sha256 in self._hashes(case):
                self._files[path] = _File(case, path.resolve(), sha256, _look(path))
        if record and not shared:
            record.save()

    def _hashes(self, case: Case) -> list[tuple[Path, str | None]]:
        """A case's input and answer, and their hashes, where they are known."""
        source, answer = self._paths(case)
        if self._record:
            entry = self._record.entries[case.name]
            files = (source, entry.input), (answer, entry.answer)
            return [(path, seen.sha256 if seen else None) for path, seen in files]
        return [(source, case.sha256 or None), (answer, answer_sha256(answer, case.sha256))]

    def _paths(self, case: Case) -> tuple[Path, Path]:
        return case.input_path(self.folder), case.answer_path(self.folder)

    def _entry(self, case: Case, old: Entry | None, record: CaseRecord) -> Entry:
        """What there is to be recorded of a case: that its files are what they were before, or what they are now."""
        source, answer = self._paths(case)
        old = old or Entry(case.seed)
        made = answer_sha256(answer, case.sha256)
        again = f"make it again with hw4 gen --force, or, if you did that, remove {record.path}"
        hint = "remove it, and it is made again" if record.secret else again
        found = _read(source, old.input, case.sha256, hint), _read(answer, old.answer, made, hint)
        return Entry(case.seed, *found)

    def changed(self) -> list[str]:
        """The names of the files that have changed since this was asked last, or are gone."""
        self.found = []
        for path, file in self._files.items():
            if self._elsewhere:
                with suppress(OSError):
                    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            now, before = _look(path), file.look
            if now == before:
                continue
            same = now is not None and file.sha256 is not None and _sha256(path) == file.sha256
            if not same and file.case not in self.damaged:
                self.damaged.append(file.case)
            if not same or before is None or now is None or before[1] != now[1]:
                self.found.append(path.name)
            file.look = now
        return self.found

    def restore(self) -> None:
        """Make the damaged cases again. ChangedCasesError if that fails."""
        for case in self.damaged:
            for path in self._paths(case):
                if path.is_symlink() and path.resolve() != self._files[path].real:
                    path.unlink()  # it leads where it did not lead before: nothing must be written there
            try:
                make_apart(case, self.folder)
                self._know(case)
            except (Hw4Error, OSError) as error:
                raise ChangedCasesError(
                    f"{case.name} was changed in {self.folder} and cannot be made again ({error}): make it with "
                    "hw4 gen --force, and go on with --resume"
                ) from None
        self.damaged = []

    def _know(self, case: Case) -> None:
        """Know a case by the files that were just made."""
        paths = self._paths(case)
        seen = [Seen(file_sha256(path), stamp(path)) for path in paths]
        for path, one in zip(paths, seen, strict=True):
            if path == paths[0] and self._files[path].sha256 not in (None, one.sha256):
                raise MachineError(f"{path} came out other than it was")
            self._files[path] = _File(case, path.resolve(), one.sha256, _look(path))
        if self._record:
            self._record.entries[case.name] = Entry(case.seed, *seen)
            self._record.save()


def make_apart(case: Case, folder: Path) -> None:
    """Make a case's input and answer, whatever is there, in a process of its own: a judge keeps no GPU busy.
    MachineError, with its words, if that fails."""
    make_folder(folder)
    known = suite.cases().get(case.name)
    if known and (known.seed, known.shape) == (case.seed, case.shape):
        words = [case.name, "--dir", str(folder)]
    else:
        shape = f"{case.shape.B},{case.shape.N},{case.shape.d}"
        words = ["--shape", shape, "--seed", str(case.seed), "-o", str(case.input_path(folder))]
    command = [*python_words("entry", "-P"), "gen", "--force", *words]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise MachineError(f"hw4 gen cannot be started: {error.strerror}") from None
    if result.returncode:
        said = result.stderr.strip().splitlines()
        raise MachineError(said[-1].removeprefix("hw4: ") if said else f"hw4 gen ended with {result.returncode}")


def _read(path: Path, known: Seen | None, expected: str | None, hint: str) -> Seen:
    """A file as it is now. It is read in full unless it looks as it did when it was. InputError, with a hint, if it is
    not what was recorded, or expected."""
    now = stamp(path)
    if known and known.stamp == now:
        return known
    found = file_sha256(path)
    if known and found != known.sha256:
        raise InputError(f"{path} is not what this judging began with: {hint}")
    if expected and found != expected:
        raise InputError(f"{path} is not what it was when it was made: make it again with hw4 gen --force")
    return Seen(found, now)


def _look(path: Path) -> tuple[Stamp, Access] | None:
    """What changes when a file does, as far as it costs nothing to see; None if it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    seen = Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return seen, (status.st_mode, status.st_uid)


def _sha256(path: Path) -> str | None:
    """A file's hash, read in full; None if it cannot be read, or is none of those that can."""
    try:
        return file_sha256(path) if path.is_file() and os.access(path, os.R_OK) else None
    except OSError:
        return None
