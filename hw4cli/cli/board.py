"""A ranking in the terminal: a line a user, a sign a case."""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hw4cli.record import Rules, Standing
from hw4cli.results import of_the_suite
from hw4cli.verdict import POINTS
from hw4cli.words import printable

SIGNS = {
    "AC": (".", "green"),
    "TLE": ("T", "yellow"),
    "TLE+": ("+", "red"),
    "NA": ("N", "red"),
    "JE": ("J", "magenta"),
    "not run": ("-", "dim"),
}
LONGEST_USER = 40  # characters of a name that are shown where there is room


def print_board(standings: Sequence[Standing], rules: Rules) -> None:
    """Print the ranking, and below it the signs' meaning and what is to be said of single users."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=10_000)  # a pipe cuts nothing off
    console.print(_table(standings, console))
    _print_below(console, standings, rules)


def _table(standings: Sequence[Standing], console: Console) -> Table:

    cases = standings[0].cases
    users = [_shown(one.user) for one in standings]
    header = ("Rank", "Passed", "Time", "Penalty", "Score")
    numbers = [_numbers(one) for one in standings]
    tens = "".join(case[:9].ljust(10) for case in cases[::10]).rstrip()  # stands above every tenth sign
    taken = sum(max(map(len, column)) + 1 for column in zip(header, *numbers, strict=True))
    room = console.width - taken - max(len(cases), len(tens)) - 1
    widest = max(user.cell_len for user in users)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("User", width=max(8, min(widest, LONGEST_USER, room)), no_wrap=True, overflow="ellipsis")
    for name in header:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(_shown(tens), no_wrap=True)
    for user, row, one in zip(users, numbers, standings, strict=True):
        table.add_row(user, *row, _strip(one))
    return table


def _numbers(one: Standing) -> list[str]:
    score = "-" if one.score is None else str(one.score)
    return [str(one.rank or "-"), str(one.passed), f"{one.time:.2f}", f"{one.penalty:g}", score]


def _strip(one: Standing) -> Text:
    """A sign for each case."""
    words = [str(one.results[case].verdict) if case in one.results else "not run" for case in one.cases]
    runs = [(SIGNS[word], len(list(run))) for word, run in groupby(words)]
    return Text.assemble(*((sign * count, style) for (sign, style), count in runs))


def _print_below(console: Console, standings: Sequence[Standing], rules: Rules) -> None:
    """The legend, the rules, and what is to be said of single users."""
    legend = Text("\n")
    for word, (sign, style) in SIGNS.items():
        legend.append(sign, style).append(f" {word}   ")
    by = {"time": "Time + Penalty", "passed": "Passed, then Time"}[rules.rank_by]
    console.print(legend.append(f"ranked by {by}"), soft_wrap=True)
    if part := of_the_suite(standings[0].cases):
        console.print(f"Score: of {POINTS}, at most; {part} judged", soft_wrap=True)
    for one in standings:
        close = [case for case, result in one.results.items() if result.borderline]
        first = one.note.strip().partition("\n")[0]
        for note in filter(None, (first, close and f"borderline in {' '.join(close)}")):
            console.print(_shown(f"{one.user}: {note}"), soft_wrap=True)


def _shown(text: str) -> Text:
    """Text that cannot steer the terminal: names and notes are anybody's."""
    return Text(printable(text))
