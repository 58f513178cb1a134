"""Types of arguments that several commands take: their error messages and their completion.

Completion must be quick: nothing heavy is imported for it.
"""

import glob
import math
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.commands import DIGITS
from hw4cli.resources import data_path, is_own_kernel, names_in
from hw4cli.system.reading import read_regular

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    Items = list[CompletionItem[str]]

PROGRAM_ENDINGS = (".hip", ".cpp", ".cc", ".cxx")  # endings of a program's files beside .cu
_MAIN = re.compile(r"\b(?:int|auto|void)\s+main\s*\(")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def items(values: Iterable[str], type: str = "plain") -> "Items":
    """What a shell offers; for the types "file" and "dir" it searches for names itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, type) for value in values]


class Number(click.FloatRange):
    """A number in a range, but not NaN."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. BadParameter if it is not a number, or out of the range."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number in a range."""

    name = "integer"


class TileSizes(click.ParamType["dict[str, int]"]):
    """A tile as macros: "128x32" is BR and BC; behind them may stand STAGES, where the command takes them ("128x32x2"),
    and knobs of the kernel ("32x32,WARP_ROWS=1")."""

    name = "tile"
    _FORM = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})(?:x([1-9]\d{0,2}))?((?:,[A-Z][A-Z_]*=\d{1,4})*)")

    def __init__(self, stages: bool = False) -> None:
        self._stages = stages

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The macros by their names."""
        match = self._FORM.fullmatch(str(value))
        if not match or (match[3] and not self._stages):
            self.fail(f"{value!r} is not a tile: give rows x keys, as in 128x32", param, ctx)
        stages = {"STAGES": int(match[3])} if match[3] else {}
        knobs = (word.split("=") for word in match[4].split(",")[1:])
        return {"BR": int(match[1]), "BC": int(match[2]), **stages, **{name: int(size) for name, size in knobs}}


class OneOf(click.Choice[str]):
    """One of some values; the error message names a similar one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The error message."""
        from difflib import get_close_matches

        wrong = super().get_invalid_choice_message(value, ctx)
        close = get_close_matches(str(value), self.choices, n=1)
        return f"{wrong} Did you mean {close[0]!r}?" if close else wrong

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """The message for a missing argument."""
        return f"Choose from {', '.join(self.choices)}"


class KernelName(OneOf):
    """One of some words, kernels of the ladder among them; or a file of the user's own that ends in .cu."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word, or the file's name, be there such a file or not. BadParameter if it is neither."""
        return str(value) if is_own_kernel(str(value)) else super().convert(value, param, ctx)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The error message."""
        wrong, meant, word = super().get_invalid_choice_message(value, ctx).partition(" Did you mean")
        if not meant and Path(f"{value}.cu").is_file():
            meant, word = " Did you mean", f" '{value}.cu'?"
        return f"{wrong.rstrip('.')}, nor a file that ends in .cu.{meant}{word}"

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """The message for a missing argument."""
        return f"{super().get_missing_message(param, ctx)}, or a file that ends in .cu"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
        """The words and the .cu files that begin so; where there are none, the shell looks for files and folders."""
        words = [word for word in self.choices if word.startswith(incomplete)]
        found = [*words, *kernel_files(incomplete)]
        return items(found) if found else items([incomplete], "file")


class PathName(click.Path):
    """A file's or a folder's name; the command checks whether it can be used, with a message of hw4's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. BadParameter if it has no letters: a Path of none is the current folder."""
        if not os.fspath(value):
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class FileName(PathName):
    """A file's name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. BadParameter if it ends in a slash, as a folder's does: a Path would leave that out."""
        if str(value).endswith("/"):
            self.fail(f"{value} is not a file's name: it ends in /", param, ctx)
        return super().convert(value, param, ctx)


class Gpus(click.ParamType[str]):
    """Some of a node's GPUs: all, count:N or ids:0,2."""

    name = "gpus"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The words. BadParameter if they are no such choice."""
        kind, _, numbers = str(value).partition(":")
        known = [int(number) for number in numbers.split(",") if number.isdecimal() and len(number) <= DIGITS]
        right = {
            "all": value == "all",
            "count": numbers.isdecimal() and known > [0],
            "ids": bool(known) and numbers == ",".join(map(str, dict.fromkeys(known))),
        }
        if not right.get(kind):
            self.fail(f"{value!r} is not all, count:N such as count:2, or ids:LIST such as ids:0,2", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
        """The ways to choose."""
        return items(word for word in ("all", "count:2", "ids:0,1") if word.startswith(incomplete))


class FolderName(PathName):
    """A folder's name."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
        """The folders that begin so."""
        return items([incomplete], "dir")


