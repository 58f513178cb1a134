"""A student's submission: a folder, an archive or files, with a program `hw4`, or with what one is built from."""

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Self

from hw4cli.errors import DISK_FAULTS, SHORTAGES, Hw4Error, InputError, MachineError, os_error
from hw4cli.judge import casemanifest
from hw4cli.judge.casemanifest import SECRET_FOLDER
from hw4cli.judge.intake import (
    ARCHIVES,
    MAKEFILES,
    MOODLE,
    PROGRAM,
    SOURCES,
    UnpackError,
    is_unpacked,
    lone_source,
    make_ready,
    newest_of_each,
    owner,
)
from hw4cli.judge.scoring import regrades, storedrules
from hw4cli.problem.checksums import file_sha256
from hw4cli.sandbox import confine
from hw4cli.sandbox.confine import Confinement, Workspace
from hw4cli.sandbox.environment import environment
from hw4cli.sandbox.memory import TEMPORARY, PrivateMemory
from hw4cli.sandbox.quota import RESERVE, Quota
from hw4cli.sandbox.sandbox import has_sized_memory
from hw4cli.sandbox.staging import PREFIX, free_memory, private_folder, remove
from hw4cli.system import amd, nvidia
from hw4cli.system.account import Account, account, give_all, take_back
from hw4cli.system.exits import ProgramError, with_message
from hw4cli.system.files import write_text
from hw4cli.system.interrupts import SignalsDeferred
from hw4cli.system.reading import read_json
from hw4cli.text.dates import from_timestamp
from hw4cli.text.words import printable

COPY, LOG, STAMP = "build", "build.txt", "build.sha256"  # of a build, in the student's folder of results
BOARD = "scoreboard-private.html"  # the judge's own, beside the students' folders
MAX_BYTES = 1 << 30  # of a submission, and of each file that its build writes
MAX_BUILD_BYTES, MAX_BUILD_FILES = 2 * MAX_BYTES, 50_000  # of the copied submission and all that its build writes
MEMORY_SHARE = 2  # a build in the sandbox takes place in memory if so many times its bytes are free
MAX_ENTRIES = 10_000  # files and folders of a submission
COMPILERS = {".cu": ("nvcc", "/usr/local/cuda/bin/nvcc"), ".hip": ("hipcc", "/opt/rocm/bin/hipcc")}
FOUND = 5  # names of a submission's files that a sentence lists
# The names of other files and folders beside the students' folders of results.
RESERVED = {
    "slurm",
    SECRET_FOLDER,
    casemanifest.NAME,
    "pseudonyms.json",
    storedrules.NAME,
    regrades.NAME,
    BOARD,
    *(f"results.{end}" for end in ("json", "xml", "csv", "md")),
}
# What a compiler says of an error, and what make says of a compiler that failed.
ERROR_LINE = re.compile(r"\b(error|fatal|undefined reference|No rule to make|not found|No such file)\b", re.IGNORECASE)
MAKE_LINE = re.compile(r"g?make(\[\d+\])?: \*\*\* \[")


class BrokenError(Exception):
    """A submission has no program that can be judged. `problem` is the judge's sentence for the author; `said` quotes
    the build's output, or the names of the submission's files; `notes` say what was done to the submission."""

    def __init__(self, problem: str, said: str = "") -> None:
        super().__init__(with_message(problem, said))
        self.problem, self.said = problem, said
        self.notes: Sequence[str] = ()


