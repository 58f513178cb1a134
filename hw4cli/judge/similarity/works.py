"""What is compared: the sources of each submission, as the judge takes them in, and those of hw4 itself."""

import codecs
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from hw4cli.errors import InputError, MachineError
from hw4cli.judge.intake import HEADERS, SOURCES, UnpackError, source_files
from hw4cli.judge.similarity.tokens import symbols
from hw4cli.judge.similarity.winnowing import STARTER_GRAM, Hashes, Print, grams
from hw4cli.judge.submission import BrokenError, Submission, take_in
from hw4cli.resources import data_path, has_solution
from hw4cli.sandbox.staging import private_folder
from hw4cli.system.reading import read_regular
from hw4cli.text.words import counted

OWN = "hw4"  # the label of the project's own kernels and programs
KIT = "templates/kit-hw4.cu.txt"  # what `hw4 kit` gives to students
MOST_BYTES = 1 << 20  # of a source: a larger one is data
MOST_SYMBOLS = 200_000  # of a submission: what stands behind them is not compared
LEAST = 100  # symbols of a submission's own that are compared: a few lines are alike by chance
MARKS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"), (b"", "utf-8-sig"))


@dataclass(frozen=True)
class Source:
    """A file of a program, by its name in the submission, and its lines."""

    name: str
    lines: Sequence[str]


@dataclass
class Work:
    """A program that is compared, with its symbols: those of a student, or all programs of hw4's own (`is_own`).
    `notes` say which of its files are not compared."""

    label: str
    sources: Sequence[Source]
    print: Print
    lines: Sequence[int]  # of each symbol
    begins: Sequence[int]  # the first symbol of each source
    is_own: bool = False
    notes: Sequence[str] = field(default=())

    @property
    def size(self) -> int:
        """How many symbols are its own, and neither starter code nor shreds between."""
        return self.print.size

    def place(self, symbol: int) -> tuple[int, int]:
        """Where a symbol stands: the number of its source, and its line, from 1 on."""
        return bisect_right(self.begins, symbol) - 1, self.lines[symbol]

    @cached_property
    def total(self) -> int:
        """All its symbols."""
        return len(self.lines) - len(self.sources)


def text_of(content: bytes) -> str:
    """A source's bytes as text, whatever its author's editor wrote; what is no text is replaced."""
    encoding = next(name for mark, name in MARKS if content.startswith(mark))
    return content.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def work(
    label: str, sources: Iterable[Source], starter: Hashes, is_own: bool = False, notes: Sequence[str] = ()
) -> Work:
    """A program of these sources, without what is starter code."""
    found, lines, begins, kept, notes = [0] * 0, [0] * 0, [0] * 0, list[Source](), list(notes)
    ends = list[bool]()
    for source in sources:
        if len(found) > MOST_SYMBOLS and not is_own:
            notes.append(f"{source.name} is left out: it has more than {MOST_SYMBOLS:,} tokens without it")
            continue
        begins.append(len(found))
        kept.append(source)
        for symbol, line in symbols("\n".join(source.lines)):
            found.append(symbol)
            lines.append(line)
            ends.append(False)
        found.append(0)
        lines.append(len(source.lines))
        ends.append(True)
    compared = Print(np.array(found, np.uint64), np.array(ends, bool), starter)
    return Work(label, kept, compared, lines, begins, is_own, notes)


def starter_code(paths: Sequence[Path]) -> Hashes:
    """The starter code: what `hw4 kit` writes, and the sources in these files and folders. InputError for a path that
    is none, or a folder without any."""
    texts = [data_path(KIT).read_text(encoding="utf-8")]
    for path in paths:
        if path.is_file() and path.suffix.lower() not in (*SOURCES, *HEADERS):
            raise InputError(f"--exclude {path} is no source, such as hw4.cu, and no folder of them")
        files = source_files(path) if path.is_dir() else [path]
        if not files:
            raise InputError(f"--exclude {path} holds no sources, such as hw4.cu")
        texts += [_read(one) for one in files]
    return np.unique(np.concatenate([grams(_plain(text), STARTER_GRAM) for text in texts]))


def _plain(text: str) -> Hashes:
    return np.array([symbol for symbol, _ in symbols(text)], np.uint64)


def _read(path: Path) -> str:
    try:
        return text_of(read_regular(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def own_work(starter: Hashes) -> list[Work]:
    """hw4's own kernels and programs, as one work; none where there is the judge alone."""
    if not has_solution():
        return []
    folder = data_path("kernels")
    files = [path for name in ("", "hip", "host") for path in sorted((folder / name).iterdir()) if path.is_file()]
    sources = [_source(path, path.relative_to(folder).as_posix()) for path in files]
    return [work(OWN, sources, starter, is_own=True)]


def _source(path: Path, name: str) -> Source:
    return Source(name, _read(path).split("\n"))


def taken_in(submissions: Sequence[Submission], starter: Hashes, prefix: str = "") -> tuple[list[Work], dict[str, str]]:
    """The works of submissions, taken in as the judge does; and why others are not compared, by their labels. A label
    is the prefix and the student's name. MachineError if there is no space to copy one."""
    found, others = [], dict[str, str]()
    with private_folder(Path(tempfile.gettempdir())) as root:
        for one in submissions:
            label, problem, notes = prefix + one.user, one.homeless, list[str]()
            sources = list[Source]()
            if not problem:
                try:
                    take_in(one, root / "copy")
                except (BrokenError, UnpackError) as error:
                    problem = str(error)  # what could be unpacked is compared all the same
                except RecursionError:
                    problem = "its folders are nested too deeply"
                sources = _sources(root / "copy", notes)
            if not sources:
                others[label] = problem or "it holds no source, such as hw4.cu"
                continue
            made = work(label, sources, starter, notes=notes)
            if made.size >= LEAST:
                found.append(made)
            elif made.total < LEAST:
                others[label] = problem or f"it is too short: {counted(made.total, 'token')}"
            else:
                short = f"it is too short without the starter code: {made.size} of {made.total:,} tokens"
                others[label] = problem or short
    return found, others


def _sources(copy: Path, notes: list[str]) -> list[Source]:
    found = []
    for path in source_files(copy) if copy.is_dir() else []:
        name = path.relative_to(copy).as_posix()
        try:
            if path.stat().st_size > MOST_BYTES:
                notes.append(f"{name} is left out: it is larger than {MOST_BYTES >> 20} MB")
            else:
                found.append(_source(path, name))
        except (OSError, InputError) as error:
            raise MachineError(f"cannot read the copy of {name}: {error}") from None
    return found
