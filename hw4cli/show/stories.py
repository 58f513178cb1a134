"""What each kernel's own file says of it: the labels of its header, its text, and the rung before it."""

import re
from dataclasses import dataclass

from hw4cli.plans.ladder import VARIANTS
from hw4cli.resources import data_path

LABELS = ("Idea", "Geometry", "Shared", "Limits", "Source", "Before")
LABEL = re.compile(rf"// ({'|'.join(LABELS)}): *(.*)")
INCLUDE = re.compile(r'^#include "([\w./]+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Story:
    """A kernel as its file describes it: the first line, each label's text, and the files that it is made of."""

    name: str
    headline: str
    labels: dict[str, str]
    before: str | None  # the kernel whose successor it is
    files: tuple[str, ...]  # its own first, then what that includes


def texts() -> dict[str, str]:
    """The text of every kernel's file and of every header, by name."""
    paths = sorted(data_path("kernels").rglob("*.cu*"))
    return {path.name: path.read_text(encoding="utf-8") for path in paths if path.parent.name != "host"}


def stories(files: dict[str, str]) -> list[Story]:
    """The stories of the kernels that have a file, in the order of the ladder."""
    return [story_of(name, files) for name in VARIANTS if f"{name}.cu" in files]


def story_of(name: str, files: dict[str, str]) -> Story:
    """The story of a kernel whose file is among `files`; of one without a header, an empty one."""
    header = files[f"{name}.cu"].partition("\n\n")[0].splitlines()
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in header[1:]:
        if match := LABEL.match(line):
            lines = found.setdefault(match[1], [match[2]])
        elif lines:
            lines.append(line.removeprefix("//").strip())
    labels = {label: " ".join(found[label]).strip() for label in LABELS if label in found}
    first = re.match(r"\w+", labels.get("Before", ""))
    before = first[0] if first and first[0] in VARIANTS else None
    headline = header[0].removeprefix("//").strip().removeprefix(f"{name}:").strip()
    return Story(name, headline, labels, before, tuple(_included(f"{name}.cu", files)))


def _included(name: str, files: dict[str, str]) -> list[str]:
    """A file and all that it includes, in the order in which they are first read."""
    found = [name]
    for one in found:
        found += [other for other in INCLUDE.findall(files[one]) if other in files and other not in found]
    return found
