"""How one file's time shrinks with more GPUs of a host, and how it stays with more work: strong and weak scaling.

    python benchmarks/scaling.py --output record.json --gpus 1,2,4,8 --folder /dev/shm

Random files of the workloads' shapes are written into a new folder in --folder, which must hold 12 GB. Every run is
`hw4 IN OUT --gpus count:N --timing` as a process of its own, numbers of GPUs in turn; of its time, "stream" is what is
behind its start: the first GPU is open, the first byte not yet read. Outputs must be equal, bit by bit, for all N, and
some rows right beside float64.
"""

import argparse
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
STRONG = {"large": (8, 1 << 20, 64), "one batch": (1, 1 << 21, 64), "t12": (9600, 128, 64), "t22": (500, 2048, 64)}
WEAK = (1, 1 << 20, 64)  # a GPU
CHUNK = 1 << 24  # elements
SEQUENCE = (1, 16, 1 << 18, 128)  # batch, heads, rows, d
SAMPLES = 2, 6  # batches, and rows of each, that are compared with float64
Sizes = tuple[int, int, int]


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


def same(a: Path, b: Path) -> bool:
    """Whether two files have the same bytes."""
    left, right = (np.memmap(path, np.uint64, "r") for path in (a, b))

    def equal(start: int) -> bool:
        return np.array_equal(left[start : start + CHUNK], right[start : start + CHUNK])

    with ThreadPoolExecutor() as pool:
        return left.size == right.size and all(pool.map(equal, range(0, left.size, CHUNK)))


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


def run(source: Path, target: Path, *options: str) -> tuple[float, float, str]:
    """One process: seconds of its stream, of all of it, and what it said."""
    command = [sys.executable, "-m", "hw4cli", str(source), str(target), "--timing", *options]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    wall = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    found = {name: float(value) for name, value in re.findall(r"^(start|total) +([\d.]+) s", done.stderr, re.MULTILINE)}
    return found["total"] - found["start"], wall, done.stderr


def measured(source: Path, shape: Sizes, counts: list[int], runs: int, folder: Path) -> dict[str, Any]:
    """Rows of a workload: a number of GPUs, its times, its speed-up and efficiency beside the first number."""
    began = time.perf_counter()
    times: dict[int, list[list[float]]] = {count: [] for count in counts}
    first, equal, said = folder / "first", True, dict[int, str]()
    run(source, first, "--gpus", f"count:{counts[0]}")  # compiles, and fills the page cache
    error = worst_error(source, first, shape)
    print(f"  {time.perf_counter() - began:.1f} s for a first run and float64", flush=True)
    for turn in range(runs):
        for count in counts:
            stream_s, wall_s, said[count] = run(source, folder / "out", "--gpus", f"count:{count}")
            times[count].append([stream_s, wall_s])
            print(f"  {count} GPUs: stream {stream_s:.3f} s, process {wall_s:.3f} s", flush=True)
            equal = equal and (turn > 0 or same(first, folder / "out"))
    rows: list[dict[str, Any]] = []
    for count in counts:
        stream, wall = (statistics.median(values) for values in zip(*times[count], strict=True))
        rows.append({"gpus": count, "stream": stream, "wall": wall, "seconds": times[count]})
        print(f"  {count} GPUs: stream {stream:.3f} s, process {wall:.3f} s; {said[count].splitlines()[-1].strip()}")
    print(f"  outputs {'equal' if equal else 'DIFFER'}, largest error of some rows {error:.1e}", flush=True)
    for path in (first, folder / "out"):
        path.unlink()
    return {"shape": shape, "equal": equal, "max_error": error, "rows": rows}


def strong(counts: list[int], runs: int, folder: Path, names: list[str], rates: Any) -> dict[str, Any]:
    """The same file with more GPUs, and what the machine's rates predict."""
    from hw4cli.nodes.model import predicted
    from hw4cli.problem.shape import Shape

    results = {}
    for name in names:
        print(f"strong, {name} {STRONG[name]}", flush=True)
        source = folder / "in"
        began = time.perf_counter()
        make(source, STRONG[name])
        print(f"  made in {time.perf_counter() - began:.1f} s", flush=True)
        found = measured(source, STRONG[name], counts, runs, folder)
        for row in found["rows"]:
            row["speedup"] = found["rows"][0]["stream"] * counts[0] / row["stream"]
            row["efficiency"] = row["speedup"] / row["gpus"]
            row["predicted"] = predicted(Shape(*STRONG[name]), rates, row["gpus"]).seconds
            print(f"  {row['gpus']} GPUs: efficiency {row['efficiency']:.2f}, predicted {row['predicted']:.3f} s")
        results[name] = found
        source.unlink()
    return results


