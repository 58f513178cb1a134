"""The launches of kernels/backward_mma.cu, gradients by tensor cores, and the bytes that they are passed."""

import struct
from dataclasses import replace
from typing import Any, NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans.backward import PARAMS_BYTES, Arrays
from hw4cli.plans.backward import arguments as common_arguments
from hw4cli.plans.common import padded_d
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.launch import COORDINATES, Matrix, coordinates
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Scratch, mask_macros, sequence_macros
from hw4cli.plans.scoring import scoring_bytes
from hw4cli.plans.spans import Owned, table_addresses, with_tables
from hw4cli.problem.workload import BFLOAT16, FLOAT32, MAX_D, Workload

NAME = "backward_mma"
LEAST_CC = 80
THREADS = 256  # of what prepares a tile
TILE_ROWS = 32  # that share a factor
ALIGNMENT = 256
# What PiecesParams in kernels/backward_mma.cu has behind BackwardParams.
_LAYOUT = struct.Struct("@" + 4 * COORDINATES + "QQQ" + "4i" + "4Q")


class Tile(NamedTuple):
    """How a block of a pass works: warps, blocks of 16 rows that a warp owns, rows that pass at a time, how many of
    these are weighed together, whether what is owned stays in registers; blocks that a multiprocessor must hold."""

    warps: int
    blocks16: int
    streamed: int
    together: int
    kept: bool
    resident: int

    @property
    def rows(self) -> int:
        """That a block owns."""
        return 16 * self.warps * self.blocks16

    def macros(self, prefix: str) -> dict[str, int]:
        """What the kernel's file is compiled with."""
        names = ("WARPS", "MI", "BC", "SUB", "KEPT", "BLOCKS")
        return {f"{prefix}_{name}": int(value) for name, value in zip(names, self, strict=True)}

    def shared(self, row_bytes: int) -> int:
        """Bytes of a block's shared memory, for rows of so many bytes in all pieces."""
        own, streamed = 2 * self.rows * row_bytes, 4 * self.streamed * row_bytes
        stats = 2 * (8 * self.streamed + 16 * ceil_div(self.streamed, TILE_ROWS))
        return (max(own, streamed) if self.kept else own + streamed) + stats


class Tiling(NamedTuple):
    """How the pass that owns rows of Q works, and the one that owns keys."""

    dq: Tile
    dkdv: Tile


# Of each pass, for float32 or not and each width of rows, from the fastest on as measured on an H200; the first that
# fits a block's shared memory is taken.
DQ_TILES = {
    (True, 32): (Tile(4, 2, 64, 32, False, 2),),
    (True, 64): (Tile(4, 2, 32, 32, False, 2),),
    (True, 128): (Tile(8, 1, 32, 32, False, 1), Tile(4, 1, 16, 16, False, 2)),
    (False, 32): (Tile(4, 2, 64, 32, False, 2),),
    (False, 64): (Tile(4, 2, 64, 32, True, 2),),
    (False, 128): (Tile(4, 2, 32, 32, False, 1),),
    (True, 256): (Tile(4, 1, 16, 16, False, 1), Tile(2, 1, 16, 16, False, 1), Tile(1, 1, 16, 16, False, 1)),
    (False, 256): (Tile(4, 1, 32, 32, False, 1), Tile(4, 1, 16, 16, False, 1)),
}
DKDV_TILES = {
    (True, 32): (Tile(4, 2, 64, 32, False, 2),),
    (True, 64): (Tile(4, 1, 32, 32, False, 2),),
    (True, 128): (Tile(4, 1, 16, 16, False, 2),),
    (False, 32): (Tile(4, 2, 64, 32, False, 2),),
    (False, 64): (Tile(4, 2, 64, 32, False, 2),),
    (False, 128): (Tile(8, 1, 128, 16, True, 1), Tile(4, 1, 64, 16, True, 2)),
    (True, 256): (Tile(4, 1, 16, 16, False, 1), Tile(2, 1, 16, 16, False, 1), Tile(1, 1, 16, 16, False, 1)),
    (False, 256): (Tile(4, 1, 32, 32, False, 1), Tile(4, 1, 16, 16, False, 1)),
}


def takes(work: Workload, props: DeviceProperties) -> bool:
    """Whether the kernel runs there, and how elements are laid out allows it."""
    return props.cc >= LEAST_CC and (work.dtype == FLOAT32 or work.d % 8 == 0)


