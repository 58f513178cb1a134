"""The drawings of a board, as SVG inside its page: every time of every case, a user's times against the best, and a
user's verdicts as a strip. Their colours are the style's; sizes that have to stay (dots, letters) do not scale."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log

from hw4cli.judge.scoring.figures import LEAST_SECONDS, Board, CaseFigures
from hw4cli.judge.scoring.record import Result, Standing
from hw4cli.problem.verdict import Verdict
from hw4cli.text.page import escaped

CLASS = {Verdict.AC: "ac", Verdict.TLE: "tle", Verdict.TLE_PLUS: "plus", Verdict.NA: "na", Verdict.JE: "je"}
COLUMN, HEIGHT = 100, 1000  # of a case in the chart of all times, in its own units
FEW = 30  # users, whose dots can be larger
JITTER = 0.7  # the part of a column that dots spread over, from the first rank to the last
BAR, GAP, TALL = 5, 3, 14  # of a strip: a case's width, what is added between parts of the suite, its height
HEIGHTS = {"ac": 14, "tle": 10, "plus": 8, "na": 5, "je": 5, "none": 1}  # so that colours are not the only sign
STEPS = (1, 2, 5)
LARGEST = 1e12  # a larger value counts as this


class LogAxis:
    """A logarithmic axis from one round value to another (1, 2 or 5 times a power of ten) that has these between."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = (min(LARGEST, max(value, LEAST_SECONDS)) for value in (min(values), max(values)))
        rounds = [step * 10.0**power for power in range(-4, 13) for step in STEPS]
        self.low = max(value for value in rounds if value <= low * 1.001)
        self.high = min(value for value in rounds if value >= high * 0.999 and value > self.low)
        self.ticks = [value for value in rounds if self.low <= value <= self.high]
        if len(self.ticks) > 8:
            self.ticks = [value for value in self.ticks if f"{value:e}"[0] == "1"]

    def __call__(self, value: float) -> float:
        """Where a value lies: 0 at the lower end, 1 at the upper one; what lies outside, at the end."""
        return min(1.0, max(0.0, log(max(value, LEAST_SECONDS) / self.low) / log(self.high / self.low)))


def times_chart(board: Board) -> str:
    """Every accepted time as a dot, the late ones in another colour: cases across, seconds upwards, and in each case
    the first rank on the left. Empty if there is no time at all."""
    limits = [case.limit for case in board.cases if case.limit]
    walls = [wall for one in board.standings for _, wall, _ in _times(one)]
    if not walls:
        return ""
    axis, width = LogAxis(walls + limits), COLUMN * len(board.cases)
    dots = "".join(_dots(board, place, axis) for place in reversed(range(len(board.standings))))
    lines = {
        "grid": "".join(f"M0 {_y(axis, tick)}h{width}" for tick in axis.ticks),
        "part": "".join(f"M{COLUMN * at} 0v{HEIGHT}" for at, case in enumerate(board.cases) if case.begins),
        "limit": _limits(board, axis),
    }
    medians = _medians(board, axis) if len(board.standings) > 1 else ""
    few = " few" if len(board.standings) <= FEW else ""
    about = "".join(
        f'<rect x="{COLUMN * at}" width="{COLUMN}" height="{HEIGHT}"><title>{_about(case, board)}</title></rect>'
        for at, case in enumerate(board.cases)
    )
    return (
        '<div class="plot"><svg class="ys" aria-hidden="true">'
        + "".join(f'<text x="100%" y="{100 - 100 * axis(tick):.2f}%">{tick:g} s</text>' for tick in axis.ticks)
        + f'</svg><svg class="times" viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none" role="img" '
        'aria-label="Times of each case; the rows at the bottom of the table have the best and the median">'
        + "".join(f'<path class="{name}" d="{path}"/>' for name, path in lines.items() if path)
        + f'<g class="dots{few}">{dots}</g><path class="median" d="{medians}"/><g class="about">{about}</g></svg>'
        + f'<svg class="xs" aria-hidden="true">{_case_labels(board.cases)}</svg></div>'
    )


def _times(one: Standing) -> Iterator[tuple[int, float, bool]]:
    """The places of the cases that ended, their seconds, and whether that was too late."""
    for at, case in enumerate(one.cases):
        result = one.results.get(case)
        if result and result.wall is not None and result.verdict in (Verdict.AC, Verdict.TLE):
            yield at, result.wall, result.verdict is Verdict.TLE


def _dots(board: Board, place: int, axis: LogAxis) -> str:
    """A user's dots: lines of no length, with round ends."""
    aside = COLUMN * (0.5 + JITTER * (place / max(1, len(board.standings) - 1) - 0.5))
    if len(board.standings) == 1:
        aside = COLUMN / 2
    paths = {"": "", ' class="late"': ""}
    for at, wall, late in _times(board.standings[place]):
        paths[' class="late"' if late else ""] += f"M{COLUMN * at + aside:.0f} {_y(axis, wall)}h.1"
    drawn = "".join(f'<path{mark} d="{path}"/>' for mark, path in paths.items() if path)
    return f'<g id="{board.ids[place]}-dots">{drawn}</g>' if drawn else ""