@dataclass(frozen=True)
class Contents:
    """The contents of a folder and its subfolders: the `entries` that are not folders, sorted, with their status; their
    `size` in bytes, holes included; `truncated` if there are more than MAX_ENTRIES, so that some are missing."""

    entries: Sequence[tuple[Path, os.stat_result]]
    size: int
    truncated: bool

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Walk through a folder. Links are not followed; what cannot be read is skipped."""
        found, pending, count = [], [str(folder)], 0
        while pending and count <= MAX_ENTRIES:
            with suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in islice(entries, MAX_ENTRIES + 1 - count):
                    count += 1
                    with suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        else:
                            found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        return cls(sorted(found), sum(status.st_size for _, status in found), count > MAX_ENTRIES)


@dataclass(frozen=True)
class Submission:
    """A student's folder. It is never written to: a copy is built and run. A student may have no folder, but `loose`
    files in the class's, such as SID.zip, or name_id_hw4.cu of a learning platform's download."""

    user: str
    folder: Path
    loose: Sequence[Path] = ()

    @cached_property
    def contents(self) -> Contents:
        """Its contents, read once."""
        if not self.loose:
            return Contents.of(self.folder)
        found = [(path, path.lstat()) for path in sorted(self.loose)]
        return Contents(found, sum(status.st_size for _, status in found), False)

    @property
    def homeless(self) -> str:
        """What to do with loose files of which hw4 can make nothing, as a sentence; "" if it can."""
        if not self.loose or any(
            not path.name.lower().endswith(ARCHIVES) or is_unpacked(path.name) for path in self.loose
        ):
            return ""
        names = " and ".join(path.name for path in self.loose)
        return f"not judged: {names} is no zip and no tar: unpack it into a folder {self.user} in {self.folder.parent}"

    @property
    def excess(self) -> str | None:
        """Why it is too large to be judged, as a sentence; None if it is not."""
        if self.contents.truncated:
            return f"it holds more than {MAX_ENTRIES:,} files and folders"
        if self.contents.size > MAX_BYTES:
            return f"it is larger than {MAX_BYTES >> 20:,} MB: {self.contents.size >> 20:,} MB"
        return None

    @property
    def files(self) -> list[Path]:
        """Its regular files."""
        return [path for path, status in self.contents.entries if stat.S_ISREG(status.st_mode)]

    @property
    def handed_in(self) -> datetime | None:
        """The newest time stamp of its files."""
        newest = max((status.st_mtime for _, status in self.contents.entries), default=None)
        return None if newest is None else from_timestamp(newest)

    @cached_property
    def sha256(self) -> str:
        """A hash of its names, the targets of links, and the bytes of files (their sizes, if it is too large)."""
        loose, by_size = "\0".join(path.name for path in self.loose), self.excess is not None
        digest = hashlib.sha256(loose.encode(errors="surrogateescape"))
        for path, status in self.contents.entries:
            content = str(status.st_size)
            with suppress(OSError):
                if stat.S_ISLNK(status.st_mode):
                    content = str(path.readlink())
                elif stat.S_ISREG(status.st_mode) and not by_size:
                    content = file_sha256(path)
            name = path.name if self.loose else path.relative_to(self.folder)
            digest.update(f"{name}\0{content}\0".encode(errors="surrogateescape"))
        return digest.hexdigest()


def scan(folder: Path, only: Sequence[str] = ()) -> list[Submission]:
    """The submissions in a folder, one in each subfolder, sorted by name, and those of students who have loose files
    there but no folder; with `only`, those of these users. InputError if there is none, or if a name is reserved."""
    try:
        with os.scandir(folder) as entries:  # knows folders without asking for each, as every task of an array would
            seen = [one for one in entries if not one.name.startswith(".")]
            folders = dict(_of_folder(one) for one in sorted(seen, key=_without_files) if _is_folder(one))
            loose = sorted(Path(one.path) for one in seen if one.name not in folders and owner(one.name)[0])
    except OSError as error:
        raise InputError(f"cannot read the submissions in {folder}: {error.strerror}") from None
    owned: dict[str, list[Path]] = {}
    for path in loose:
        if not path.is_dir():
            owned.setdefault(owner(path.name)[0], []).append(path)
    found = {**{user: Submission(user, folder / user, paths) for user, paths in owned.items()}, **folders}
    if not found:
        raise InputError(f"{folder} holds no submissions: give each student a folder, or an archive SID.zip, in it")
    for user, one in found.items():
        if user in RESERVED or user.startswith((PREFIX, ".")):
            raise InputError(f"{(one.loose or [one.folder])[0]}: no student's folder can be called {user}: rename it")
    for user in only:
        if user not in found:
            raise InputError(f"{folder} holds no submission {user}")
    return [found[user] for user in sorted(found) if not only or user in only]


def _of_folder(entry: "os.DirEntry[str]") -> tuple[str, Submission]:
    """A folder's user and submission; a learning platform's folder is called by more than the student's name."""
    found = MOODLE.fullmatch(entry.name)
    user = found["user"] if found else entry.name
    return user, Submission(user, Path(entry.path))


def _without_files(entry: "os.DirEntry[str]") -> bool:
    """Sorts a learning platform's folders of texts before those of files, which count if there are both."""
    return "_assignsubmission_onlinetext" not in entry.name


def _listed(names: Iterable[str]) -> str:
    """A few names, for a sentence."""
    some = list(islice(names, FOUND + 1))
    return ", ".join(some[:FOUND]) + (", …" if len(some) > FOUND else "")


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    with suppress(OSError):  # a link that leads nowhere
        return entry.is_dir()
    return False


