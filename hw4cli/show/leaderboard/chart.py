"""The drawings of a leaderboard's page: times over the date of submission, and a time as a bar."""

from collections.abc import Sequence
from dataclasses import dataclass

from hw4cli.judge.scoring.boardcharts import LogAxis
from hw4cli.lab.times import Times
from hw4cli.show.leaderboard.entries import Entry

WIDTH, HEIGHT = 1000, 1000  # of a chart, in its own units
MARGIN = 25  # to the left of the first dot, and to the right of the last
MOST_TICKS = 4


@dataclass(frozen=True)
class Axes:
    """Dates to the right, times upwards, on a logarithmic axis."""

    entries: Sequence[Entry]
    times: LogAxis

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Axes":
        """The axes that have all of some entries, which are in the order of their dates."""
        every = [entry.times for entry in entries]
        ends = [max(one.interval[0], one.mean / 2) for one in every] + [one.interval[1] for one in every]
        return cls(entries, LogAxis(ends))

    @property
    def seconds(self) -> float:
        """From the first date to the last."""
        return (self.entries[-1].date - self.entries[0].date).total_seconds()

    def x(self, entry: Entry) -> int:
        """The place of an entry's date."""
        share = (entry.date - self.entries[0].date).total_seconds() / self.seconds if self.seconds else 0.5
        return round(MARGIN + (WIDTH - 2 * MARGIN) * share)

    def y(self, ms: float) -> int:
        """The place of a time."""
        return round(HEIGHT * (1 - self.times(ms)))


def progress(entries: Sequence[Entry], label: str) -> str:
    """Each entry as a dot with its interval, at its date, and a line for the fastest so far."""
    axes = Axes.of(entries)
    figures = [(axes.x(entry), entry.times) for entry in entries]
    paths = {
        "grid": "".join(f"M0 {axes.y(tick)}h{WIDTH}" for tick in axes.times.ticks),
        "best": _fastest_so_far(axes),
        "spread": "".join(f"M{x} {axes.y(one.interval[0])}V{axes.y(one.interval[1])}" for x, one in figures),
        "dots": "".join(f"M{x} {axes.y(one.mean)}h.1" for x, one in figures),
    }
    ticks = "".join(
        f'<text x="100%" y="{100 - 100 * axes.times(tick):.1f}%">{tick:g} ms</text>'
        for tick in axes.times.ticks[:: -(-len(axes.times.ticks) // MOST_TICKS)]
    )
    first, last = entries[0].date, entries[-1].date
    form = "%Y-%m-%d" if first.date() != last.date() else "%Y-%m-%d %H:%M"
    dates = f'<text y="1em">{first:{form}}</text>'
    if axes.seconds:
        dates += f'<text class="end" x="100%" y="1em">{last:{form}}</text>'
    drawn = "".join(f'<path class="{name}" d="{path}"/>' for name, path in paths.items())
    return (
        f'<figure><div class="plot"><svg class="ys" aria-hidden="true">{ticks}</svg>'
        f'<svg class="times" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'{drawn}</svg><svg class="xs" aria-hidden="true">{dates}</svg></div></figure>'
    )


def _fastest_so_far(axes: Axes) -> str:
    """A line that goes down where an entry is faster than all before it."""
    best = axes.entries[0]
    path = f"M{axes.x(best)} {axes.y(best.times.mean)}"
    for entry in axes.entries[1:]:
        path += f"H{axes.x(entry)}"
        if entry.times.mean < best.times.mean:
            best = entry
            path += f"V{axes.y(best.times.mean)}"
    return path


def bar(mean: float, longest: float, times: Times | None = None) -> str:
    """A time as a bar, with a line from its fastest sample to its slowest."""
    width = 100 * mean / longest
    spread = ""
    if times:
        low, high = (100 * end / longest for end in (times.fastest, times.slowest))
        spread = f'<path d="M{low:.2f} 5H{high:.2f}"/>'
    return (
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{width:.2f}" height="10"/>{spread}</svg>'
    )
