"""The launches of kernels/backward_wgmma.cu (16-bit numbers, Hopper), and the bytes that they are passed."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans.backward import Arrays
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.half import ATOM, LARGEST, padded, tensor_box
from hw4cli.plans.launch import COORDINATES, Box, coordinates
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Scratch, mask_macros, sequence_macros
from hw4cli.plans.scoring import LOG2E, scoring
from hw4cli.plans.spans import Owned, table_addresses, with_tables
from hw4cli.problem.workload import BFLOAT16, FLOAT32, MAX_D, Workload

NAME = "backward_wgmma"
OWNED = 64  # rows of a group of four warps
STATS_THREADS, STATS_BYTES = 256, 8
COUNT = 4  # bytes
LINE = 128  # bytes: stats are copied as rows of so many
# TiledParams in kernels/backward_wgmma.cuh, behind its nine tensor maps.
_LAYOUT = struct.Struct("<" + 5 * COORDINATES + "Qqq" + 4 * "Q" + 12 * "i" + 2 * "f" + "i" + "4x" + "3Q2i")


class Pass(NamedTuple):
    """How the blocks of a pass work: `groups` of four warps own 64 rows each, tiles pass through `stages` buffers; a
    tile's scores are asked for `ahead` of the end of the sums of the one before. `together`: two groups own the same
    64 keys, one adds up dV, the other one dK."""

    groups: int
    tile: int
    stages: int
    ahead: bool = False
    together: bool = False

    @property
    def threads(self) -> int:
        """Of a block: one group more copies."""
        return 128 * (self.groups + 1)

    @property
    def rows(self) -> int:
        """That a block owns."""
        return OWNED * (1 if self.together else self.groups)

    def shared(self, columns: int, stats: bool) -> int:
        """Bytes of a block's shared memory: two matrices owned, two streamed with or without stats, of so many columns
        together; barriers; P on its way from one group to the other, twice."""
        tiles = 2 * columns * (self.rows + self.stages * self.tile)
        handed = 2 * (FLOAT * OWNED * self.tile + 16) if self.together else 0
        return tiles + self.stages * self.tile * STATS_BYTES * stats + 16 * (self.groups + self.stages) + handed

    def macros(self, name: str) -> dict[str, int]:
        """What the kernel's file is compiled with."""
        return {f"{name}_{field.upper()}": int(getattr(self, field)) for field in self._fields}


class Tiling(NamedTuple):
    """The pass that owns queries, and the one that owns keys."""

    dq: Pass
    dkdv: Pass


# Of each number of columns, the fastest as measured on an H200.
TILINGS = {
    64: Tiling(Pass(3, 80, 4, ahead=True), Pass(3, 64, 4)),
    128: Tiling(Pass(3, 64, 4), Pass(2, 80, 3)),
    192: Tiling(Pass(2, 64, 2), Pass(2, 64, 3, ahead=True, together=True)),
    256: Tiling(Pass(2, 48, 2), Pass(2, 64, 2, ahead=True, together=True)),
}


def takes(work: Workload, props: DeviceProperties) -> bool:
    """Whether the kernel runs there, and takes such elements and rows: V's may be shorter than rows of Q that are
    wide."""
    shorter = not work.dv or (work.dv < work.d and columns(work) > MAX_D)
    return props.warpgroups and work.dtype != FLOAT32 and work.d % 8 == 0 and work.dv % 8 == 0 and shorter


def plan(work: Workload, props: DeviceProperties, tile: Tiling | None = None) -> Plan:
    """The three launches for a workload. Raises MachineError where the kernels do not run."""
    check(NAME, work, props)
    width, both = columns(work), columns(work) + columns(_of_values(work))
    dq, dkdv = tile or TILINGS[width]
    macros = {**common_macros(work), **dq.macros("DQ"), **dkdv.macros("DKDV")}
    claims = claimed_bytes(width)
    more = cleared_bytes(work) + 2 * claims  # a number for each set of owned rows
    launches = (
        stats_launch(work, dkdv.tile),
        Launch("backward_dq", min(props.sms, work.row_tiles(dq.rows)), dq.threads, dq.shared(both, False) + more),
        Launch(
            "backward_dkdv", min(props.sms, work.key_tiles(dkdv.rows)), dkdv.threads, dkdv.shared(both, True) + more
        ),
    )
    stats = STATS_BYTES * stats_rows(work, dkdv.tile)
    scratch = Scratch(stats + claims, row_stats=stats)
    planned = Plan(NAME, macros, launches, scratch, main_symbol="backward_dkdv")
    return with_sequences(planned, work, dkdv.tile, _owned(planned))


def _owned(planned: Plan) -> list[Owned]:
    """The tiles of stats, and of the two passes."""
    dq, dkdv = (pass_of(planned, which).rows for which in ("DQ", "DKDV"))
    return [Owned(planned.macros["DKDV_TILE"]), Owned(dq), Owned(dkdv, keys=True)]


def pass_of(planned: Plan, which: str) -> Pass:
    """How blocks of a pass, "DQ" or "DKDV", of a plan work."""
    groups, tile, stages, ahead, together = (planned.macros[f"{which}_{field.upper()}"] for field in Pass._fields)
    return Pass(groups, tile, stages, bool(ahead), bool(together))


def arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Callable[[Box], bytes]) -> bytes:
    """The one argument of each launch; `encode` makes tensor maps."""
    tiles = planned.macros["DQ_TILE"], planned.macros["DKDV_TILE"]
    sums = 0, 0, arrays.scratch + planned.layout.row_stats if claimed_bytes(columns(work)) else 0
    return tiled_arguments(work, planned, arrays, encode, tiles, section(work), _owned(planned), sums=sums)


