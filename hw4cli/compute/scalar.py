"""The rungs below flash, and float64: kernels whose blocks each compute BR rows from all keys."""

from collections.abc import Callable

from hw4cli.compute.common import row_blocks, tiles_of
from hw4cli.compute.formulas import FLOAT, ceil_div
from hw4cli.compute.plan import SHARED_DEFAULT, Launch, Scratch, Tile, Variant, total
from hw4cli.problem.shape import Shape


def _naive_launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
    """A tile of scores a block; a row of scores a warp; an element of O a thread."""
    threads = tile["THREADS"]
    tiles = ceil_div(shape.rows, tile["BR"]) * ceil_div(shape.N, tile["BC"])
    return (
        Launch("naive_scores", shape.B * tiles, threads, shared),
        Launch("naive_softmax", ceil_div(shape.B * shape.rows, threads // 32), threads, shared),
        Launch("naive_values", ceil_div(shape.B * shape.rows * shape.d, threads), threads, shared),
    )


def _largest_tile(d: int, rows: tuple[int, ...], shared: Callable[[int, Tile], int], limit: int) -> Tile:
    """32 keys, and the first of some choices of BR whose shared memory is within the limit; the last if none is."""
    tiles = [{"BR": br, "BC": 32} for br in rows]
    return next((tile for tile in tiles if shared(d, tile) <= limit), tiles[-1])


def _padded(d: int, tile: Tile) -> dict[str, int]:
    """Q, K with rows padded by a float against bank conflicts, V, and the scores of a tile with a factor a row."""
    br, bc = tile["BR"], tile["BC"]
    return {**_unscored(d, tile), "S": FLOAT * br * (bc + 1), "α": FLOAT * br}


def _unscored(d: int, tile: Tile) -> dict[str, int]:
    """Q, K with rows padded by a float against bank conflicts, V; the scores stay in registers."""
    br, bc = tile["BR"], tile["BC"]
    return {"Q": FLOAT * br * d, "K": FLOAT * bc * (d + 1), "V": FLOAT * bc * d}


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
    derived=lambda shape, tile, props: {"THREADS": 256},
    regions=lambda d, tile: {},
    launches=_naive_launches,
    longest_sum=lambda N: N,
    scratch=lambda shape, tile, splits: Scratch(FLOAT * shape.B * shape.rows * shape.N),
    space=((16, 16), (8, 32), (32, 8)),
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
)

SHARED = Variant(
    "shared",
    "blocks of 64 rows: K and V are read from shared memory 16 times as often as from the device's",
    error_bound=5e-5,
    tile=lambda shape, props: _largest_tile(shape.d, (64, 32, 16), total(_padded), SHARED_DEFAULT),
    derived=lambda shape, tile, props: {"THREADS": 256},
    regions=_padded,
    launches=row_blocks("shared"),
    longest_sum=lambda N: N // 32 + 32,
    space=tiles_of((16, 32, 64, 128), (16, 32, 64)),
)

WARP = Variant(
    "warp",
    "a warp owns its rows: maximum and sum by shuffles, the scores in registers",
    error_bound=5e-5,
    tile=lambda shape, props: _largest_tile(shape.d, (64, 32, 16), total(_unscored), SHARED_DEFAULT),
    derived=lambda shape, tile, props: {"THREADS": 8 * tile["BR"]},
    regions=_unscored,
    launches=row_blocks("warp"),
    longest_sum=lambda N: N // 32 + 32,
    space=tiles_of((16, 32, 64, 128), (32,)),
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
)

FLOAT64 = Variant(
    "float64",
    "everything in double: the oracle, and the way out for scores that float32 cannot hold",
    error_bound=1e-6,
    tile=lambda shape, props: {"BR": 32, "BC": 16},
    derived=lambda shape, tile, props: {"THREADS": 4 * tile["BR"]},
    regions=_doubles,
    launches=row_blocks("float64"),
    space=tiles_of((8, 16, 32, 64), (8, 16, 32)),
)
