"""Mutations of the project's own kernels, drawn by a seed, and how many of them the emulator finds.

    python -m benchmarks.measure.mutations draw 40 --seed 41 -o drawn.json
    python -m benchmarks.measure.mutations run drawn.json -o found.json

`draw` takes the kinds of mistakes in turn, of each a kernel file, then a place in it. What does not compile is left
out, as are changes that are known already. `run` puts each change into every kernel that includes the file, on every
compute capability that has other text, as `hw4 check --run` and the checks of arrays do, until a mistake is found. One
that is found nowhere is to be read: it may leave the answer as it is.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.measure.scripts import end_with, listed, new_file
from hw4cli.emulator.build import RACE, find_compiler, shared_object
from hw4cli.emulator.check import ALL_CAUSAL, ALL_FULL, EQUAL, RANDOM_DATA, check_kernel, trials_of
from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.lab.arrays.check import BACKWARD, FORWARD, NORMAL, Trial, check_trial
from hw4cli.plans import gradients
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.resources import data_path, kernel_path, spliced

KNOWN = data_path("tests/emulator/mutations.json")
# The emulator has these headers' instructions itself (kernels/emulator/headers), or they are no part of an answer.
REPLACED = {"ptx.cuh", "mma.cuh", "bulk.cuh", "wgmma.cuh", "matrix.cuh", "sixteen.cuh", "hopper.cuh"}
NOT_KERNELS = {"stamps.cuh", "platform.cuh", "params.cuh"}
CAPABILITIES = (80, 90)
FEW_DATA = (RANDOM_DATA, EQUAL)
# Of each kind: what is looked for in a line of code, and what takes its place.
Change = str | Callable[[re.Match[str]], str]
KINDS: dict[str, list[tuple[str, Change]]] = {
    "synchronisation": [
        (r"\b__sync(?:threads|warp)\([^;]*\);", ";"),
        (r"\b\w*(?:wait|arrive|fence|commit|expect)\w*(?:<[^;]*>)?\([^;{}]*\);", ";"),
    ],
    "bound": [
        (r"(?<![<=>-])<(?![<=])(?= )", "<="),
        (r"<=(?= )", "<"),
        (r"(?<![->=])>(?![>=])(?= )", ">="),
        (r">=(?= )", ">"),
    ],
    "offset": [(r"(?<=[\w\])]) \+ (?=[\w(])", " - "), (r"(?<=[\w\])]) - (?=[\w(])", " + ")],
    "index": [(r"(?<=[\w\])]) / (?=[\w(])", " % "), (r"(?<=[\w\])]) % (?=[\w(])", " / ")],
    "condition": [
        (r"\? ([\w.\[\]]+) : ([\w.\[\]]+)", lambda found: f"? {found[2]} : {found[1]}"),
        (r" && ", " || "),
        (r" == ", " != "),
    ],
    "extremum": [
        (r"\bfmaxf\(", "fminf("),
        (r"\bfminf\(", "fmaxf("),
        (r"\bmax\(", "min("),
        (r"\bmin\(", "max("),
    ],
    "statement": [(r"(?<=^)(\s+)[\w.\[\]>-]+(?:\[[^\]]*\])? [*+|]?= [^;{}]*;$", r"\1;")],
    "width": [(r"\(long long\)|\(size_t\)", "")],
}


def sites(name: str) -> Iterator[tuple[str, str, str]]:
    """The places of a kernel file: the kind of change, a text that the file has once, and what takes its place."""
    text = data_path(f"kernels/{name}").read_text(encoding="utf-8")
    lines = text.split("\n")
    for number, line in enumerate(lines):
        code = line.split("//")[0].rstrip()
        if not code.startswith((" ", "\t")) or code.lstrip().startswith(
            ("#", "static_assert", "template", "constexpr")
        ):
            continue
        for kind, changes in KINDS.items():
            for pattern, change in changes:
                for found in re.finditer(pattern, code):
                    new = code[: found.start()] + found.expand(change) if isinstance(change, str) else ""
                    if not isinstance(change, str):
                        new = code[: found.start()] + change(found)
                    new += line[found.end() :]
                    first = number
                    while text.count("\n".join(lines[first : number + 1])) > 1 and first:
                        first -= 1
                    before = lines[first:number]
                    if new == line:
                        continue
                    yield kind, "\n".join([*before, line]), "\n".join([*before, new])


@dataclass(frozen=True)
class Target:
    """A kernel on a compute capability."""

    kernel: str
    cc: int

    @property
    def trials(self) -> list[Trial]:
        """Its trials with arrays; of a kernel of the ladder none."""
        return [trial for trial in (*FORWARD, *BACKWARD) if (trial.kernel, trial.cc) == (self.kernel, self.cc)]

    def plans(self) -> Iterator[Any]:
        """What is compiled for its trials."""
        props = DEVICES[self.cc]
        if self.kernel in VARIANTS:
            with suppress(Hw4Error):  # it may need another GPU
                for shapes in (ALL_FULL, ALL_CAUSAL):
                    yield from (trial.plan for trial in trials_of(VARIANTS[self.kernel], props, shapes))
        for trial in self.trials:
            own, what = replace(props, sms=trial.sms or props.sms), (trial.kernel, trial.tiling)
            yield plan16(trial.work, own, *what) if trial in FORWARD else gradients.plan(trial.work, own, *what)


@cache
def targets(name: str) -> tuple[Target, ...]:
    """The kernels whose text includes a file, each on the capabilities where it does; those of short texts first."""
    every = [Target(kernel, cc) for kernel in VARIANTS for cc in CAPABILITIES]
    every += dict.fromkeys(Target(trial.kernel, trial.cc) for trial in (*FORWARD, *BACKWARD))
    sizes = {one: [len(_text(plan.source)) for plan in one.plans() if _includes(plan.source, name)] for one in every}
    return tuple(sorted((one for one in every if sizes[one]), key=lambda one: min(sizes[one])))


@cache
def _text(source: str) -> str:
    path = kernel_path(source)
    return spliced(path, (data_path("kernels/emulator/headers"), path.parent))


def _includes(source: str, name: str) -> bool:
    return f'#line 1 "{name}"' in _text(source)


def compiles(one: dict[str, str]) -> bool:
    """Whether a kernel that includes the file compiles with the change, for the CPU."""
    target = targets(one["file"])[0]
    plan = next(plan for plan in target.plans() if _includes(plan.source, one["file"]))
    main = kernel_path(plan.source)
    with tempfile.TemporaryDirectory() as folder:
        for name in {main.name, one["file"]}:
            text = data_path(f"kernels/{name}").read_text(encoding="utf-8")
            text = text.replace(one["old"], one["new"]) if name == one["file"] else text
            Path(folder, name).write_text(text, encoding="utf-8")
        try:
            shared_object(Path(folder, main.name), plan.macros, target.cc, 32, RACE)
        except Hw4Error:
            return False
    return True


def draw(count: int, seed: int) -> list[dict[str, str]]:
    """So many changes, each of another place."""
    rng = random.Random(seed)
    known = {(one["file"], one["new"]) for one in json.loads(KNOWN.read_text(encoding="utf-8"))}
    names = sorted(path.name for path in data_path("kernels").glob("*.cu*"))
    places: dict[str, dict[str, list[tuple[str, str]]]] = {kind: {} for kind in KINDS}
    for name in names:
        if name in REPLACED | NOT_KERNELS or not targets(name):
            continue
        for kind, old, new in sites(name):
            if (name, new) not in known:
                places[kind].setdefault(name, []).append((old, new))
    drawn: list[dict[str, str]] = []
    while len(drawn) < count:
        kind = [*KINDS][len(drawn) % len(KINDS)]
        name = rng.choice(sorted(places[kind]))
        old, new = places[kind][name].pop(rng.randrange(len(places[kind][name])))
        if not places[kind][name]:
            del places[kind][name]
        one = {"kind": kind, "file": name, "old": old, "new": new}
        if compiles(one):
            drawn.append(one)
    return drawn


def find(one: dict[str, str], few: bool) -> str:
    """The first mistake that is found with a change, made in a copy of this tree, or "": by `few` trials or all."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("hw4cli", "kernels", "benchmarks/measure", "tests/emulator"):
            shutil.copytree(data_path(name), Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        Path(folder, "benchmarks/__init__.py").touch()
        file = Path(folder, "kernels", one["file"])
        text = file.read_text(encoding="utf-8")
        if text.count(one["old"]) != 1:
            raise InputError(f"{one['file']} does not have once what is to be changed: {one['old']}")
        file.write_text(text.replace(one["old"], one["new"]), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.measure.mutations", "first", one["file"]] + ["--few"] * few
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise MachineError(f"the check of a change failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.strip()


def first_mistake(name: str, few: bool) -> str:
    """The first mistake that the kernels with a file show, or "": by a few of each one's trials, then by all."""
    for thorough in (False, True)[: 1 if few else 2]:
        for target in targets(name):
            for sentence in _found(target, name, thorough):
                return sentence
    return ""


def _found(target: Target, name: str, thorough: bool) -> Iterator[str]:
    for trial in target.trials:
        if thorough or trial.data == NORMAL:
            yield from check_trial(trial)
    if target.kernel not in VARIANTS:
        return
    variant, props = VARIANTS[target.kernel], DEVICES[target.cc]
    if thorough:
        for shapes in (ALL_FULL, ALL_CAUSAL):
            yield from map(str, check_kernel(variant, props=props, shapes=shapes))
        return
    of_file = [x.shape for x in trials_of(variant, props) if _includes(x.plan.source, name) and x.shape.Nq > 1]
    yield from map(str, check_kernel(variant, props=props, shapes=of_file[:1], data=FEW_DATA, builds=[RACE]))


def main() -> None:
    """Draw changes, or run what was drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="draw changes")
    drawing.add_argument("count", type=int)
    drawing.add_argument("--seed", type=int, required=True)
    running = commands.add_parser("run", help="look for what was drawn")
    running.add_argument("drawn", type=Path)
    running.add_argument("--only", type=int, nargs="*", help="numbers in the file, from 0 on")
    first = commands.add_parser("first", help="the first mistake of the kernels with a file")
    first.add_argument("file")
    for one in (first, running):
        one.add_argument("--few", action="store_true", help="a few trials of each kernel alone")
    for one in (drawing, running):
        one.add_argument("-o", dest="output", type=new_file, required=True)
    given = parser.parse_args()
    find_compiler()
    if given.command == "first":
        print(first_mistake(given.file, given.few))
        return
    if given.command == "draw":
        _write(given.output, draw(given.count, given.seed))
        return
    done = listed(given.output) if given.output.exists() else []
    for number, one in enumerate(listed(given.drawn)):
        if (given.only is not None and number not in given.only) or number in {old["number"] for old in done}:
            continue
        start = time.monotonic()
        try:
            sentence = find(one, given.few)
        except Hw4Error as error:
            sentence = f"error: {error}"
        done.append({"number": number, **one, "finding": sentence, "seconds": round(time.monotonic() - start)})
        _write(given.output, done)
        print(f"{number} {one['file']} {one['kind']}: {sentence or 'NOT FOUND'}", flush=True)


def _write(path: Path, records: list[Any]) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    end_with(main)
