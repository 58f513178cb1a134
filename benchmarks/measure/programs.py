"""Run whole CUDA programs of a list on the CPU, and count how they end: programs.py LIST FOLDER [OPTIONS].

A line of LIST is a program's path in the folder, its arguments, and sizes to put in place of those in its text
(NAME=VALUE, as programs that were written for a GPU have large ones), with tabs between; # begins a comment. The files
are copied to a folder of their own before a size is changed. A program runs if it comes to its end with exit status 0
and prints no failure of a check of its own. What is found in it, such as a race, is printed beside that. The programs
are fetched by whoever runs this: docs/emulator.md names them, and how many ran.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure.scripts import end_with
from hw4cli.emulator.program.execute import ENDED, execute
from hw4cli.errors import Hw4Error

RUNS, WRONG, REFUSED = "runs", "wrong", "refused"
_FAILURE = re.compile(
    r"\bfail(?:ed|ure)?\b|\bmismatch|\bnot? match|\bincorrect|\berror\b(?!\w*[:= ]*(?:0|\d*\.?\d*e?-))", re.I
)
_SIZE = r"(\b(?:int|long|unsigned|size_t|int64_t|auto)\s+{}\s*=)[^;,]+(?=[;,])"


@dataclass(frozen=True)
class Listed:
    """A program of a list: its path in the folder, its arguments, and sizes by their names."""

    path: str
    arguments: tuple[str, ...]
    sizes: dict[str, str]

    @property
    def name(self) -> str:
        """How it is named in a line."""
        return " ".join([self.path, *self.arguments])


def listed(text: str) -> list[Listed]:
    """The programs of a list's text. Raises ValueError for a size that is no NAME=VALUE."""
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            path, arguments, sizes, *_ = *line.split("\t"), "", ""
            found.append(Listed(path, tuple(arguments.split()), dict(word.split("=", 1) for word in sizes.split())))
    return found


def with_sizes(text: str, sizes: dict[str, str]) -> str:
    """A program's text where variables that are defined with a value have another one."""
    for name, value in sizes.items():
        text = re.sub(_SIZE.format(re.escape(name)), rf"\1 {value}", text)
    return text


def run(
    program: Listed, folder: Path, *, include: Sequence[Path] = (), seconds: float, watched: bool
) -> dict[str, object]:
    """How a program ended: runs, wrong or refused, why, its findings, and seconds of the processor."""
    with tempfile.TemporaryDirectory(prefix="hw4-programs-") as own:
        path = folder / program.path
        if program.sizes:
            shutil.copytree(path.parent, own, dirs_exist_ok=True)
            made = Path(own, path.name)
            made.write_text(with_sizes(path.read_text(encoding="utf-8", errors="replace"), program.sizes))
            path = made
        try:
            done = execute(
                [path], program.arguments, include=include, seconds=seconds, watched=watched, folder=Path(own)
            )
        except Hw4Error as error:
            return {"outcome": REFUSED, "why": str(error), "findings": [], "seconds": 0.0}
    findings = [str(one) for one in done.findings]
    lines = [line for line in (done.output + done.errors).splitlines() if "as expected" not in line]
    failure = next((line for line in lines if _FAILURE.search(line)), "")
    cost = {"seconds": done.seconds, "bytes": done.peak}
    if done.end == ENDED and not done.status and not failure:
        return {"outcome": RUNS, "why": "", "findings": findings, **cost}
    why = failure.strip() or done.why or f"exit status {done.status}"
    return {"outcome": WRONG, "why": why, "findings": findings, **cost}


def main() -> int:
    """Run the programs, one after the other; each is a line, and the summary the last one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--include", type=Path, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--unwatched", action="store_true", help="for the answer alone")
    parser.add_argument("--cost", action="store_true", help="also unwatched, for what watching costs")
    parser.add_argument("--only", default="", help="a regular expression for what is to be run")
    parser.add_argument("--record", type=Path, help="a file of JSON, a line for each program")
    given = parser.parse_args()
    programs = [one for one in listed(given.list.read_text(encoding="utf-8")) if re.search(given.only, one.name)]
    lines = []
    for program in programs:
        result = run(program, given.folder, include=given.include, seconds=given.seconds, watched=not given.unwatched)
        if given.cost and result["outcome"] == RUNS:
            plain = run(program, given.folder, include=given.include, seconds=given.seconds, watched=False)
            result |= {"plain": plain["seconds"], "plain_bytes": plain["bytes"]} if plain["outcome"] == RUNS else {}
        lines.append({"program": program.name, **result})
        findings = result["findings"]
        assert isinstance(findings, list)
        about = f"; {len(findings)} found, the first: {findings[0]}" if findings else ""
        print(f"{program.name}: {result['outcome']} ({result['seconds']:.1f} s) {result['why']}{about}", flush=True)
        if given.record:
            given.record.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    counts = Counter(str(line["outcome"]) for line in lines)
    print(f"{len(lines)} programs: " + ", ".join(f"{counts[what]} {what}" for what in (RUNS, WRONG, REFUSED)))
    return 0 if counts[RUNS] == len(lines) else 1


if __name__ == "__main__":
    end_with(main)