@dataclass(frozen=True)
class Build:
    """How submissions are built: within so many `seconds`, confined as runs are, with the variables `pass_env` besides
    the usual ones. A source without a Makefile is compiled by the command `line`; "" for the usual one of its kind."""

    seconds: float
    confinement: Confinement
    cases: Path
    pass_env: Sequence[str] = ()
    line: str = ""


@dataclass(frozen=True)
class Built:
    """A program that was built, and what was done to its submission. `compiled`: by the build's line, not by make."""

    program: Path
    notes: Sequence[str] = ()
    compiled: bool = False


def build_program(submission: Submission, results: Path, build: Build) -> Built:
    """The program of a submission, in a copy in the student's folder of `results`: built by `make hw4` if there is a
    Makefile, by the build's line if there is a source alone. Archives are unpacked there (intake). A program that was
    built from the same files is reused, since another build might differ in a byte.

    Raises BrokenError if it fails, MachineError if it cannot be tried on this machine.
    """
    copy, stamp = results / COPY, results / STAMP
    program = copy.absolute() / PROGRAM
    if program.is_file() and (before := _stamped(stamp, submission, build)):
        return replace(before, program=program)
    stamp.unlink(missing_ok=True)
    notes, compiled = list[str](), False
    try:
        notes += take_in(submission, copy)
        if any((copy / name).is_file() for name in MAKEFILES):
            remove(copy / PROGRAM)  # a prebuilt program may be for another machine
            _run_build(results, [_make(), PROGRAM], f"make {PROGRAM}", build)
        elif not os.path.lexists(program) and (source := lone_source(copy, _preferred(build.line))):
            compiled = True
            words = compile_line(source, build.line)
            notes.append(f"no Makefile: built by {shlex.join([Path(words[0]).name, *words[1:]])}")
            _run_build(results, words, f"{Path(words[0]).name} {source.name}", build, shown=True)
        take_back(copy)
        _check(program, submission)
    except (Hw4Error, BrokenError, UnpackError, OSError, RecursionError) as error:
        with SignalsDeferred():
            remove(copy)
        raised = _build_error(error, copy)
        if isinstance(raised, BrokenError):
            raised.notes = notes
        raise raised from None
    write_text(
        stamp, json.dumps({"sha256": submission.sha256, "notes": notes, "line": build.line if compiled else None})
    )
    return Built(program, notes, compiled)


def take_in(submission: Submission, copy: Path) -> list[str]:
    """Replace `copy` by a copy of the submission that is ready to build; what was done to it, in sentences.

    Raises BrokenError if it cannot be copied, UnpackError if there is no saying what it holds: the copy has then what
    could be unpacked. MachineError if this machine has no space for it.
    """
    _copy(submission, copy)
    return make_ready(copy, MAX_BYTES, MAX_ENTRIES)


def _stamped(stamp: Path, submission: Submission, build: Build) -> Built | None:
    """What an earlier build has noted of the same files, if it would be built so now."""
    try:
        noted = read_json(stamp)
        if noted["sha256"] == submission.sha256 and noted["line"] in (None, build.line):
            return Built(stamp, noted["notes"], noted["line"] is not None)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return None


def _preferred(line: str) -> str:
    """The ending of the source that is built where there are two: HIP's if the line, or the GPU here, says so."""
    if line:
        return ".hip" if "hipcc" in line else ".cu"
    return ".hip" if not nvidia.table() and amd.gpus() else ".cu"


def compile_line(source: Path, line: str = "") -> list[str]:
    """The command that builds a source without a Makefile, for the GPU that is here. MachineError if its compiler is
    not installed."""
    if line:
        words = shlex.split(line)
    else:
        kind = source.suffix.lower()
        gpu = amd.first_visible(os.environ) if kind == ".hip" else None
        target = f"--offload-arch={gpu.gfx if gpu else 'native'}" if kind == ".hip" else "-arch=native"
        words = [COMPILERS[kind][0], "-O3", "-std=c++14", target]
    known = next((paths for paths in COMPILERS.values() if words[0] == paths[0]), (words[0],))
    compiler = next(filter(None, map(shutil.which, known)), None)
    if compiler is None:
        raise MachineError(f"{words[0]} is not installed here: {source.name} cannot be built (--build names another)")
    return [compiler, *words[1:], source.name, "-o", PROGRAM]


def _make() -> str:
    make = shutil.which("make")
    if make is None:
        raise MachineError("make is not installed here: the class cannot be built")
    return make


