"""First runs: `hw4 IN OUT` and `hw4 judge` where kernels are missing, from every state that a cache can be in.

    python -m benchmarks.measure.first_runs --cases FOLDER --output benchmarks/starts/GPU.json

Each run of t01 to t10 has a cache of its own in one of the states: empty; with the kernels of t01 alone; with those of
another build alone; under a home that cannot be written; without HOME; on a file system that is full; and twice at the
same time. Each answer is compared with the case's. Then some of these as on a slow host: Python finds no bytecode, and,
if a warm t01 is still too fast, has fewer cores. Then all thirty are judged from each state. FOLDER has the cases
(`hw4 gen t01-t30`). As root, a full file system is made for the time; else that state is left out.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.measure.scripts import BEGAN, end_with, new_file, say, write_record
from hw4cli.lab.record import heading
from hw4cli.problem import suite
from hw4cli.problem.rules import TOLERANCE
from hw4cli.system.machine import machine

HW4 = [sys.executable, "-P", "-m", "hw4cli"]
SMALL = [f"t{number:02}" for number in range(1, 11)]
SLOW = 0.55  # seconds that a warm t01 takes on a slow host
SPARE = 0.75  # of a limit, that a first run may take
Env = dict[str, str]


def clean_env(folder: Path) -> Env:
    """The environment of a run: its caches and temporary files lie in a folder of its own."""
    unset = ("CUPY_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    home, temporary = folder / "home", folder / "tmp"
    home.mkdir(parents=True)
    temporary.mkdir()
    return {**kept, "PYTHONPATH": str(ROOT), "HOME": str(home), "TMPDIR": str(temporary)}


def cache_of(env: Env) -> Path:
    """The folder of kernels of a run's home."""
    return Path(env["HOME"], ".cupy", "kernel_cache")


@contextmanager
def no_change(env: Env, prepared: Path) -> Iterator[Env]:
    """An empty cache."""
    yield env


@contextmanager
def of_t01(env: Env, prepared: Path) -> Iterator[Env]:
    """The kernels of t01 alone."""
    shutil.copytree(prepared, cache_of(env))
    yield env


@contextmanager
def of_another_build(env: Env, prepared: Path) -> Iterator[Env]:
    """Kernels, but none of this build."""
    cache_of(env).mkdir(parents=True)
    for number, file in enumerate(prepared.iterdir()):
        shutil.copy(file, cache_of(env) / f"hw4-{number:040x}{file.suffix}")
    yield env


@contextmanager
def read_only_home(env: Env, prepared: Path) -> Iterator[Env]:
    """A home in which nobody, not even root, can make a folder."""
    yield {**env, "HOME": "/sys"}


@contextmanager
def no_home(env: Env, prepared: Path) -> Iterator[Env]:
    """HOME is not set."""
    yield {name: value for name, value in env.items() if name != "HOME"}


@contextmanager
def full(env: Env, prepared: Path) -> Iterator[Env]:
    """The cache's file system has room for no kernel. Raises CalledProcessError and OSError where none can be made."""
    place = cache_of(env)
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(place)], check=True, capture_output=True)
    try:
        yield env
    finally:
        subprocess.run(["umount", str(place)], check=False)


STATES: dict[str, Callable[[Env, Path], Any]] = {
    "empty": no_change,
    "of t01 alone": of_t01,
    "of another build": of_another_build,
    "home not writable": read_only_home,
    "no HOME": no_home,
    "file system full": full,
}


class Runs:
    """Runs of hw4 on the cases of a folder, in a temporary folder."""

    def __init__(self, cases: Path, temporary: Path) -> None:
        self.cases, self.temporary, self.number = cases, temporary, 0
        self.prepared = self._of_t01()

    def _of_t01(self) -> Path:
        env = clean_env(self.fresh())
        subprocess.run([*HW4, "doctor", "--prepare", "t01"], env=env, check=True, stdout=subprocess.DEVNULL)
        return cache_of(env)

    def fresh(self) -> Path:
        """A new folder."""
        self.number += 1
        return self.temporary / str(self.number)

    @contextmanager
    def state(self, name: str) -> Iterator[Env]:
        """The environment of runs whose cache is in a state."""
        folder = self.fresh()
        env = clean_env(folder)
        try:
            with STATES[name](env, self.prepared) as changed:
                yield changed
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, case: str, env: Mapping[str, str], prefix: Sequence[str] = (), at_once: int = 1) -> list[float]:
        """The seconds of runs of a case, all at the same time. Raises RuntimeError where an answer is wrong."""
        outputs = [self.temporary / f"{case}.{number}" for number in range(at_once)]
        begun, running, taken = [], [], []
        for output in outputs:
            begun.append(time.perf_counter())
            command = [*prefix, *HW4, str(self.cases / case), str(output), "--quiet"]
            running.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL))
        for process, began in zip(running, begun, strict=True):
            if process.wait():  # with a time limit, it would look every 50 ms
                raise RuntimeError(f"hw4 failed on {case}")
            taken.append(time.perf_counter() - began)
        expected = np.fromfile(self.cases / f"{case}.out", "<f4")
        for output in outputs:
            if not np.abs(np.fromfile(output, "<f4") - expected).max() <= TOLERANCE:
                raise RuntimeError(f"the answer of {case} is wrong")
            output.unlink()
        return taken

    def first_runs(
        self, state: str, prefix: Sequence[str] = (), at_once: int = 1, changed: Callable[[Env], Env] = dict
    ) -> list[dict[str, Any]]:
        """A first run of each small case from a state, in an environment that may be `changed` further."""
        rows = []
        for case in SMALL:
            with self.state(state) as found:
                env = changed(found)
                seconds = max(self.run(case, env, prefix, at_once))
            rows.append({"state": state if at_once == 1 else f"{state}, twice at once", "case": case, "s": seconds})
        return rows

    def warm(self, case: str, env: Mapping[str, str], runs: int, prefix: Sequence[str] = ()) -> float:
        """The median of runs, each of which finds all its kernels."""
        return statistics.median(self.run(case, env, prefix)[0] for _ in range(runs))

    def judged(self, state: str) -> dict[str, Any]:
        """What a judging of all thirty from a state came to."""
        with self.state(state) as env:
            began = time.perf_counter()
            command = [*HW4, "judge", "--dir", str(self.cases), "--json"]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - began
        [user] = json.loads(done.stdout)["standings"] if done.stdout else [{}]
        cases = user.get("results", [])
        shares = {one["case"]: one["wall"] / suite.cases()[one["case"]].limit for one in cases if one.get("wall")}
        worst = max(shares, key=lambda name: shares[name], default="")
        return {
            "state": state,
            "passed": sum(one["verdict"] == "AC" for one in cases),
            "of": len(suite.cases()),
            "command_s": seconds,
            "cases_s": sum(one.get("wall") or 0.0 for one in cases),
            "worst": worst,
            "worst_share_of_limit": shares.get(worst, 0.0),
        }


