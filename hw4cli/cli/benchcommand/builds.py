"""`hw4 bench --against BUILD`: another build, or another commit, in turns with this one, each run a process of its own.

Times of one process differ less than those of several: memory lies elsewhere, clocks are others. So a difference is
said to be one only if every pair of neighbouring processes shows it.
"""

import io
import json
import os
import statistics
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hw4cli.cli.benchcommand.shown import publish
from hw4cli.cli.terminal.options import is_given
from hw4cli.errors import InputError, MachineError, os_error
from hw4cli.lab.record import commit, git
from hw4cli.lab.tables import BUILDS, SCHEMA
from hw4cli.plans.plan import knobs_of
from hw4cli.resources import IMPORT_PATH, data_path
from hw4cli.system.process import run_with_descendants
from hw4cli.text.dates import today
from hw4cli.text.words import printable

OTHER, THIS = "A", "B"
SURE = 6  # pairs that must all agree: by chance, one in 32 experiments would
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Build:
    """A build: its letter, the folder that holds its package, and what it was made from."""

    letter: str
    folder: Path
    source: str


def bench_builds(
    arguments: Sequence[str], other: str | None, processes: int, as_json: bool, outputs: Sequence[Path]
) -> int:
    """Run `hw4 bench ARGUMENTS` of the other build and of this one in turns, so many processes of each, and print the
    record of both; without another one, of this one alone. The command's exit status."""
    root, here = data_path("kernels").parent, Build(THIS, Path(IMPORT_PATH), commit() or "this one")
    with _unpacked(other, root) as there:
        builds = ([there] if there else []) + [here]
        runs: dict[str, list[Rows]] = {build.letter: [] for build in builds}
        machine: dict[str, Any] = {}
        for turn in range(processes):
            for build in builds:
                print(f"{build.letter} {turn + 1} of {processes}: {printable(build.source)} …", file=sys.stderr)
                record = _record_of(build, arguments)
                runs[build.letter].append(record["rows"])
                machine = record["machine"]
        result: dict[str, Any] = {
            "schema": SCHEMA,
            "kind": BUILDS,
            "date": today(),
            "machine": machine,
            "command": ["hw4", "bench", *arguments],
            "builds": {build.letter: build.source for build in builds},
            "processes": processes,
            "rows": compared(runs),
        }
    publish(result, as_json, outputs)
    return 0 if all(row["status"] == "ok" for row in result["rows"]) else 1


def compared(runs: dict[str, list[Rows]]) -> Rows:
    """Of each kernel and case a row for each build: the median of its processes' medians, the spread within and between
    them, and (of this build) how it compares with the other one."""
    rows: Rows = []
    keys = dict.fromkeys((row["kernel"], row["case"]) for all_of in runs.values() for one in all_of for row in one)
    for kernel, case in keys:
        first: list[float] | None = None
        for letter, all_of in runs.items():
            found = [row for one in all_of for row in one if (row["kernel"], row["case"]) == (kernel, case)]
            bad = next((row for row in found if row["status"] != "ok"), None)
            row: dict[str, Any] = {"kernel": kernel, "case": case, "build": letter, "status": "ok", "reason": ""}
            if bad or len(found) < len(all_of):
                reason = bad["reason"] if bad else "not every process measured it"
                rows.append({**row, "status": bad["status"] if bad else "failed", "reason": reason, **_NONE})
                continue
            medians = [float(one["median"]) for one in found]
            within = statistics.median((one["high"] - one["low"]) / 2 / one["median"] for one in found)
            rows.append({**row, **_NONE, "shape": found[0]["shape"], **_figures(medians, within)})
            if first is not None:
                rows[-1].update(against(first, medians))
            first = medians
    return rows


_NONE = dict.fromkeys(("shape", "median", "within", "between", "ratio", "least", "most", "verdict"))


def _figures(medians: Sequence[float], within: float) -> dict[str, Any]:
    """`within`: half the interval of a process's median; `between`: the standard deviation of processes' medians; both
    relative to the median."""
    middle = statistics.median(medians)
    between = statistics.stdev(medians) / middle if len(medians) > 1 else None
    return {"median": middle, "within": within, "between": between, "medians": [*medians]}