def _build_error(error: Exception, copy: Path) -> Exception:
    """An error during a build, as one of the author's (BrokenError) or of the judge."""
    if isinstance(error, ProgramError):
        return BrokenError(f"make hw4: {error}")
    if isinstance(error, UnpackError):
        return BrokenError(printable(error))
    if isinstance(error, RecursionError):
        return BrokenError("its folders are nested too deeply")
    if isinstance(error, shutil.Error):
        error = _first_cause(error)
    if isinstance(error, OSError) and error.errno not in SHORTAGES | DISK_FAULTS:
        return BrokenError(f"what it built cannot be read: {error.strerror or error}")
    return os_error(error, f"build in {copy}") if isinstance(error, OSError) else error


def _check(program: Path, submission: Submission) -> None:
    """Raise BrokenError unless it is a regular file in the student's build, and uses no other student's files."""
    folder, others = os.path.realpath(program.parent), submission.folder.parent.resolve()
    target = Path(os.path.realpath(program))
    if not target.is_relative_to(folder):
        raise BrokenError("hw4 is a link that leads elsewhere")
    if not target.is_file():
        raise _no_program(program)
    if not target.stat().st_mode & 0o111:
        raise BrokenError("hw4 is not executable (chmod +x hw4)")
    if any(Path(name).resolve().is_relative_to(others) for name in interpreter(program) if "/" in name):
        raise BrokenError("the first line of hw4 leads to a student's folder")


def _no_program(program: Path) -> BrokenError:
    """Why there is no program in a student's folder, and what its author did instead."""
    found = sorted(program.parent.iterdir())
    if os.path.lexists(program):
        kind = "a folder, not a program" if program.is_dir() else "not a regular file"
        return BrokenError(f"hw4 is {'a link that leads nowhere' if program.is_symlink() else kind}")
    if not found:
        return BrokenError("the folder is empty")
    sources = [path.name for path in found if path.is_file() and path.name.lower().endswith(SOURCES)]
    if len(sources) > 1:
        return BrokenError(f"there are {_listed(sources)}, but no Makefile: which one is hw4?")
    if sources:
        an = "an" if sources[0].startswith("hw4") else "a file"
        return BrokenError(f"there is {an} {sources[0]}, but no Makefile to build it with")
    archives = [path.name for path in found if path.is_file() and path.name.lower().endswith(ARCHIVES)]
    if archives:
        return BrokenError(f"there is an archive {archives[0]}, which hw4 does not unpack: zip and tar alone")
    return BrokenError("there is no hw4 and no Makefile, nor an hw4.cu", f"only {_listed(path.name for path in found)}")


def interpreter(file: Path) -> list[str]:
    """The programs in a script's first line: the interpreter after #!, and the one that env has to find."""
    try:
        with file.open("rb") as script:
            first = script.readline(256)
        names = shlex.split(os.fsdecode(first[2:])) if first.startswith(b"#!") else []
    except (OSError, ValueError):
        return []
    return names[: 2 if Path(names[0]).name == "env" else 1] if names else []


def _copy(submission: Submission, target: Path) -> None:
    """Replace `target` by a copy of the submission that its owner may write to."""
    remove(target)
    if problem := submission.excess:
        raise BrokenError(problem)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if free < submission.contents.size + RESERVE:
            raise MachineError(
                f"{target.parent} has {free:,} bytes free, and its submission {submission.contents.size:,}"
            )
        if submission.loose:
            target.mkdir()
            for name, path in newest_of_each(submission.loose).items():
                _copy_file(str(path), str(target / name))
        else:
            shutil.copytree(submission.folder, target, symlinks=True, copy_function=_copy_file)
        subprocess.run(["chmod", "-R", "u+rwX,ug-s,go-w", "--", target], check=False, capture_output=True)
    except RecursionError:
        raise BrokenError("it cannot be copied: its folders are nested too deeply") from None
    except shutil.Error as error:
        if (cause := _first_cause(error)).errno in SHORTAGES | DISK_FAULTS:
            raise os_error(cause, f"copy {submission.folder} to {target}") from None
        raise BrokenError("it cannot be copied", str(error.args[0][0][2])) from None
    except OSError as error:
        raise os_error(error, f"copy {submission.folder} to {target}") from None


def _first_cause(error: shutil.Error) -> OSError:
    """What was wrong with the first file that shutil.copytree could not copy: it keeps no more than the messages."""
    message = str(error.args[0][0][2])
    number = re.match(r"\[Errno (\d+)\]", message)
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(message)


def _fill(there: int, folder: Path, user: Account | None) -> None:
    """Copy the copied submission into an open folder of the sandbox, for the user that builds."""
    try:
        shutil.copytree(folder, f"/proc/self/fd/{there}", symlinks=True, copy_function=_copy_file, dirs_exist_ok=True)
    except shutil.Error as error:
        raise _first_cause(error) from None
    if user:
        give_all(there, user)


