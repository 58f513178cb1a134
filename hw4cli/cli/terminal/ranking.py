"""The ranking on a terminal: a line for each user, a sign for each case."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from hw4cli.cli.terminal.console import stdout_console
from hw4cli.errors import MachineError
from hw4cli.judge.scoring.reasons import damage, score_text, suspicion, upper_bounds
from hw4cli.judge.scoring.record import Rules, Standing
from hw4cli.text.dates import duration
from hw4cli.text.words import counted, print_message, printable, wrapped

SIGNS = {
    "AC": (".", "green"),
    "TLE": ("T", "yellow"),
    "TLE+": ("+", "red"),
    "NA": ("N", "red"),
    "JE": ("J", "magenta"),
    "not run": ("-", "dim"),
}
HEADER = ["Rank", "Passed", "Time", "Penalty", "Score"]
NAMES_SHOWN = 10
PIPE_WIDTH = 10_000  # lines in a pipe are not shortened
LEAST_USER, LONGEST_USER = 8, 40  # characters of a name, on a narrow and on a wide terminal


def print_board(standings: Sequence[Standing], rules: Rules) -> None:
    """Print the ranking, and below it the legend, the rules, and notes on users."""
    console, width = stdout_console()
    for line in _rows(standings, width or PIPE_WIDTH):
        console.print(line, soft_wrap=True)
    _print_below(console, width, standings, rules)


def report_lost(standings: Sequence[Standing]) -> int:
    """Name on stderr the users who may have lost results in a damaged journal; the exit status, 0 without any or 3."""
    lost = [standing.user for standing in standings if standing.lost]
    if not lost:
        return 0
    names = ", ".join(lost[:NAMES_SHOWN]) + (", …" if len(lost) > NAMES_SHOWN else "")
    print_message(f"{len(lost)} of {counted(len(standings), 'journal')} damaged, judge with --resume: {names}")
    return MachineError.exit_code


def _rows(standings: Sequence[Standing], width: int) -> Iterator[Text]:
    """The table's lines with user, numbers and signs; the signs on a second line where the terminal is narrow."""
    cases = standings[0].cases
    users = [_printable_text(standing.user) for standing in standings]
    table = [HEADER, *map(_numbers, standings)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    tens = "".join(case[:9].ljust(10) for case in cases[::10]).rstrip()  # a name above every tenth sign
    free_width = width - sum(widths) - len(widths)
    signs_width = free_width - 1 - max(len(cases), len(tens))
    longest = min(LONGEST_USER, max(user.cell_len for user in users))
    name = max(LEAST_USER, min(longest, free_width if signs_width < LEAST_USER else signs_width))
    signs = [_printable_text(tens), *map(_case_signs, standings)]
    for user, numbers, case_signs, style in zip(
        [Text("User"), *users], table, signs, ["bold", *[""] * len(users)], strict=True
    ):
        user.truncate(name, overflow="ellipsis", pad=True)
        line = Text(" ").join([user, *(Text(number.rjust(size)) for number, size in zip(numbers, widths, strict=True))])
        if signs_width < LEAST_USER:
            yield Text.assemble(line, style=style)
            yield Text.assemble("  ", case_signs, style=style)
        else:
            yield Text.assemble(line, " ", case_signs, style=style)


def _numbers(standing: Standing) -> list[str]:
    score = score_text(standing)
    return [str(standing.rank or "-"), str(standing.passed), f"{standing.time:.2f}", f"{standing.penalty:g}", score]


def _case_signs(standing: Standing) -> Text:
    """A sign for each case."""
    words = [str(standing.results[case].verdict) if case in standing.results else "not run" for case in standing.cases]
    runs = [(SIGNS[word], len(list(run))) for word, run in groupby(words)]
    return Text.assemble(*((sign * count, style) for (sign, style), count in runs))


def _print_below(console: Console, width: int | None, standings: Sequence[Standing], rules: Rules) -> None:
    """Print the legend, the rules, and notes on users."""
    legend = Text("\n")
    for word, (sign, style) in SIGNS.items():
        legend.append(sign, style).append(f" {word}   ")
    by = {"time": "Time + Penalty", "passed": "Passed, then Time"}[rules.rank_by]
    by += f"; times in steps of {rules.step:g} s" if rules.step else ""
    console.print(legend.append(f"ranked by {by}"), soft_wrap=width is None)
    for sentence in upper_bounds(standings):
        console.print(wrapped(sentence, width))
    for standing in standings:
        close = [case for case, result in standing.results.items() if result.borderline]
        first = standing.note.strip().partition("\n")[0]
        damaged = "" if first else damage(standing.damaged)
        late = standing.late and f"handed in {duration(standing.late)} late"
        borderline = close and f"borderline in {' '.join(close)}"
        for note in filter(None, (first, late, damaged, suspicion(standing), borderline)):
            text = wrapped(printable(f"{standing.user}: {note}"), width, "  ", first="")
            console.print(Text(text), soft_wrap=True)


def _printable_text(text: str) -> Text:
    """Text without control characters, which names and notes may contain."""
    return Text(printable(text))
