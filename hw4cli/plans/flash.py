"""flash: the exact fp32 kernel on the CUDA cores (kernels/flash.cu)."""

from hw4cli.plans.common import (
    COMBINE_THREADS,
    RESCALE_THRESHOLD,
    combine_launch,
    main_blocks,
    padded_d,
    scratch_of,
    splits_for,
    tiles_of,
)
from hw4cli.plans.formulas import FLOAT, MOST_SPLITS, ceil_div
from hw4cli.plans.plan import (
    SAME_THREAD,
    Block,
    DeviceProperties,
    Digitwise,
    Launch,
    Layouts,
    Move,
    Step,
    Tile,
    Variant,
    total,
)
from hw4cli.plans.work import ALIKE, KEYS, LANES, QUERIES, STORE, STORE_PART, fused
from hw4cli.problem.workload import MAX_D, WIDEST, Workload

# Keys of a split, where that takes no more than MOST_SPLITS. A long one would lose digits in its sums: flash has 5e-5
# in one split instead of 2e-5 at N = 32768.
LONGEST_SPLIT = 4096
FLASH_COST = 64  # of a split, in keys
CAUSAL_SPLITS = 12  # at most, of many keys


def _flash_regions(d: int, tile: Tile) -> dict[str, int]:
    """A tile of K and one of V, of at most 128 columns at a time, Q, and P."""
    br, bc, row = tile["BR"], tile["BC"], FLOAT * padded_d(d)
    return {"K": bc * row, "V": bc * min(row, FLOAT * MAX_D), "Q": br * row, "P": FLOAT * br * bc}


_flash_bytes = total(_flash_regions)


