"""The charts of a report: each as a picture of the records, as a file beside the report, and as a line of its text."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from hw4cli.errors import InputError
from hw4cli.problem.verdict import Verdict
from hw4cli.show import bars, curves
from hw4cli.show.picture import Mark, Panel, Picture, Series, short_gpu
from hw4cli.show.records import Point
from hw4cli.show.report.document import missing
from hw4cli.show.report.material import Material
from hw4cli.show.report.steps import ladder_picture, steps
from hw4cli.show.traffic import traffic
from hw4cli.system.files import NewFile, make_folder
from hw4cli.system.reading import read_regular
from hw4cli.text.tables import escaped

FOLDER = "figures"
REQUIRED = ("ladder", "tiles")  # that the assignment asks for; the others are drawn where there are records


class Figures:
    """The pictures that a report's material allows, by name, and the sentences of those that it does not."""

    def __init__(self, material: Material) -> None:
        self.material = material

    @cached_property
    def _all(self) -> dict[str, Picture | str]:
        found: dict[str, Picture | str] = {}
        for name, make in MAKERS.items():
            try:
                found[name] = make(self.material)
            except InputError as error:
                found[name] = str(error).replace("no record here holds", "no record holds")
        return found

    @property
    def pictures(self) -> dict[str, Picture]:
        """The pictures by name."""
        return {name: found for name, found in self._all.items() if isinstance(found, Picture)}

    def shown(self, name: str) -> str:
        """The Markdown line that shows a picture, its caption in it; or why there is none, if there should be one."""
        found = self._all[name]
        if isinstance(found, str):
            return missing(found) if name in REQUIRED else ""
        return f"![{escaped(caption(found))}]({FOLDER}/{name}.svg)"


def caption(picture: Picture) -> str:
    """A picture's title, its axes with their units, and the files it was made from."""
    axes = []
    for panel in picture.panels:
        scale = " (log)" if panel.log else ""
        axes.append(f"{panel.value_label}{scale}" + (f", over {panel.at_label}" if panel.form == "lines" else ""))
    files = " and ".join(dict.fromkeys(fact.rpartition(", ")[2] for fact in picture.facts))
    return f"{picture.title}: {'; '.join(dict.fromkeys(axes))}. From {files}."


def write(folder: Path, pictures: dict[str, bytes]) -> None:
    """Write pictures into the folder beside the report. Raises as NewFile does."""
    make_folder(folder / FOLDER)
    for name, content in pictures.items():
        path = folder / FOLDER / f"{name}.svg"
        with NewFile(path) as file:
            file.write(memoryview(content))


def is_current(folder: Path, name: str, picture: Picture) -> bool:
    """Whether the file of a picture is there and was drawn from the same data."""
    try:
        return picture.digest().encode() in read_regular(folder / FOLDER / f"{name}.svg")
    except OSError:
        return False


def foreign(folder: Path, names: list[str]) -> list[Path]:
    """The files in the places of pictures that are not of hw4's making."""
    paths = [folder / FOLDER / f"{name}.svg" for name in names]
    return [path for path in paths if path.is_file() and b"hw4:" not in path.read_bytes()]


def _ladder(material: Material) -> Picture:
    picture = ladder_picture(steps(material))
    if not picture:
        again = "make one with `hw4 bench all -o FILE.json`"
        raise InputError(f"no record holds two kernels or programs on one case: {again}")
    return picture


def _tiles(material: Material) -> Picture:
    swept = {id(p) for p in sweep(material)}
    return bars.tiles([replace(r, points=tuple(p for p in r.points if id(p) in swept)) for r in material.records])


def sweep(material: Material) -> list[Point]:
    """The measurements with given tiles: of the report's kernel, or of all kernels where that has none."""
    points = [p for record in material.records for p in record.points if p.tile]
    return [p for p in points if p.kernel == material.kernel] or points


def _process(material: Material) -> Picture:
    """Each case's wall time, stacked: processor time in the program, in the system, and waiting."""
    judged = material.judged
    right = [r for r in judged.results.values() if r.verdict is Verdict.AC] if judged else []
    timed = [(r, r.wall, r.user, r.system) for r in right if r.wall and r.user is not None and r.system is not None]
    if not judged or not timed:
        raise InputError("no journal holds processor times: judge with `hw4 judge --output`")
    if any(user + system > 1.02 * wall for _, wall, user, system in timed):
        raise InputError("the program keeps several cores busy: its processor time is longer than its wall time")
    rows = ["{} ({}, {}, {})".format(r.case, *r.shape) for r, *_ in timed]
    parts: dict[str, list[float]] = {
        "user": [user for _, _, user, _ in timed],
        "system": [system for *_, system in timed],
        "waiting": [max(0.0, wall - user - system) for _, wall, user, system in timed],
    }
    series = [Series(name, tuple(map(Mark, rows, values))) for name, values in parts.items()]
    gpu = str((judged.session.get("gpu") or {}).get("name") or judged.session.get("host") or "")
    panel = Panel("stack", short_gpu(gpu), tuple(series), "wall time, s", "", False, (), tuple(rows))
    note = "user and system are processor times; a program that spins while the GPU works is busy in user"
    started = str(judged.session.get("started", ""))[:10]
    facts = ", ".join(filter(None, (gpu, str(judged.session.get("host", "")), started, "journal.jsonl")))
    return Picture("Where the time of a whole process goes", (panel,), (note,), (facts,))


MAKERS: dict[str, Callable[[Material], Picture]] = {
    "ladder": _ladder,
    "tiles": _tiles,
    "process": _process,
    "programs": lambda material: bars.programs(material.records),
    "latency": lambda material: curves.latency(material.records, curves.OVER_N),
    "rate": lambda material: curves.rate(material.records),
    "error": lambda material: bars.error(material.records),
    "roofline": lambda material: curves.roofline(material.records),
    "traffic": lambda material: traffic([record for record in material.records if record.profiles]),
    "energy": lambda material: curves.energy(material.records),
}
