"""How one file's time shrinks with more GPUs of a host, and how it stays with more work: strong and weak scaling.

    NCCL_NVLS_ENABLE=0 python -m benchmarks.measure.scaling --output record.json --gpus 1,2,4,8 --sequence

Random files of the workloads' shapes are written into a new folder in --folder, one at a time; the largest and its
output take 8.6 GB. Every run is `hw4 IN OUT --gpus count:N --timing` as a process of its own; of its time, "stream" is
what is behind its start: the first GPU is open, the first byte not yet read. Some rows of an output are compared with
float64; it must have the same bytes for all N. An error of 5e-3 is allowed, the assignment's tolerance: with less, the
longest files have no fast kernel whose bound is proven.

The record is written after each measurement, the most important first, and the same command goes on with what a record
of this machine lacks. Two GPUs need 100 s for all of it.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure.randomfiles import File, Sizes, digest, worst_error
from benchmarks.measure.scripts import end_with, new_file, say, write_record
from hw4cli.device.gpu import Gpu
from hw4cli.doctor.measure import measured as measured_rates
from hw4cli.doctor.measure import rate_of
from hw4cli.lab.record import commit
from hw4cli.lab.tables import SCHEMA
from hw4cli.problem.workload import Shape
from hw4cli.show.scaling import prediction_of, rates_in
from hw4cli.system.files import NULL
from hw4cli.system.machine import machine
from hw4cli.text.dates import today

STRONG = {"large": (8, 1 << 20, 64), "t22": (500, 2048, 64), "t12": (9600, 128, 64), "one batch": (1, 1 << 21, 64)}
WEAK = (1, 1 << 20, 64)  # a GPU
ALLOWED = ("--max-error", "0.005")
KERNELS = "split8", "split", "exact"  # that answer these files, from fast to slow; the rate of each is measured
ONCE = 1.5  # seconds: a longer run is not repeated, as its spread is 1 %
START = 2.0  # seconds of a process before and behind its stream, and of checking its output
WARM_ROWS, FEW_ROWS = 1 << 17, 1 << 16  # of a warm-up; of a file that stays as it is, whatever is tried


def record_in(path: Path) -> dict[str, Any]:
    """The record in a file. Raises SystemExit with a sentence if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SystemExit(f"cannot go on with {path}: {error}: name another file by --output") from None
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list):
        raise SystemExit(f"{path} is not a record of several GPUs: name another file by --output")
    return found


def gpu_counts(text: str) -> list[int]:
    """1,2,4 as numbers, the least first."""
    counts = text.split(",")
    if not all(one.isdecimal() and int(one) > 0 for one in counts):
        raise argparse.ArgumentTypeError(f"{text!r}: give numbers of GPUs, as 1,2,4")
    return sorted(map(int, counts))


def strong_names(text: str) -> list[str]:
    """Names of STRONG, none if the text is empty."""
    names = [one for one in text.split(",") if one]
    if not {*names} <= {*STRONG}:
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {', '.join(STRONG)}")
    return names


def existing_folder(text: str) -> Path:
    """A folder that is there."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text)


class Journal:
    """A record, on disk after each of its rows; those of an earlier call on this machine count."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._end, self.failed = path, time.monotonic() + seconds, False
        here = {"commit": commit(), "machine": machine()}
        self.record: dict[str, Any] = {"schema": SCHEMA, "kind": "scaling", **here, "rates": None, "rows": []}
        if path.exists():
            found = record_in(path)
            if any(found.get(key) != here[key] for key in here):
                raise SystemExit(f"{path} is a record of another machine or commit: name another file by --output")
            self.record = found
        self.record["date"] = today()

    def lacks(self, **row: Any) -> bool:
        """Whether a row with these values is to be measured: there is none, and there is time."""
        if any(all(found.get(key) == value for key, value in row.items()) for found in self.record["rows"]):
            return False
        return self.allows(0, row)

    def allows(self, seconds: float, row: dict[str, Any]) -> bool:
        """Whether there is time for a measurement that takes so long."""
        if time.monotonic() + seconds > self._end:
            say(f"no time left for {row}")
            return False
        return True

    def add(self, **row: Any) -> None:
        """Write one more row."""
        self.record["rows"].append(row)
        self.save()

    def attempt(self, measure: Callable[..., None], *given: Any) -> None:
        """Measure; what fails is reported, and the rest goes on."""
        try:
            measure(*given)
        except Exception as error:
            self.failed = True
            say(f"FAILED: {measure.__name__} {given}: {type(error).__name__}: {error}")

    def save(self) -> None:
        """Write the record: the whole of it, or nothing."""
        write_record(self._path, self.record)


