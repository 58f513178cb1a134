"""ScoR's seven applications made ready for benchmarks.measure.suites: scor.py FOLDER -o NEW.

They read their standard input, of which the suite has none. NEW gets a copy of FOLDER with the lines of CHANGES as they
are there, inputs drawn by a seed, and applications.tsv, a list of both variants of each (RACEY defined or not), for
`suites.py NEW --list NEW/applications.tsv --kind race`.
"""

import argparse
import random
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure.scripts import end_with

# What keeps a program from running here whatever its races, as a pattern and what stands in its place: a name that is
# also of std::array; of 32 locks only the first is set to 0, in memory that cudaMalloc leaves as it is; a variable of
# two files.
CHANGES = {
    "1dconv/1dconv_main.cu": (r"\barray\b", "values"),
    "matrix-multiplication/mm_kernel.cu": (r"if\(tid == 0\)(?=\s*sh_lock = 0;)", "if(tid < 32)"),
    "rule-110/r110_kernel.cuh": (r"(extern __device__ volatile int gl_lock) = 0", r"\1"),
}
# Each application's input, blocks and threads of one, and what the list says of the variant without RACEY.
APPLICATIONS = {
    "1dconv": ("convolution", 4, 64, ""),
    "matrix-multiplication": ("matrices", 6, 64, ""),
    "reduction": (
        "numbers",
        8,
        128,
        "its last 32 threads rely on a warp in lockstep, which GPUs since Volta do not have",
    ),
    "rule-110": ("cells", 4, 64, ""),
    "graph-coloring": ("graph", 4, 32, ""),
    "graph-connectivity": ("graph", 4, 32, ""),
    "uts": ("tree", 2, 32, "lanes of a warp read `top` while the first one changes it, with no __syncwarp() between"),
}


def inputs(seed: int) -> dict[str, str]:
    """What the applications read, by names: sizes first, then numbers."""
    draw = random.Random(seed)

    def some(n: int, least: int, most: int) -> list[int]:
        return [draw.randint(least, most) for _ in range(n)]

    def lines(*rows: Iterable[int]) -> str:
        return "".join(" ".join(map(str, row)) + "\n" for row in rows)

    edges: set[tuple[int, ...]] = set()
    while len(edges) < 900:
        edges.add(tuple(sorted(draw.sample(range(300), 2))))
    return {
        "convolution": lines([5, 1000], some(5, 1, 9), some(1000, 1, 9)),
        "matrices": lines([12, 70, 40], some(12 * 70, 1, 9), some(70 * 40, 1, 9)),
        "numbers": lines([5000], some(5000, 1, 99)),
        "cells": lines([256, 4], some(256, 0, 1)),
        "graph": lines([300, len(edges)], *sorted(edges)),
        "tree": lines([3, 3], [7]),
    }


def main() -> None:
    """Copy the suite, and write inputs and the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    shutil.copytree(given.folder / "benchmarks", given.output)
    for name, (old, new) in CHANGES.items():
        text, count = re.subn(old, new, (given.output / name).read_text(encoding="utf-8"))
        if not count:
            raise SystemExit(f"{name} has not the line that is changed: this is another version of the suite")
        (given.output / name).write_text(text, encoding="utf-8")
    for name, text in inputs(given.seed).items():
        (given.output / name).write_text(text, encoding="utf-8")
    rows = []
    for name, (read, blocks, threads, problem) in APPLICATIONS.items():
        files = sorted(str(path.relative_to(given.output)) for path in (given.output / name).glob("*.cu"))
        files = [file for file in files if file.endswith("main.cu") or name != "reduction"]  # whose main includes it
        options = f"NBLOCKS={blocks} NTHREADS={threads} <{read}"
        rows.append(f"{' '.join(files)}\t{'excluded' if problem else 'right'}\t{problem}\t{options}")
        rows.append(f"{' '.join(files)}\tbuggy\t\tRACEY {options}")
    (given.output / "applications.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    end_with(main)
