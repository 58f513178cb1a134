"""`hw4 bench --compare`: what became faster or slower since an older record."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.plans.measured import RUN_SPREAD
from hw4cli.text.words import print_message

if TYPE_CHECKING:
    from hw4cli.lab.contender import KernelResult


def older_record(path: Path | None, cold: bool) -> dict[str, Any] | None:
    """The record to compare with, if one is named. InputError if it cannot be compared with."""
    from hw4cli.lab.changes import check_comparable
    from hw4cli.lab.tables import read_record

    if path is None:
        return None
    then = read_record(path)
    check_comparable(then, path, cold)
    return then


def compared(rows: "Sequence[KernelResult]", then: dict[str, Any], path: Path | None, gpu: str) -> bool:
    """Print what became faster or slower on stderr; whether anything became slower."""
    from hw4cli.lab.changes import compare

    changes = compare(rows, then)
    if not changes:
        print_message(f"{path} has no kernel on a case of this run: nothing is compared")
    if then["machine"].get("gpu") != gpu:
        print_message(f"{path} was measured on another GPU, {then['machine'].get('gpu')}")
    for change in changes:
        click.echo(f"{change.kernel} {change.case}: {change.direction}, {change.ratio:.3f} of the older time", err=True)
    if changes:
        click.echo(
            f"faster and slower: by more than {RUN_SPREAD:.1%}, the spread of one kernel from run to run", err=True
        )
    return any(change.direction == "slower" for change in changes)