def section(work: Workload) -> int:
    """Heads that are worked on together, so that their matrices stay in the L2 cache; as measured on an H200. With a
    mask, tasks that are not claimed need many, or blocks would not end together."""
    return 16 if work.causal and not claimed_bytes(columns(work)) else 4


def claimed_bytes(width: int) -> int:
    """Of scratch: of each pass the next task, where blocks claim tasks, those of more than 128 columns."""
    return 2 * COUNT if width > MAX_D else 0


# ---- What one pass and two passes share


def check(name: str, work: Workload, props: DeviceProperties) -> None:
    """Raises MachineError where a kernel for warpgroups does not run."""
    if not takes(work, props):
        of = f"{work.d}, {work.dv}" if work.dv else f"{work.d}"
        raise MachineError(f"kernel {name} does not take {work.dtype}, d={of} on {props.architecture}")


def columns(work: Workload) -> int:
    """Columns that are computed."""
    return ceil_div(work.d, ATOM) * ATOM


def value_columns(planned: Plan) -> int:
    """Columns of V, dO and dV that are computed, for a plan."""
    return ceil_div(planned.macros.get("DV", planned.macros["D"]), ATOM) * ATOM


def _of_values(work: Workload) -> Workload:
    """The same, whose rows all are as long as V's."""
    return replace(work, d=work.value_columns, dv=0)


def common_macros(work: Workload) -> dict[str, int]:
    """What all kernels for warpgroups are compiled with."""
    return {
        "D": work.d,
        **({"DV": work.dv} if work.dv else {}),
        "COLUMNS": columns(work),
        "THREADS": STATS_THREADS,
        "BFLOAT16": int(work.dtype == BFLOAT16),
        "CAUSAL": int(work.causal),
        **mask_macros(work),
        **sequence_macros(work),
        "WARPGROUPS": 1,
    }


def stats_rows(work: Workload, tile: int) -> int:
    """Rows of all heads, of each of them whole tiles: for so many there are stats."""
    return work.row_tiles(tile) * tile


def stats_launch(work: Workload, tile: int) -> Launch:
    """The launch that computes stats: a row of O has as many lanes as it has chunks of 16 bytes, or more."""
    lanes = next(lanes for lanes in (1, 2, 4, 8, 16, 32) if work.value_columns <= 8 * lanes)
    return Launch("backward_stats", ceil_div(stats_rows(work, tile) * lanes, STATS_THREADS), STATS_THREADS, 0)


def cleared_bytes(work: Workload) -> int:
    """Of shared memory for a barrier, at which groups meet that have cleared the rows behind a sequence's last."""
    return 8 if work.sequences else 0


def with_sequences(planned: Plan, work: Workload, tile: int, owned: Sequence[Owned]) -> Plan:
    """The plan with tables of tiles of stats, of so many rows, and of what the passes own."""
    return with_tables(planned, work, (tile, OWNED), owned)


def tiled_arguments(
    work: Workload,
    planned: Plan,
    arrays: Arrays,
    encode: Callable[[Box], bytes],
    tiles: tuple[int, int],
    section: int,
    owned: Sequence[Owned],
    cut: Sequence[int] | None = None,
    sums: Sequence[int] = (0, 0, 0),
) -> bytes:
    """TiledParams. `tiles`: rows of tiles of K and V that are streamed, and of Q and dO; `section`: heads that are
    worked on together; `owned`: of what there are tables of sequences; `cut`: as cut.Cut; `sums`: addresses of parts,
    of dQ and of counts."""
    q, k, v, o, do, dq, dk, dv = arrays.matrices
    of_values = _of_values(work)

    def of_queries(rows: int) -> list[bytes]:
        boxes = ((work, q), (of_values, do))
        return [encode(tensor_box(one, m, work.heads, work.Nq, rows)) for one, m in boxes]

    def of_keys(rows: int) -> list[bytes]:
        boxes = ((work, k), (of_values, v))
        return [encode(tensor_box(one, m, work.kv_heads, work.Nk, rows)) for one, m in boxes]

    maps = of_queries(OWNED) + of_keys(tiles[0]) + of_keys(OWNED) + of_queries(tiles[1])
    maps.append(encode(_stats_box(work, arrays.scratch, tiles[1])))
    members = coordinates(o, do, dq, dk, dv)
    memory = *arrays.log_sums(work), arrays.scratch, *sums
    batch = 1 if work.sequences else work.batch  # as if all sequences were of one
    cut = cut or (batch * work.kv_heads, 1, 1, 1)
    head_rows = stats_rows(work, tiles[1]) // (batch * work.heads)
    sizes = (batch, work.heads, work.kv_heads, work.Nq, work.Nk, head_rows, work.offset, section, *cut)
    tables = *table_addresses(planned, work, arrays.scratch, owned), *(one.count(work) for one in owned[1:])
    passed = _LAYOUT.pack(*members, *memory, *sizes, work.scale, min(work.scale * LOG2E, LARGEST), work.window, *tables)
    return padded(b"".join(maps) + passed + scoring(work, arrays.views, arrays.scores, arrays.heads))


def _stats_box(work: Workload, stats: int, tile: int) -> Box:
    """The stats of a tile, as a copy brings them: in lines, as if they were 16-bit numbers."""
    lines, of_tile = (rows * STATS_BYTES // LINE for rows in (stats_rows(work, tile), tile))
    return Box(stats, False, (LINE // 2, lines, 1, 1), (LINE, LINE, LINE), (LINE // 2, of_tile, 1, 1), swizzled=False)
