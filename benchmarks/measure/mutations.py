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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hw4cli.emulator.build import RACE, find_compiler, shared_object
from hw4cli.emulator.check import ALL_CAUSAL, ALL_FULL, EQUAL, RANDOM_DATA, check_kernel
from hw4cli.errors import Hw4Error
from hw4cli.lab.arrays.check import BACKWARD, FORWARD, NORMAL, Trial, check_trial
from hw4cli.plans import gradients
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Workload
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
                    yield kind, "\n".join([*before, line]), "\n".join([*before, new])


@cache
def kernels_with(name: str) -> tuple["Target", ...]:
    """The kernels, with a file of each, whose text includes a file; those of short texts first."""
    found: dict[Target, int] = {}
    for variant in VARIANTS.values():
        for cc in CAPABILITIES:
            for shape in (*ALL_FULL, *ALL_CAUSAL):
                with suppress(Hw4Error):
                    path = kernel_path(variant.plan(shape, DEVICES[cc]).source)
                    target = Target(variant.name, path, cc)
                    if target not in found and _includes(path, name):
                        found[target] = path.stat().st_size
    for trial in (*FORWARD, *BACKWARD):
        path = kernel_path(_plan_of(trial).source)
        if _includes(path, name):
            found[Target(trial.kernel, path, trial.cc)] = path.stat().st_size
    return tuple(sorted(found, key=lambda one: found[one]))


@dataclass(frozen=True)
class Target:
    """A kernel, one of its files, and the compute capability on which it is this one."""

    kernel: str
    main: Path
    cc: int

    def shapes(self, of: Sequence[Workload]) -> list[Workload]:
        """Those of the ladder's shapes that this file computes."""
        props = DEVICES[self.cc]
        return [x for x in of if kernel_path(VARIANTS[self.kernel].plan(x, props).source) == self.main]

    def trials(self) -> list[Trial]:
        """The trials with arrays that this file computes."""
        return [
            x for x in (*FORWARD, *BACKWARD) if x.kernel == self.kernel and kernel_path(_plan_of(x).source) == self.main
        ]


def _plan_of(trial: Trial) -> Any:
    props = replace(DEVICES[trial.cc], sms=trial.sms or DEVICES[trial.cc].sms)
    if trial in FORWARD:
        return plan16(trial.work, props, trial.kernel, trial.tiling)
    return gradients.plan(trial.work, props, trial.kernel, trial.tiling)


@cache
def _includes(path: Path, name: str) -> bool:
    folders = (data_path("kernels/emulator/headers"), path.parent, data_path("kernels"))
    return f'#line 1 "{name}"' in spliced(path, folders)


def changed(one: dict[str, str], main: Path, folder: Path) -> Path:
    """A kernel's file in a folder, with a change in it or in a file that it includes."""
    for name in {main.name, one["file"]}:
        text = data_path(f"kernels/{name}").read_text(encoding="utf-8")
        text = text.replace(one["old"], one["new"]) if name == one["file"] else text
        (folder / name).write_text(text, encoding="utf-8")
    return folder / main.name


def compiles(one: dict[str, str]) -> bool:
    """Whether the first kernel that includes the file compiles with the change, for the CPU."""
    target = kernels_with(one["file"])[0]
    if target.kernel in VARIANTS:
        shape = target.shapes((*ALL_FULL, *ALL_CAUSAL))[0]
        macros = VARIANTS[target.kernel].plan(shape, DEVICES[target.cc]).macros
    else:
        macros = _plan_of(target.trials()[0]).macros
    with tempfile.TemporaryDirectory() as name:
        try:
            shared_object(changed(one, target.main, Path(name)), macros, target.cc, 32, RACE)
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
        if name in REPLACED | NOT_KERNELS or not kernels_with(name):
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


def find(one: dict[str, str]) -> str:
    """The first mistake that is found with a change, or "": by few shapes of every kernel first, then by all."""
    for thorough in (False, True):
        for target in kernels_with(one["file"]):
            with tempfile.TemporaryDirectory() as name:
                for sentence in _found(target, changed(one, target.main, Path(name)), thorough):
                    return sentence
    return ""


def _found(target: Target, source: Path, thorough: bool) -> Iterator[str]:
    if target.kernel not in VARIANTS:
        for trial in target.trials():
            if thorough or trial.data == NORMAL:
                yield from check_trial(trial, source)
        return
    variant, props = VARIANTS[target.kernel], DEVICES[target.cc]
    if not thorough:
        shapes = [x for x in target.shapes(ALL_FULL) if x.Nq > 1][:1]
        yield from map(str, check_kernel(variant, source, props=props, shapes=shapes, data=FEW_DATA, builds=[RACE]))
        return
    for every in (ALL_FULL, ALL_CAUSAL):
        yield from map(str, check_kernel(variant, source, props=props, shapes=target.shapes(every)))


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
    for one in (drawing, running):
        one.add_argument("-o", dest="output", type=Path, required=True)
    given = parser.parse_args()
    find_compiler()
    if given.command == "draw":
        _write(given.output, draw(given.count, given.seed))
        return
    done = json.loads(given.output.read_text(encoding="utf-8")) if given.output.exists() else []
    for number, one in enumerate(json.loads(given.drawn.read_text(encoding="utf-8"))):
        if (given.only is not None and number not in given.only) or number in {old["number"] for old in done}:
            continue
        start = time.process_time()
        try:
            sentence = find(one)
        except Hw4Error as error:
            sentence = f"error: {error}"
        done.append({"number": number, **one, "finding": sentence, "seconds": round(time.process_time() - start)})
        _write(given.output, done)
        print(f"{number} {one['file']} {one['kind']}: {sentence or 'NOT FOUND'}", flush=True)


def _write(path: Path, records: list[Any]) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