def as_on_a_slow_host(env: Env) -> Env:
    """The environment of a run that compiles all of Python's modules as it imports them."""
    return {**env, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": env["TMPDIR"]}


def slow_host(runs: Runs, usual: Env) -> tuple[list[str], str, float]:
    """On how many cores a warm t01 takes as long as on a slow host: the words before a command; how it is called; and
    the seconds that it takes."""
    found: tuple[list[str], str, float] = [], "", 0.0
    env = as_on_a_slow_host(usual)
    for cores in (16, 8, 4, 2, 1):
        if cores > (os.cpu_count() or 1):
            continue
        prefix = ["taskset", "-c", f"0-{cores - 1}"]
        found = prefix, f"no bytecode, {cores} cores", runs.warm("t01", env, 5, prefix)
        say(f"warm t01 without bytecode on {cores} cores: {found[2]:.3f} s")
        if found[2] >= SLOW:
            break
    return found


def main() -> int:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--cases", type=Path, required=True, help="the folder of the thirty cases")
    parser.add_argument("--output", type=new_file, required=True)
    parser.add_argument("--what", default="runs,slow,judge", help="the parts to measure  [default: all]")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing more after so long")
    given = parser.parse_args()
    record: dict[str, Any] = {**heading("first runs"), "machine": machine()}
    record |= {"warm": {}, "first_runs": [], "slow": {"first_runs": []}, "judged": []}

    def go_on(what: Callable[[], None], part: str = "") -> None:
        if part in ("", *given.what.split(",")) and time.monotonic() - BEGAN < given.seconds:
            try:
                what()
            except (OSError, RuntimeError, subprocess.SubprocessError, ValueError) as error:
                record.setdefault("left_out", []).append(str(error))
                say(f"left out: {error}")
            write_record(given.output, record)

    def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        worst = max(rows, key=lambda row: row["s"])
        times = " ".join(f"{row['s']:.2f}" for row in rows)
        say(f"{rows[0]['state']}: {times} s; worst {worst['case']}")
        return rows

    def first_runs(state: str, at_once: int = 1) -> None:
        record["first_runs"] += shown(runs.first_runs(state, at_once=at_once))

    with tempfile.TemporaryDirectory(prefix="hw4-first-") as folder:
        runs = Runs(given.cases, Path(folder))
        usual = clean_env(runs.fresh())

        def prepare() -> None:
            began = time.perf_counter()
            done = subprocess.run([*HW4, "doctor", "--prepare"], env=usual, check=True, capture_output=True, text=True)
            record["prepared"] = {"said": done.stdout.strip(), "s": time.perf_counter() - began}
            say(f"{done.stdout.strip()} ({record['prepared']['s']:.2f} s)")
            record["warm"] = {case: runs.warm(case, usual, 5) for case in ("t01", "t08", "t10")}
            say(f"warm: {record['warm']}")

        go_on(prepare)
        for state in STATES:
            go_on(lambda state=state: first_runs(state), "runs")  # type: ignore[misc]
        go_on(lambda: first_runs("empty", at_once=2), "runs")

        def slow() -> None:
            prefix, how, seconds = slow_host(runs, usual)
            record["slow"] |= {"how": how, "warm_t01": seconds}
            for state, at_once in (("empty", 1), ("of t01 alone", 1), ("empty", 2)):
                record["slow"]["first_runs"] += shown(runs.first_runs(state, prefix, at_once, as_on_a_slow_host))

        go_on(slow, "slow")

        def judge(state: str) -> None:
            record["judged"].append(runs.judged(state))
            say(f"judged: {record['judged'][-1]}")

        for state in STATES:
            go_on(lambda state=state: judge(state), "judge")  # type: ignore[misc]
    late = [row for row in record["first_runs"] + record["slow"]["first_runs"] if row["s"] > SPARE * 2.0]
    failed = [one for one in record["judged"] if one["passed"] < one["of"]]
    say(f"{len(late)} first runs took more than {SPARE * 2.0:g} s; {len(failed)} judgings had fewer AC than cases")
    return int(bool(late or failed))


if __name__ == "__main__":
    end_with(main)
