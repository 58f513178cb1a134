"""The plans of a file's parts: which kernels it needs on a GPU, and may need."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from hw4cli.device.gpu import Gpu
from hw4cli.device.tuning.store import Finding, found, machine_of
from hw4cli.errors import MachineError
from hw4cli.plans import columns
from hw4cli.plans.dispatch import AUTO, Choice, candidates
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.workload import HEAD_SIZES, LENGTHS, Workload
from hw4cli.stream.layout import Layout, choose_layout

MANY = 1 << 16  # batches, more than a group has


def choice_for(
    kernel: str,
    max_error: float | None,
    shape: Workload,
    props: DeviceProperties,
    gpu: str,
    tuned: Finding | None = None,
) -> Choice:
    """What a file's groups may be computed by on a GPU."""
    order = (tuned.kernels, tuned.why) if tuned else None
    kernels, why = candidates(kernel, props, gpu, shape.d, shape.N, shape.causal, tuned=order)
    return Choice(kernels, why, shape.d, shape.N, props, max_error)


def finding_for(shape: Workload, layout: Layout, gpu: Gpu) -> Finding | None:
    """What `hw4 tune` found for a file on a GPU, which counts where whole batches are computed."""
    return None if 0 < layout.rows < shape.N else found(machine_of(gpu), shape)


def shapes_of(shape: Workload, layout: Layout) -> list[Workload]:
    """The shapes of a file's parts, each once."""
    by_rows = 0 < layout.rows < shape.N
    return list(
        dict.fromkeys(
            Workload.one_head(1, shape.N, shape.d, shape.causal, part.rows)
            if by_rows
            else shape.with_batches(part.batches)
            for part in layout.parts(shape)
        )
    )


def plans_of(
    name: str, shapes: Iterable[Workload], props: DeviceProperties, tuned: Finding | None = None
) -> Iterator[Plan]:
    """A kernel's plans for some shapes. Raises MachineError if it cannot compute them there."""
    tile = tuned.tiles.get(name) if tuned else None
    return (VARIANTS[name].plan(shape, props, tile) for shape in shapes)


def plans_of_suite(
    kernel: str, max_error: float | None, props: DeviceProperties, gpu: str, causal: bool
) -> Iterator[Plan]:
    """The plans with which the assignment's files start on a GPU: of one batch, and of as many as a group has."""
    for one in (Workload.one_head(1, N, d, causal) for d in HEAD_SIZES for N in LENGTHS):
        group = choose_layout(one.with_batches(MANY), cores=1).group
        first = choice_for(kernel, max_error, one, props, gpu).first
        yield from plans_of(first, (one.with_batches(batches) for batches in (1, group)), props)


def plans_of_file(shape: Workload, gpu: Gpu) -> Iterator[Plan]:
    """All plans that a file may need on a GPU with kernel "auto", whatever its values are: those with which its parts
    start come first."""
    yield from columns.needed(shape.d)
    layout = choose_layout(shape, cores=1)
    tuned = finding_for(shape, layout, gpu)
    choice = choice_for(AUTO, None, shape, gpu.props, gpu.name, tuned)
    for name in dict.fromkeys((choice.first, *choice.kernels)):
        with suppress(MachineError):  # it does not run on this GPU
            yield from plans_of(name, shapes_of(shape, layout), gpu.props, tuned)
