"""How judged cases are shown: a table that grows, the running case below it on a terminal; plain lines in a pipe."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Self

import click
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from hw4cli.judge.classroom import ClassListener
from hw4cli.judge.session import Listener
from hw4cli.problem.suite import Case
from hw4cli.problem.verdict import POINTS, Verdict
from hw4cli.scoring import results
from hw4cli.scoring.reasons import damage, in_a_row, suspicion
from hw4cli.scoring.record import Result, Rules, Standing
from hw4cli.scoring.tables import RESULT_COLUMNS, result_cells
from hw4cli.terminal.console import stdout_console
from hw4cli.text.dates import span
from hw4cli.text.words import columns, counted, print_message, printable, wrapped

LEFT, RIGHT = "{:<5} {:<16} ", " {:>{time}} {:>6} {:>9}"  # of the verdict
WIDE = 64  # columns that a row takes with the spread of its times
INDENT = 6  # of a reason that stands below its row
COLOURS = {"AC": "green", "TLE": "yellow", "TLE+": "red", "NA": "red", "JE": "magenta"}


class CaseTable(Listener):
    """Rows of judged cases on stdout, and below them, or on stderr, what runs now. A context manager.

    With `repeated`, the times have room for their spread. With `as_json`, stdout gets results.json and no table.
    """

    def __init__(self, rules: Rules, repeated: bool = False, as_json: bool = False) -> None:
        self._rules, self._as_json = rules, as_json
        self._now: tuple[Case, str, float] | None = None
        self._begun = False
        self._kept = 0  # cases that were not run again
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
        """Show a run that begins."""
        self._head()
        self._now = case, f"run {run} of {runs}" if runs > 1 else "", time.monotonic()
        if self._live.console.is_terminal:
            self._live.start()

    def _head(self) -> None:
        """The columns' names, once there is something to show: a problem before that is told alone."""
        if not self._begun:
            self._print(self._row(RESULT_COLUMNS[:-1], "bold"))
            self._begun = True

    def say(self, words: str) -> None:
        """Tell on stderr what the judge waits for."""
        self._live.stop()
        print_message(words)
        if self._live.console.is_terminal:
            self._live.start()

    def _running(self) -> Text:
        if self._now is None:
            return Text()
        case, run, start = self._now
        elapsed = f"{time.monotonic() - start:.1f}"
        return self._row([case.name, str(case.shape), "…", elapsed, f"{case.limit:g}", run], "dim")

    def judged(self, result: Result, kept: bool = False) -> None:
        """Show a judged case: its reason behind it, or, on a terminal that is too narrow for that, below."""
        self._live.stop()
        self._head()
        self._kept += kept
        *cells, reason = map(printable, result_cells(result))
        if len(cells[3]) > self._time:
            cells[3], _, spread = cells[3].partition(" ")
            reason = f"times {spread}{', ' + reason if reason else ''}"
        _print_row(self._console, self._width, self._row(cells, verdict=COLOURS[result.verdict]), reason)

    def ended(self, standing: Standing) -> None:
        """Print what it all comes to."""
        self._live.stop()
        if self._as_json:
            click.echo(results.json_text([standing], self._rules), nl=False)
        else:
            print_summary(standing)
        if self._kept:
            print_message(f"{counted(self._kept, 'case')} not run again: the journal has the results")

    def _row(self, cells: Sequence[str], style: str = "", verdict: str = "") -> Text:
        left, right = LEFT.format(*cells[:2]), RIGHT.format(*cells[3:], time=self._time)
        return Text.assemble(left, (f"{cells[2]:<4}", verdict), right, style=style)

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class ClassRows(ClassListener):
    """A row on stdout for each student who is judged, and on a terminal, below them, whose case runs now. A context
    manager. `quiet`: no rows. `opening` is said when the judging begins."""

    opening: str | None = None

    def __init__(self, quiet: bool = False) -> None:
        self._console, self._width = stdout_console(quiet)
        self._live = Live(console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
        self._done = self._left = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begins(self, user: str) -> Listener:
        """Show whose turn it is."""
        self._open()
        self._now(f"{printable(user)} …")
        return _Turn(lambda case: self._now(f"{printable(user)} {case.name} …"))

    def _now(self, words: str) -> None:
        if self._live.console.is_terminal:
            self._live.update(Text(" ".join(filter(None, (self._left, words))), style="dim", overflow="ellipsis"))
            self._live.start()

    def progress(self, done: int, total: int, seconds_left: float | None) -> None:
        """Note how far the class is: the next row tells it, and the line of what runs now."""
        self._done = f"{done:>{len(str(total))}} of {total}"
        self._left = ""
        if done < total:
            left = "" if seconds_left is None else f", {span(seconds_left) if seconds_left >= 60 else '1 min'} left"
            self._left = f"{self._done}{left};"

    def judged(self, standing: Standing, kept: bool) -> None:
        """Show how a student did."""
        self._live.stop()
        told = [
            "judged before" if kept else "",
            f"{span(standing.late)} late" if standing.late else "",
            suspicion(standing),
            damage(standing.damaged),
            in_a_row(standing),
        ]
        passed = f"{standing.passed:>3}/{len(standing.cases)}"
        row = Text(printable(f"{self._done}  {standing.user:<20} {passed} {standing.time:>9.2f} s"))
        _print_row(self._console, self._width, row, printable("; ".join(filter(None, told))))
        if self._left:
            self._now("…")

    def failed(self, user: str, words: str) -> None:
        """Tell on stderr of a student who could not be judged."""
        self.says(f"{user}: {words}")

    def says(self, words: str) -> None:
        """Tell on stderr what there is to be said."""
        self._open()
        self._live.stop()
        print_message(words)

    def _open(self) -> None:
        words, self.opening = self.opening, None
        if words:
            self.says(words)


def _print_row(console: Console, width: int | None, row: Text, reason: str) -> None:
    """Print a row with a reason behind it, or, on a terminal that is too narrow for that, below."""
    if not reason:
        console.print(row, soft_wrap=True)
    elif width is None or row.cell_len + 2 + cell_len(reason) <= width:
        console.print(row.append("  " + reason), soft_wrap=True)
    else:
        console.print(row, soft_wrap=True)
        console.print(Text(wrapped(reason, width, " " * INDENT)), soft_wrap=True)


class _Turn(Listener):
    def __init__(self, show: Callable[[Case], None]) -> None:
        self._show = show

    def running(self, case: Case, run: int, runs: int) -> None:
        self._show(case)


def print_summary(standing: Standing) -> None:
    """Print what a standing comes to: the cases accepted, score, Time and Penalty, and what is not known."""
    faults = sum(result.verdict is Verdict.JE for result in standing.results.values())
    total = standing.time + standing.penalty
    lines = [
        f"{standing.passed} of {counted(len(standing.cases), 'case')} AC, {_score(standing)}",
        f"Time {standing.time:.2f} s + Penalty {standing.penalty:.2f} s = {total:.2f} s",
    ]
    if faults:
        lines.append(f"{counted(faults, 'case')} not counted: the judge failed there")
    if lacking := results.missing(standing):
        worth = "lost, perhaps: the journal is damaged" if standing.lost else "counted as not accepted"
        lines.append(f"{counted(len(lacking), 'case')} not judged yet, {worth}: {' '.join(lacking)}")
    if suspicious := suspicion(standing):
        lines.append(suspicious)
    if standing.damaged:
        lines.append(damage(standing.damaged))
    click.echo()
    for line in lines:
        click.echo(wrapped(printable(line), columns(sys.stdout)))


def _score(standing: Standing) -> str:
    """The score in words: of how many points, and what cases that nobody asked for leave open."""
    if standing.score is None:
        return "score not known"
    part = results.of_the_suite(standing.cases)
    return (
        f"score at most {standing.score} of {POINTS}: {part} judged" if part else f"score {standing.score} of {POINTS}"
    )
