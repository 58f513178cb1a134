"""What the kernels for 16-bit arrays move and compute: the formulas of their entries (kernels16.py).

A row tile of a head visits tiles of keys: all, or with a mask those that some row sees. Counted are whole tiles.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.half import heads_together, ones_bytes, tile_bytes
from hw4cli.plans.halfmma import packed_rows
from hw4cli.plans.plan import DeviceProperties, Launch, LaunchModel, Plan, Tile, Visit, Visits
from hw4cli.plans.tensorwork import HALF, POLYNOMIAL_FLOPS
from hw4cli.plans.work import ALIKE, FOURS, LANES, SECTOR, WAVEFRONT
from hw4cli.problem.workload import FLOAT32, Workload


@dataclass(frozen=True)
class Sizes:
    """Bytes of Q, K, V and O; rows of all heads of Q."""

    q: int
    k: int
    v: int
    o: int
    rows: int

    @classmethod
    def of(cls, work: Workload) -> "Sizes":
        """Those of a workload."""
        element = FLOAT if work.dtype == FLOAT32 else HALF
        rows, keys = work.batch * work.heads * work.Nq, work.batch * work.kv_heads * work.Nk
        d, dv = element * work.d, element * work.value_columns
        return cls(rows * d, keys * d, keys * dv, rows * dv, rows)


def seen_by(work: Workload, row: int) -> int:
    """How many keys a row sees; not below 0."""
    return min(max(0, row + work.offset + 1), work.Nk) if work.causal else work.Nk


def tiles_seen(work: Workload, last_rows: Iterable[int], keys: int, least: int = 1) -> list[int]:
    """How many tiles of so many keys tiles of rows see, by the last row of each; at least so many."""
    return [max(least, ceil_div(seen_by(work, row), keys)) for row in last_rows]


def last_rows(work: Workload, rows: int, group: int = 0) -> range:
    """The last row of each tile of so many rows of a head, which may be behind all rows. `group`: where whole groups of
    so many rows come before the first row if rows do not fill them (kernels/halfrows.cuh)."""
    spare = -work.Nq % rows // (group or rows) * (group or rows)
    return range(rows - 1 - spare, work.Nq + rows - 1 - spare, rows)


def visited(work: Workload, rows: int, keys: int, group: int = 0) -> tuple[int, int]:
    """Of tiles of so many rows, all heads: tiles of keys that they visit, at least one each; and the keys in these."""
    tiles = tiles_seen(work, last_rows(work, rows, group), keys)
    heads = work.batch * work.heads
    return heads * sum(tiles), heads * sum(min(work.Nk, count * keys) for count in tiles)


def head_bytes(work: Workload, keys: int) -> int:
    """Bytes of so many keys of K and of V."""
    return (FLOAT if work.dtype == FLOAT32 else HALF) * keys * (work.d + work.value_columns)


def _visits(work: Workload, plan: Plan, slots: int, in_rounds: bool = False, group_rows: int = 0) -> Visits:
    """Tiles of rows in the order of kernels/halfrows.cuh, so many at once; `group_rows` as in `last_rows`."""
    rows = plan.macros["BR"]
    of_head = last_rows(work, rows, group_rows)
    tiles = len(of_head)
    own = [HALF * work.d * (min(row + 1, work.Nq) - max(0, row + 1 - rows)) for row in of_head]
    count = tiles_seen(work, of_head, plan.macros["BC"])
    last = [min(work.Nk, tiles_ * plan.macros["BC"]) for tiles_ in count]
    heads, group = work.batch * work.heads, work.heads // work.kv_heads
    together = heads_together(work) if work.causal else 1
    visits = [
        Visit(head // group, 0, last[tile], own[tile], own[tile])
        for start in range(0, heads, together)
        for tile in (reversed(range(tiles)) if work.causal else range(tiles))
        for head in range(start, min(heads, start + together))
    ]
    return Visits(visits, slots, head_bytes(work, 1), in_rounds)


def half(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """half: the groups of a head's first tile that are without rows come first; O is left for copies if it has the
    place of Q. What the producer hands over of each tile of rows, the groups' warps read word by word, and of the end
    one word."""
    m, words = plan.macros, tile_bytes(work) // FLOAT
    handed = WAVEFRONT * 4 * m["GROUPS"] * (work.row_tiles(m["BR"]) * words + plan.launches[-1].grid)
    return _warpgroups(plan, work, bool(m["COPIES_O"]), m["BR"] // m["GROUPS"], handed)


def short(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """half_short: a head's last tile is the one that is not full; O is always left for copies."""
    return _warpgroups(plan, work, copies_o=True)