def weak(counts: list[int], runs: int, folder: Path) -> dict[str, Any]:
    """As many batches as GPUs."""
    rows: list[dict[str, Any]] = []
    print(f"weak, {WEAK} a GPU", flush=True)
    for count in counts:
        shape, source = (WEAK[0] * count, WEAK[1], WEAK[2]), folder / "in"
        make(source, shape)
        found = measured(source, shape, [count], runs, folder)
        rows += found["rows"]
        source.unlink()
    for row in rows:
        row["efficiency"] = rows[0]["stream"] / row["stream"]
    return {"shape": WEAK, "rows": rows}


def sequence(counts: list[int], runs: int) -> dict[str, Any]:
    """One sequence of 16-bit arrays over GPUs, by a ring through NCCL."""
    import torch

    from hw4cli.shards.forward import attention_of_shards

    print(f"sequence-parallel, {SEQUENCE} bfloat16", flush=True)
    whole = [torch.randn(SEQUENCE, device="cuda:0", dtype=torch.bfloat16) for _ in range(3)]
    rows: list[dict[str, Any]] = []
    for causal in (False, True):
        for count in counts:
            shards = [[part.to(f"cuda:{n}") for n, part in enumerate(x.chunk(count, dim=2))] for x in whole]
            seconds = []
            for _ in range(runs + 1):
                for n in range(count):
                    torch.cuda.synchronize(n)
                began = time.perf_counter()
                found = attention_of_shards(*shards, causal=causal)
                for n in range(count):
                    torch.cuda.synchronize(n)
                seconds.append(time.perf_counter() - began)
            o = torch.cat([part.to("cuda:0") for part in found], dim=2)
            some = torch.linspace(0, SEQUENCE[2] - 1, SAMPLES[1]).long().to("cuda:0")
            s = whole[0][0, 0][some].double() @ whole[1][0, 0].double().T / SEQUENCE[3] ** 0.5
            if causal:
                s[torch.arange(SEQUENCE[2], device="cuda:0") > some[:, None]] = -torch.inf
            error = float((torch.softmax(s, 1) @ whole[2][0, 0].double() - o[0, 0][some]).abs().max())
            took = statistics.median(seconds[1:])
            rows.append({"gpus": count, "causal": causal, "seconds": seconds[1:], "median": took, "max_error": error})
            first = next(row for row in rows if row["causal"] == causal)
            rows[-1]["efficiency"] = first["median"] * first["gpus"] / took / count
            print(f"  {count} GPUs{', causal' if causal else ''}: {took:.4f} s, error {error:.1e}", flush=True)
            del shards, found, o
    return {"shape": SEQUENCE, "rows": rows}


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--gpus", default="1,2,4,8", help="numbers of GPUs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--strong", default=",".join(STRONG), help="workloads")
    parser.add_argument("--no-weak", action="store_true")
    parser.add_argument("--sequence", action="store_true", help="the sequence-parallel forward of arrays, too (torch)")
    options = parser.parse_args()
    counts = [int(count) for count in options.gpus.split(",")]
    from hw4cli.doctor.measure import measured as measured_rates
    from hw4cli.lab.bench import commit
    from hw4cli.lab.endtoend import machine

    record: dict[str, Any] = {
        "schema": 1,
        "kind": "scaling",
        "commit": commit(),
        "machine": machine(),
    }
    with tempfile.TemporaryDirectory(prefix="hw4-scaling-", dir=options.folder) as name:
        folder = Path(name)
        rates, by = measured_rates(folder)
        record["rates"] = {**vars(rates), "by": by}
        record["strong"] = strong(counts, options.runs, folder, list(filter(None, options.strong.split(","))), rates)
        if not options.no_weak:
            record["weak"] = weak(counts, options.runs, folder)
    if options.sequence:
        record["sequence"] = sequence(counts, options.runs)
    options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
