"""`hw4 bench --calls`: what calls of attention cost, beside torch's."""

from collections.abc import Sequence
from pathlib import Path

from hw4cli.cli.benchcommand.shown import announce, publish
from hw4cli.cli.terminal.bar import LiveTable
from hw4cli.errors import InputError
from hw4cli.system.importing import Importing

# Models of a size that a GPU computes in a moment, and decoding.
USUAL = ("bert", "vit", "gpt2", "lm1k", "lm512", "decode-1k", "decode")


def bench_calls(
    workloads: Sequence[str], peers: Sequence[str], samples: int, as_json: bool, outputs: Sequence[Path]
) -> int:
    """Time calls of attention, and print the record; the command's exit status."""
    with Importing():
        from hw4cli.lab import calls
        from hw4cli.lab.arrays.named import workload
        from hw4cli.lab.peers import PEERS, TORCH

    if unknown := [word for word in peers if word not in (*PEERS, TORCH)]:
        raise InputError(f"{unknown[0]!r} has no calls beside ours: give {', '.join(PEERS)} or {TORCH}")
    names = [name for word, name in PEERS.items() if word in peers or TORCH in peers]
    chosen = [workload(text) for text in workloads or USUAL]
    for one in chosen:
        calls.check_calls(one)
    session = calls.Session(names, samples)
    with LiveTable(["workload", "pass", "function", "host µs", "whole µs"]) as live:
        for one in chosen:
            announce(one.name)
            for row in session.measure(one):
                times = [f"{row.host_us:.1f}", f"{row.whole_us:.1f}"] if row.status == "ok" else ["-", "-"]
                live.update((row.case, row.direction, row.kernel), [row.case, row.direction, row.kernel, *times])
    publish(session.record(), as_json, outputs)
    return 0
