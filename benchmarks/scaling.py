"""How one file's time shrinks with more GPUs of a host, and how it stays with more work: strong and weak scaling.

    NCCL_NVLS_ENABLE=0 python benchmarks/scaling.py --output record.json --gpus 1,2,4,8 --folder /dev/shm --sequence

Random files of the workloads' shapes are written into a new folder in --folder, one at a time; the largest and its
output take 8.6 GB. Every run is `hw4 IN OUT --gpus count:N --timing` as a process of its own; of its time, "stream" is
what is behind its start: the first GPU is open, the first byte not yet read. Some rows of an output are compared with
float64; it must have the same bytes for all N.

The record is written after each measurement, and the same command goes on with what a record of this machine lacks.
"""

import argparse
import datetime
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hw4cli.doctor.measure import measured as measured_rates  # noqa: E402
from hw4cli.lab.endtoend import machine  # noqa: E402
from hw4cli.lab.record import commit  # noqa: E402
from hw4cli.lab.tables import SCHEMA  # noqa: E402
from hw4cli.nodes.model import Rates, predicted  # noqa: E402
from hw4cli.problem.shape import Shape  # noqa: E402

Sizes = tuple[int, int, int]
STRONG = {"large": (8, 1 << 20, 64), "one batch": (1, 1 << 21, 64), "t12": (9600, 128, 64), "t22": (500, 2048, 64)}
WEAK = (1, 1 << 20, 64)  # a GPU
CHUNK = 1 << 24  # elements
SAMPLES = 2, 6  # batches, and rows of each, that are compared with float64
ONCE = 1.5  # seconds: a longer run is not repeated, as its spread is 1 %


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
        self.record["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()

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
        new = self._path.with_name(f".{self._path.name}.new")
        new.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        new.replace(self._path)


def say(words: str) -> None:
    """Print what was found, at once."""
    print(words, flush=True)


def make(path: Path, shape: Sizes) -> None:
    """A file of random numbers in [-3, 3), by all cores."""
    B, N, d = shape
    with path.open("wb") as file:
        file.write(struct.pack("<iii", B, N, d))
        file.truncate(12 + 12 * B * N * d)
    values = np.memmap(path, "<f4", "r+", 12)

    def fill(start: int) -> None:
        part = np.random.default_rng(start).random(min(CHUNK, values.size - start), np.float32)
        values[start : start + part.size] = 6 * part - 3

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, values.size, CHUNK)))


def digest(path: Path) -> str:
    """A checksum of a file, by all cores."""
    data = np.memmap(path, np.uint8, "r")
    with ThreadPoolExecutor() as pool:
        sums = pool.map(lambda at: zlib.crc32(data[at : at + CHUNK]), range(0, data.size, CHUNK))
        return f"{zlib.crc32(np.array(list(sums), '<u4')):08x}"


