"""The table of judged cases, and that of a class: rows as they come, with the running case below on a terminal."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Self

import click
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from hw4cli.cli.terminal.console import stdout_console
from hw4cli.judge.events import ClassListener, Listener
from hw4cli.judge.scoring import results
from hw4cli.judge.scoring.reasons import damage, reasons_line, score_words, suspicion
from hw4cli.judge.scoring.record import Result, Rules, Standing
from hw4cli.judge.scoring.results import RESULT_COLUMNS, result_cells
from hw4cli.problem.suite import Case
from hw4cli.problem.verdict import Verdict
from hw4cli.text.dates import duration
from hw4cli.text.words import columns, counted, print_message, printable, wrapped

LEFT, RIGHT = "{:<5} {:<16} ", " {:>{time}} {:>6} {:>9}"  # of the verdict
WIDE = 64  # columns that a row takes with the spread of its times
INDENT = 6  # columns before a reason that is printed below its row
COLOURS = {"AC": "green", "TLE": "yellow", "TLE+": "red", "NA": "red", "JE": "magenta"}


class CaseTable(Listener):
    """Rows of judged cases on stdout; the running case below them on a terminal, or on stderr. A context manager.

    With `repeated`, the column of times is wide enough for their spread. With `as_json`, stdout gets results.json
    instead of a table. `computed_by` is a sentence on what computed, below the table.
    """

    def __init__(self, rules: Rules, repeated: bool = False, as_json: bool = False, computed_by: str = "") -> None:
        self._rules, self._as_json, self.computed_by = rules, as_json, computed_by
        self._now: tuple[Case, str, float] | None = None
        self._has_header = False
        self._skipped = 0  # cases that were not run again
        self._console, self._width = stdout_console(quiet=as_json)
        self._time = 19 if repeated and (self._width is None or self._width >= WIDE) else 8
        rows_are_seen = self._console.is_terminal and not as_json
        self._live = Live(
            console=self._console if rows_are_seen else Console(stderr=True),
            get_renderable=self._running,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def running(self, case: Case, run: int, runs: int) -> None:
        """Show the run that starts."""
        self._print_header()
        self._now = case, f"run {run} of {runs}" if runs > 1 else "", time.monotonic()
        if self._live.console.is_terminal:
            self._live.start()

    def _print_header(self) -> None:
        """Print the columns' names before the first row; an error before it is printed without them."""
        if not self._has_header:
            self._print(self._row(RESULT_COLUMNS[:-1], "bold"))
            self._has_header = True

    def say(self, message: str) -> None:
        """Print a message on stderr."""
        self._live.stop()
        print_message(message)
        if self._live.console.is_terminal:
            self._live.start()

    def _running(self) -> Text:
        if self._now is None:
            return Text()
        case, run, start = self._now
        elapsed = f"{time.monotonic() - start:.1f}"
        return self._row([case.name, str(case.shape), "…", elapsed, f"{case.limit:g}", run], "dim")

    def judged(self, result: Result, skipped: bool = False) -> None:
        """Print a judged case with its reason: in the same line, or below where the terminal is too narrow."""
        self._live.stop()
        self._print_header()
        self._skipped += skipped
        *cells, reason = map(printable, result_cells(result))
        if len(cells[3]) > self._time:
            cells[3], _, spread = cells[3].partition(" ")
            reason = f"times {spread}{', ' + reason if reason else ''}"
        _print_row(self._console, self._width, self._row(cells, verdict=COLOURS[result.verdict]), reason)

    def ended(self, standing: Standing) -> None:
        """Print the summary."""
        self._live.stop()
        if self._as_json:
            click.echo(results.json_text([standing], self._rules), nl=False)
        else:
            print_summary(standing)
            if self.computed_by:
                self._console.print(wrapped(printable(self.computed_by), self._width), soft_wrap=True, markup=False)
        if self._skipped:
            print_message(f"{counted(self._skipped, 'case')} not run again: the journal has the results")

    def _row(self, cells: Sequence[str], style: str = "", verdict: str = "") -> Text:
        left, right = LEFT.format(*cells[:2]), RIGHT.format(*cells[3:], time=self._time)
        return Text.assemble(left, (f"{cells[2]:<4}", verdict), right, style=style)

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class ClassRows(ClassListener):
    """A row on stdout for each judged student; on a terminal the running case below them. A context manager.

    `quiet`: no rows. `first_messages` are printed when the judging starts."""

    first_messages: Sequence[str] = ()

    def __init__(self, quiet: bool = False) -> None:
        self._console, self._width = stdout_console(quiet)
        self._live = Live(console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
        self._done = self._left = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, user: str) -> Listener:
        """Show whose judging starts."""
        self._print_first_message()
        self._show_now(f"{printable(user)} …")
        return _CaseListener(lambda case: self._show_now(f"{printable(user)} {case.name} …"), self.say)

    def _show_now(self, text: str) -> None:
        if self._live.console.is_terminal:
            self._live.update(Text(" ".join(filter(None, (self._left, text))), style="dim", overflow="ellipsis"))
            self._live.start()

    def progress(self, done: int, total: int, seconds_left: float | None) -> None:
        """Note the progress for the next row and the line of the running case."""
        self._done = f"{done:>{len(str(total))}} of {total}"
        self._left = ""
        if done < total:
            left = "" if seconds_left is None else f", {duration(seconds_left) if seconds_left >= 60 else '1 min'} left"
            self._left = f"{self._done}{left};"

    def judged(self, standing: Standing, skipped: bool) -> None:
        """Print a student's row: progress, cases passed, time, and notes."""
        self._live.stop()
        notes = [
            "judged before" if skipped else "",
            f"{duration(standing.late)} late" if standing.late else "",
            suspicion(standing),
            damage(standing.damaged),
            reasons_line(standing),
        ]
        passed = f"{standing.passed:>3}/{len(standing.cases)}"
        row = Text(printable(f"{self._done}  {standing.user:<20} {passed} {standing.time:>9.2f} s"))
        _print_row(self._console, self._width, row, printable("; ".join(filter(None, notes))))
        if self._left:
            self._show_now("…")

    def failed(self, user: str, message: str) -> None:
        """Print on stderr why the judge failed on a student."""
        self.say(f"{user}: {message}")

    def say(self, message: str) -> None:
        """Print a message on stderr."""
        self._print_first_message()
        self._live.stop()
        print_message(message)

    def _print_first_message(self) -> None:
        messages, self.first_messages = self.first_messages, ()
        for message in messages:
            self.say(message)


