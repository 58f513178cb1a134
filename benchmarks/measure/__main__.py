"""Make records on the GPU that is here.

    python -m benchmarks.measure h200 split 'sweep-*'     writes benchmarks/h200-split.json and more

Without git history, HW4_COMMIT names the commit that is measured. Exit status: 1 if a record could not be made; 3, at
once, if the machine lacks what every record needs.
"""

import argparse
import shlex
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks import HERE, ROOT
from benchmarks.measure.recipes import RECIPES
from benchmarks.measure.scripts import end_with

LACKING = 3  # the exit status of hw4 where the machine lacks something


def names(pattern: str) -> list[str]:
    """The records that a name or a pattern of the shell means."""
    if found := [name for name in RECIPES if fnmatchcase(name, pattern)]:
        return found
    raise argparse.ArgumentTypeError(f"there is no record {pattern}: name some of {' '.join(RECIPES)}")


def place(name: str, gpu: str, folder: Path) -> Path:
    """Where a record is written."""
    return folder.resolve() / RECIPES[name].file.replace("GPU", gpu)


def commands(name: str, gpu: str, folder: Path) -> list[list[str]]:
    """What is run for a record, one after the other: programs as they are, modules by this Python."""
    recipe = RECIPES[name]
    output = str(place(name, gpu, folder))
    words = [*map(shlex.split, recipe.before), [*shlex.split(recipe.command), "--output", output]]
    return [one if one[0] == "make" else [sys.executable, "-m", *one] for one in words]


def main() -> int:
    """Make the records that are named; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.measure", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("gpu", metavar="GPU", help="its name in those of files, as h200")
    parser.add_argument(
        "records", metavar="RECORD", nargs="+", type=names, help="of benchmarks/README.md, or a pattern"
    )
    parser.add_argument("--folder", type=Path, default=HERE, help="where records are written  [default: benchmarks]")
    parser.add_argument("--print", action="store_true", help="print the commands, and run nothing")
    given = parser.parse_args()
    failed = False
    for name in dict.fromkeys(name for found in given.records for name in found):
        if not given.print:
            place(name, given.gpu, given.folder).parent.mkdir(parents=True, exist_ok=True)
        for command in commands(name, given.gpu, given.folder):
            if given.print:
                print(shlex.join(command))
                continue
            status = subprocess.run(command, cwd=ROOT).returncode
            if status == LACKING:
                return LACKING
            if status:
                failed = True
                break
    return int(failed)


if __name__ == "__main__":
    end_with(main)
