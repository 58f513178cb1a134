"""A ranking in the terminal: a line a user, a sign a case."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from hw4cli.errors import MachineError
from hw4cli.problem.verdict import POINTS
from hw4cli.scoring.reasons import damage, suspicion
from hw4cli.scoring.record import Rules, Standing
from hw4cli.scoring.results import of_the_suite
from hw4cli.terminal.console import stdout_console
from hw4cli.text.dates import span
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
PIPE_WIDTH = 10_000  # a pipe cuts nothing off
LEAST_USER, LONGEST_USER = 8, 40  # characters of a name that are shown, the most where there is room


def print_board(standings: Sequence[Standing], rules: Rules) -> None:
    """Print the ranking, and below it the signs' meaning and what is to be said of single users."""
    console, width = stdout_console()
    for line in _rows(standings, width or PIPE_WIDTH):
        console.print(line, soft_wrap=True)
    _print_below(console, width, standings, rules)


def tell_lost(standings: Sequence[Standing]) -> int:
    """Tell on stderr whose results may be lost with a damaged journal; the exit status that goes with it, 0 or 3."""
    lost = [one.user for one in standings if one.lost]
    if not lost:
        return 0
    names = ", ".join(lost[:NAMES_SHOWN]) + (", …" if len(lost) > NAMES_SHOWN else "")
    print_message(f"{len(lost)} of {counted(len(standings), 'journal')} damaged, judge with --resume: {names}")
    return MachineError.exit_code


def _rows(standings: Sequence[Standing], width: int) -> Iterator[Text]:
    """The table's lines: a user, numbers, signs; the signs on a line of their own where they would not fit."""
    cases = standings[0].cases
    users = [_shown(one.user) for one in standings]
    table = [HEADER, *map(_numbers, standings)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    tens = "".join(case[:9].ljust(10) for case in cases[::10]).rstrip()  # stands above every tenth sign
    room = width - sum(widths) - len(widths)
    beside = room - 1 - max(len(cases), len(tens))
    longest = min(LONGEST_USER, max(user.cell_len for user in users))
    name = max(LEAST_USER, min(longest, room if beside < LEAST_USER else beside))
    signs = [_shown(tens), *map(_strip, standings)]
    for user, numbers, strip, style in zip(
        [Text("User"), *users], table, signs, ["bold", *[""] * len(users)], strict=True
    ):
        user.truncate(name, overflow="ellipsis", pad=True)
        line = Text(" ").join([user, *(Text(one.rjust(size)) for one, size in zip(numbers, widths, strict=True))])
        if beside < LEAST_USER:
            yield Text.assemble(line, style=style)
            yield Text.assemble("  ", strip, style=style)
        else:
            yield Text.assemble(line, " ", strip, style=style)


def _numbers(one: Standing) -> list[str]:
    score = "-" if one.score is None else str(one.score)
    return [str(one.rank or "-"), str(one.passed), f"{one.time:.2f}", f"{one.penalty:g}", score]


def _strip(one: Standing) -> Text:
    """A sign for each case."""
    words = [str(one.results[case].verdict) if case in one.results else "not run" for case in one.cases]
    runs = [(SIGNS[word], len(list(run))) for word, run in groupby(words)]
    return Text.assemble(*((sign * count, style) for (sign, style), count in runs))


def _print_below(console: Console, width: int | None, standings: Sequence[Standing], rules: Rules) -> None:
    """The legend, the rules, and what is to be said of single users."""
    legend = Text("\n")
    for word, (sign, style) in SIGNS.items():
        legend.append(sign, style).append(f" {word}   ")
    by = {"time": "Time + Penalty", "passed": "Passed, then Time"}[rules.rank_by]
    console.print(legend.append(f"ranked by {by}"), soft_wrap=width is None)
    if part := of_the_suite(standings[0].cases):
        console.print(wrapped(f"Score: of {POINTS}, at most; {part} judged", width))
    for one in standings:
        close = [case for case, result in one.results.items() if result.borderline]
        first = one.note.strip().partition("\n")[0]
        damaged = "" if first else damage(one.damaged)
        late = one.late and f"handed in {span(one.late)} late"
        for note in filter(None, (first, late, damaged, suspicion(one), close and f"borderline in {' '.join(close)}")):
            told = wrapped(printable(f"{one.user}: {note}"), width, "  ", first="")
            console.print(Text(told), soft_wrap=True)


def _shown(text: str) -> Text:
    """Text that cannot steer the terminal: names and notes are anybody's."""
    return Text(printable(text))
