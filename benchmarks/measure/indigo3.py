"""A sample of Indigo3's CUDA programs for benchmarks.measure.suites: indigo3.py FOLDER -o NEW.

FOLDER is the suite after `generate_all_codes.py cuda` with `bug: {all}` in codeGen/configure.txt. NEW gets a graph, and
indigo3.tsv, a list of programs drawn by a seed, half of them right, half with exactly one planted mistake, of which
reason_of says whether it shows in one execution on that graph. For `suites.py FOLDER --list NEW/indigo3.tsv`.
"""

import argparse
import random
import struct
from pathlib import Path

from benchmarks.measure.scripts import end_with
from hw4cli.errors import InputError

VERTICES, HUB, ALONE = 40, 20, 3
_BEYOND = "const int N = g.edges;"
PAGE_RANK = (
    "the right versions of PR have mistakes of their own: scores are read while others write them, by all threads of a "
    "warp or a block, and a sum in shared memory without a barrier"
)


def graph(vertices: int = VERTICES, *, weights: bool = False) -> bytes:
    """An ECL graph: a ring of vertices around a hub that all of them know, and a vertex without neighbours.

    The last vertex has neighbours, and there are more edges (152 of 40) than vertices, as some mistakes need.
    """
    ring = [v for v in range(vertices) if v not in (HUB, ALONE)]
    near: dict[int, set[int]] = {v: set() for v in range(vertices)}
    for here, there in [*zip(ring, ring[1:] + ring[:1], strict=True), *((v, HUB) for v in ring)]:
        near[here].add(there)
        near[there].add(here)
    ends = [0]
    for v in range(vertices):
        ends.append(ends[-1] + len(near[v]))
    numbers = [vertices, ends[-1], *ends, *(w for v in range(vertices) for w in sorted(near[v]))]
    if weights:
        numbers += [1 + v * w % 90 for v in range(vertices) for w in sorted(near[v])]
    return struct.pack(f"<{len(numbers)}i", *numbers)


def bugs_of(name: str) -> list[str]:
    """The mistakes that are planted in a program, by its name."""
    return [word for word in name.split("_") if word.endswith("Bug") and not word.startswith("No")]


def reason_of(name: str, text: str) -> str:
    """Why a program shows nothing in one execution, or is not as right as its name says; empty if it is neither."""
    words = set(name.removesuffix(".cu").split("_"))
    of_blocks = {"NonPersist", "Block"} <= words
    if name.startswith("PR_"):
        return PAGE_RANK
    if name.startswith("TC_") and "Reduction" in words:
        return "16 warps write their sums, and 32 lanes read them: also the right version reads what nobody has written"
    if name.startswith("SSSP_CUDA_E_Data"):  # as below: found by a first run
        return (
            "the right version reads what nobody has written: `time` is for edges, and as many as vertices are set to 0"
        )
    reasons = {
        "LivelockBug": "rounds never end, which nothing but a limit of time shows",
        "PrecedenceBug": "it matters with more than 2^26 vertices",
    }
    for bug in bugs_of(name.removesuffix(".cu")):
        if bug in reasons:
            return reasons[bug]
        if bug == "ExcessThreadsBug" and of_blocks:
            return "a block for each vertex: no thread is in excess"
        if bug == "NbrBoundsBug" and name.startswith("TC_CUDA_E_"):  # what a first run did not find
            return "the list of the last vertex is never read to its end: what is read too much lies in the array"
        if bug == "FieldBug" and (_BEYOND not in text or "Data" in words):
            return "the answer is wrong, for other elements of the same arrays are taken"
        if bug == "FieldBug" and of_blocks:
            return "a block for each vertex: none comes to the wrong bound"
        if bug == "OverflowBug" and ("Data" in words or "LongType" in words):
            return "no distance of a worklist is the largest number, or it is unsigned"
    return ""


def main() -> None:
    """Draw the programs, and write the graph and the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--seed", type=int, default=43)
    given = parser.parse_args()
    programs = sorted((given.folder / "generatedCodes" / "CUDA").rglob("*.cu"))
    if not programs:
        raise InputError(f"{given.folder}: generate_all_codes.py has not been run")
    given.output.mkdir(parents=True, exist_ok=True)
    made = given.output / "wheel.egr"
    made.write_bytes(graph())
    draw = random.Random(given.seed)
    rows = [f"# Indigo3, {given.sample} programs drawn by seed {given.seed}: what shows in one execution."]
    for what, count in (("right", 0), ("buggy", 1)):
        some = draw.sample([path for path in programs if len(bugs_of(path.stem)) == count], given.sample // 2)
        for path in some:
            reason = reason_of(path.name, path.read_text(encoding="utf-8"))
            name = path.relative_to(given.folder)
            rows.append(f"{name}\t{'excluded' if reason else what}\t{reason}\t\t{made.resolve()} 1 0")
    (given.output / "indigo3.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    end_with(main)