def against(other: Sequence[float], this: Sequence[float]) -> dict[str, Any]:
    """The ratio of this build's time to the other's, the least and the most of all pairs of neighbouring processes,
    and whether it is "faster" or "slower" in every one of SURE pairs or more; else "no difference seen"."""
    ratios = [mine / theirs for theirs, mine in zip(other, this, strict=True)]
    least, most = min(ratios), max(ratios)
    verdict = "no difference seen" if least <= 1 <= most else "faster" if most < 1 else "slower"
    if len(ratios) < SURE and verdict != "no difference seen":
        verdict = f"perhaps {verdict}: give {SURE} processes"
    return {"ratio": statistics.median(ratios), "least": least, "most": most, "verdict": verdict}


def _record_of(build: Build, arguments: Sequence[str]) -> dict[str, Any]:
    """The record that a build's `hw4 bench` prints in a process of its own. MachineError if it prints none."""
    command = [sys.executable, "-P", "-c", START.format(path=str(build.folder)), "bench", *arguments]
    env = {**os.environ, "HW4_COMMIT": build.source}
    try:
        stdout, stderr, status = run_with_descendants([*command, "--json"], env)
    except OSError as error:
        raise os_error(error, f"start build {build.letter}") from None
    try:
        record = json.loads(stdout)
        if {*record} >= {"rows", "machine"}:
            return dict(record)
    except (ValueError, TypeError):
        pass
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    said = printable(lines[-1].strip().removeprefix("hw4: ")) if lines else "it printed nothing"
    raise MachineError(f"build {build.letter} ({printable(build.source)}) ended with status {status}: {said}")


START = "import sys; sys.path.insert(0, {path!r}); sys.argv[0] = 'hw4'; from hw4cli.entry import main; main()"


@contextmanager
def _unpacked(other: str | None, root: Path) -> Iterator[Build | None]:
    """The other build: a folder that holds one, or a commit of this source tree, unpacked for as long as it is needed.

    Raises InputError if it is neither.
    """
    if other is None:
        yield None
    elif (folder := Path(other)).is_dir():
        if not (folder / "hw4cli/entry.py").is_file():
            raise InputError(f"{other} holds no build of hw4: there is no hw4cli/entry.py in it")
        yield Build(OTHER, folder.resolve(), str(folder))
    else:
        archive, name = _archived(other, root)
        with tempfile.TemporaryDirectory(prefix="hw4-build-") as place:
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                files.extractall(place)
            yield Build(OTHER, Path(place), name)


def _archived(revision: str, root: Path) -> tuple[bytes, str]:
    """A commit's files as a zip archive, and its short name."""
    named = git(root, "rev-parse", "--short", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    if named is None:
        raise InputError(f"{revision} is neither a folder nor a commit of {root}: give one of the two to --against")
    name = named.decode().strip()
    archive = git(root, "archive", "--format=zip", name, "hw4cli", "kernels", "testcases")
    if archive is None:
        raise InputError(f"commit {name} has no build of hw4: hw4cli, kernels or testcases is missing in it")
    return archive, name


Format = Callable[[Any], str]
# How the value of each option is given to a process; flags are None.
GIVEN: dict[str, tuple[str, Format | None]] = {
    "causal": ("--causal", None),
    "direction": ("--pass", str),
    "tiles": ("--tile", lambda tile: ",".join([f"{tile['BR']}x{tile['BC']}", *knobs_of(tile)])),
    "warm": ("--warm", None),
    "peers": ("--peers", str),
    "samples": ("--samples", str),
    "error": ("--error", str),
    "pause": ("--pause", str),
    "sustained": ("--sustained", None),
}


def arguments_of(ctx: click.Context) -> list[str]:
    """The arguments of `hw4 bench` that were given, for a process in another build."""
    what = ctx.params["what"]
    words = [str(Path(name).resolve()) if name.endswith(".cu") else name for name in what.kernels]
    words += [*filter(None, [what.cases]), *(",".join(map(str, shape.sizes)) for shape in what.shapes)]
    words += what.workloads
    for name, (option, form) in GIVEN.items():
        if not is_given(ctx, name):
            continue
        value = ctx.params[name]
        if name == "peers":
            words += [option, ",".join(value)]
        elif form is None:
            words += [option]
        else:
            words += [
                word for one in (value if isinstance(value, (list, tuple)) else [value]) for word in (option, form(one))
            ]
    return words
