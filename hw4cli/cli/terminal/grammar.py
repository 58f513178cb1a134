"""The plain arguments of a command: kernels, cases, shapes and workloads, in any order, distinguished by their form.

docs/commands.md has the grammar. Completion must be quick: nothing heavy is imported for it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hw4cli.cli.terminal.params import (
    KernelName,
    complete_cases,
    is_program,
    items,
    kernel_files,
    suite_cases,
    workload_names,
)
from hw4cli.errors import InputError
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel
from hw4cli.system.importing import Importing

if TYPE_CHECKING:
    from hw4cli.cli.terminal.params import Items
    from hw4cli.lab.arrays.named import NamedWorkload

Command = TypeVar("Command", bound=Callable[..., Any])
SHAPE = re.compile(r"[-\d.\s]*,[-\d,.:\s]*")  # numbers with commas; N may be a range, as in 1,512:32768,64
MOST_DOUBLINGS = 40
CASE = re.compile(r"[A-Za-z]{0,2}\d*-?[A-Za-z]{0,2}\d+-?")  # t07, t01-t10; what is wrong in it, the suite says
KERNELS, CASES, SHAPES, WORKLOADS, PROGRAMS = "KERNEL", "CASE", "B,N,d", "WORKLOAD", "PROGRAM.cu"


@dataclass(frozen=True)
class What:
    """What a command is about: kernels by name or file; cases as the suite's words; shapes; workloads as text; files of
    whole programs."""

    kernels: tuple[str, ...] = ()
    cases: str = ""
    shapes: tuple[Workload, ...] = ()
    workloads: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def shape(self, ctx: click.Context, causal: bool = False) -> Workload:
        """The one shape, or that of the one case. Raises UsageError unless exactly one is named, InputError for an
        unknown case."""
        found = self.named_shapes(ctx, causal)
        if len(found) > 1:
            raise click.UsageError(f"one case or shape is needed, and these are {len(found)}", ctx)
        return found[0][1]

    def named_shapes(self, ctx: click.Context, causal: bool = False) -> list[tuple[str, Workload, int]]:
        """(name, shape, seed) of each case and shape. Raises UsageError if there is none, InputError for an unknown
        case."""
        if not self.cases and not self.shapes:
            raise click.UsageError("name a case, as in t28, or a shape, as in 4,16384,64", ctx)
        found = []
        if self.cases:
            with Importing():
                from hw4cli.problem import suite
            found = [(case.name, case.shape, case.seed) for case in suite.select([self.cases])]
        found += [(f"{shape.B}x{shape.N}x{shape.d}", shape, 0) for shape in self.shapes]
        return [
            (f"{name} causal" if causal else name, replace(shape, causal=causal), seed) for name, shape, seed in found
        ]

    def workload(self, ctx: click.Context, of_arrays: Sequence[str], **others: object) -> "NamedWorkload | None":
        """The one workload, None where none is named. `of_arrays`: the kernels that compute arrays; `others`: the
        command's options by name, which a workload does not take.

        Raises UsageError where kernels of arrays and of files are mixed, InputError for what is no workload.
        """
        for name in self.kernels:
            if not self.workloads and name in of_arrays:
                raise click.UsageError(f"{name} computes arrays: name a workload, as in tilelang", ctx)
            if self.workloads and name not in of_arrays:
                raise click.UsageError(f"{name} computes files: name a case or a shape, not a workload", ctx)
        if not self.workloads:
            return None
        if self.cases or self.shapes or len(self.workloads) > 1:
            raise click.UsageError("one workload is needed, and no case or shape beside it", ctx)
        if given := [name for name, value in others.items() if value]:
            raise click.UsageError(f"--{given[0]} does not go with a workload, whose words say all", ctx)
        from hw4cli.lab.arrays.named import workload

        return workload(self.workloads[0])


class Words(click.ParamType[Any]):
    """One plain argument: a kernel, a case or cases, a shape or a workload, as far as a command takes them."""

    name = "what"

    def __init__(self, kinds: Sequence[str], kernels: Sequence[str]) -> None:
        self.kinds = kinds
        self.kernels = KernelName(kernels)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """The kind and the value. BadParameter for what is none of the command's kinds."""
        word = str(value)
        kind = self._kind(word)
        if kind is None or kind not in self.kinds:
            kinds = " or ".join(filter(None, (", ".join(self.kinds[:-1]), self.kinds[-1])))
            raise click.UsageError(f"{word!r} is no {kinds}{self._meant(word)}", ctx)
        if kind == KERNELS:
            return kind, self.kernels.convert(word, param, ctx)
        return kind, as_shapes(word) if kind == SHAPES else word

    def _kind(self, word: str) -> str | None:
        """The kind that a word has by its form, where the command takes several; else the only one."""
        if SHAPES in self.kinds and SHAPE.fullmatch(word):
            return SHAPES
        if PROGRAMS in self.kinds and is_program(word):
            return PROGRAMS
        if KERNELS in self.kinds and (is_own_kernel(word) or word in self.kernels.choices or _is_kernel(word)):
            return KERNELS
        if WORKLOADS in self.kinds and ("=" in word or word in workload_names()):
            return WORKLOADS
        if CASES in self.kinds:
            parts = [part for part in re.split(r"[,\s]+", word) if part]
            other = {KERNELS, WORKLOADS} & {*self.kinds}
            if not other or (parts and all(CASE.fullmatch(part) or part in suite_cases() for part in parts)):
                return CASES
        if self.kinds[0] == KERNELS and {*self.kinds} == {KERNELS}:
            return KERNELS
        return None

    def _meant(self, word: str) -> str:
        from difflib import get_close_matches

        if KERNELS in self.kinds and Path(f"{word}.cu").is_file():
            return f". Did you mean '{word}.cu'?"
        known = [*(self.kernels.choices if KERNELS in self.kinds else ())]
        known += workload_names() if WORKLOADS in self.kinds else ()
        close = get_close_matches(word, known, n=1)
        return f". Did you mean {close[0]!r}?" if close else ""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
        """Kernels, cases, workloads and .cu files that begin so; else the shell looks for files."""
        found = complete_cases(ctx, param, incomplete) if CASES in self.kinds else []
        if KERNELS not in self.kinds:
            return found
        words = [*self.kernels.choices, *(workload_names() if WORKLOADS in self.kinds else ())]
        found = [*items([*(word for word in words if word.startswith(incomplete)), *kernel_files(incomplete)]), *found]
        return found or items([incomplete], "file")


