"""The forms of a picture's panels, each drawn on matplotlib's axes."""

from collections.abc import Sequence
from math import log10
from typing import Any

from hw4cli.show import style
from hw4cli.show.picture import Panel, Rule, Series

FONT = 8.5  # points
MOST_TICKS = 6  # of N


def marker(names: Sequence[str], name: str) -> str:
    """The shape of a name's dots, by its place among the names."""
    return style.MARKERS[list(names).index(name) % len(style.MARKERS)]


def _lines(axes: Any, panel: Panel, colours: dict[str, str]) -> None:
    """Curves over N, each with its name at its end."""
    _scales(axes, panel, values="y")
    axes.set_xscale("log", base=2)
    places = sorted({float(mark.at) for one in panel.series for mark in one.marks})
    every = -(-len(places) // MOST_TICKS)
    axes.set_xticks(places[::-every], [f"{place:,.0f}" for place in places[::-every]])
    axes.minorticks_off()
    axes.set_xlabel(panel.at_label)
    ends = []
    for one in panel.series:
        x, y = [float(mark.at) for mark in one.marks], [mark.value for mark in one.marks]
        dash = (0, (4, 2)) if style.is_peer(one.name) else "solid"
        axes.plot(x, y, color=colours[one.name], linewidth=1.6, linestyle=dash, marker="o", markersize=3.5)
        axes.vlines(x, *_ends(one), color=colours[one.name], linewidth=1)
        ends.append((y[-1], x[-1], one.name))
    for rule in panel.rules:
        axes.axhline(rule.value, color=style.SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
        ends.append((rule.value, places[-1], rule.label))
    _apart(axes, ends, colours)


def _apart(axes: Any, ends: Sequence[tuple[float, float, str]], colours: dict[str, str]) -> None:
    """Names beside the ends of curves, moved up where one would stand on another."""
    axes.figure.draw_without_rendering()
    below = float("-inf")
    for value, place, name in sorted(ends):
        y = axes.transData.transform((place, value))[1]
        pixels = max(y, below + FONT * 1.25 * axes.figure.dpi / 72)
        below = pixels
        up = (pixels - y) * 72 / axes.figure.dpi
        axes.annotate(
            style.cut(name),
            (place, value),
            (7, up),
            textcoords="offset points",
            va="center",
            color=colours.get(name, style.SOFT),
        )


def _dots(axes: Any, panel: Panel, colours: dict[str, str]) -> None:
    """A row for each case, a dot for each kernel or program, a tick for each limit."""
    _scales(axes, panel, values="x")
    at = {row: place for place, row in enumerate(panel.rows)}
    for row, place in at.items():
        values = [mark.value for one in panel.series for mark in one.marks if mark.at == row and not one.limit]
        axes.hlines(place, min(values), max(values), color=style.LINE, linewidth=2.2)
    for one in panel.series:
        x, y = [mark.value for mark in one.marks], [at[str(mark.at)] for mark in one.marks]
        colour = colours[one.name]
        if one.limit:
            axes.plot(x, y, color=colour, linewidth=0, marker="|", markersize=7, markeredgewidth=1.6)
        else:
            axes.hlines(y, *_ends(one), color=colour, linewidth=1.2)
            axes.plot(x, y, color=colour, linewidth=0, marker=marker(list(colours), one.name), markersize=4.5)
    _rows(axes, panel)


def _bars(axes: Any, panel: Panel, colours: dict[str, str]) -> None:
    """A bar for each row, with its figures at its end."""
    _scales(axes, panel, values="x")
    start = min(mark.value for one in panel.series for mark in one.marks) / 2 if panel.log else 0
    for place, one in enumerate(panel.series):
        (mark,) = one.marks
        axes.barh(place, mark.value - start, left=start, height=0.62, color=colours[one.name])
        axes.hlines(place, *_ends(one), color=style.INK, linewidth=1.2)
        axes.annotate(mark.text, (mark.value, place), (6, 0), textcoords="offset points", va="center", clip_on=False)
    axes.set_xlim(start)
    _rows(axes, panel)


def _stack(axes: Any, panel: Panel, colours: dict[str, str]) -> None:
    """A bar for each row, of each series' part behind the one before, with the sum at its end."""
    ends = dict.fromkeys(panel.rows, 0.0)
    at = {row: place for place, row in enumerate(panel.rows)}
    for one in panel.series:
        for mark in one.marks:
            row = str(mark.at)
            axes.barh(at[row], mark.value, left=ends[row], height=0.62, color=colours[one.name])
            ends[row] += mark.value
    axes.set_xlabel(panel.value_label)
    axes.set_xlim(0, 1.12 * max(ends.values()))
    for row, end in ends.items():
        axes.annotate(f"{end:.3g}", (end, at[row]), (4, 0), textcoords="offset points", va="center")
    _rows(axes, panel)


def _rows(axes: Any, panel: Panel) -> None:
    axes.set_yticks(range(len(panel.rows)), [style.cut(row) for row in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for rule in panel.rules:
        axes.axvline(rule.value, color=style.SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
        axes.annotate(
            rule.label,
            (rule.value, 1),
            (0, 2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            color=style.SOFT,
        )


def _cells(axes: Any, panel: Panel, colours: dict[str, str]) -> None:
    """A heat map of shares of the best, which is framed: a tile's rows downwards, its keys to the right."""
    from matplotlib.patches import Rectangle

    (one,) = panel.series
    sizes = {mark: [int(size) for size in str(mark.at).split("x")] for mark in one.marks}
    down, right = (sorted({size[side] for size in sizes.values()}) for side in (0, 1))
    shades, top = style.heat(), max(mark.value for mark in one.marks)
    for mark, (br, bc) in sizes.items():
        ((shade, _), (ink, _)), best = shades[style.heat_step(mark.value, top)], mark.value == top
        corner = right.index(bc) - 0.48, down.index(br) - 0.46
        edge = style.INK if best else "none"
        axes.add_patch(Rectangle(corner, 0.96, 0.92, facecolor=shade, edgecolor=edge, linewidth=1.4))
        weight = "bold" if best else "normal"
        axes.text(right.index(bc), down.index(br), mark.text, ha="center", va="center", color=ink, weight=weight)
    axes.set_xlim(-0.6, len(right) - 0.4)
    axes.set_ylim(len(down) - 0.4, -0.6)
    axes.set_xticks(range(len(right)), [str(size) for size in right])
    axes.set_yticks(range(len(down)), [str(size) for size in down])
    axes.set_xlabel(f"keys of a tile (BC); cells: {panel.value_label}, shaded by share of the best")
    axes.set_ylabel("rows of a tile (BR)")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _scatter(axes: Any, panel: Panel, colours: dict[str, str]) -> None:
    """Dots below roofs, both axes logarithmic."""
    _scales(axes, panel, values="y")
    axes.set_xscale("log", base=2)
    axes.set_xlabel(panel.at_label)
    places = [float(mark.at) for one in panel.series for mark in one.marks]
    left, right = min(places) / 2, max(places) * 2
    for rule in panel.rules:
        _roof(axes, rule, left, right)
    for one in panel.series:
        x, y = [float(mark.at) for mark in one.marks], [mark.value for mark in one.marks]
        axes.vlines(x, *_ends(one), color=colours[one.name], linewidth=1)
        axes.plot(x, y, color=colours[one.name], linewidth=0, marker=marker(list(colours), one.name), markersize=4.5)
    ticks = [2.0**power for power in range(0, 40) if left <= 2.0**power <= right]
    axes.set_xticks(ticks[:: max(1, len(ticks) // 8)], [f"{tick:,.0f}" for tick in ticks[:: max(1, len(ticks) // 8)]])
    axes.set_xlim(left, right)


def _roof(axes: Any, rule: Rule, left: float, right: float) -> None:
    x = [left, rule.value / rule.slope] if rule.slope else [left, right]
    y = [left * rule.slope, rule.value] if rule.slope else [rule.value, rule.value]
    axes.plot(x, y, color=style.SOFT, linewidth=1.1, linestyle="solid" if rule.slope else (0, (4, 2)))
    at = (x[1], y[1]) if rule.slope else (right, rule.value)
    axes.annotate(rule.label, at, (-2, 4), textcoords="offset points", ha="right", color=style.SOFT)


def _ends(series: Series) -> tuple[list[float], list[float]]:
    """The ends of the marks' intervals; the mark itself where it has none."""
    low = [mark.value if mark.low is None else mark.low for mark in series.marks]
    high = [mark.value if mark.high is None else mark.high for mark in series.marks]
    return low, high


def _scales(axes: Any, panel: Panel, values: str) -> None:
    """The axis of the values, with its label: logarithmic with plain numbers, or from zero."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    (axes.set_ylabel if values == "y" else axes.set_xlabel)(panel.value_label)
    axis = axes.yaxis if values == "y" else axes.xaxis
    if panel.log:
        (axes.set_yscale if values == "y" else axes.set_xscale)("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if _decades(panel) < 2 else (1.0,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
        axis.set_minor_formatter(NullFormatter())
    else:
        (axes.set_ylim if values == "y" else axes.set_xlim)(0, 1.06 * max(max(_ends(one)[1]) for one in panel.series))


def _plain(value: float) -> str:
    return f"{value:g}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-")


def _decades(panel: Panel) -> float:
    values = [mark.value for one in panel.series for mark in one.marks]
    return log10(max(values) / min(values))


DRAW = {"lines": _lines, "dots": _dots, "bars": _bars, "stack": _stack, "cells": _cells, "scatter": _scatter}
