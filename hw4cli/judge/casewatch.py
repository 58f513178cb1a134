"""Detects changes of the cases' files by judged programs, so that no verdict depends on a changed file.

The hashes of inputs and answers are known when judging begins. After each run, inode, size and times are compared; a
file in which these differ is read in full. It was changed if its hash differs, or if it is missing.
"""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.judge.casemanifest import CaseEntry, CaseManifest, FileDigest
from hw4cli.problem import suite
from hw4cli.problem.checksums import Stamp, answer_sha256, file_sha256, stamp
from hw4cli.problem.suite import Case
from hw4cli.resources import python_command
from hw4cli.system.files import make_folder

Access = tuple[int, int]  # permissions and owner


class ChangedCasesError(MachineError):
    """The cases' files have changed: judging must stop until they are made again."""


@dataclass
class _WatchedFile:
    """The expected state of a file, and its hash if it is known."""

    case: Case
    target: Path  # with all links resolved
    sha256: str | None
    state: tuple[Stamp, Access] | None


class CaseWatch:
    """Watches the files of cases in a folder. With a `manifest`, their full hashes are known; files that it lacks are
    read now and added. `shared`: other judges run programs at the same time, so a change cannot be attributed.
    `remote`: programs run on other machines, and a network file system shows changes only after a file is opened."""

    def __init__(
        self,
        cases: Sequence[Case],
        folder: Path,
        manifest: CaseManifest | None = None,
        shared: bool = False,
        remote: bool = False,
    ) -> None:
        """InputError if a file differs from the manifest, or from the suite; OSError if it cannot be read."""
        self.folder, self.shared, self._manifest, self._remote = folder, shared, manifest, remote
        self.changed_names: list[str] = []  # the names of the files that the last check found changed
        self.damaged_cases: list[Case] = []  # the cases with changed files, until they are restored
        self._files: dict[Path, _WatchedFile] = {}
        for case in cases:
            if manifest:
                manifest.entries[case.name] = self._updated_entry(case, manifest.entries.get(case.name), manifest)
            for path, sha256 in self._hashes(case):
                self._files[path] = _WatchedFile(case, path.resolve(), sha256, _file_state(path))
        if manifest and not shared:
            manifest.save()

    def _hashes(self, case: Case) -> list[tuple[Path, str | None]]:
        """A case's input and answer, and their hashes if they are known."""
        source, answer = self._paths(case)
        if self._manifest:
            entry = self._manifest.entries[case.name]
            files = (source, entry.input), (answer, entry.answer)
            return [(path, digest.sha256 if digest else None) for path, digest in files]
        return [(source, case.sha256 or None), (answer, answer_sha256(answer, case.sha256))]

    def _paths(self, case: Case) -> tuple[Path, Path]:
        return case.input_path(self.folder), case.answer_path(self.folder)

    def _updated_entry(self, case: Case, old: CaseEntry | None, manifest: CaseManifest) -> CaseEntry:
        """A case's entry for the manifest, after its files were compared with the old entry."""
        source, answer = self._paths(case)
        old = old or CaseEntry(case.seed)
        made = answer_sha256(answer, case.sha256)
        again = f"make it again with hw4 gen --force, or, if you did that, remove {manifest.path}"
        hint = "remove it, and the next judging makes it again" if manifest.secret else again
        found = _verified(source, old.input, case.sha256, hint), _verified(answer, old.answer, made, hint)
        return CaseEntry(case.seed, *found)

    def check(self) -> list[str]:
        """The names of the files that have changed since the last check, or are missing."""
        self.changed_names = []
        for path, file in self._files.items():
            if self._remote:
                with suppress(OSError):
                    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            now, before = _file_state(path), file.state
            if now == before:
                continue
            same = now is not None and file.sha256 is not None and _sha256(path) == file.sha256
            if not same and file.case not in self.damaged_cases:
                self.damaged_cases.append(file.case)
            if not same or before is None or now is None or before[1] != now[1]:
                self.changed_names.append(path.name)
            file.state = now
        return self.changed_names

    def restore(self) -> None:
        """Generate the damaged cases again. ChangedCasesError if that fails."""
        for case in self.damaged_cases:
            if case.foreign:
                raise ChangedCasesError(
                    f"{case.name} was changed in {self.folder}, and hw4 has not made it: restore it, and continue with "
                    "--resume"
                )
            for path in self._paths(case):
                if path.is_symlink() and path.resolve() != self._files[path].target:
                    path.unlink()  # a new link: its target must not be overwritten
            try:
                make_in_subprocess(case, self.folder)
                self._register(case)
            except (Hw4Error, OSError) as error:
                raise ChangedCasesError(
                    f"{case.name} was changed in {self.folder} and cannot be made again ({error}): make it with "
                    "hw4 gen --force, and continue with --resume"
                ) from None
        self.damaged_cases = []

    def _register(self, case: Case) -> None:
        """Take the files of a case that were just generated as its expected files."""
        paths = self._paths(case)
        digests = [FileDigest(file_sha256(path), stamp(path)) for path in paths]
        for path, digest in zip(paths, digests, strict=True):
            if path == paths[0] and self._files[path].sha256 not in (None, digest.sha256):
                raise MachineError(f"the new {path} differs from the old one")
            self._files[path] = _WatchedFile(case, path.resolve(), digest.sha256, _file_state(path))
        if self._manifest:
            self._manifest.entries[case.name] = CaseEntry(case.seed, *digests)
            self._manifest.save()


