"""`hw4 verify`: compare an output with its answer."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli import __version__
from hw4cli.cli.terminal.grammar import SHAPE, as_shape
from hw4cli.cli.terminal.options import FILE, causal_option, json_option, tolerance_option
from hw4cli.cli.terminal.params import FileName
from hw4cli.errors import InputError
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.workload import CAUSAL, Workload
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.judge.diagnosis.explain import Diagnosis
    from hw4cli.problem.verdict import Comparison

SCHEMA = 1


@dataclass(frozen=True)
class Verification:
    """What was compared, and the result; `comparison` is None if the sizes differ."""

    output: Path
    answer: Path
    source: Path | None
    shape: Workload | None
    sizes: tuple[int, int]
    reason: str
    comparison: "Comparison | None"
    diagnosis: "Diagnosis"
    causal: bool

    @property
    def right(self) -> bool:
        """Whether every element is right."""
        return self.comparison is not None and self.comparison.right


class InputOrShape(FileName):
    """The input's file, or the shape B,N,d without it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Workload for numbers with commas, else a Path."""
        return as_shape(value) if SHAPE.fullmatch(str(value)) and "," in value else super().convert(value, param, ctx)


@click.command()
@click.argument("output", type=FILE)
@click.argument("answer", type=FILE)
@click.argument("given", type=InputOrShape(readable=False, path_type=Path), required=False, metavar="[INPUT | B,N,d]")
@causal_option
@tolerance_option
@json_option
def verify(
    output: Path, answer: Path, given: Path | Workload | None, causal: bool, tolerance: float | None, as_json: bool
) -> int:
    """Show where an output is wrong, and by which mistake.

    \b
    hw4 verify my.out testcases/t07.out          t07 beside its answer is found
    hw4 verify my.out answer.out my.in           another input
    hw4 verify my.out answer.out 4,200,64        no input: places alone

    OUTPUT is compared with ANSWER, element by element. If it is wrong, a map shows where. If a known mistake makes
    exactly this output, it is named; that needs the input. An answer that is named t07.causal.out is of causal
    attention.

    Exit status 0 if every element is a number within the tolerance, 1 if not.
    """
    source, shape = (given, None) if isinstance(given, Path) else (None, given)
    tolerance = TOLERANCE if tolerance is None else tolerance
    causal = causal or Path(answer.stem).suffix == CAUSAL
    found = _verified(output, answer, source, replace(shape, causal=causal) if shape else None, tolerance, causal)
    if as_json:
        click.echo(json.dumps(_document(found, tolerance), indent=1, allow_nan=False))
    else:
        _show(found)
    return 0 if found.right else 1


def _verified(
    output: Path, answer: Path, source: Path | None, shape: Workload | None, tolerance: float, causal: bool
) -> Verification:
    with Importing():
        from hw4cli.judge.diagnosis.explain import Diagnosis, explain
        from hw4cli.judge.diagnosis.size import explain_size
        from hw4cli.judge.runcase import compare_files
        from hw4cli.problem.casecheck import size_problem
        from hw4cli.problem.errormap import ErrorMap
        from hw4cli.problem.verdict import Comparison

    for path in (output, answer):
        if not path.is_file():
            raise InputError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    if _is_input(answer):
        raise InputError(f"{answer} is an input: the answer that belongs to it, such as {answer}.out, is needed")
    source, shape = _input_of(answer, source, shape, causal)
    sizes = output.stat().st_size, answer.stat().st_size
    if shape and shape.output_bytes != sizes[1]:
        raise InputError(f"{answer} has {sizes[1]:,} bytes, but an answer of shape {shape} has {shape.output_bytes:,}")
    if sizes[1] == 0 or sizes[1] % 4:
        raise InputError(f"{answer} has {sizes[1]:,} bytes, which is not an answer: it must be float32 numbers")
    if sizes[0] != sizes[1]:
        reason = f"{output} has {sizes[0]:,} bytes, the answer {sizes[1]:,}"
        if shape:
            words = size_problem(sizes[0], shape), explain_size(output, answer, shape, tolerance)
            reason = "; ".join(filter(None, words))
        return Verification(output, answer, source, shape, sizes, reason, None, Diagnosis(), causal)
    try:
        result = compare_files(output, answer, Comparison(tolerance, ErrorMap(shape) if shape else None))
    except ValueError as error:
        raise InputError(f"{answer}: {error}") from None
    diagnosis = explain(output, answer, source, shape, result) if shape else Diagnosis()
    return Verification(output, answer, source, shape, sizes, result.reason(shape), result, diagnosis, causal)


