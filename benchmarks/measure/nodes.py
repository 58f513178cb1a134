"""One file over nodes: `hw4 --srun` on a Slurm of the tests', whose two nodes have one core of this machine each.

    python -m benchmarks.measure.nodes --output benchmarks/scaling/nodes.json

Needs Slurm's programs and two cores. It says what ranks and steps cost, not what a cluster does: the nodes share the
machine's memory, and whatever else runs there. Of each, the least of some runs counts.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))

from cluster import Cluster, processes_naming
from helpers import run_hw4

from benchmarks.measure.randomfiles import File, Sizes, digest
from benchmarks.measure.scripts import end_with, new_file, write_record
from hw4cli.errors import MachineError
from hw4cli.lab.record import heading
from hw4cli.system.machine import machine

STRONG: Sizes = (64, 2560, 128)  # eight parts
WEAK: Sizes = (32, 2560, 128)  # four parts a node
PLACES = (1, 1), (1, 2), (2, 1), (2, 2)  # nodes, and ranks on each


def seconds(source: Path, target: Path, env: dict[str, str], nodes: int, ranks: int) -> float:
    """The time of a whole run; without nodes, of one process on one core."""
    srun = ["--srun", f"-N{nodes} -n{nodes * ranks} -O"] if nodes else []
    began = time.perf_counter()
    done = run_hw4(source, target, "--device", "cpu", *srun, env=env, prefix=() if nodes else ("taskset", "-c", "0"))
    if done.returncode:
        raise SystemExit(f"a run failed: {done.stderr}")
    return time.perf_counter() - began


def measured(folder: Path, cluster: Cluster, runs: int) -> list[dict[str, Any]]:
    """A row for each file and place; all outputs of one file have the same bytes."""
    for core, node in enumerate(cluster.nodes):
        for daemon in processes_naming(f"slurmd -D -N {node}"):
            daemon.cpu_affinity([core])  # which steps and ranks inherit
    rows: list[dict[str, Any]] = []
    for what, places in (("strong", ((0, 1), *PLACES)), ("weak", PLACES[::2])):
        digests = set()
        for nodes, ranks in places:
            shape = STRONG if what == "strong" else (WEAK[0] * nodes, *WEAK[1:])
            with File(folder / "in", shape) as source:
                times = [seconds(source, folder / "out", cluster.settings, nodes, ranks) for _ in range(runs)]
            digests.add((shape, digest(folder / "out")))
            rows.append({"what": what, "shape": shape, "nodes": nodes, "ranks": ranks, "seconds": times})
            print(rows[-1], flush=True)
        if len(digests) > len({shape for shape, _ in digests}):
            raise SystemExit("outputs of one file differ")
    return rows


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file, required=True)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise MachineError("two nodes need two cores, and here is one")
    with tempfile.TemporaryDirectory(prefix="hw4-nodes-") as name, Cluster(Path(name), nodes=2) as cluster:
        load = os.getloadavg()[0]
        rows = measured(Path(name), cluster, options.runs)
    write_record(options.output, {**heading("nodes"), "machine": machine(), "load": load, "rows": rows})


if __name__ == "__main__":
    end_with(main)