@dataclass(frozen=True)
class PreparedCases:
    """The cases that programs are judged by, with a watch of their files in `folder`. With secret seeds, `public` is
    the folder of those that everyone has."""

    cases: Sequence[Case]
    folder: Path
    watch: CaseWatch
    public: Path | None = None

    @property
    def answers(self) -> list[Path]:
        """The folders of the answers."""
        return list(dict.fromkeys(case.answer_path(self.folder).parent for case in self.cases))


def make_in_subprocess(case: Case, folder: Path) -> None:
    """Generate a case's input and answer, replacing older ones, in a process of its own: so the judge itself never
    holds a GPU. MachineError, with that process's message, if it fails."""
    make_folder(folder)
    known = suite.cases().get(case.name)
    if known and (known.seed, known.shape.sizes) == (case.seed, case.shape.sizes):
        arguments = [case.name, "--dir", str(folder)]
    else:
        shape = ",".join(map(str, case.shape.sizes))
        arguments = [shape, "--seed", str(case.seed), "-o", str(case.input_path(folder))]
    if case.shape.causal:
        arguments.append("--causal")
    gen_in_subprocess(arguments)


def gen_in_subprocess(arguments: Sequence[str], force: bool = True) -> None:
    """Run `hw4 gen` with these arguments, and --force. MachineError, with its message, if it fails."""
    command = [*python_command("entry", "-P"), "gen", *(["--force"] if force else []), *arguments]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise MachineError(f"hw4 gen cannot be started: {error.strerror}") from None
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise MachineError(lines[-1].removeprefix("hw4: ") if lines else f"hw4 gen ended with {result.returncode}")


def _verified(path: Path, known: FileDigest | None, expected: str | None, hint: str) -> FileDigest:
    """A file's digest; it is read in full unless its stamp is the `known` one. InputError, with a hint, if its hash is
    not the known or `expected` one."""
    current = stamp(path)
    if known and known.stamp == current:
        return known
    sha256 = file_sha256(path)
    if known and sha256 != known.sha256:
        raise InputError(f"{path} has changed since this judging began: {hint}")
    if expected and sha256 != expected:
        raise InputError(f"{path} has changed since it was made: make it again with hw4 gen --force")
    return FileDigest(sha256, current)


def _file_state(path: Path) -> tuple[Stamp, Access] | None:
    """A file's inode, size, times, permissions and owner; None if they cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    current = Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return current, (status.st_mode, status.st_uid)


def _sha256(path: Path) -> str | None:
    """A file's hash; None if it is not a regular file, or cannot be read."""
    try:
        return file_sha256(path) if path.is_file() and os.access(path, os.R_OK) else None
    except OSError:
        return None
