"""Indices beyond 2^31, found on the CPU: launches on arrays larger than all memory, of which a few blocks run.

The arrays are addresses that take no memory until something is written there, and hold zeros; of each grid the first,
the middle and the last block run, as if all others had run before. What is looked for does not depend on the data: an
index of int that overflows, and an address outside the arrays.
"""

from collections.abc import Callable, Mapping, Sequence

from hw4cli.emulator.library import FORWARDS, Library, Watched, space
from hw4cli.emulator.report import Finding
from hw4cli.plans.launch import Matrix, arguments
from hw4cli.plans.plan import Launch, Plan
from hw4cli.problem.workload import Workload

GAP = 1 << 36  # bytes between arrays: an index that is off by 2^32 elements of 16 bytes meets no other array
KINDS = ("out of bounds", "misaligned", "undefined behaviour")
MULTIPROCESSORS = 1 << 30  # so many that each task has a block of its own
MOST_ROWS = 1024  # of a block that runs: one that goes through all rows would take hours
LARGEST_MEMORY = 288 << 30  # of a GPU


def few_rows(launches: Sequence[Launch], rows: int) -> bool:
    """Whether a block of the launch that has most computes few of so many rows."""
    return rows <= MOST_ROWS * max(launch.grid for launch in launches)


def bytes_of(shape: Workload) -> int:
    """The bytes of Q, K, V and O of float32."""
    return 4 * shape.B * shape.d * 2 * (shape.Nq + shape.Nk)


def far_findings(
    library: Library,
    launches: Sequence[Launch],
    inputs: Mapping[str, int],
    made: Mapping[str, int],
    params: Callable[[Mapping[str, int]], bytes],
    lanes: int = 32,
) -> tuple[Finding, ...]:
    """What is wrong with the indices of launches on arrays of these bytes, inputs and what kernels write; `params` gets
    their addresses.

    Raises MachineError if this system does not give so many addresses.
    """
    # An access far from all arrays is taken for one of the host's; so two words lie around those that are meant.
    sizes = {"the word before all arrays": 4, **inputs, **made, "the word behind all arrays": 4}
    buffer, starts = space([*sizes.values()], GAP, sparse=True)
    at = {name: buffer.ctypes.data + start for name, start in zip(sizes, starts, strict=False)}
    watched = [Watched(at[name], size, name in made, name, written=True) for name, size in sizes.items() if size]
    _, found = library.launches(launches, params(at), watched, FORWARDS, lanes, few=True)
    return tuple(finding for finding in found if finding.kind in KINDS)


def far_findings_of_files(library: Library, plan: Plan, shape: Workload, lanes: int = 32) -> tuple[Finding, ...]:
    """The same for a kernel of files, all of whose rows have an LSE."""
    rows = {"Q": shape.Nq, "K": shape.Nk, "V": shape.Nk, "O": shape.Nq}
    inputs = {name: 4 * shape.B * rows[name] * plan.d for name in "QKV"}
    made = {"O": inputs["Q"], "LSE": 4 * shape.B * shape.Nq, "scratch": plan.scratch}

    def params(at: Mapping[str, int]) -> bytes:
        q, k, v, o = (Matrix(at[name], count * plan.d, count * plan.d, plan.d) for name, count in rows.items())
        return arguments(plan, shape, (q, k, v, o), at["scratch"], at["LSE"])

    return far_findings(library, plan.launches, inputs, made, params, lanes)
