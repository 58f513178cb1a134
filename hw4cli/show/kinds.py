"""The kinds of pictures that `hw4 plot` makes."""

from collections.abc import Callable

from hw4cli.show import bars, curves
from hw4cli.show.picture import Picture
from hw4cli.show.scaling import scaling
from hw4cli.show.traffic import traffic

KINDS: dict[str, Callable[..., Picture]] = {
    "latency": curves.latency,
    "rate": curves.rate,
    "speedup": curves.speedup,
    "ladder": bars.ladder,
    "tiles": bars.tiles,
    "error": bars.error,
    "programs": bars.programs,
    "roofline": curves.roofline,
    "traffic": traffic,
    "energy": curves.energy,
    "scaling": scaling,
}
