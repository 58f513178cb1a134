"""Run a folder of CUDA programs with known mistakes on the CPU, and count: suites.py FOLDER [OPTIONS] -- ARGUMENTS.

Programs whose path matches --buggy (a regular expression) should have a finding, the others none. --sample N takes N of
each kind, by a seed; --note KIND counts a kind of note as a finding. The programs are fetched by whoever runs this:
docs/emulator.md names the suites, and what was found.
"""

import argparse
import json
import random
import re
import sys
from pathlib import Path

from hw4cli.emulator.program.execute import ENDED, execute
from hw4cli.errors import Hw4Error


def run(path: Path, arguments: list[str], include: list[Path], notes: set[str], seconds: float) -> dict[str, object]:
    """What became of a program: found, clean, or why it did not run."""
    try:
        done = execute([path], arguments, include=include, seconds=seconds, folder=Path.cwd())
    except Hw4Error as error:
        return {"outcome": "not run", "why": str(error)}
    found = [*done.findings, *(note for note in done.notes if note.kind in notes)]
    if found:
        return {"outcome": "found", "kinds": sorted({one.kind for one in found}), "why": str(found[0])}
    return {"outcome": "clean" if done.end == ENDED else "not run", "why": done.why}


def main() -> None:
    """Run the programs, one after the other; each is a line, and a summary the last one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--buggy", default="[Bb]ug", help="a regular expression for the paths of programs with a mistake"
    )
    parser.add_argument("--include", type=Path, action="append", default=[])
    parser.add_argument("--note", action="append", default=[], help="a kind of note that counts as a finding")
    parser.add_argument("--sample", type=int, default=0, help="so many of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--record", type=Path)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:at])
    given.arguments = words[at + 1 :]
    programs = sorted(given.folder.rglob("*.cu"))
    kinds = {True: [], False: []}
    for path in programs:
        kinds[bool(re.search(given.buggy, str(path.relative_to(given.folder))))].append(path)
    if given.sample:
        kinds = {
            kind: random.Random(given.seed).sample(paths, min(given.sample, len(paths)))
            for kind, paths in kinds.items()
        }
    counts: dict[tuple[bool, str], int] = {}
    lines = []
    for buggy, path in sorted((buggy, path) for buggy, paths in kinds.items() for path in paths):
        what = run(path, given.arguments, given.include, set(given.note), given.seconds)
        counts[buggy, what["outcome"]] = counts.get((buggy, what["outcome"]), 0) + 1
        lines.append({"program": str(path.relative_to(given.folder)), "buggy": buggy, **what})
        expected = what["outcome"] == ("found" if buggy else "clean")
        print(f"{'' if expected else 'UNEXPECTED '}{lines[-1]['program']}: {what['outcome']} {what['why']}", flush=True)
        if given.record:
            given.record.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for buggy, words in ((True, "with a mistake"), (False, "right")):
        total = len(kinds[buggy])
        parts = ", ".join(f"{number} {outcome}" for (kind, outcome), number in sorted(counts.items()) if kind == buggy)
        print(f"{total} programs {words}: {parts}")
    sys.exit(0)


if __name__ == "__main__":
    main()