FOLDER = FolderName(readable=False, path_type=Path)


def complete_command(ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
    """Complete a program's name where it is a file."""
    return items([incomplete], "file")


def suite_cases() -> list[str]:
    """The names of the suite's cases; none where its file is damaged, which the command reports."""
    return names_in(os.environ.get("HW4_SUITE") or data_path("testcases/suite.toml"), "cases")


def workload_names() -> list[str]:
    """The workloads that have a name; none where their file is damaged, which the command reports."""
    return names_in(data_path("testcases/workloads.toml"), "workloads")


def has_main(word: str) -> bool:
    """Whether a file, or one that it includes from beside it, has a function main."""
    seen, waiting = set[Path](), [Path(word)]
    while waiting:
        path = waiting.pop()
        with suppress(OSError, ValueError, RuntimeError):  # no such file, or no name of one
            path = path.resolve()
            if path in seen:
                continue
            seen.add(path)
            text = _COMMENT.sub(" ", read_regular(path).decode("utf-8", errors="replace"))
            if _MAIN.search(text):
                return True
            waiting += [path.parent / name for name in _INCLUDE.findall(text)]
    return False


# Conditions of the preprocessor; a compiler for GPUs sets macros of its own, whose names begin so.
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?P<word>ifdef|ifndef|if|elif|else|endif)\b[ \t]*(?P<name>\w*)[^\n]*", re.M)
_COMPILERS = ("__CUDA", "__NVCC", "__HIP", "__GNUC", "__clang", "__cplusplus", "__linux", "__x86", "_OPENMP")


def has_main_without(word: str, define: Iterable[str]) -> bool:
    """Whether a file of its own has a main outside of all `#ifdef NAME` whose NAME is neither set there nor among
    `define`, as a test of a library has one."""
    text = _COMMENT.sub(" ", read_regular(Path(word)).decode("utf-8", errors="replace"))
    known = {each.split("=")[0] for each in define} | {*re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.M)}
    kept, end, unset = [], 0, list[bool]()
    for line in [*_CONDITION.finditer(text), None]:
        if not any(unset):
            kept.append(text[end : line.start() if line else len(text)])
        if not line:
            break
        end = line.end()
        if line["word"].startswith("if"):
            name = line["name"]
            unset.append(line["word"] == "ifdef" and name not in known and not name.startswith(_COMPILERS))
        elif line["word"] == "endif":
            unset[-1:] = []
        elif unset:
            unset[-1] = False
    return _MAIN.search("".join(kept)) is not None


def is_program(word: str) -> bool:
    """Whether a word of the command line is a file of a whole program, and not one of a kernel alone."""
    return word.endswith(PROGRAM_ENDINGS) or (word.endswith(".cu") and has_main(word))


def kernel_files(incomplete: str) -> list[str]:
    """The .cu files whose names begin so."""
    files = sorted(glob.glob(f"{glob.escape(incomplete)}*.cu"))  # noqa: PTH207 - keeps ./
    return [name for name in files if name.isprintable()]


def complete_cases(ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
    """Complete cases and ranges of cases, with commas between them or not: t0, t01-t1, t05,t2."""
    cases = suite_cases()
    before, comma, word = incomplete.rpartition(",")
    first, dash, _ = word.partition("-")
    found = cases
    if dash:
        found = [f"{first}-{last}" for last in cases[cases.index(first) + 1 :]] if first in cases else []
    elif word in cases[:-1]:
        found = [word, f"{word}-"]  # two, so that the shell does not complete the argument with a space
    return items(before + comma + one for one in found if one.startswith(word))


def complete_user(ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
    """Complete a student's name: the folders of the --class that stands before it."""
    folder, found = ctx.params.get("submissions"), list[str]()
    with suppress(OSError):
        found = [path.name for path in folder.iterdir() if path.is_dir()] if folder else []
    return items(name for name in sorted(found) if name.startswith(incomplete) and not name.startswith("."))