def _limits(board: Board, axis: LogAxis) -> str:
    """A level line at each limit, as far as it is the same."""
    lines, at = "", 0
    for limit, cases in groupby(board.cases, key=lambda case: case.limit):
        count = len(list(cases))
        lines += f"M{COLUMN * at} {_y(axis, limit)}h{COLUMN * count}" if limit else ""
        at += count
    return lines


def _medians(board: Board, axis: LogAxis) -> str:
    """A short line in each case's column."""
    places = ((COLUMN * (at + 0.1), case.median) for at, case in enumerate(board.cases))
    return "".join(f"M{x:g} {_y(axis, value)}h{COLUMN * 0.8:g}" for x, value in places if value)


def _y(axis: LogAxis, value: float) -> str:
    return f"{HEIGHT * (1 - axis(value)):.0f}"


def _case_labels(cases: Sequence[CaseFigures]) -> str:
    many = [""] if len(cases) <= 10 else ["", *[' class="more"'] * 9]  # where there is little room, each tenth is shown
    return "".join(
        f'<text{many[at % len(many)]} x="{100 * (at + 0.5) / len(cases):.2f}%" y="1em">{escaped(case.name)}</text>'
        for at, case in enumerate(cases)
    )


def _about(case: CaseFigures, board: Board) -> str:
    parts = [f"{case.name}: solved by {case.solved} of {len(board.standings)}"]
    if case.best is not None and case.median is not None:
        parts.append(f"best {case.best:.3f} s, median {case.median:.3f} s")
    if case.limit:
        parts.append(f"limit {case.limit:g} s")
    return escaped("\n".join(parts))


def strip(one: Standing, cases: Sequence[CaseFigures]) -> str:
    """A bar for each case, in its verdict's colour and height."""
    lines: dict[str, str] = {}
    for x, case in zip(_across(cases), cases, strict=True):
        name = style(one.results.get(case.name))
        lines[name] = lines.get(name, "") + f"M{x} {TALL}V{TALL - HEIGHTS[name]}"
    paths = "".join(f'<path class="{name}" d="{path}"/>' for name, path in lines.items())
    return (
        f'<svg class="strip" viewBox="0 0 {_width(cases)} {TALL}" preserveAspectRatio="none" aria-hidden="true">'
        f"{paths}</svg>"
    )


def style(result: Result | None) -> str:
    """The style's name of a result."""
    return CLASS[result.verdict] if result else "none"


def against_best(one: Standing, board: Board) -> str:
    """A user's times as multiples of the best ones: a line for each case, the longer the slower."""
    ratios = board.ratios(one)
    if not ratios:
        return ""
    axis, cases = LogAxis([1.0, *ratios.values(), 2.0]), board.cases
    lines = {"ac": "", "tle": ""}
    for x, case in zip(_across(cases), cases, strict=True):
        if case.name in ratios:
            lines[style(one.results[case.name])] += f"M{x} 102V{98 - 98 * axis(ratios[case.name]):.0f}"
    ticks = axis.ticks[:: max(1, len(axis.ticks) // 3)]
    labels = "".join(f'<text x="100%" y="{100 - 100 * axis(tick):.0f}%">×{tick:g}</text>' for tick in ticks)
    grid = "".join(f"M0 {100 - 100 * axis(tick):.0f}h{_width(cases)}" for tick in ticks)
    paths = "".join(f'<path class="{name}" d="{path}"/>' for name, path in lines.items() if path)
    return (
        f'<div class="plot small" aria-hidden="true"><svg class="ys">{labels}</svg>'
        f'<svg class="bars" viewBox="0 0 {_width(cases)} 102" preserveAspectRatio="none">'
        f'<path class="grid" d="{grid}"/>{paths}</svg>'
        f'{strip(one, cases)}<svg class="xs">{_part_labels(cases)}</svg></div>'
    )


def _part_labels(cases: Sequence[CaseFigures]) -> str:
    """The first case of each part of the suite."""
    return "".join(
        f'<text x="{100 * (x - BAR // 2) / _width(cases):.0f}%" y="1em">{escaped(case.name)}</text>'
        for at, (x, case) in enumerate(zip(_across(cases), cases, strict=True))
        if case.begins or not at
    )


def _across(cases: Sequence[CaseFigures]) -> list[int]:
    """Where the bars of cases stand."""
    places, x = [], BAR // 2
    for case in cases:
        x += GAP * case.begins
        places.append(x)
        x += BAR
    return places


def _width(cases: Sequence[CaseFigures]) -> int:
    return max(1, BAR * len(cases) - 1 + GAP * sum(case.begins for case in cases))