def _flash_blocks(d: int, tile: Tile, props: DeviceProperties) -> int:
    """Blocks that a multiprocessor holds at once: as shared memory allows, and 384 threads for the registers; 256 where
    blocks of 64 rows would spill."""
    threads = 256 if tile["BR"] == padded_d(d) == 64 and (props.cc >= 100 or d < 64) else 384
    return max(1, min(threads // tile["BR"], props.shared_sm // (_flash_bytes(d, tile) + props.shared_reserved)))


def _threads_at_work(shape: Workload, tile: Tile, props: DeviceProperties) -> float:
    """Threads that a multiprocessor holds at once, without those whose rows are past the last."""
    filled = shape.Nq / (ceil_div(shape.Nq, tile["BR"]) * tile["BR"])
    return _flash_blocks(shape.d, tile, props) * tile["BR"] * filled


def _best_rows(shape: Workload, props: DeviceProperties) -> int:
    """Rows of a block: 128; where rows are few, fewer, if then less of a block is empty or, with a mask, unseen.
    Measured on an H200, where blocks of 64 rows are 1 to 2 % slower otherwise, and at d = 32 as fast."""
    if props.gfx:  # AMD's compiler spills with fewer
        return 128
    longest, narrow = max(shape.Nq, shape.N), padded_d(shape.d) == 32
    if shape.d > MAX_D:
        return 128
    if longest <= 32 and props.cc >= 80:  # before, a thread would hold too much of the next tile in registers
        return 32
    always = (2048 if narrow else 512) if shape.causal else 1024 if shape.d == 32 else 0
    half_empty = longest <= 1024 and ceil_div(shape.Nq, 64) % 2
    return 64 if longest <= always or half_empty else 128


def _flash_tile(shape: Workload, props: DeviceProperties) -> Tile:
    """128x32, or the next smaller tile that fits a block; 128x16 too where only then two blocks fit. Fewer rows where
    that is better, unless a multiprocessor has far fewer threads at work then."""
    d, sizes = shape.d, ((128, 32), (128, 16), (64, 32), (64, 16), (32, 16))
    tiles = [{"BR": br, "BC": bc} for br, bc in (sizes if d <= MAX_D else sizes[:4])]  # a row of K needs 64 threads
    fitting = [tile for tile in tiles if _flash_bytes(d, tile) <= props.shared_limit] or tiles[-1:]
    best = fitting[0]
    if best is tiles[0] and _flash_blocks(d, tiles[0], props) < 2 <= _flash_blocks(d, tiles[1], props):
        best = tiles[1]
    rows = _best_rows(shape, props)
    smaller = [{"BR": rows, "BC": bc} for bc in (32, 16)] if rows < best["BR"] else []
    enough = _threads_at_work(shape, best, props) * 3 / 4
    return next((tile for tile in smaller if _threads_at_work(shape, tile, props) >= enough), best)


def _flash_launches(shape: Workload, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
    """A block for every BR rows and split; then, if there are splits, what puts them together."""
    threads = tile["THREADS"]
    rows = Launch("flash", main_blocks(shape, tile, splits), threads, shared)
    combine = combine_launch("flash", shape)
    return (rows,) if splits == 1 else (rows, combine)


def _steps(m: Tile) -> tuple[Step, ...]:
    """K's next tile is on its way while V is used, V's while K is."""
    return (
        Step("Ask for K, load Q", (Move("K", "K", KEYS), Move("Q", "Q", QUERIES))),
        Step("Scores, V comes", (Move("V", "V", KEYS),), tiles=True),
        Step("Softmax, K comes", (Move("K", "K", KEYS, ahead=1),), tiles=True),
        STORE,
        STORE_PART,
    )


def _owns(m: Tile) -> Layouts:
    """Lane bits 0 and 2 go down, 1, 3 and 4 across."""
    rows = (4, SAME_THREAD), (2, 1), (2, 4), (2, SAME_THREAD), (m["BR"] // 32, 32)
    run = min(4, m["BC"] // 8)
    across = (2, 2), (4, 8)
    scores = Digitwise(rows, ((run, SAME_THREAD), *across, (m["BC"] // 8 // run, SAME_THREAD)))
    return scores, Digitwise(rows, ((4, SAME_THREAD), *across, (m["WIDTH"] // 32, SAME_THREAD)))


def _accesses(m: Tile) -> tuple[int, int]:
    """A warp of 32 rows: columns of Q and P by 16 bytes, of which every second lane's are the same; of K and V, of
    which neighbours' are; P is stored."""
    keys, outs = m["BC"] // 8, m["WIDTH"] // 8
    scores = m["WIDTH"] * (2 * ALIKE + keys // 2)
    values = m["BC"] * (2 * ALIKE + outs // 2) + 8 * keys
    return m["BR"] * m["WIDTH"] // LANES, m["THREADS"] // LANES * (scores + values)


FLASH = Variant(
    "flash",
    "register micro-tiles, asynchronous copies, no running maximum where none is needed",
    error_bound=2e-5,
    tile=_flash_tile,
    derived=lambda shape, tile, props: {
        "THREADS": tile["BR"],
        "BLOCKS": _flash_blocks(shape.d, tile, props),
        "WIDTH": padded_d(shape.d),
        "RESCALE_THRESHOLD": RESCALE_THRESHOLD,
        "COMBINE_THREADS": COMBINE_THREADS,
    },
    regions=_flash_regions,
    launches=_flash_launches,
    longest_sum=lambda N: max(min(N, LONGEST_SPLIT), ceil_div(N, MOST_SPLITS)),
    scratch=lambda shape, tile, splits: scratch_of(shape, splits, 0, 0, stats=False),
    splits=splits_for(LONGEST_SPLIT, FLASH_COST, FLASH_COST, CAUSAL_SPLITS),
    space=tiles_of((32, 64, 128, 256), (16, 32, 64)),
    knobs=lambda tile: {"BLOCKS": (2, 3, 4)},
    block=Block(_steps, "register tiles", _owns, _accesses, known_on_amd=True),
    work=fused,
    stamps=True,
    colour=("#1c66c9", "#78b0ff"),
    emulated=8e8,
    lse=True,
    windows=True,
    widest=WIDEST,
    scores=True,
    proven=True,
    automatic=True,
    native=True,
    alone="splits",
)
