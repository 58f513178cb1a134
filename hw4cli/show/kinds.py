"""The kinds of pictures that `hw4 plot` makes."""

from collections.abc import Callable, Sequence
from typing import Any

from hw4cli.show import bars, curves
from hw4cli.show.picture import Picture
from hw4cli.show.records import Record
from hw4cli.show.scaling import scaling
from hw4cli.show.traffic import traffic

KINDS: dict[str, Callable[..., Picture]] = {
    "latency": curves.latency,
    "rate": curves.rate,
    "speedup": curves.speedup,
    "ladder": bars.ladder,
    "occupancy": bars.occupancy,
    "tiles": bars.tiles,
    "error": bars.error,
    "accuracy": bars.accuracy,
    "programs": bars.programs,
    "roofline": curves.roofline,
    "traffic": traffic,
    "energy": curves.energy,
    "scaling": scaling,
}


def unused(kind: str, picture: Picture, records: Sequence[Any]) -> list[str]:
    """The records that a picture shows nothing of, each with the reason, in a sentence."""
    shown = [fact.rpartition(", ")[2] for fact in picture.facts]
    return [
        f"{record.name} is not used: it holds {record.holds}, of which {kind} shows nothing here"
        for record in records
        if isinstance(record, Record) and record.name not in shown
    ]
