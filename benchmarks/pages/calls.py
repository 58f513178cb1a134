"""Tables of what calls cost, of the host and in all."""

from benchmarks.pages.table import Record, Table, made, timed
from hw4cli.lab.arrays.named import described
from hw4cli.lab.calls import ARRAYS, DEFAULT, FLOOR, OURS
from hw4cli.problem.workload import Workload

PEERS = (DEFAULT, "cuDNN", "FA2")


def calls(record: Record) -> Table:
    """A line for each workload and pass of torch's tensors: the host's time of ours and of torch's own choice; the
    times of whole calls, a peer's with how many times as fast ours is in brackets."""
    found: dict[tuple[str, str], dict[str, Record]] = {}
    for row in timed(record):
        if row["direction"] != ARRAYS:
            found.setdefault((row["case"], row["direction"]), {})[row["kernel"]] = row
    header = ["workload", "pass", "host: hw4 µs", f"{DEFAULT} µs", "empty µs", "whole: hw4 µs"]
    header += [f"{name} µs" for name in PEERS]
    lines = []
    for (case, direction), rows in found.items():
        own, empty = rows[OURS], rows.get(FLOOR)
        line = [f"`{case}` {described(Workload(**own['work']))}", direction]
        line += [f"{rows[name]['host_us']:.0f}" if name in rows else "-" for name in (OURS, DEFAULT)]
        line += [f"{empty['host_us']:.0f}" if empty else "-", f"{own['whole_us']:.0f}"]
        line += [_beside(rows.get(name), own) for name in PEERS]
        lines.append(line)
    machine = record["machine"]
    how = (
        f"{machine['gpu']}, {machine['cpu']}, torch {machine['torch']}, cuDNN {machine['cudnn']}; {made(record)}; "
        f"{record['method']['calls']}; medians of batches."
    )
    return Table(header, lines, (how,))


def _beside(peer: Record | None, own: Record) -> str:
    return "-" if peer is None else f"{peer['whole_us']:.0f} ({peer['whole_us'] / own['whole_us']:.2f})"


def tokens(record: Record) -> Table:
    """A line for each size of docs/train.py: tokens a second with hw4's attention and with torch's."""
    lines = []
    for row in timed(record):
        sizes, rates = row["sizes"], row["tokens_per_s"]
        shape = sizes["batch"], sizes["heads"], sizes["context"], sizes["width"] // sizes["heads"]
        line = [row["model"], f"{sizes['layers']}", f"({', '.join(map(str, shape))})", f"{rates[OURS]:,.0f}"]
        lines.append([*line, f"{rates[DEFAULT]:,.0f}", f"{rates[OURS] / rates[DEFAULT]:.2f}"])
    machine = record["machine"]
    how = f"{machine['gpu']}, torch {machine['torch']}; {made(record)}; {record['method']['tokens']}."
    header = ["size", "layers", "(batch, heads, N, d)", f"{OURS} tokens/s", f"{DEFAULT} tokens/s", f"× {DEFAULT}"]
    return Table(header, lines, (how,))