def worst_error(source: Path, target: Path, shape: Sizes, causal: bool = False) -> float:
    """The largest error of some rows, beside float64."""
    B, N, d = shape
    q, o = np.memmap(source, "<f4", "r", 12).reshape(B, 3, N, d), np.memmap(target, "<f4", "r").reshape(B, N, d)
    worst = 0.0
    for batch in np.linspace(0, B - 1, min(B, SAMPLES[0])).astype(int):
        k, v = (q[batch, part].astype(np.float64) for part in (1, 2))
        some = np.linspace(0, N - 1, SAMPLES[1]).astype(int)
        s = q[batch, 0][some].astype(np.float64) @ k.T / d**0.5
        if causal:
            s[np.arange(N) > some[:, None]] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        worst = max(worst, float(np.abs(p @ v / p.sum(axis=1, keepdims=True) - o[batch][some]).max()))
    return worst


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
        self._warm: set[tuple[int, int]] = set()  # N and d for which kernels are compiled

    def rates(self) -> None:
        """The machine's rates, from which the model predicts."""
        if not self.journal.record["rates"]:
            rates, by = measured_rates(self.folder)
            self.journal.record["rates"] = {**asdict(rates), "by": by}
            self.journal.save()
        say(f"rates: {self.journal.record['rates']}")

    def strong(self, name: str, shape: Sizes) -> None:
        """The same file by more GPUs; by the most at first, so that much is known soon."""
        missing = [n for n in reversed(self.counts) if self.journal.lacks(what="strong", name=name, gpus=n)]
        if missing:
            with self._file(f"strong, {name}", shape) as source:
                self._measure(source, "strong", name, shape, missing)

    def weak(self, batch: Sizes) -> None:
        """As many batches as GPUs."""
        for count in self.counts:
            if self.journal.lacks(what="weak", gpus=count):
                shape = (batch[0] * count, *batch[1:])
                with self._file("weak", shape) as source:
                    self._measure(source, "weak", "weak", shape, [count])

    def _measure(self, source: Path, what: str, name: str, shape: Sizes, counts: list[int]) -> None:
        target, errors = self.folder / "out", dict[str, float]()
        if shape[1:] not in self._warm:
            run(source, target, *self._gpus(counts[0]))  # compiles
            self._warm.add(shape[1:])
        for count in counts:
            if not self.journal.lacks(what=what, name=name, gpus=count):
                continue
            times: list[tuple[float, float]] = []
            while len(times) < self.runs and not (times and times[0][1] > ONCE):
                stream_s, wall_s, kernel, joined = run(source, target, *self._gpus(count))
                times.append((stream_s, wall_s))
            stream, wall = (statistics.median(values) for values in zip(*times, strict=True))
            checksum = digest(target)
            if checksum not in errors:
                errors[checksum] = worst_error(source, target, shape)
            row = {"what": what, "name": name, "shape": shape, "gpus": count, "kernel": kernel, "seconds": times}
            found = {"joined": joined, "digest": checksum, "max_error": errors[checksum]}
            self.journal.add(**row, stream=stream, wall=wall, **found)
            model = predicted(Shape(*shape), self._known_rates(), count).seconds
            say(
                f"  {count} GPUs, {kernel}: stream {stream:.3f} s (predicted {model:.3f}), process {wall:.3f} s, "
                f"others from {joined} s on, largest error of some rows {errors[checksum]:.1e}"
            )
        say(f"  outputs {'DIFFER' if len(errors) > 1 else 'are equal'}")
        target.unlink()

    def _known_rates(self) -> Rates:
        return Rates(**{key: value for key, value in self.journal.record["rates"].items() if key != "by"})

    def _gpus(self, count: int) -> tuple[str, str]:
        return ("--device", "cpu") if self.cpu else ("--gpus", f"count:{count}")

    def _file(self, words: str, shape: Sizes) -> "File":
        return File(self.folder / "in", words, shape)


class File:
    """A random file that goes at the end of a block."""

    def __init__(self, path: Path, words: str, shape: Sizes) -> None:
        self._path, self._words, self._shape = path, words, shape

    def __enter__(self) -> Path:
        began = time.perf_counter()
        make(self._path, self._shape)
        say(f"{self._words}, {self._shape}: made in {time.perf_counter() - began:.1f} s")
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink()


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="the record; one that is there is gone on with")
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
    with tempfile.TemporaryDirectory(prefix="hw4-scaling-", dir=options.folder) as name:
        scaling = Scaling(journal, counts, options.runs, Path(name), options.cpu)
        scaling.rates()
        strong = {one: shrunk(STRONG[one], options.shrink) for one in options.strong}
        for one, shape in strong.items():
            journal.attempt(scaling.strong, one, shape)
        if not options.no_weak:
            journal.attempt(scaling.weak, shrunk(WEAK, options.shrink))
    if options.sequence:
        from benchmarks.rings import sequences

        sequences(journal, counts, options.runs, options.shrink)
    if journal.failed or not journal.record["rows"]:
        raise SystemExit("something was not measured: see above")


def shrunk(shape: Sizes, by: int) -> Sizes:
    """A shape with fewer rows; one that has few anyway stays as it is."""
    B, N, d = shape
    return B, N // by if N > CHUNK >> 8 else N, d


if __name__ == "__main__":
    main()