def _warpgroups(plan: Plan, work: Workload, copies_o: bool, group_rows: int = 0, handed: int = 0) -> list[LaunchModel]:
    """A block brings tiles for all its groups; each group of 64 rows multiplies those that its own rows see. Blocks
    stay: a launch before them may set the number of the next task to 0. `copies_o`: whether O goes through shared
    memory; `group_rows` as in `last_rows`; `handed`: bytes of shared memory beside those of O."""
    m, sizes, launch = plan.macros, Sizes.of(work), plan.launches[-1]
    tiles, keys = visited(work, m["BR"], m["BC"], group_rows)
    own, _ = visited(work, 64, m["BC"])
    steps = 16 * ceil_div(work.d, 16)
    operands = HALF * (64 * steps + m["BC"] * steps + m["BC"] * (m["COLUMNS"] + 8 * m["ONES"]))
    groups = work.batch * work.heads * ceil_div(work.Nq, 64)
    ones = ones_bytes(m["COLUMNS"], m["BC"], m.get("STAGES", 1)) if m["ONES"] else 0
    left = HALF * groups * 64 * m["COLUMNS"] + launch.grid * ones
    by_polynomial = own * 128 * (m["BC"] // 2 * m.get("POLYNOMIAL", 0) // 16)  # of a thread's BC / 2 scores
    main = LaunchModel(
        launch.symbol,
        (sizes.q + sizes.k + sizes.v, sizes.o),
        (sizes.q + head_bytes(work, keys), sizes.o),
        (left if copies_o else 0) + handed,
        own * operands,
        ffma_flops=by_polynomial * POLYNOMIAL_FLOPS,
        tensor_flops=2 * own * 64 * m["BC"] * (steps + m["COLUMNS"] + 8 * m["ONES"]),
        exponentials=own * 64 * m["BC"] - by_polynomial,
        tiles=tiles,
        again=lambda resident: _visits(work, plan, launch.grid, in_rounds=not m.get("DYNAMIC"), group_rows=group_rows),
    )
    number = (0, plan.scratch), (0, plan.scratch)
    return [*(LaunchModel(start.symbol, *number) for start in plan.launches[:-1]), main]


def warps(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """half_mma: each warp multiplies its own rows by the keys that some of these see, SUB at a time. Q that stays in
    registers is read once from shared memory."""
    m, sizes, (launch,) = plan.macros, Sizes.of(work), plan.launches
    tiles, keys = visited(work, m["BR"], m["BC"])
    rows = 16 * m["MI"]
    last = [first + row - 1 for first in range(0, work.Nq, m["BR"]) for row in range(rows, m["BR"] + 1, rows)]
    whole = ceil_div(work.Nk, m["BC"]) * m["BC"] // m["SUB"]  # without a mask, a tile is computed to its end
    subs = sum(tiles_seen(work, last, m["SUB"])) if work.causal else len(last) * whole
    computed = _by_warps(m, work, work.batch * work.heads * subs)
    computed["shared"] += launch.grid * m["BR"] * _q_bytes(m, work)
    model = LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + head_bytes(work, keys), sizes.q),
        **computed,
        tiles=tiles,
        again=lambda resident: _visits(work, plan, min(launch.grid, m["BLOCKS"] * props.sms)),
    )
    return [model]


def _by_warps(m: Tile, work: Workload, done: int) -> dict[str, Any]:
    """What warps compute, which `done` times multiply their 16 MI rows by SUB keys."""
    steps, rows = 16 * ceil_div(work.d, 16), 16 * m["MI"]
    loads = HALF * (2 * m["SUB"] * steps + (0 if m["Q_REGISTERS"] else rows * steps))
    return {
        "shared": done * loads,
        "tensor_flops": 2 * done * rows * m["SUB"] * (2 * steps + 8 * m["ONES"]),
        "exponentials": done * rows * m["SUB"],
    }


def _q_bytes(m: Tile, work: Workload) -> int:
    """Of a row of Q, that a warp reads once."""
    return HALF * 16 * ceil_div(work.d, 16) if m["Q_REGISTERS"] else 0


