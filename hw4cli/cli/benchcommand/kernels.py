"""`hw4 bench KERNELS CASES` and `hw4 bench KERNELS WORKLOADS`: kernels on files, and on arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.benchcommand.compared import compared, older_record
from hw4cli.cli.benchcommand.shown import announce, publish
from hw4cli.cli.terminal.bar import LiveTable
from hw4cli.cli.terminal.grammar import What
from hw4cli.cli.terminal.launches import ALL, with_ladder
from hw4cli.errors import MachineError
from hw4cli.plans.kernels16 import KERNELS16
from hw4cli.plans.ladder import DEFAULT
from hw4cli.resources import is_own_kernel
from hw4cli.system.importing import Importing
from hw4cli.text.words import print_message

if TYPE_CHECKING:
    from hw4cli.lab.contender import Case
    from hw4cli.lab.sampling import Measurement, Sampling
    from hw4cli.lab.session import Session


def bench_files(
    ctx: click.Context,
    what: What,
    as_json: bool,
    outputs: Sequence[Path],
    causal: bool,
    tiles: list[dict[str, int]],
    peers: tuple[str, ...],
    older: Path | None,
    sampling: "Sampling",
) -> int:
    """Time kernels of files' cases, and print the record; the command's exit status."""
    with Importing():
        from hw4cli.lab.cases import FileCase
        from hw4cli.lab.session import FileSession

    then = older_record(older, cold=sampling.cold)
    _check_kernels_of_files(ctx, what.kernels)
    chosen = what.named_shapes(ctx, causal)
    session = FileSession(with_ladder(what.kernels or (DEFAULT,)), tiles, sampling)
    session.with_torch = bool(peers) and _has_torch()
    cases = [FileCase(*case, session.sgemm) for case in chosen]
    return _measured(session, cases, "case", as_json, outputs, older, then)


def _has_torch() -> bool:
    """Whether PyTorch can take part; if not, the reason is printed."""
    from hw4cli.lab.peers import torch_for

    try:
        torch_for("--peers torch")
    except MachineError as reason:
        print_message(reason)
        return False
    return True


def _check_kernels_of_files(ctx: click.Context, kernels: tuple[str, ...]) -> None:
    """Before a GPU is opened: a usage error for a kernel of arrays, InputError or KernelError for a bad file."""
    from hw4cli.device.ownkernel import kernel_named
    from hw4cli.lab.kernels import GRADIENT_KERNELS

    for name in kernels:
        if name in KERNELS16:
            raise click.UsageError(f"{name} computes arrays of 16 bits: name a workload, as in tilelang", ctx)
        if name in GRADIENT_KERNELS:
            raise click.UsageError(f"{name} computes gradients of arrays: name a workload, with --pass bwd", ctx)
        if name != ALL:
            kernel_named(name)


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
    """Time attention of arrays, and print the record; the command's exit status."""
    with Importing():
        from hw4cli.lab.arrays.named import workload
        from hw4cli.lab.cases import PASSES, ArrayCase
        from hw4cli.lab.session import ArraySession, check_kernels, kernels_of

    for name in filter(is_own_kernel, what.kernels):
        raise click.UsageError(f"{name} computes files: name a case or a shape, not a workload", ctx)
    which = PASSES[direction]
    names = [one for name in dict.fromkeys(what.kernels) for one in (kernels_of(which) if name == ALL else [name])]
    check_kernels(names, which)
    then = older_record(older, cold=sampling.cold)
    cases = [ArrayCase(workload(text), which) for text in what.workloads]
    session = ArraySession(names, peers, sampling, which)
    return _measured(session, cases, "workload", as_json, outputs, older, then)


def _measured(
    session: "Session",
    cases: "Sequence[Case]",
    title: str,
    as_json: bool,
    outputs: Sequence[Path],
    older: Path | None,
    then: dict[str, Any] | None,
) -> int:
    """Measure the cases, show the rows meanwhile, and print the record; the exit status. `title`: of the cases."""
    from hw4cli.lab.cases import ArrayCase
    from hw4cli.lab.times import median_interval

    session.compile(cases)
    with LiveTable(["kernel", title, "median ms", "±", "n"]) as live:

        def show(one: "Measurement", case: "Case") -> None:
            median, low, high = median_interval(one.times)
            cells = [one.name, case.name, f"{median:.4g}", f"{(high - low) / 2 / median:.1%}", str(len(one.samples))]
            live.update((one.name, case.name), cells)

        for case in cases:
            announce(case.name, case.workload.test_line if isinstance(case, ArrayCase) else "")
            session.measure(case, show)
    publish(session.record(), as_json, outputs)
    slower = then is not None and compared(session.rows, then, older, session.gpu.name)
    return 1 if slower or session.failed else 0
