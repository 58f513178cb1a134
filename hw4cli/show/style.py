"""The look that all pictures and pages share: a colour for each kernel, the same everywhere, on light and on dark.

What is no kernel's own, such as ink and paper, is the pages' (templates/common.css).
"""

from collections.abc import Iterable

from hw4cli.plans.ladder import VARIANTS
from hw4cli.text.page import palette

NEUTRAL = {name: palette()[name] for name in ("ink", "soft", "line", "paper")}
INK, SOFT, LINE, PAPER = (light for light, _ in NEUTRAL.values())
# Of what has no colour in the registry, on light paper and on dark, each as far from the ones before and from the
# registry's as a search found (a distance of 0.05 in OKLab or more, on either); as text, too, each has a contrast of
# 4.5 to 1.
OTHERS = (
    *(("#034d73", "#62a0ca"), ("#8f6292", "#efbdf3"), ("#a35e5a", "#fbc0bc"), ("#a21924", "#ef6663")),
    *(("#254104", "#bbdea1"), ("#833673", "#de8aca"), ("#71147a", "#f295fb"), ("#246742", "#9bcbac")),
    *(("#0019a2", "#6694f9"), ("#82414b", "#d29a9f"), ("#2c3266", "#c4cefe"), ("#a34aac", "#ca6fd3")),
    *(("#7f2407", "#f5a792"), ("#473788", "#958fd1"), ("#680835", "#ca7e96"), ("#6a3a06", "#d59d70")),
    *(("#cc206f", "#f87ca7"), ("#3d5d6c", "#a8c3cf"), ("#5f6f54", "#a0b194"), ("#8c4b93", "#dda8e1")),
    *(("#525f1e", "#dceeaa"), ("#ac1f95", "#e35ac8"), ("#7f6152", "#ffdccb"), ("#5f3563", "#fcd6ff")),
    *(("#565fb2", "#acb9fd"), ("#424e08", "#91a160"), ("#294e57", "#79a0aa"), ("#a6482f", "#dc795e")),
)
PEERS = (
    *(("#394e38", "#88a087"), ("#5a3e4c", "#cfb5c1"), ("#655066", "#a392a4"), ("#43361b", "#dfcfb0")),
    *(("#2e3d9e", "#348adc"), ("#0e4738", "#1fb471"), ("#01350f", "#52dc9f"), ("#6528b1", "#c37dfe")),
    *(("#4447c8", "#7580d5"), ("#461e34", "#eb4b7a"), ("#b55186", "#a7798f"), ("#0d1e79", "#0babff")),
)
MARKERS = "osD^vPXp*h"  # of matplotlib; the page draws the first six
# Ends of the colours of a heat map's cells, for values below half of the best and from half on: in between, neither
# ink nor paper would be read.
HEAT = (("#eef3fa", "#9ec2ec"), ("#2f6fb8", "#0f3f80"))
HEAT_DARK = (("#1c242e", "#27476c"), ("#5a9fdd", "#b5d9ff"))
STEPS = 10  # of these colours: tenths of the best


LONGEST = 26  # letters of a name in a picture


def cut(name: str) -> str:
    """A name as long as a picture has room for: of a path that is longer, the file alone, or its end."""
    if len(name) > LONGEST:
        name = name.rpartition("/")[2]
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"


def is_peer(name: str) -> bool:
    """Whether a name is of somebody else's attention: "torch math", where ours are one word or a file."""
    return " " in name and not name.endswith(".cu")


def colours(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour for each name, on light and on dark: a kernel's own, else the next that is free."""
    others, peers = 0, 0
    found: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys(names):
        own = VARIANTS[name].colour if name in VARIANTS else None
        if own and own not in found.values():
            found[name] = own
        elif is_peer(name):
            found[name] = PEERS[peers % len(PEERS)]
            peers += 1
        else:
            found[name] = OTHERS[others % len(OTHERS)]
            others += 1
    return found


def heat_step(value: float, best: float) -> int:
    """The step of a value's colour, by its share of the best: 0 to STEPS - 1. Both are positive."""
    return min(STEPS - 1, int(STEPS * value / best))


def heat() -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """For each step the colour of a cell, and that of what is written on it; each on light paper and on dark."""
    cells = zip(_between(HEAT), _between(HEAT_DARK), strict=True)
    return [(cell, NEUTRAL["ink" if step < STEPS // 2 else "paper"]) for step, cell in enumerate(cells)]


def _between(ends: tuple[tuple[str, str], tuple[str, str]]) -> list[str]:
    """STEPS colours, evenly between each pair of ends."""
    found = []
    for pair in ends:
        low, high = ([int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in pair)
        for step in range(STEPS // 2):
            share = step / (STEPS // 2 - 1)
            found.append("#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(low, high, strict=True)))
    return found