def split(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """half_split: heads that share keys are rows of one tile; of the keys that some row sees, each warp takes SUB in
    turn. At first it reads Q, at the end all put their sums together."""
    m, sizes, launch = plan.macros, Sizes.of(work), plan.launches[0]
    group, rows, units = work.heads // work.kv_heads, packed_rows(work), work.batch * work.kv_heads
    tiles = range(0, rows, m["BR"])
    parts = tiles_seen(work, ((min(rows, first + m["BR"]) - 1) // group for first in tiles), m["SUB"], least=0)
    keys, team = units * sum(min(work.Nk, count * m["SUB"]) for count in parts), m.get("TEAM", 1)
    done = units * sum(parts) * team
    partial = plan.scratch if plan.splits > 1 else sizes.q
    sectors = sizes.rows * plan.splits * (SECTOR - FLOAT) if plan.splits > 1 else 0
    computed = _by_warps(m, work, done)
    teams = m["THREADS"] // LANES // team
    computed["shared"] += launch.grid * teams * m["BR"] * _q_bytes(m, work)
    computed["shared"] += _put_together(plan, work, [min(m["BR"], rows - first) for first in tiles])
    for count, first in zip(parts, tiles, strict=True):
        share, more = divmod(count, plan.splits)
        having = more * min(teams, share + 1) + (plan.splits - more) * min(teams, share)  # those with keys
        # Each of four lanes weighs all teams' parts of a row, and its own.
        computed["exponentials"] += units * having * 4 * min(m["BR"], rows - first) * (teams + 1)
    main = LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, partial),
        (plan.splits * sizes.q + head_bytes(work, keys), partial + sectors),
        **computed,
        tiles=done,
    )
    return [main, *(_combined(plan, combine, work) for combine in plan.launches[1:])]


def _put_together(plan: Plan, work: Workload, tiles: list[int]) -> int:
    """Bytes of shared memory by which teams put their sums together, of tiles of so many rows: m and l, which each
    leaves for all of a tile's rows; eight rows at a time, m and l of all teams, which each reads, O, which each leaves,
    and the LSE; then O and the LSE of a row, four columns a thread."""
    m = plan.macros
    count = m["THREADS"] // LANES // m.get("TEAM", 1)  # teams
    rows, eights = sum(tiles), sum(ceil_div(tile, 8) for tile in tiles)
    stats = count * m["BR"] // 4 * len(tiles) + (count * count + 2) * eights
    of_tiles = stats * WAVEFRONT + count * (8 * eights + rows) * FLOAT * work.d + rows * work.d
    return work.batch * work.kv_heads * plan.splits * of_tiles


def _combined(plan: Plan, launch: Launch, work: Workload) -> LaunchModel:
    """half_split_combine, a block a row: each thread weighs four splits, or none there, for the sum; then its warp's
    own. Warps leave what they added up to the first of them."""
    moved, block_warps = (plan.scratch, Sizes.of(work).q), launch.block // LANES
    shared = launch.grid * FLOAT * work.d * (2 * block_warps - 1)
    exponentials = launch.grid * (4 * launch.block + LANES * plan.splits)
    return LaunchModel(launch.symbol, moved, moved, shared, exponentials=exponentials)


def cores(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """half_cores: FFMA; the eight threads of a row each compute the factor by which O shrinks."""
    m, sizes, (launch,) = plan.macros, Sizes.of(work), plan.launches
    tiles, keys = visited(work, m["BR"], m["BC"])
    pairs = tiles * m["BR"] * m["BC"]
    model = LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + head_bytes(work, keys), sizes.q),
        WAVEFRONT * tiles * _accesses_of_cores(m) + FLOAT * launch.grid * m["BR"] * m["D"],
        ffma_flops=4 * work.d * pairs,
        exponentials=pairs + 8 * tiles * m["BR"],
        tiles=tiles,
        again=lambda resident: _visits(work, plan, min(launch.grid, resident * props.sms)),
    )
    return [model]


def _accesses_of_cores(m: Tile) -> int:
    """Of a tile: a thread has 4 rows and BC/8 keys, eight threads side by side the same rows; of a row of Q and of P
    they read the same 16 bytes."""
    rows, keys = 4, m["BC"] // 8
    scores = m["D"] // 4 * (rows * ALIKE + keys * FOURS) + rows * keys
    values = m["BC"] // 4 * (rows * ALIKE + 4 * ceil_div(m["D"], LANES) * FOURS)
    return m["THREADS"] // LANES * (scores + values) + 2 * m["BC"] * m["D"] // LANES
