"""Whether another checkout of hw4 computes the same bits on the GPU that is here: random shapes of all kernels, by
files, arrays and gradients.

    python -m benchmarks.measure.equal_bits OLD [--shapes 200] [--seconds 60] [--seed 1] [--processes 6]

OLD is a commit of this repository, or a folder with a checkout. Kernels are compiled anew for both, which work side by
side. A workload that one of them refuses (an older one knows fewer kernels and sizes), or that does not repeat its own
bits (gradients by atomics), is counted, and not compared. Exit status: 0, all bits are equal; 1, some differ; 3, the
comparison could not be made.
"""

import argparse
import importlib.util
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure.scripts import end_with
from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16, KERNELS16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import BFLOAT16, FLOAT32

TOGETHER = 2  # shapes of a kernel for which it is compiled alike, as far as the tile does not follow from them
HEADS = ((1, 1), (4, 4), (6, 2))
LENGTHS = (1, 5, 64, 100, 257, 512, 1000, 2048)
MORE = 4  # times as many shapes for kernels that are asked in one way alone, and have more of them
WORK = 10**9  # batch * heads * rows * keys * d at most: some kernels take seconds for more
DIFFERENT = "DIFFERENT"
TORCH = importlib.util.find_spec("torch") is not None  # which has bfloat16; without it the other types are drawn
Job = dict[str, Any]
Worker = subprocess.Popen[str]