def run(source: Path, target: Path, *options: str) -> tuple[float, float, str, list[float]]:
    """One process: seconds of its stream, of all of it, the kernel that computed, and when further GPUs began."""
    command = [sys.executable, "-m", "hw4cli", str(source), str(target), "--timing", *options]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    wall = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    found = {name: float(value) for name, value in re.findall(r"^(start|total) +([\d.]+) s", done.stderr, re.MULTILINE)}
    kernels = re.findall(r"by (\w+), error", done.stderr)
    joined = [float(seconds) for seconds in re.findall(r"\(from ([\d.]+) s on\)", done.stderr)]
    return found["total"] - found["start"], wall, ", ".join(kernels), joined


class Scaling:
    """What measures: the journal, and how."""

    def __init__(self, journal: Journal, counts: list[int], runs: int, folder: Path, cpu: bool) -> None:
        self.journal, self.counts, self.runs, self.folder, self.cpu = journal, counts, runs, folder, cpu
        self._warm: set[Sizes] = set()  # for which kernels are compiled

    def rates(self) -> None:
        """The machine's rates, from which the model predicts."""
        if not self.journal.record["rates"]:
            self._warm_up(self.folder / "in", (1, WARM_ROWS, WEAK[2]))
            rates, by = measured_rates(self.folder)
            kernels = {} if self.cpu or not rates.to_gpu else {name: rate_of(Gpu(), name) for name in KERNELS}
            self.journal.record["rates"] = {**asdict(rates), "by": by, "kernels": kernels}
            self.journal.save()
        say(f"rates: {self.journal.record['rates']}")

    def strong(self, name: str, shape: Sizes) -> None:
        """The same file by more GPUs; by the most at first, so that much is known soon."""
        missing = [n for n in reversed(self.counts) if self.journal.lacks(what="strong", name=name, gpus=n)]
        if missing:
            with File(self.folder / "in", shape, f"strong, {name}") as source:
                self._measure(source, "strong", name, shape, missing)

    def weak(self, batch: Sizes) -> None:
        """As many batches as GPUs."""
        for count in self.counts:
            if self.journal.lacks(what="weak", gpus=count):
                shape = (batch[0] * count, *batch[1:])
                with File(self.folder / "in", shape, "weak") as source:
                    self._measure(source, "weak", "weak", shape, [count])

    def _measure(self, source: Path, what: str, name: str, shape: Sizes, counts: list[int]) -> None:
        target, errors = self.folder / "out", dict[str, float]()
        self._warm_up(source, shape)
        for count in counts:
            row = {"what": what, "name": name, "gpus": count}
            if not self.journal.lacks(**row) or not self.journal.allows(self._longest(shape, count), row):
                continue
            times: list[tuple[float, float]] = []
            while len(times) < self.runs and not (times and times[0][1] > ONCE):
                stream_s, wall_s, kernel, joined = run(source, target, *self._gpus(count))
                times.append((stream_s, wall_s))
            stream, wall = (statistics.median(values) for values in zip(*times, strict=True))
            checksum = digest(target)
            if checksum not in errors:
                errors[checksum] = worst_error(source, target, shape)
            found = {"joined": joined, "digest": checksum, "max_error": errors[checksum]}
            self.journal.add(**row, shape=shape, kernel=kernel, seconds=times, stream=stream, wall=wall, **found)
            model = self._predicted(shape, kernel, count)
            say(
                f"  {count} GPUs, {kernel}: stream {stream:.3f} s (predicted {model:.3f}), process {wall:.3f} s, "
                f"others from {joined} s on, largest error of some rows {errors[checksum]:.1e}"
            )
        if errors:
            say(f"  outputs {'DIFFER' if len(errors) > 1 else 'are equal'}")
        target.unlink(missing_ok=True)

    def _warm_up(self, source: Path, shape: Sizes) -> None:
        """Have a file's kernels compiled: by itself, or, all that long files take, side by side, by a file with as few
        rows as are still computed in ranges."""
        few = 1, min(shape[1], WARM_ROWS), shape[2]
        if few in self._warm:
            return
        self._warm.add(few)
        if shape[1] < WARM_ROWS:
            run(source, self.folder / "out", *self._gpus(1))
        elif not self.cpu:
            with File(self.folder / "warm", few) as small, ThreadPoolExecutor() as pool:
                each = (pool.submit(run, small, NULL, *self._gpus(1), "--kernel", name) for name in KERNELS)
                for one in list(each):
                    one.result()

    def _longest(self, shape: Sizes, count: int) -> float:
        """Seconds that a run and its check take at most, by the slowest of the kernels."""
        return START + 1.2 * self._predicted(shape, KERNELS[-1], count)

    def _predicted(self, sizes: Sizes, kernel: str, count: int) -> float:
        return prediction_of(Shape(*sizes), rates_in(self.journal.record)(kernel), count).seconds

    def _gpus(self, count: int) -> tuple[str, ...]:
        return *ALLOWED, *(("--device", "cpu") if self.cpu else ("--gpus", f"count:{count}"))


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file, required=True, help="the record; one that is there is gone on with")
    parser.add_argument("--gpus", type=gpu_counts, default="1,2,4,8", help="numbers of GPUs")
    parser.add_argument("--runs", type=int, default=3, help=f"of each, unless one takes more than {ONCE:g} s")
    parser.add_argument("--folder", type=existing_folder, default="/dev/shm", help="for the files")
    parser.add_argument("--strong", type=strong_names, default=",".join(STRONG), help="workloads")
    parser.add_argument("--no-weak", action="store_true")
    parser.add_argument("--sequence", action="store_true", help="arrays of one sequence in shards, too (torch, NCCL)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin nothing more after so many")
    parser.add_argument("--shrink", type=int, default=1, help="divide all N by this, to try it")
    parser.add_argument("--cpu", action="store_true", help="compute by the processor, whatever --gpus says, to try it")
    options = parser.parse_args(arguments)
    counts = options.gpus
    journal = Journal(options.output, options.seconds)
    if not options.cpu:
        Gpu()  # raises MachineError if there is none
    with tempfile.TemporaryDirectory(prefix="hw4-scaling-", dir=options.folder) as name:
        scaling = Scaling(journal, counts, options.runs, Path(name), options.cpu)
        scaling.rates()
        strong = {one: shrunk(STRONG[one], options.shrink) for one in options.strong}
        for one, shape in strong.items():
            journal.attempt(scaling.strong, one, shape)
        if not options.no_weak:
            journal.attempt(scaling.weak, shrunk(WEAK, options.shrink))
    if options.sequence:
        from benchmarks.measure.rings import sequences

        journal.attempt(sequences, journal, counts, options.runs, options.shrink)
    if journal.failed or not journal.record["rows"]:
        raise SystemExit("something was not measured: see above")


def shrunk(shape: Sizes, by: int) -> Sizes:
    """A shape with fewer rows; one that has few anyway stays as it is."""
    B, N, d = shape
    return B, N // by if N > FEW_ROWS else N, d


if __name__ == "__main__":
    end_with(main)
