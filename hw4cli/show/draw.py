"""The pen: a picture as an SVG, PNG or PDF file, by matplotlib. The same picture makes the same bytes."""

import io
import logging
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from hw4cli.errors import MachineError
from hw4cli.show import style
from hw4cli.show.forms import DRAW, FONT, marker
from hw4cli.show.picture import Panel, Picture

FORMATS = ("svg", "png", "pdf")
LOOK = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": FONT,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.hashsalt": "hw4",
    "svg.fonttype": "none",  # text stays text, to be found and read out
    "pdf.fonttype": 42,
    "axes.edgecolor": style.LINE,
    "axes.labelcolor": style.SOFT,
    "axes.titlesize": FONT + 1,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": style.LINE,
    "grid.linewidth": 0.6,
    "text.color": style.INK,
    "xtick.color": style.SOFT,
    "ytick.color": style.SOFT,
    "xtick.labelcolor": style.INK,
    "ytick.labelcolor": style.INK,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "legend.frameon": False,
}
ROW, TOP, HEAD, FOOT, GAP = 0.19, 0.42, 0.42, 0.52, 0.17  # inches: a row, the title, above and below axes, a line
EDGE, COLUMN = 0.15, 4.6


def render(picture: Picture, form: str) -> bytes:
    """The picture as a file of one of FORMATS. MachineError if matplotlib is not there, or does not load."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of where it keeps its cache of fonts
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise MachineError("pictures need matplotlib, which is not installed (pip install matplotlib)") from None
    except (ImportError, OSError, RuntimeError, ValueError) as error:  # a broken installation, or its settings
        raise MachineError(f"pictures need matplotlib, which does not load: {error}") from None
    columns = min(2, len(picture.panels))
    lines = [*picture.notes, *picture.facts]
    with (
        warnings.catch_warnings(action="ignore"),
        matplotlib.rc_context({**matplotlib.rcParamsDefault, **LOOK, "backend": "agg"}),
    ):
        width = COLUMN * columns + 1.4 * (columns == 1)
        grid = [picture.panels[i : i + columns] for i in range(0, len(picture.panels), columns)]
        heights = [max(_height(panel) for panel in row) for row in grid]
        names = dict.fromkeys(one.name for panel in picture.panels for one in panel.series)
        shades = style.colours(names)
        colours = {name: light for name, (light, _) in shades.items()}
        needs_legend = len(names) > 1 and any(panel.form in ("dots", "stack", "scatter") for panel in picture.panels)
        across = _legend_columns(list(names), width) if needs_legend else 0
        legend = GAP * -(-len(names) // across) if across else 0
        height = TOP + legend + sum(heights) + GAP * (len(lines) + 1)
        figure = Figure(figsize=(width, height), facecolor=style.PAPER)
        figure.text(EDGE / width, 1 - 0.28 / height, picture.title, fontsize=FONT + 4, weight="bold")
        if across:
            _legend(figure, list(names), colours, (EDGE / width, 1 - 0.4 / height), across)
        bottom = height - TOP - legend
        for row, tall in zip(grid, heights, strict=True):
            bottom -= tall
            for place, panel in enumerate(row):
                left = max((len(style.cut(name)) for name in panel.rows), default=7) * 0.068 + 0.15 + EDGE
                size = width / columns - left - _right(panel), tall - HEAD - FOOT
                corner = (place * width / columns + left) / width, (bottom + FOOT) / height
                box = *corner, size[0] / width, size[1] / height
                axes = figure.add_axes(box, label=f"{panel.title} {bottom}")
                DRAW[panel.form](axes, panel, colours)
                inset = (left - EDGE) / size[0] if place == 0 or panel.rows else 0.5 / size[0]
                axes.set_title(panel.title, pad=16 if panel.rules and panel.rows else 8, x=-inset)
        for place, line in enumerate(reversed(lines)):
            figure.text(EDGE / width, (0.12 + GAP * place) / height, line, fontsize=FONT - 2, color=style.SOFT)
        return _saved(figure, picture, form, [*style.NEUTRAL.values(), *shades.values(), *(c for c, _ in style.heat())])


def _saved(figure: Any, picture: Picture, form: str, colours: Iterable[tuple[str, str]]) -> bytes:
    """The file, without a date, and with the picture's fingerprint in it. `colours` has the dark one of each."""
    words, mark = "\n".join((picture.title, *picture.facts)), f"hw4:{picture.digest()}"
    metadata = {
        "svg": {"Date": None, "Title": picture.title, "Description": words, "Identifier": mark},
        "pdf": {"CreationDate": None, "ModDate": None, "Title": picture.title, "Subject": words, "Keywords": mark},
        "png": {"Title": picture.title, "Description": words, "Comment": mark},
    }
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=200, metadata=metadata[form])
    if form == "svg":
        text = out.getvalue().decode().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
        return _for_readers(text, picture.title, words, colours).encode()
    return out.getvalue()


def _for_readers(svg: str, title: str, words: str, colours: Iterable[tuple[str, str]]) -> str:
    """An SVG with a name that is read out, and with other colours where the reader's system is dark. Programs that know
    no style sheets show the light ones, which stay in the elements."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in dict(colours).items()
        for kind in ("fill", "stroke")
        if f"{kind}: {light}" in svg
    )
    begin = svg.index(">", svg.index("<svg")) + 1
    named = f"\n <title>{escape(title)}</title>\n <desc>{escape(words)}</desc>"
    dark = f"\n <style>@media screen and (prefers-color-scheme: dark) {{ {rules} }}</style>"
    return f'{svg[: begin - 1]} role="img">{named}{dark}{svg[begin:]}'


def _height(panel: Panel) -> float:
    rows = {
        "dots": len(panel.rows) * ROW,
        "stack": len(panel.rows) * 1.2 * ROW,
        "bars": len(panel.rows) * 1.4 * ROW,
    }.get(panel.form, 2.6)
    return max(rows, 4 * ROW) + HEAD + FOOT


def _right(panel: Panel) -> float:
    """Inches to the right of the axes, for the names or figures that stand there."""
    if panel.form == "lines":
        names = *(one.name for one in panel.series), *(rule.label for rule in panel.rules)
        return 0.25 + 0.075 * max(len(style.cut(name)) for name in names)
    return {"bars": 1.3, "cells": 0.35}.get(panel.form, 0.3)


def _legend_columns(names: Sequence[str], width: float) -> int:
    """Into how many columns the legend goes, so that it fits the width: one line, if it can."""
    inches = [0.075 * len(style.cut(name)) + 0.3 for name in names]
    return len(names) if sum(inches) < width - EDGE else max(1, int((width - EDGE) / max(inches)))


def _legend(
    figure: Any, names: Sequence[str], colours: dict[str, str], corner: tuple[float, float], columns: int
) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colours[n], marker=marker(names, n), markersize=5, linewidth=0, label=style.cut(n))
        for n in names
    ]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=corner,
        ncols=columns,
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.2,
        columnspacing=1.2,
        handlelength=1,
    )