def _take_out(there: int, folder: Path) -> None:
    """Replace the copied submission by what was built from it in an open folder, which belongs to the judge again.
    BrokenError if that is larger outside, where holes of files and further names of the same file take space."""
    size = sum(
        os.stat(name, dir_fd=place, follow_symlinks=False).st_size
        for _, _, names, place in os.fwalk(".", dir_fd=there)
        for name in names
    )
    if size > MAX_BUILD_BYTES:
        raise BrokenError(f"make hw4 was ended: it wrote more than {MAX_BUILD_BYTES >> 20:,} MB")
    if (free := shutil.disk_usage(folder.parent).free) < size + RESERVE:
        raise MachineError(f"{folder.parent} has {free:,} bytes free, and what was built is {size:,}")
    remove(folder)
    shutil.copytree(f"/proc/self/fd/{there}", folder, symlinks=True, copy_function=_copy_built)


def _copy_built(source: str, target: str, *, follow_symlinks: bool = True) -> None:
    """As _copy_file; for a pipe, a socket or a device stands a pipe that nobody may open."""
    if stat.S_IFMT(Path(source).lstat().st_mode) in (stat.S_IFREG, stat.S_IFLNK):
        _copy_file(source, target, follow_symlinks=follow_symlinks)
    else:
        os.mkfifo(target, 0)


def _copy_file(source: str, target: str, *, follow_symlinks: bool = True) -> None:
    """As shutil.copy2, but a file that would run as its owner (setuid), who is the judge's user now, does not become
    one even for a moment."""
    status = Path(source).lstat()
    shutil.copyfile(source, target, follow_symlinks=follow_symlinks)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=follow_symlinks)
    if stat.S_ISREG(status.st_mode):
        Path(target).chmod(status.st_mode & 0o777)


def _run_build(results: Path, words: Sequence[str], called: str, build: Build, shown: bool = False) -> None:
    """Run a build's command, which sentences call so, in the copy, and write its output into build.txt, after the
    command itself if it is to be `shown`. BrokenError if it fails."""
    folder, confinement, limit = (results / COPY).resolve(), build.confinement, build.seconds
    # Both streams are one, so that the compiler's messages stay in order.
    command = ["/bin/sh", "-c", 'exec "$0" "$@" >&2', *words]
    env = environment(os.environ, folder, build.cases.absolute() / "answer", build.pass_env)
    user, bounds = account(confinement.run_as), (MAX_BUILD_BYTES, MAX_BUILD_FILES)
    if confinement.sandbox == "bwrap":
        env["TMPDIR"] = TEMPORARY
    if confinement.sandbox == "bwrap" and has_sized_memory() and free_memory() >= MEMORY_SHARE * MAX_BUILD_BYTES:
        with PrivateMemory(*bounds, bounds[0], lambda there: _fill(there, folder, user), user, folder) as memory:
            run = confine.run(command, (), Workspace(folder, memory), env, confinement, limit, MAX_BYTES)
            if not (run.killed or run.excess or run.exit_code):
                take_back(memory.held)
                _take_out(memory.held, folder)
    else:
        closed = user is None or confinement.sandbox == "bwrap"
        with private_folder(Path(tempfile.gettempdir()), closed) as root:
            scratch = root / "tmp"
            scratch.mkdir(mode=0o700)
            if user:
                user.give(scratch)
                give_all(folder, user)
            if confinement.sandbox != "bwrap":
                env["TMPDIR"] = str(scratch)
            workspace = Workspace(folder, scratch, Quota((folder, root), *bounds), root)
            run = confine.run(command, (), workspace, env, confinement, limit, MAX_BYTES)
    write_text(results / LOG, f"$ {shlex.join(words)}\n{run.stderr}" if shown else run.stderr)
    if run.killed:
        raise BrokenError(f"{called} did not end within {limit:g} s")
    if run.excess:
        raise BrokenError(f"{called} was ended: {run.excess}")
    if run.exit_code:
        raise BrokenError(f"{called} failed", _first_error(run.stderr))
    if not os.path.lexists(results / COPY / PROGRAM):
        raise BrokenError(f"{called} made no hw4")


def _first_error(text: str) -> str:
    """The first line of a build's output that is an error, the compiler's rather than make's, or else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed no message"
    errors = [line for line in lines if ERROR_LINE.search(line)]
    return next((line for line in errors if not MAKE_LINE.match(line)), errors[0] if errors else last)[:200]
