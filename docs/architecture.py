"""Draw docs/pictures/architecture.svg: the packages of hw4cli in their order, and three ways through them.

`python docs/architecture.py` writes the file; tests/test_docs.py holds it against the packages and their order.
The picture is light or dark as the reader's system is.
"""

from html import escape
from pathlib import Path
from typing import NamedTuple

from hw4cli.text.page import palette

PICTURE = Path(__file__).parent / "pictures/architecture.svg"

# From the ground up: a storey's name, and its packages from left to right. Each package imports only those before it.
STOREYS: list[tuple[str, dict[str, str]]] = [
    ("ground", {"text": "words, tables, pages", "system": "processes, files, signals, NVML"}),
    ("problem", {"problem": "file format, suite, float64 oracle, comparison"}),
    (
        "kernels",
        {
            "plans": "kernels as data, bounds of their errors, dispatch",
            "device": "compile, cache, launch: NVIDIA and AMD",
        },
    ),
    (
        "engines",
        {
            "sandbox": "one foreign program, confined",
            "emulator": "CUDA executed on the CPU, watched",
            "stream": "from file to file, GPUs, nodes",
            "arrays": "attention, gradients, PyTorch",
            "judge": "cases, sessions, classes, boards",
        },
    ),
    ("laboratory", {"lab": "benchmarks, tuning, profiles, models", "show": "pictures, pages, report, leaderboard"}),
    ("face", {"doctor": "what the machine has and lacks", "cli": "one file a command"}),
]
PACKAGES = [name for _, packages in STOREYS for name in packages]


class Way(NamedTuple):
    """A way through the packages: how it begins, its colour's name, and what each package on it does."""

    title: str
    colour: str
    steps: list[tuple[str, str]]


WAYS = [
    Way(
        "a file: hw4 IN OUT",
        "file",
        [
            ("cli", "reads the options"),
            ("stream", "cuts the file into groups of batches"),
            ("problem", "checks header and sizes"),
            ("plans", "chooses the kernel, plans its launches"),
            ("device", "compiles or finds the code, launches"),
            ("stream", "writes the output, renames it when whole"),
        ],
    ),
    Way(
        "an array: hw4cli.attention(q, k, v)",
        "array",
        [
            ("arrays", "checks types, shapes and options"),
            ("plans", "chooses the kernel by type, size and bound"),
            ("device", "launches on the library's own stream"),
            ("arrays", "returns an array of the same library"),
        ],
    ),
    Way(
        "a submission: hw4 judge --program ./mine",
        "submission",
        [
            ("cli", "reads options and rules"),
            ("judge", "prepares cases, opens the journal"),
            ("sandbox", "runs the program within its limits"),
            ("problem", "compares the output with the answer"),
            ("judge", "names the mistake, scores, ranks"),
        ],
    ),
]

# Of each part of the picture: what its colour is for, and the colour's name among those of the pages.
COLOURS = [
    (".back, .number", "fill", "paper"),
    (".box", "fill", "page"),
    (".box, .arrow", "stroke", "edge"),
    ("text", "fill", "ink"),
    (".storey, .small", "fill", "soft"),
    (".file", "fill", "focus"),
    (".array", "fill", "je-ink"),
    (".submission", "fill", "plus-ink"),
]


def style() -> str:
    """The picture's style sheet: the colours of the pages, light, or dark where the reader's system is."""
    light, dark = (
        " ".join(f"{part} {{ {kind}: {palette()[name][scheme]} }}" for part, kind, name in COLOURS) for scheme in (0, 1)
    )
    return f"""
  svg {{ font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }}
  text {{ font-size: 12px }} .name {{ font-weight: 600; font-size: 15px }} .small {{ font-size: 11.5px }}
  .title {{ font-weight: 600; font-size: 13px }} .arrow {{ stroke-width: 1.5; fill: none }}
  .number {{ font-size: 11px; font-weight: 600; text-anchor: middle }}
  {light}
  @media (prefers-color-scheme: dark) {{ {dark} }}
"""


WIDTH, LEFT, RIGHT, GAP = 960, 110, 16, 12
BOX, STOREY = 66, 80  # heights: of a box, from one storey to the next
LANE = 96  # height of a way below the house
BADGE = 9  # radius


def lines_of(text: str, width: int) -> list[str]:
    """The text in lines of at most so many characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def badge(x: float, y: float, colour: str, number: int) -> str:
    """A step's number on a disc of its way's colour."""
    return (
        f'<circle class="{colour}" cx="{x:g}" cy="{y:g}" r="{BADGE}"/>'
        f'<text class="number" x="{x:g}" y="{y + 4:g}">{number}</text>'
    )


def box(x: float, y: float, width: float, name: str, text: str) -> str:
    """A package: its name, what it is for, and the steps that lead through it."""
    badges = [
        (way.colour, number) for way in WAYS for number, (package, _) in enumerate(way.steps, 1) if package == name
    ]
    parts = [
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{BOX}" rx="6"/>',
        f'<text class="name" x="{x + 12:g}" y="{y + 23:g}">{name}</text>',
        *(
            f'<text class="small" x="{x + 12:g}" y="{y + 41 + 15 * row:g}">{escape(line)}</text>'
            for row, line in enumerate(lines_of(text, round((width - 24) / 5.9)))
        ),
        *(
            badge(x + width - 16 - 21 * (len(badges) - 1 - place), y + 18, colour, number)
            for place, (colour, number) in enumerate(badges)
        ),
    ]
    return "\n".join(parts)


def house(top: float) -> list[str]:
    """The storeys, the highest first."""
    parts = []
    for row, (storey, packages) in enumerate(reversed(STOREYS)):
        y = top + STOREY * row
        parts.append(f'<text class="storey" x="16" y="{y + BOX / 2 + 4:g}">{storey}</text>')
        width = (WIDTH - LEFT - RIGHT - GAP * (len(packages) - 1)) / len(packages)
        for place, (name, text) in enumerate(packages.items()):
            parts.append(box(LEFT + (width + GAP) * place, y, width, name, text))
    return parts


def lane(way: Way, y: float) -> list[str]:
    """A way from left to right: its packages, and what each does."""
    parts = [f'<text class="title {way.colour}" x="16" y="{y:g}">{escape(way.title)}</text>']
    step = (WIDTH - 16 - RIGHT) / max(len(way.steps) for way in WAYS)
    for place, (name, text) in enumerate(way.steps):
        x = 16 + step * place
        if place:
            parts.append(f'<path class="arrow" d="M {x - 26:g} {y + 19:g} h 14 m -5 -4 l 5 4 l -5 4"/>')
        parts.append(badge(x + BADGE, y + 19, way.colour, place + 1))
        parts.append(f'<text class="name" x="{x + 25:g}" y="{y + 24:g}">{name}</text>')
        parts += [
            f'<text class="small" x="{x:g}" y="{y + 44 + 15 * row:g}">{escape(line)}</text>'
            for row, line in enumerate(lines_of(text, round((step - 16) / 6.3)))
        ]
    return parts


def picture() -> str:
    """The whole picture as SVG."""
    below = 16 + STOREY * len(STOREYS) + 16
    height = below + LANE * len(WAYS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img">',
        "<title>The packages of hw4cli, and the ways of a file, an array and a submission through them</title>",
        f"<style>{style()}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}"/>',
        *house(16),
        *(part for number, way in enumerate(WAYS) for part in lane(way, below + LANE * number + 12)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
