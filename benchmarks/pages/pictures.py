"""The pictures in docs/pictures/, made from the records here by `make results`.

A picture holds a fingerprint of its data and of the code that draws it, by which a test knows that it is up to date:
matplotlib's own lines differ from version to version, and so are not compared.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import HERE, ROOT
from hw4cli.problem.workload import Shape
from hw4cli.show.draw import render
from hw4cli.show.kinds import KINDS
from hw4cli.show.picture import Picture
from hw4cli.show.records import load
from hw4cli.show.scaling import load_scaling
from hw4cli.show.traffic import load_profile

FOLDER = ROOT / "docs/pictures"
# The picture's name, its kind, the records, and the options of the kind.
PICTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ladder": ("ladder", "h200-ladder.json", {}),
    "occupancy": ("occupancy", "h200-ladder.json", {}),
    "speedup": ("speedup", "h200-split.json", {"base": "torch efficient"}),
    "rate": ("rate", "h200-thirty.json", {}),
    "tiles": ("tiles", "h200-tiles.json", {}),
    "error": ("error", "h200-thirty.json", {}),
    "programs": ("programs", "h100-end-to-end.json", {}),
    "roofline": ("roofline", "h200-split.json roofs/h200.json", {}),
    "traffic": ("traffic", "h200-ncu.csv", {"shape": Shape(16, 4096, 64)}),
    "scaling": ("scaling", "scaling/h200.json", {}),
    "energy": ("energy", "figures/h200-energy.json", {}),
    "accuracy": ("accuracy", "errors/h200-float32.json", {}),
    "sweep": ("latency", "figures/h200-sweep-d32.json", {}),
}


def picture(name: str) -> Picture:
    """One of PICTURES, as data."""
    kind, records, options = PICTURES[name]
    read: dict[str, Callable[[Path], Any]] = {"traffic": load_profile, "scaling": load_scaling}
    return KINDS[kind]([read.get(kind, load)(HERE / record) for record in records.split()], **options)


def outdated() -> list[str]:
    """The names of the pictures that are missing, or were made from other data or by other code."""

    def fresh(name: str) -> bool:
        path = FOLDER / f"{name}.svg"
        return path.exists() and picture(name).digest() in path.read_text(encoding="utf-8")

    return [name for name in PICTURES if not fresh(name)]


def make() -> list[str]:
    """Make the pictures that are outdated; their names."""
    FOLDER.mkdir(exist_ok=True)
    names = outdated()
    for name in names:
        (FOLDER / f"{name}.svg").write_bytes(render(picture(name), "svg"))
    return names
