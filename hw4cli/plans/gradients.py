"""The kernels of gradients: their entries, and which computes a workload on a GPU: the fastest that runs there."""

from functools import partial
from typing import Any

from hw4cli.plans import backward, backwardmma, backwardonce, backwardwgmma, gradientwork
from hw4cli.plans.arraykernel import ArrayKernel, Encode
from hw4cli.plans.backward import Arrays
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, WIDEST, Workload, runs

# From the fastest on; the last repeatable one runs everywhere.
ONCE = ArrayKernel(
    backwardonce.NAME,
    "Hopper, 16 bits: one pass over the scores, which adds to dQ in the order of the keys",
    types=(FLOAT16, BFLOAT16),
    takes=backwardwgmma.takes,
    planned=backwardonce.plan,
    packed=backwardonce.arguments,
    work=gradientwork.one_pass,
    windows=True,
    scores=True,
    sequences=True,
    persistent=True,
)

WGMMA = ArrayKernel(
    backwardwgmma.NAME,
    "Hopper, 16 bits: a pass that owns queries, and one that owns keys",
    types=(FLOAT16, BFLOAT16),
    takes=backwardwgmma.takes,
    planned=backwardwgmma.plan,
    packed=backwardwgmma.arguments,
    work=gradientwork.warpgroups,
    windows=True,
    scores=True,
    sequences=True,
    widest=WIDEST,
    values=True,
    persistent=True,
)

MMA = ArrayKernel(
    backwardmma.NAME,
    "tensor cores from compute capability 8.0 on: two passes, float32 in two pieces",
    types=(FLOAT16, BFLOAT16, FLOAT32),
    takes=backwardmma.takes,
    planned=backwardmma.plan,
    packed=backwardmma.arguments,
    work=gradientwork.fragments,
    windows=True,
    sequences=True,
    widest=WIDEST,
    scores=True,
    score_gradients=True,
)

CORES = ArrayKernel(
    backward.NAME,
    "CUDA cores, on any GPU: two passes in float32",
    types=(FLOAT16, BFLOAT16, FLOAT32),
    takes=backward.takes,
    planned=backward.plan,
    packed=backward.arguments,
    work=gradientwork.cores,
    windows=True,
    widest=WIDEST,
    scores=True,
    score_gradients=True,
)

ATOMIC = ArrayKernel(
    backwardonce.ATOMIC,
    "backward_once with atomic additions to dQ, whose order differs from run to run",
    types=(FLOAT16, BFLOAT16),
    takes=backwardwgmma.takes,
    planned=partial(backwardonce.plan, name=backwardonce.ATOMIC),
    packed=backwardonce.arguments,
    work=partial(gradientwork.one_pass, atomic=True),
    windows=True,
    scores=True,
    sequences=True,
    persistent=True,
    repeatable=False,
)

GRADIENTS = {entry.name: entry for entry in tuple(vars().values()) if isinstance(entry, ArrayKernel)}


def fastest(work: Workload, props: DeviceProperties) -> str:
    """The name of the fastest kernel for a workload that gives the same bits in every run."""
    return next(name for name, entry in GRADIENTS.items() if entry.is_automatic(work, props))


def takes(kernel: str, work: Workload, props: DeviceProperties) -> bool:
    """Whether a kernel computes a workload, in rows that kernels can load, on such a GPU."""
    entry = GRADIENTS[kernel]
    return work.d <= entry.widest and entry.takes(work.stored, props)


def as_computed(work: Workload, props: DeviceProperties, kernel: str = AUTO) -> Workload:
    """What a kernel, or the fastest, is asked for: a workload as it is, or, where it does not compute V of another
    number of columns than Q and K, in rows that all have as many."""
    entry = GRADIENTS[fastest(work, props) if kernel == AUTO else kernel]
    return work if entry.values and entry.takes(work.stored, props) else work.of_one_width


def is_at_once(work: Workload, props: DeviceProperties, kernel: str = AUTO) -> bool:
    """Whether one call of the kernel named, or else of the fastest, computes sequences of several lengths. Those of one
    length are batches, which are computed by what is made for them."""
    (first, count), *others = runs(work.sequences)
    name = fastest(work.alone(first, count), props) if kernel == AUTO else kernel
    return bool(others) and GRADIENTS[name].sequences


def plan(work: Workload, props: DeviceProperties, kernel: str = AUTO, tile: Any = None) -> Plan:
    """The launches for a workload, in rows that kernels can load: of the kernel named or else the fastest, with another
    tile of its if one is given.

    Raises MachineError where it does not run.
    """
    return GRADIENTS[fastest(work, props) if kernel == AUTO else kernel].plan(work, props, tile)


def arguments(planned: Plan, work: Workload, arrays: Arrays, encode: Encode) -> bytes:
    """The one argument of each of a plan's launches. `encode` makes a tensor map's 128 bytes."""
    return GRADIENTS[planned.variant].arguments(work, planned, arrays, encode)