def drawn(shapes: int, seed: int) -> list[Job]:
    """At least so many workloads of all kernels: for files, arrays and gradients."""
    kinds = [
        *(("file", name, 1) for name in VARIANTS),
        *(("ladder", name, 1) for name in VARIANTS),
        *(("arrays", name, 1) for name in VARIANTS),
        *(("arrays", name, MORE) for name in KERNELS16),
        *(("gradients", name, MORE) for name in GRADIENTS),
    ]
    each = -(-shapes // sum(share for *_, share in kinds))
    found = [
        job
        for kind, name, share in kinds
        for job in _of_kernel(kind, name, each * share, random.Random(f"{seed} {kind} {name}"))
    ]
    random.Random(seed).shuffle(found)  # where the time is over early, some of each kind are done
    return found


def _of_kernel(kind: str, kernel: str, count: int, rng: random.Random) -> Iterator[Job]:
    entry = GRADIENTS[kernel] if kind == "gradients" else VARIANTS.get(kernel) or ENTRIES16[kernel]
    for number in range(count):
        if number % TOGETHER == 0:
            dtype, causal = rng.choice([one for one in entry.types if one != BFLOAT16 or TORCH]), rng.random() < 0.5
            d = rng.choice((4, 32, 64, 100, 128) if dtype == FLOAT32 else (8, 40, 64, 96, 128))
        sizes = _sizes(rng, d, square=kind in ("file", "ladder"))
        lse = kind == "gradients" or kernel in KERNELS16 or entry.lse
        forward = "flash" if dtype == FLOAT32 else "auto"
        yield {"kind": kind, "kernel": kernel, "dtype": dtype, "causal": causal, "sizes": sizes, "lse": lse,
               "forward": forward, "seed": rng.randrange(1 << 30)}  # fmt: skip


def _sizes(rng: random.Random, d: int, square: bool) -> list[int]:
    """Batch, heads, heads of K and V, rows, keys, d."""
    while True:
        batch, (heads, kv_heads), rows, keys = rng.randint(1, 4), rng.choice(HEADS), *rng.choices(LENGTHS, k=2)
        if square:
            heads, kv_heads, rows = 1, 1, keys
        if batch * heads * rows * keys * d <= WORK:
            return [batch, heads, kv_heads, rows, keys, d]


def checkout(old: str, folder: Path) -> Path:
    """A folder with a commit's files, or the one that is named. Raises InputError where it is neither."""
    if (Path(old) / "hw4cli").is_dir():
        return Path(old).resolve()
    neither = f"{old} is neither a folder with hw4cli in it nor a commit"
    try:
        done = subprocess.run(["git", "archive", old], cwd=ROOT, capture_output=True)
    except OSError as error:
        raise InputError(f"{neither} that git could find: {error.strerror}") from None
    if done.returncode:
        raise InputError(f"{neither}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextmanager
def started(place: Path, jobs: Path, cache: Path, seconds: float, processes: int) -> Iterator[list[Worker]]:
    """The processes in which a checkout computes; those that still run at the end are killed."""
    env = {**os.environ, "PYTHONPATH": str(place), "CUPY_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", str(Path(__file__).with_name("bits.py")), str(jobs), "--seconds", str(seconds)]
    workers = []
    try:
        for number in range(processes):
            with (cache / f"{number}.txt").open("w") as errors:
                share = [*command, "--share", f"{number}/{processes}"]
                pipe = subprocess.PIPE
                workers.append(subprocess.Popen(share, env=env, cwd=cache, stdout=pipe, stderr=errors, text=True))
        yield workers
    finally:
        for worker in workers:
            with worker:  # which waits for it
                worker.kill()


def answers(workers: Sequence[Worker], cache: Path) -> dict[int, Job]:
    """What they say of each workload. Raises MachineError where one fails."""
    found: dict[int, Job] = {}
    for number, worker in enumerate(workers):
        out, _ = worker.communicate()
        if worker.returncode:
            lines = (cache / f"{number}.txt").read_text().strip().splitlines() or [f"exit status {worker.returncode}"]
            raise MachineError(f"a checkout could not compute: {lines[-1]}")
        found |= {said.pop("place"): said for said in map(json.loads, out.splitlines())}
    return found


def outcome(old: Job | None, new: Job | None) -> str:
    """How a workload ended, by what both say of it."""
    if old is None or new is None:
        return "not reached"
    for word, how in (("refused", "refused"), ("varies", "does not repeat")):
        if word in old or word in new:
            return how
    return "equal" if old == new else DIFFERENT


def described(job: Job) -> str:
    """A workload in words."""
    mask = ", causal" if job["causal"] else ""
    sizes = "batch {}, heads {} and {}, rows {}, keys {}, d {}".format(*job["sizes"])
    return f"{job['kind']} by {job['kernel']}, {job['dtype']}, {sizes}{mask}, seed {job['seed']}"


def main() -> int:
    """Compare two checkouts; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("old", metavar="OLD", help="a commit, or a folder with a checkout")
    parser.add_argument("--shapes", type=int, default=200, help="how many, at least  [default: 200]")
    parser.add_argument("--seconds", type=float, default=60.0, help="after these no more begin  [default: 60]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=6, help="for each checkout  [default: 6]")
    given = parser.parse_args()
    jobs = drawn(given.shapes, given.seed)
    with tempfile.TemporaryDirectory(prefix="hw4-equal-bits-") as name:
        file = Path(name, "workloads.json")
        file.write_text(json.dumps(jobs))
        caches = Path(name, "old"), Path(name, "new")
        for cache in (*caches, Path(name, "checkout")):
            cache.mkdir()
        try:
            places = checkout(given.old, Path(name, "checkout")), ROOT
            with ExitStack() as stack:
                both = [
                    stack.enter_context(started(place, file, cache, given.seconds, given.processes))
                    for place, cache in zip(places, caches, strict=True)
                ]
                old, new = (answers(some, cache) for some, cache in zip(both, caches, strict=True))
        except Hw4Error as error:
            print(f"equal_bits: {error}", file=sys.stderr)
            return 3
        ends = [outcome(old.get(place), new.get(place)) for place in range(len(jobs))]
        counts = Counter((job["kind"], how) for job, how in zip(jobs, ends, strict=True))
        different = [described(job) for job, how in zip(jobs, ends, strict=True) if how == DIFFERENT]
        for (kind, how), count in sorted(counts.items()):
            print(f"{kind:10} {how:16} {count}")
        reasons = Counter(said["refused"] for said in (*old.values(), *new.values()) if "refused" in said)
        for reason, count in reasons.most_common(5):
            print(f"refused {count} times: {reason}")
        for sentence in different:
            print(f"{DIFFERENT}: {sentence}")
        if not different and not any(how == "equal" for _, how in counts):
            print("equal_bits: nothing was compared", file=sys.stderr)
            return 3
        return 1 if different else 0


if __name__ == "__main__":
    end_with(main)