def plan(work: Workload, props: DeviceProperties, tile: Tiling | None = None) -> Plan:
    """The launches for a workload. Raises MachineError where no tile fits a block's shared memory."""
    if not takes(work, props):
        raise MachineError(f"kernel {NAME} does not take {work.dtype}, d={work.d} on {props.architecture}")
    wide, width = work.dtype == FLOAT32, padded_d(work.d)
    row_bytes = 2 * width * (2 if wide else 1)
    # Where sequences are computed, what is passed lies in shared memory, in whole rows.
    passed = PARAMS_BYTES + scoring_bytes(work) + _LAYOUT.size
    more = ceil_div(passed, 2 * width) * 2 * width if work.sequences else 0

    def fitting(tiles: tuple[Tile, ...]) -> Tile:
        for one in tiles:
            if one.shared(row_bytes) + more <= props.shared_limit:
                return one
        raise MachineError(f"gradients at d={work.d} do not fit {props.shared_limit:,} bytes of shared memory a block")

    given = tile and ((tile.dq,), (tile.dkdv,))
    dq, dkdv = map(fitting, given or (DQ_TILES[wide, width], DKDV_TILES[wide, width]))
    bfloat = work.dtype == BFLOAT16
    macros = {
        "D": work.d,
        "THREADS": THREADS,
        "ELEMENT_BITS": 32 if wide else 16,
        "BFLOAT16": int(bfloat),
        "CAUSAL": int(work.causal),
        **mask_macros(work),
        **sequence_macros(work),
        **dq.macros("DQ"),
        **dkdv.macros("DKDV"),
    }
    tiles = work.row_tiles(TILE_ROWS) + (0 if bfloat else work.key_tiles(TILE_ROWS))
    launches = (
        Launch("backward_pieces", tiles, THREADS, 0),
        Launch("backward_mma_dq", work.row_tiles(dq.rows), 32 * dq.warps, dq.shared(row_bytes) + more),
        *(
            Launch(symbol, work.key_tiles(dkdv.rows), 32 * dkdv.warps, dkdv.shared(row_bytes) + more)
            for symbol in (("backward_mma_dkdv",) if width <= MAX_D else ("backward_mma_dk", "backward_mma_dv"))
        ),
    )
    planned = Plan(NAME, macros, launches, Scratch(_scratch(work)[-1]), main_symbol=launches[2].symbol)
    return with_tables(planned, work, (TILE_ROWS, TILE_ROWS), _owned(planned))


def _owned(planned: Plan) -> list[Owned]:
    """The tiles of backward_pieces, and of the two passes."""
    m = planned.macros
    dq, dkdv = (16 * m[f"{name}_WARPS"] * m[f"{name}_MI"] for name in ("DQ", "DKDV"))
    return [Owned(TILE_ROWS), Owned(TILE_ROWS, keys=True), Owned(dq), Owned(dkdv, keys=True)]


def _scratch(work: Workload) -> list[int]:
    """Where the parts of scratch begin: scales of queries and of keys, rows, pieces of Q, K, V and dO; and its end."""
    heads, kv_heads = work.batch * work.heads, work.batch * work.kv_heads
    queries, keys = work.row_tiles(TILE_ROWS), work.key_tiles(TILE_ROWS)
    row = 4 * ceil_div(work.d, 8) * 8 if work.dtype == FLOAT32 else 0
    of_queries, of_keys = heads * work.Nq * row, kv_heads * work.Nk * row
    starts = [0]
    for size in (16 * queries, 16 * keys, 8 * TILE_ROWS * queries, of_queries, of_keys, of_keys, of_queries):
        starts.append(ceil_div(starts[-1] + size, ALIGNMENT) * ALIGNMENT)
    return starts


def arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Any = None) -> bytes:
    """The one argument of each launch. It has no tensor maps, which `encode` would make."""
    query_scales, key_scales, rows, *pieces, _ = (arrays.scratch + start for start in _scratch(work))
    q, k, v, _, do = arrays.matrices[:5]
    taken = [q, k, v, do]
    if work.dtype == FLOAT32:
        stride = 2 * ceil_div(work.d, 8) * 8
        queries, keys = (work.heads, work.Nq), (work.kv_heads, work.Nk)
        taken = [
            Matrix(at, heads * count * stride, count * stride, stride)
            for at, (heads, count) in zip(pieces, (queries, keys, keys, queries), strict=True)
        ]
    owned = _owned(planned)
    tiles = ceil_div(work.Nq, TILE_ROWS), ceil_div(work.Nk, TILE_ROWS), owned[0].count(work), owned[1].count(work)
    own = (query_scales, key_scales, rows, *tiles, *table_addresses(planned, work, arrays.scratch, owned))
    one = replace(work, batch=1) if work.sequences else work  # as if all sequences were of one
    return common_arguments(one, planned, arrays) + _LAYOUT.pack(*coordinates(*taken), *own)