def _print_row(console: Console, width: int | None, row: Text, reason: str) -> None:
    """Print a row with a reason: in the same line, or below where the terminal is too narrow."""
    if not reason:
        console.print(row, soft_wrap=True)
    elif width is None or row.cell_len + 2 + cell_len(reason) <= width:
        console.print(row.append("  " + reason), soft_wrap=True)
    else:
        console.print(row, soft_wrap=True)
        console.print(Text(wrapped(reason, width, " " * INDENT)), soft_wrap=True)


class _CaseListener(Listener):
    def __init__(self, show: Callable[[Case], None], say: Callable[[str], None]) -> None:
        self._show, self._say = show, say

    def running(self, case: Case, run: int, runs: int) -> None:
        self._show(case)

    def say(self, message: str) -> None:
        self._say(message)


def print_summary(standing: Standing) -> None:
    """Print a standing's cases accepted, score, Time and Penalty, and what is missing or suspicious."""
    faults = sum(result.verdict is Verdict.JE for result in standing.results.values())
    total = standing.time + standing.penalty
    lines = [
        f"{standing.passed} of {counted(len(standing.cases), 'case')} AC, {score_words(standing)}",
        f"Time {standing.time:.2f} s + Penalty {standing.penalty:.2f} s = {total:.2f} s",
    ]
    if faults:
        lines.append(f"{counted(faults, 'case')} not counted: the judge failed there")
    if lacking := results.missing_cases(standing):
        effect = "or lost: the journal is damaged" if standing.lost else "counted as not accepted"
        lines.append(f"{counted(len(lacking), 'case')} not judged yet, {effect}: {' '.join(lacking)}")
    if suspicious := suspicion(standing):
        lines.append(suspicious)
    if standing.damaged:
        lines.append(damage(standing.damaged))
    click.echo()
    for line in lines:
        click.echo(wrapped(printable(line), columns(sys.stdout)))
