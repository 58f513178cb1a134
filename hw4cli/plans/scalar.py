"""The rungs below flash, and float64: kernels whose blocks each compute BR rows from all keys."""

from collections.abc import Callable

from hw4cli.plans import scalarwork as of
from hw4cli.plans.common import row_blocks, tiles_of
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.plan import SHARED_DEFAULT, Block, Launch, Scratch, Tile, Variant, total
from hw4cli.plans.work import fused
from hw4cli.problem.workload import MAX_D, WIDEST, Workload


def _naive_launches(shape: Workload, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
    """A tile of scores a block; a row of scores a warp, or as many lanes as the knob says; an element of O a thread."""
    threads = tile["THREADS"]
    tiles = ceil_div(shape.Nq, tile["BR"]) * ceil_div(shape.N, tile["BC"])
    return (
        Launch("naive_scores", shape.B * tiles, threads, shared),
        Launch("naive_softmax", ceil_div(shape.B * shape.Nq, threads // tile["SOFTMAX_LANES"]), threads, shared),
        Launch("naive_values", ceil_div(shape.B * shape.Nq * shape.d, threads), threads, shared),
    )


def _pitched_launches(shape: Workload, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
    """An element of K and one of V a thread, which copies them; then a block for every BR rows."""
    threads = tile["THREADS"]
    copies = Launch("pitched_copy", ceil_div(shape.B * shape.N * shape.d, threads), threads, 0)
    return (copies, *row_blocks("pitched")(shape, tile, splits, shared))


def _largest_tile(d: int, rows: tuple[int, ...], shared: Callable[[int, Tile], int], limit: int) -> Tile:
    """32 keys, and the first of some choices of BR whose shared memory is within the limit; the last if none is."""
    tiles = [{"BR": br, "BC": 32} for br in rows]
    return next((tile for tile in tiles if shared(d, tile) <= limit), tiles[-1])


def _padded(d: int, tile: Tile) -> dict[str, int]:
    """Q, K with rows padded by a float against bank conflicts, V, and the scores of a tile with a factor a row."""
    br, bc = tile["BR"], tile["BC"]
    return {**_unscored(d, tile), "S": FLOAT * br * (bc + 1), "α": FLOAT * br}


def _warps_of(rows: int, tile: Tile) -> dict[str, int]:
    """A warp owns so many rows."""
    return {"WARP_ROWS": rows, "THREADS": 32 * tile["BR"] // rows}


def _unscored(d: int, tile: Tile) -> dict[str, int]:
    """Q, K with rows padded by a float against bank conflicts, V; the scores stay in registers."""
    br, bc = tile["BR"], tile["BC"]
    return {"Q": FLOAT * br * d, "K": FLOAT * bc * (d + 1), "V": FLOAT * bc * d}


def _paper_launch(shape: Workload, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
    """A block for each batch, whatever its length."""
    return (Launch("paper", shape.B, tile["THREADS"], shared),)


def _paper_tile(d: int) -> Tile:
    """The paper's formula, where K and V, Q and O each take a quarter of the shared memory: 40 of 48 KB, since K's
    padding and the factors take some, too."""
    keys = ceil_div(40 << 10, 4 * FLOAT * d)
    return {"BR": min(keys, d), "BC": keys}


def _row_of_a_thread(shape: Workload) -> Tile:
    """As many keys at a time as leave a thread registers for its row of O."""
    return {"BR": 32, "BC": 8 if shape.d <= 64 else 4}


def _of_a_tile(d: int, tile: Tile) -> dict[str, int]:
    """Q with rows padded by a float against bank conflicts, K and V."""
    br, bc = tile["BR"], tile["BC"]
    return {"K": FLOAT * bc * d, "V": FLOAT * bc * d, "Q": FLOAT * br * (d + 1)}


def _keys_alone(d: int, tile: Tile) -> dict[str, int]:
    """K and V, and nothing else."""
    return dict.fromkeys("KV", FLOAT * tile["BC"] * d)


def _padded_keys(d: int, tile: Tile) -> dict[str, int]:
    """The same, K's rows an odd number of vectors apart: of four floats, up to d = 32 of two."""
    vector = 4 if d > 32 else 2
    return {"K": FLOAT * tile["BC"] * vector * (d // vector | 1), "V": FLOAT * tile["BC"] * d}


def _half_precision_scores(d: int, tile: Tile) -> dict[str, int]:
    """Q and K in fp16, in rows of whole 16 columns and 8 more against bank conflicts; V, and the scores of a tile."""
    row = 2 * (ceil_div(d, 16) * 16 + 8)
    return {**_padded(d, tile), "Q": row * tile["BR"], "K": row * tile["BC"]}


def _plain(d: int, tile: Tile) -> dict[str, int]:
    """Q, K and V, swizzled instead of padded."""
    return {name: FLOAT * d * tile[side] for name, side in (("Q", "BR"), ("K", "BC"), ("V", "BC"))}


def _doubles(d: int, tile: Tile) -> dict[str, int]:
    """K and V in float64."""
    return dict.fromkeys("KV", 8 * tile["BC"] * d)


NAIVE = Variant(
    "naive",
    "three launches, the scores in device memory",
    error_bound=5e-5,
    tile=lambda shape, props: {"BR": 16, "BC": 16},
    derived=lambda shape, tile, props: {"THREADS": 256, "SOFTMAX_LANES": 32},
    regions=lambda d, tile: {},
    launches=_naive_launches,
    longest_sum=lambda N: N,
    scratch=lambda shape, tile, splits: Scratch(FLOAT * shape.B * shape.Nq * shape.N),
    space=((16, 16), (8, 32), (32, 8)),
    knobs=lambda tile: {"SOFTMAX_LANES": (1, 32)},
    block=Block(of.three_launches, "three launches", of.linear),
    work=of.naive,
    colour=("#69707b", "#a3acb8"),
    emulated=5e8,
    alone="three",
)

PAPER = Variant(
    "paper",
    "Algorithm 1 as printed: the keys in the outer loop; O, l and m in device memory",
    error_bound=5e-5,
    tile=lambda shape, props: _paper_tile(shape.d),
    derived=lambda shape, tile, props: {"THREADS": 1024},
    regions=lambda d, tile: {**_padded(d, tile), "α": 2 * FLOAT * tile["BR"]},
    launches=_paper_launch,
    longest_sum=lambda N: N // 4 + 32,
    scratch=lambda shape, tile, splits: Scratch(2 * FLOAT * shape.B * shape.Nq),
    space=tiles_of((16, 32, 48), (16, 32, 48)),
    work=of.paper,
    colour=("#5b4a8a", "#b6a6e3"),
    alone="batches",
)

GLOBAL = Variant(
    "global",
    "fused, without shared memory: a thread a row, which reads K and V from device memory",
    error_bound=1e-4,
    tile=lambda shape, props: _row_of_a_thread(shape),
    derived=lambda shape, tile, props: {"THREADS": tile["BR"]},
    regions=lambda d, tile: {},
    launches=row_blocks("global"),
    longest_sum=lambda N: N,
    space=tiles_of((32, 64, 128), (4, 8, 16)),
    block=Block(of.tiled, accesses=of.none, exponentials=(1, 1), scattered=True),
    work=fused,
    colour=("#6a5a3a", "#c9b58a"),
    alone="rows",
)

ROWTHREAD = GLOBAL.like(
    "rowthread",
    "a thread a row, from tiles in shared memory: many a first kernel",
    regions=_of_a_tile,
    space=tiles_of((32, 64, 128), (4, 8, 16, 32)),
    block=Block(of.tiled, accesses=of.row_a_thread, exponentials=(1, 1), scattered=True),
    colour=("#56165d", "#b683ba"),
)

SMALLBR = Variant(
    "smallbr",
    "one launch with the online softmax, but blocks of 4 rows: the counter-example",
    error_bound=5e-5,
    tile=lambda shape, props: {"BR": 4, "BC": 32},
    derived=lambda shape, tile, props: {"THREADS": tile["BR"] * tile["BC"]},
    regions=_padded,
    launches=row_blocks("smallbr"),
    longest_sum=lambda N: N // 32 + 32,
    space=tiles_of((1, 2, 4, 8, 16, 32), (32,)),
    block=Block(of.tiled, "a score a thread", of.linear, of.by_elements, exponentials=(1, 1)),
    work=fused,
    colour=("#820057", "#e166ab"),
    emulated=4e8,
    alone="rows",
)

PITCHED = SMALLBR.like(
    "pitched",
    "smallbr, but K and V are copied to rows that begin at multiples of 512 bytes",
    derived=lambda shape, tile, props: {"THREADS": tile["BR"] * tile["BC"], "PITCH": 128},
    launches=_pitched_launches,
    scratch=lambda shape, tile, splits: Scratch(2 * FLOAT * shape.B * shape.N * tile["PITCH"]),
    knobs=lambda tile: {"PITCH": (tile["D"], tile["D"] + 1, 128)},
    work=of.pitched,
    colour=("#687d13", "#30a207"),
    emulated=4e8,
    alone="pitched",
)

SHARED = Variant(
    "shared",
    "blocks of 64 rows: K and V are read 16 times as often from shared as from device memory",
    error_bound=5e-5,
    tile=lambda shape, props: _largest_tile(shape.d, (64, 32, 16), total(_padded), SHARED_DEFAULT),
    derived=lambda shape, tile, props: {"THREADS": 256},
    regions=_padded,
    launches=row_blocks("shared"),
    longest_sum=lambda N: N // 32 + 32,
    space=tiles_of((16, 32, 64, 128), (16, 32, 64)),
    block=Block(of.tiled, "some scores a thread", of.linear, of.by_elements, exponentials=(1, 1)),
    work=fused,
    colour=("#7d6500", "#d3b33c"),
    emulated=1e9,
    alone="rows",
)

FP16QK = SHARED.like(
    "fp16qk",
    "scores on tensor cores, of Q and K rounded to fp16: too inexact for the tolerance",
    error_bound=3e-2,
    tile=lambda shape, props: {"BR": 64, "BC": 32},
    regions=_half_precision_scores,
    least_cc=75,
    space=tiles_of((32, 64, 128), (16, 32, 64)),
    block=Block(
        of.tiled,
        accesses=of.by_fragments_of_scores,
        products=lambda d: (2 * d, 2 * 16 * ceil_div(d, 16), 0),  # Q and K, 16 columns at a time
        exponentials=(1, 1),
    ),
    colour=("#b03060", "#f2a0bd"),
    rounded=True,
)

WARP = Variant(
    "warp",
    "a warp owns its rows: maximum and sum by shuffles, the scores in registers",
    error_bound=5e-5,
    tile=lambda shape, props: _largest_tile(shape.d, (64, 32, 16), total(_unscored), SHARED_DEFAULT),
    derived=lambda shape, tile, props: _warps_of(tile.get("WARP_ROWS", 4), tile),
    regions=_unscored,
    launches=row_blocks("warp"),
    longest_sum=lambda N: N // 32 + 32,
    space=tiles_of((16, 32, 64, 128), (32,)),
    knobs=lambda tile: {"WARP_ROWS": (1, 2, 4)},
    block=Block(of.tiled, "a key a lane", of.rows_of_warps, of.key_a_lane, exponentials=(1, 32)),
    work=fused,
    colour=("#2c7a33", "#79c97f"),
    alone="rows",
)

HALFWARP = Variant(
    "halfwarp",
    "the course's best report: only K and V in shared memory, the softmax key by key",
    error_bound=5e-4,  # l is a sum of N numbers, one by one
    # Wider slices need more than the 64 registers that 1024 threads leave, and AMD's compilers more than NVIDIA's.
    tile=lambda shape, props: {"BR": 64 if shape.d > 64 or props.gfx else 128, "BC": 32},
    derived=lambda shape, tile, props: {"THREADS": 8 * tile["BR"]},
    regions=_keys_alone,
    launches=row_blocks("halfwarp"),
    longest_sum=lambda N: N,
    space=tiles_of((32, 64, 128), (16, 32, 64)),
    block=Block(of.tiled, accesses=of.slices, exponentials=(32, 0)),
    work=fused,
    colour=("#0b6aa0", "#7cc4ee"),
    alone="rows",
)

HALFWARP_STRIDED = HALFWARP.like(
    "halfwarp_strided",
    "halfwarp, but Q is loaded uncoalesced",
    colour=("#3a1688", "#9583fa"),
)

HALFWARP_LOCAL = HALFWARP.like(
    "halfwarp_local",
    "halfwarp, but its arrays lie in local memory, not in registers",
    block=Block(of.tiled, accesses=of.slices_by_numbers, exponentials=(32, 0)),
    colour=("#5c2602", "#bc8c74"),
)

HALFWARP_KEYS = HALFWARP.like(
    "halfwarp_keys",
    "halfwarp, but the keys of a tile in parallel: a lane computes whole scores",
    regions=_padded_keys,
    block=Block(of.tiled, accesses=of.keys_then_slices, exponentials=(1, 16)),
    colour=("#00580d", "#aefcad"),
)

HALFWARP_UNPADDED = HALFWARP_KEYS.like(
    "halfwarp_unpadded",
    "halfwarp_keys without padding: lanes meet in the same banks",
    regions=_keys_alone,
    colour=("#8c0b98", "#e974f4"),
)

HALFWARP_SCALAR = HALFWARP.like(
    "halfwarp_scalar",
    "halfwarp without vector loads: float by float",
    block=Block(of.tiled, accesses=of.slices_by_columns, exponentials=(32, 0)),
    colour=("#167f9a", "#3ef3ff"),
)

HALFWARP_ROWS = HALFWARP.like(
    "halfwarp_rows",
    "halfwarp, but tiles of K and V are loaded uncoalesced",
    colour=("#854813", "#b57b0b"),
)

FLOAT4 = Variant(
    "float4",
    "16-byte loads, half-warps share rows: tiles and threads of the course's best report",
    error_bound=5e-5,
    # With 1024 threads AMD's compilers would spill.
    tile=lambda shape, props: _largest_tile(
        shape.d, (64, 32) if props.gfx else (128, 64, 32), total(_plain), props.shared_limit
    ),
    derived=lambda shape, tile, props: {"THREADS": 8 * tile["BR"]},
    regions=_plain,
    launches=row_blocks("float4_kernel"),
    longest_sum=lambda N: N,
    space=tiles_of((32, 64, 128), (16, 32, 64)),
    block=Block(of.tiled, "rows a half-warp", of.rows_of_half_warps, of.vectors, exponentials=(1, 16)),
    work=fused,
    colour=("#08776f", "#4bc4bb"),
    alone="rows",
)

FLOAT64 = Variant(
    "float64",
    "everything in double: the oracle, and the way out for scores that float32 cannot hold",
    error_bound=1e-6,
    tile=lambda shape, props: {"BR": 32, "BC": 16} if shape.d <= MAX_D else {"BR": 16, "BC": 8},
    derived=lambda shape, tile, props: {"THREADS": (4 if shape.d <= MAX_D else 8) * tile["BR"]},
    regions=_doubles,
    launches=row_blocks("float64"),
    own_scale=True,
    space=tiles_of((8, 16, 32, 64), (8, 16, 32)),
    block=Block(
        of.two_passes,
        "two passes",
        of.four_lanes,
        of.doubles,
        products=lambda d: (0, 0, 2 * 3 * d),  # Q K^T twice
        exponentials=(0, 0),
        section=1,
    ),
    work=fused,
    colour=("#30363d", "#d7dde3"),
    lse=True,
    windows=True,
    widest=WIDEST,
    proven=True,
    doubles=True,
    any_scale=False,  # it computes 1/sqrt(d) itself
)
