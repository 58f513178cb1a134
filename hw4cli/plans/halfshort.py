"""half_short, which is half for few rows and as few keys (kernels/half_short.cu): its plan and argument."""

from collections.abc import Callable
from typing import NamedTuple

from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.half import (
    ATOM,
    GROUP_ROWS,
    REGISTERS,
    Arrays,
    boxes,
    check_runs,
    columns,
    output_box,
    padded,
    work_arguments,
)
from hw4cli.plans.half import NAME as HALF
from hw4cli.plans.launch import Box
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, mask_macros
from hw4cli.problem.workload import BFLOAT16, MAX_D, Workload

NAME = "half_short"
MOST_KEYS = 128


class ShortTiling(NamedTuple):
    """How a block works: teams of groups, each with a tile of its own; groups of a team, with 64 rows each; keys of a
    tile; tiles for which there is room, as many for each team; whether the tensor cores sum P."""

    teams: int
    groups: int
    keys: int
    stages: int
    ones: bool = False

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return GROUP_ROWS * self.groups


def fits(work: Workload) -> bool:
    """Whether a tile holds all rows, and all keys, of a head."""
    return work.Nq <= 2 * GROUP_ROWS and work.Nk <= MOST_KEYS and work.d <= MAX_D and not (work.sequences or work.dv)


def tiling(work: Workload) -> ShortTiling:
    """Two tiles of 128 rows at once where registers allow it; of d = 64, four of 64 rows where these are whole tiles,
    although each reads the keys: none of them waits for another."""
    groups, keys = min(2, ceil_div(work.Nq, GROUP_ROWS)), 64 if work.Nk <= 64 else MOST_KEYS
    if work.d > 64:
        return ShortTiling(2 // groups, groups, keys, 2)
    if work.d > 32 and work.Nq == MOST_KEYS and not work.causal:
        groups = 1
    return ShortTiling(4 // groups, groups, keys, 4, ones=True)


def plan(work: Workload, props: DeviceProperties, chosen: ShortTiling | None = None) -> Plan:
    """The launch for a workload. Raises MachineError where the kernel does not run."""
    check_runs(HALF, props)
    how = chosen or tiling(work)
    rows, multiply = how.rows, how.teams * how.groups
    registers, copying = REGISTERS[multiply]
    threads = 128 * (multiply + 1)
    macros = {
        "D": work.d,
        "BR": rows,
        "BC": how.keys,
        "THREADS": threads,
        "TEAMS": how.teams,
        "GROUPS": how.groups,
        "STAGES": how.stages,
        "COLUMNS": max(ATOM, columns(work)) if how.ones else columns(work),
        "CAUSAL": int(work.causal),
        **mask_macros(work),
        "BFLOAT16": int(work.dtype == BFLOAT16),
        "ONES": int(how.ones),
        "REGISTERS": registers,
        "COPY_REGISTERS": copying,
        "WARPGROUPS": 1,
    }
    shared = how.stages * (ceil_div(work.d, ATOM) * 128 * (rows + 2 * how.keys) + 16) + 2048 * how.ones
    blocks = min(props.sms, work.row_tiles(rows))
    return Plan(NAME, macros, (Launch(NAME, blocks, threads, shared),))


def arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Callable[[Box], bytes]) -> bytes:
    """The launch's one argument: HalfShortParams. `encode` makes a tensor map's 128 bytes."""
    rows = planned.macros["BR"]
    maps = b"".join(encode(box) for box in (*boxes(work, planned.macros, arrays), output_box(work, arrays.o)))
    passed = maps + work_arguments(work, planned, ceil_div(work.Nq, rows), work.row_tiles(rows), arrays)
    return padded(passed)
