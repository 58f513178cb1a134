"""`hw4 bench KERNELS WORKLOADS`: attention of arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.benchcommand.compared import compared, older_record
from hw4cli.cli.benchcommand.shown import announce, publish
from hw4cli.cli.terminal.bar import LiveTable
from hw4cli.cli.terminal.grammar import What
from hw4cli.resources import is_own_kernel
from hw4cli.system.importing import Importing

if TYPE_CHECKING:
    from hw4cli.lab.arrays.named import NamedWorkload
    from hw4cli.lab.sampling import Measurement, Sampling


def bench_arrays(
    ctx: click.Context,
    what: What,
    as_json: bool,
    outputs: Sequence[Path],
    peers: tuple[str, ...],
    older: Path | None,
    direction: str,
    sampling: "Sampling",
) -> int:
    """Time attention of arrays, and print the record; the command's exit status.

    A peer that cannot compute a workload is no failure of hw4's.
    """
    with Importing():
        from hw4cli.lab.arrays.named import workload
        from hw4cli.lab.arrays.passes import PASSES
        from hw4cli.lab.arrays.session import ArraySession, check_kernels, kernels_of
        from hw4cli.lab.times import median_interval

    for name in filter(is_own_kernel, what.kernels):
        raise click.UsageError(f"{name} computes files: name a case or a shape, not a workload", ctx)
    known = kernels_of(PASSES[direction])
    names = [one for name in dict.fromkeys(what.kernels) for one in (known if name == "all" else [name])]
    check_kernels(names, PASSES[direction])
    then = older_record(older, cold=sampling.cold)
    chosen = [workload(text) for text in what.workloads]
    session = ArraySession(names, peers, sampling, PASSES[direction])
    session.compile(chosen)
    with LiveTable(["kernel", "workload", "median ms", "±", "n"]) as live:

        def show(one: "Measurement", case: "NamedWorkload") -> None:
            median, low, high = median_interval(one.times)
            cells = [one.name, case.name, f"{median:.4g}", f"{(high - low) / 2 / median:.1%}", str(len(one.samples))]
            live.update((one.name, case.name), cells)

        for case in chosen:
            announce(case.name)
            session.measure(case, show)
    publish(session.record(), as_json, outputs)
    slower = then is not None and compared(session.rows, then, older, session.gpu.name)
    return 1 if slower or any(row.ours and row.status != "ok" for row in session.rows) else 0
