"""A student's CUDA program executed on the CPU, watched: its author gets what is found, which decides nothing.

Who passes by luck, since a race went well on the judge's GPU, learns of it, and who fails learns why. What was found
lies in the student's folder of results, and in the handout.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hw4cli.errors import Hw4Error, MachineError, ShortageError
from hw4cli.judge.submission import COPY, Submission
from hw4cli.resources import data_path
from hw4cli.sandbox import sandbox
from hw4cli.system.files import write_text

if TYPE_CHECKING:
    from hw4cli.emulator.build import Run
    from hw4cli.emulator.program.build import Source

NAME = "findings.json"
FAILING, ALL = "failing", "all"
SECONDS = 120.0  # that a student's program may be compiled and executed, all cases together
CASE_SECONDS = 20.0  # of processor time for a case of the usual size
MOST = 20  # findings of a program that are kept
SUFFIXES = (".cu", ".hip")
PRIVATE = 0o600


@dataclass(frozen=True)
class Report:
    """What became of a program: of each small case a line with its verdict, the findings, the notes; or why there are
    none. `submission` is the hash of the files."""

    submission: str
    sources: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""


def read(folder: Path) -> Report | None:
    """The report in a student's folder of results; None if there is none that can be read."""
    try:
        fields = json.loads((folder / NAME).read_text(encoding="utf-8"))
        lists = {name: tuple(map(str, fields[name])) for name in ("sources", "cases", "findings", "notes")}
        return Report(str(fields["submission"]), **lists, problem=str(fields["problem"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check(member: Submission, results: Path, confined: bool) -> Report:
    """Execute a student's program on small cases, in the sandbox if `confined`, the compiler, too; and write the report
    into the folder of results. Raises MachineError if this machine cannot do it: there is no compiler, say."""
    copy = results / COPY  # of what was handed in, unpacked
    report = _checked(member, copy if copy.is_dir() else member.folder, confined)
    write_text(results / NAME, json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n", PRIVATE)
    return report


def sources_of(folder: Path) -> tuple[Path, ...]:
    """The program's files in a folder: hw4.cu or hw4.hip, or else all CUDA files; of a folder in it, if it has none."""
    for pattern in ("*", "*/*"):
        found = sorted(path for path in folder.glob(pattern) if path.suffix in SUFFIXES and _is_plain(path))
        if found:
            own = tuple(path for path in found if path.stem == "hw4")
            return own[:1] or tuple(found)
    return ()


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _checked(member: Submission, folder: Path, confined: bool) -> Report:
    try:
        from hw4cli.emulator.program.attention import check_attention
        from hw4cli.emulator.program.build import Source, compile_program
    except ModuleNotFoundError:
        raise MachineError("--race-check needs hw4 itself: this is the judge alone") from None
    files, start = sources_of(folder.resolve()), time.monotonic()
    if not files:
        return Report(member.sha256, problem="there is no .cu file to execute")
    names = tuple(path.name for path in files)
    source = Source(files, (files[0].parent,))
    try:
        with _compilers(source, confined) as run:
            # Whatever the text includes, the compiler sees no more than a program in the sandbox does.
            compile_program(source, cc=80, lanes=64 if source.hip else 32, run=run)
        done = check_attention(source, seconds=CASE_SECONDS, until=start + SECONDS, sandbox=confined)
    except ShortageError as error:  # what one program takes to compile ends no class
        return Report(member.sha256, names, problem=str(error))
    except MachineError:
        raise
    except Hw4Error as error:
        return Report(member.sha256, names, problem=str(error))
    except subprocess.TimeoutExpired:
        return Report(member.sha256, names, problem=f"the compiler takes longer than {SECONDS:.0f} s")
    found = dict.fromkeys(str(finding) for case in done for finding in case.findings)
    notes = dict.fromkeys(str(note) for case in done for note in case.notes)
    late = [f"no more was executed, as {SECONDS:.0f} s had passed"] if time.monotonic() - start > SECONDS else []
    return Report(
        member.sha256,
        names,
        (*map(str, done), *late),
        tuple(found)[:MOST],
        tuple(notes)[:MOST],
    )


@contextmanager
def _compilers(source: "Source", confined: bool) -> "Iterator[Run]":
    """What starts compilers: as subprocess.run does; or in the sandbox, where only the program's files, the emulator's
    headers and what is compiled already are visible, and their temporary folder is writable."""
    if not confined:
        yield subprocess.run
        return
    from hw4cli.emulator.build import folders_of_builds

    folders = {path.resolve().parent for path in source.files}
    compiled = [folder.resolve() for folder in folders_of_builds()]
    visible = [*folders, data_path("kernels/emulator").resolve(), *compiled]
    with tempfile.TemporaryDirectory(prefix="hw4-") as scratch:

        def run(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
            temporary = (options.get("env") or {}).get("TMPDIR")
            if temporary is None:  # a tool that looks into what was compiled
                return subprocess.run(command, **options)
            wrapped = sandbox.wrap(command, visible, Path(temporary), Path(scratch), (), None)
            with wrapped.command() as (words, files):
                return subprocess.run(words, pass_fds=files, cwd=os.sep, **options)

        yield run
