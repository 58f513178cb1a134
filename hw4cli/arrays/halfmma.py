"""half_mma, the kernel for fp16 and bf16 on any tensor cores (kernels/half_mma.cu): its plan and argument."""

import struct
from typing import NamedTuple

from hw4cli.arrays.half import WIDTHS, Arrays, work_arguments
from hw4cli.arrays.workload import BFLOAT16, FLOAT16, Workload
from hw4cli.compute.common import padded_d
from hw4cli.compute.formulas import ceil_div
from hw4cli.compute.plan import DeviceProperties, Launch, Plan
from hw4cli.errors import MachineError

NAME = "half_mma"
_MATRIX = struct.Struct("<Qqqq")


class MmaTiling(NamedTuple):
    """How a block works: its warps, with so many times 16 rows each; keys of a tile, and how many of them are weighed
    together; whether Q stays in registers; blocks of a multiprocessor."""

    warps: int
    fragments: int
    keys: int
    sub: int
    q_registers: bool
    blocks: int

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 16 * self.fragments * self.warps


def mma_tiling(work: Workload, props: DeviceProperties) -> MmaTiling:
    """The fastest as measured on an H100, as far as it fits; elsewhere what needs less memory, and spills nothing."""
    width, roomy = padded_d(work.d), props.shared_sm >= 100 << 10
    if width == 32:
        return MmaTiling(4, 2, 64, 32, q_registers=True, blocks=3 if roomy else 2)
    if width == 64:
        return MmaTiling(4, 2, 64 if roomy else 32, 64 if roomy else 32, q_registers=True, blocks=2)
    if props.shared_sm >= 160 << 10:
        return MmaTiling(4, 2, 32, 32, q_registers=False, blocks=2)
    return MmaTiling(8 if roomy else 4, 1, 32, 32, q_registers=True, blocks=1)


def least(work: Workload) -> int:
    """The least compute capability: tensor cores take fp16 from 7.5 on, bf16 from 8.0 on."""
    return 75 if work.dtype == FLOAT16 else 80


def runs(work: Workload, props: DeviceProperties) -> bool:
    """Whether the kernel runs on a GPU."""
    return props.cc >= least(work)


def common_macros(work: Workload) -> dict[str, int]:
    """What kernels/halfmma.cuh is compiled with, for any tiling."""
    return {
        "D": work.d,
        "COLUMNS": next(columns for columns in WIDTHS if work.d <= columns),
        "CAUSAL": int(work.causal),
        "BFLOAT16": int(work.dtype == BFLOAT16),
        "ONES": 0,
    }


def check_runs(name: str, work: Workload, props: DeviceProperties) -> None:
    """Raise MachineError unless the GPU's tensor cores take the numbers."""
    if not runs(work, props):
        needed = least(work) / 10
        raise MachineError(
            f"kernel {name} needs compute capability {needed} for {work.dtype}, this GPU has {props.cc / 10}"
        )


def check_shared(name: str, how: NamedTuple, shared: int, props: DeviceProperties) -> None:
    """Raise MachineError if a tiling needs more shared memory than a block may have."""
    if shared > props.shared_limit:
        raise MachineError(
            f"kernel {name} with {how} needs {shared:,} bytes of shared memory a block, "
            f"this GPU has {props.shared_limit:,}"
        )


def matrices(arrays: Arrays) -> bytes:
    """Q, K and V: HalfMatrices in kernels/halfmma.cuh."""
    return b"".join(_MATRIX.pack(*(m.data, m.batch, m.head, m.row)) for m in arrays[:3])


def plan(work: Workload, props: DeviceProperties, chosen: MmaTiling | None = None) -> Plan:
    """The launch for a workload. Raises MachineError where the kernel does not run."""
    check_runs(NAME, work, props)
    how = chosen or mma_tiling(work, props)
    threads, width = 32 * how.warps, padded_d(work.d)
    macros = {
        **common_macros(work),
        "BR": how.rows,
        "BC": how.keys,
        "THREADS": threads,
        "BLOCKS": how.blocks,
        "MI": how.fragments,
        "SUB": how.sub,
        "Q_REGISTERS": int(how.q_registers),
    }
    shared = 2 * width * (how.rows + 4 * how.keys)
    check_shared(NAME, how, shared, props)
    return Plan(NAME, macros, (Launch(NAME, work.row_tiles(how.rows), threads, shared),))


def arguments(work: Workload, planned: Plan, arrays: Arrays, scale: float) -> bytes:
    """The launch's one argument: HalfMmaParams."""
    rows = planned.macros["BR"]
    return matrices(arrays) + work_arguments(work, ceil_div(work.Nq, rows), work.row_tiles(rows), arrays, scale)