def _is_input(path: Path) -> bool:
    from hw4cli.problem.casefile import InputFile

    try:
        with InputFile(path):
            return True
    except InputError:
        return False


def _input_of(
    answer: Path, source: Path | None, shape: Workload | None, causal: bool
) -> tuple[Path | None, Workload | None]:
    """The input and its shape: that which is named, or lies beside its answer, as gen leaves them (t07, t07.out)."""
    from hw4cli.problem.casefile import InputFile

    beside = answer.with_suffix("") if answer.suffix == ".out" else None
    if beside and beside.suffix == CAUSAL:
        beside = beside.with_suffix("")
    for path in (source, beside):
        try:
            if path:
                with InputFile(path) as inputs:
                    found = replace(inputs.shape, causal=causal)
                    if shape in (None, found):
                        return path, found
                    if source:
                        raise InputError(f"{source} has shape {inputs.shape}, not {shape}")
        except InputError:
            if source:
                raise
    return None, shape


def _show(found: Verification) -> None:
    """Print the result: numbers, places, a map, the verdict."""
    from hw4cli.cli.terminal.errorview import draw, width

    result, shape = found.comparison, found.shape
    if result:
        click.echo(f"elements    {result.count:,}")
        click.echo(f"wrong       {result.wrong:,}")
        click.echo(f"NaN or Inf  {result.not_finite:,}")
        click.echo(f"max error   {result.max_error:.3g}")
        for label, index in (("first wrong", result.first), ("worst", result.worst)):
            if index is not None:
                click.echo(f"{label:<11} {shape.place(index) if shape else f'element {index:,}'}")
        if result.errors and not result.right:
            click.echo()
            click.echo("\n".join(draw(result.errors, width())))
            click.echo()
    if found.right:
        click.echo("right")
        return
    for words in (f"wrong: {found.reason}", found.diagnosis.where, found.diagnosis.mistake or _unknown(found)):
        if words:
            click.echo(wrapped(printable(words), columns(sys.stdout), "  ", first=""))


def _unknown(found: Verification) -> str | None:
    """Why no mistake is named."""
    if found.comparison is None:
        return None
    if found.diagnosis.strange_input:
        return f"{found.source} does not give this answer: no known mistake can be tried"
    return (
        "no known mistake makes this"
        if found.source
        else "to look for known mistakes, name the input behind the answer"
    )


def _document(found: Verification, tolerance: float) -> dict[str, Any]:
    """The same as JSON; docs/verify.md describes the fields."""
    result, shape = found.comparison, found.shape

    def place(index: int | None) -> dict[str, int] | None:
        if index is None:
            return None
        where = {"element": index}
        if shape:
            rows, where["column"] = divmod(index, shape.d)
            where["batch"], where["row"] = divmod(rows, shape.N)
        return where

    return {
        "schema": SCHEMA,
        "kind": "hw4-verify",
        "version": __version__,
        "output": str(found.output),
        "answer": str(found.answer),
        "input": str(found.source) if found.source else None,
        "shape": list(shape.sizes) if shape else None,
        "causal": found.causal,
        "bytes": {"output": found.sizes[0], "answer": found.sizes[1]},
        "tolerance": tolerance,
        "right": found.right,
        "reason": found.reason,
        "mistake": found.diagnosis.mistake,
        "where": found.diagnosis.where,
        "elements": result.count if result else None,
        "wrong": result.wrong if result else None,
        "not_finite": result.not_finite if result else None,
        "max_error": result.max_error if result else None,
        "first": place(result.first) if result else None,
        "worst": place(result.worst) if result else None,
        "map": _map(found),
    }


def _map(found: Verification) -> dict[str, Any] | None:
    from hw4cli.cli.terminal.errorview import LINES, UNKNOWN

    errors = found.comparison.errors if found.comparison else None
    if found.right or errors is None or not errors.mapped:
        return None
    grid = errors.grid(LINES, UNKNOWN)
    return {
        "batches": grid.batches,
        "rows": grid.rows,
        "wrong": grid.wrong.tolist(),
        "not_finite": grid.not_finite.tolist(),
    }
