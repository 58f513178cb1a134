"""Where splitting the keys of sequences is worth it: half_split beside half, of packed sequences with few rows.

    python -m benchmarks.measure.splits --output splits.json

Of each number of sequences, heads, rows and keys, every sequence has as many rows, and between half of the keys and all
of them, drawn from a seed; causal. Calls are captured in a CUDA graph, so that the host's time is none of theirs; both
kernels take turns, and medians count. The record has the times, and what `auto` takes (splits_keys in
plans/kernels16.py).
"""

import argparse
import itertools
import random
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.measure.scripts import end_with, new_file, say, write_record
from hw4cli.plans.kernels16 import KERNELS16, kernel16
from hw4cli.problem.workload import FLOAT16, Span, Workload

COUNTS, ROWS, KEYS = (1, 4, 16, 64), (1, 4, 16, 64), (256, 512, 1024, 2048, 8192)
HEADS = ((32, 8, 128), (16, 16, 64))  # of Q, of K and V, and d
PEERS = "half", "half_split"
MOST_BYTES = 1 << 30  # of K and V
SEED, CALLS, ROUNDS = 1, 10, 5


def grid() -> Iterator[Workload]:
    """What is measured."""
    for (heads, kv_heads, d), rows, count, keys in itertools.product(HEADS, ROWS, COUNTS, KEYS):
        draw = random.Random(SEED)
        ends = [0, *itertools.accumulate(max(rows, draw.randint(keys // 2, keys)) for _ in range(count))]
        both = enumerate(itertools.pairwise(ends))
        spans = tuple(Span(0, n * rows, rows, first, end - first, end - first - rows, n) for n, (first, end) in both)
        work = Workload(FLOAT16, 1, heads, kv_heads, count * rows, ends[-1], d, True, sequences=spans)
        if 4 * kv_heads * d * work.Nk <= MOST_BYTES:
            yield work


def graph_of(torch: Any, call: Callable[[], Any]) -> Any:
    """A CUDA graph of CALLS calls."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def times_of(work: Workload) -> dict[str, float]:
    """Microseconds of a call of each kernel."""
    import torch

    from hw4cli import attention

    def rows(n: int, heads: int) -> Any:
        return torch.randn(n, heads, work.d, device="cuda", dtype=torch.float16)

    q, (k, v) = rows(work.Nq, work.heads), (rows(work.Nk, work.kv_heads) for _ in range(2))
    starts = [0, *(span.row + span.rows for span in work.sequences)]
    key_starts = [0, *(span.key + span.keys for span in work.sequences)]
    asked: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": key_starts, "causal": True, "layout": "BNHD"}
    found = [attention(q, k, v, kernel=name, **asked) for name in PEERS]
    error = (found[0] - found[1]).abs().max().item()
    if not error <= 8e-3:
        raise RuntimeError(f"half and half_split differ by {error:.2g}")
    graphs = {name: graph_of(torch, partial(attention, q, k, v, kernel=name, **asked)) for name in PEERS}
    times: dict[str, list[float]] = {name: [] for name in PEERS}
    for turn in range(-1, ROUNDS):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if turn >= 0:
                times[name].append(1000 * begin.elapsed_time(end) / CALLS)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    """Measure, print a line for each number of rows and sequences, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file, required=True)
    options = parser.parse_args()
    from hw4cli.device.gpu import Gpu
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.record import heading
    from hw4cli.system.machine import machine

    gpu = Gpu()
    timer, rows = GpuTimer(gpu), list[dict[str, Any]]()

    def group(work: Workload) -> tuple[int, ...]:
        return work.heads, work.kv_heads, work.d, work.most_rows, len(work.sequences)

    for (heads, kv_heads, d, most, count), works in itertools.groupby(grid(), group):
        words = []
        for work in works:
            times, chosen = times_of(work), kernel16(work, gpu.props)
            assert chosen in KERNELS16
            sizes = {"sequences": count, "heads": heads, "kv_heads": kv_heads, "d": d, "rows": most}
            rows.append({**sizes, "keys": work.Nk, "most_keys": work.most_keys, "us": times, "auto": chosen})
            ratio = times["half"] / times["half_split"]
            wrong = "" if (ratio > 1) == (chosen == "half_split") or 0.97 < ratio < 1.03 else "!"
            words.append(f"{work.most_keys}: {times['half']:.1f}/{times['half_split']:.1f}={ratio:.2f}{wrong}")
        say(f"{heads}/{kv_heads} d={d} rows={most} sequences={count}: {', '.join(words)}")
    method = f"CUDA graphs of {CALLS} calls, medians of {ROUNDS} in turns"
    own = {"machine": machine(timer.machine(), True), "method": {"splits": method}}
    write_record(options.output, {**heading("splits"), **own, "rows": rows})


if __name__ == "__main__":
    end_with(main)
