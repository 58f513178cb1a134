"""The look that all pictures and pages share: a colour for each kernel, the same everywhere, on paper and on dark."""

from collections.abc import Iterable

from hw4cli.plans.ladder import VARIANTS

INK, SOFT, LINE, PAPER = "#1c2024", "#5c646c", "#dcdeda", "#ffffff"
# Of what has no colour in the registry, on light paper and on dark; as text, too, each has a contrast of 4.5 to 1.
OTHERS = (
    *(("#a92f81", "#f08ccb"), ("#566500", "#b9cb56"), ("#00627f", "#5fbde8"), ("#8a4a52", "#e3a0a8")),
    *(("#8a4a2f", "#e0a184"), ("#3f6d7a", "#8fc3d1"), ("#6b5b00", "#d4c45a"), ("#7a4560", "#d19ab4")),
    *(("#3d5a80", "#9bb8dc"), ("#5f3d6e", "#c3a1d4"), ("#2f6b4f", "#8fceb0"), ("#7a3b3b", "#dc9f9f")),
    *(("#4a5f1e", "#aac270"), ("#8c3a6b", "#e09ac2"), ("#245c8f", "#8dbbe4"), ("#6e4a3c", "#c8a08a")),
)
PEERS = (("#5b6673", "#95a2b2"), ("#7d6552", "#c6ab8d"), ("#55694a", "#a6bf94"), ("#735680", "#bda0cc"))
MARKERS = "osD^vPXp*h"  # of matplotlib; the page draws the first six
HEAT = ("#f4f7fb", "#cfe0f5", "#8fb8e8", "#2f6fb8", "#144e96")  # from least to most
HEAT_DARK = ("#1c242e", "#203a57", "#2a5f96", "#4a92d6", "#a5d0ff")


LONGEST = 26  # letters of a name in a picture


def cut(name: str) -> str:
    """A name as long as a picture has room for: of a path, its end."""
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
