"""HeCBench's reported races made ready for benchmarks.measure.suites: reported.py REPOSITORY -o NEW.

benchmarks/suites/hecbench.tsv names programs and the commits that took their races away. NEW gets each program as it
was before that commit, which is buggy, and with it, which is right, with small sizes in their texts; small inputs; and
reported.tsv, a list for `suites.py NEW --list NEW/reported.tsv --kind race`.
"""

import argparse
import random
import re
import struct
import subprocess
from pathlib import Path

from benchmarks.measure.indigo3 import graph
from benchmarks.measure.scripts import end_with
from hw4cli.errors import InputError

LIST = Path(__file__).parents[1] / "suites" / "hecbench.tsv"
BEFORE, AFTER = "before", "after"
UNREPAIRED = "="


def with_size(text: str, name: str, value: str) -> str:
    """A text where the first definition of a name, a macro's or a variable's, has another value.

    Raises ValueError if there is none.
    """
    pattern = rf"(#define[ \t]+{name}[ \t]+)[^\n]+|(\b{name}[ \t]*[=(][ \t]*)[^;,)\n]+"
    made, count = re.subn(pattern, lambda found: (found[1] or found[2]) + value, text, count=1)
    if not count:
        raise ValueError(f"it defines no {name}")
    return made


def inputs(folder: Path) -> None:
    """The files that programs read: images, graphs, and what one of them compares its image with."""
    draw = random.Random(1)
    for name, width, height in (("small.ppm", 64, 48), ("tiny.ppm", 16, 16)):
        image = bytes(draw.randrange(256) for _ in range(width * height * 3))
        (folder / name).write_bytes(b"P6\n%d %d\n255\n" % (width, height) + image)
    (folder / "tiny.dds").write_bytes(b"DDS " + struct.pack("<31i", 124, 0, 16, 16, *[0] * 27) + bytes(128))
    (folder / "weighted.egr").write_bytes(graph(150, weights=True))
    ring = [(v, (v + 1) % 150) for v in range(150)] + [(v, 150) for v in range(150)]
    rows = [f"{a},{b},{draw.choice((-1, 1))}" for a, b in ring]
    (folder / "graph.csv").write_text("\n".join(["source,target,weight", *rows]) + "\n", encoding="utf-8")


def extracted(repository: Path, commit: str, program: str, target: Path) -> None:
    """A program's files as they are in a commit, into a folder."""
    git = ["git", "-C", str(repository)]
    listing = [*git, "ls-tree", "-r", "--name-only", commit, f"src/{program}/"]
    listed = subprocess.run(listing, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise InputError(f"{repository} has no commit {commit}: give a clone of HeCBench with its history")
    for name in listed.stdout.splitlines():
        shown = subprocess.run([*git, "show", f"{commit}:{name}"], capture_output=True, check=False)
        if shown.returncode == 0:  # a file that is kept elsewhere is not needed
            made = target / Path(name).relative_to("src", program)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(shown.stdout)


def main() -> None:
    """Extract the programs, and write inputs and the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=Path, help="a clone of HeCBench, with its history")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    new: Path = given.output.resolve()
    if new.exists() and (not new.is_dir() or any(new.iterdir())):
        raise InputError(f"{given.output} is there already: name a new folder")
    (new / "data").mkdir(parents=True)
    inputs(new / "data")
    rows = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, commit, files, arguments, sizes, macros, others, _, *reasons = line.split("\t")
        wrong, hidden = [*reasons, "", ""][:2]
        versions = [(AFTER, commit, "right", wrong), (BEFORE, f"{commit}^", "buggy", hidden)]
        if commit.startswith(UNREPAIRED):
            versions = [(BEFORE, commit[1:], "buggy", hidden)]
        for folder, revision, what, reason in versions:
            own = new / folder / name / f"{name}-cuda"
            for other in [*others.split(), f"{name}-cuda"]:  # what is its own last
                extracted(given.repository, revision, other, own)
            for word in sizes.split():
                file, size = word.split(":")
                text = (own / file).read_text(encoding="utf-8")
                (own / file).write_text(with_size(text, *size.split("=")), encoding="utf-8")
            before, _, after = files.partition("|")
            named = after if after and folder == AFTER else before
            paths = [str((own / file).resolve().relative_to(new)) for file in named.split()]
            words = arguments.format(data=new / "data", program=own)
            rows.append(f"{' '.join(paths)}\t{'excluded' if reason else what}\t{reason}\t{macros}\t{words}")
    (new / "reported.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    end_with(main)