def _is_kernel(word: str) -> bool:
    """Whether this is the name of any kernel, of arrays too, or of all of them."""
    from hw4cli.cli.terminal.launches import KNOWN

    return word in KNOWN


def as_shape(word: str) -> Workload:
    """The shape of a text such as 4,200,64. InputError if it is none, or none that hw4 computes."""
    try:
        B, N, d = (int(number) for number in word.split(","))
    except ValueError:
        raise InputError(f"{word!r} is not three integers B,N,d, as in 4,200,64") from None
    shape = Workload.one_head(B, N, d)
    shape.check(word)
    return shape


def as_shapes(word: str) -> list[Workload]:
    """The shapes of a text: one, or with N as a range, as in 1,512:32768,64, those of N = 512, 1024, ... up to its end.

    InputError if it is none.

    >>> [shape.N for shape in as_shapes("1,512:2048,64")]
    [512, 1024, 2048]
    """
    match = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*:\s*(\d+)\s*,\s*(\d+)\s*", word)
    if ":" not in word:
        return [as_shape(word)]
    first, last = (int(match[2]), int(match[3])) if match else (0, 0)
    if match is None or not 0 < first <= last < 2**31:
        raise InputError(f"{word!r} is not B,N:N,d with N from few to many, as in 1,512:32768,64")
    doubled = [first << step for step in range(MOST_DOUBLINGS) if first << step <= last]
    return [as_shape(f"{match[1]},{N},{match[4]}") for N in doubled]


def what_argument(*kinds: str, kernels: Sequence[str] = (), required: bool = False) -> Callable[[Command], Command]:
    """The plain arguments of these kinds, given to the command as `what`, one `What`; `kernels` are those that it
    takes."""

    def gathered(ctx: click.Context, param: click.Parameter, words: tuple[tuple[str, Any], ...]) -> What:
        found = {kind: [value for one, value in words if one == kind] for kind in kinds}
        return What(
            tuple(found.get(KERNELS, ())),
            ",".join(found.get(CASES, ())),
            tuple(shape for shapes in found.get(SHAPES, ()) for shape in shapes),
            tuple(found.get(WORKLOADS, ())),
            tuple(found.get(PROGRAMS, ())),
        )

    metavar = f"{' | '.join(kinds)} ..."
    return click.argument(
        "what",
        nargs=-1,
        type=Words(kinds, kernels),
        required=required,
        metavar=metavar if required else f"[{metavar}]",
        callback=gathered,
    )
