"""What the rungs below flash, and float64, move and compute: the formulas of their entries (scalar.py)."""

from typing import Any

from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.plan import (
    DEVICE,
    REGISTERS,
    SAME_THREAD,
    Block,
    DeviceProperties,
    Digitwise,
    LaunchModel,
    Layouts,
    Linear,
    Move,
    Passes,
    Plan,
    Step,
    Tile,
)
from hw4cli.plans.work import (
    ALIKE,
    ALL_SCORES,
    FOURS,
    KEYS,
    LANES,
    QUERIES,
    SCORES,
    STORE,
    WAVEFRONT,
    fused,
    of_steps,
    tasks_of,
)
from hw4cli.problem.workload import Workload

Counts = tuple[int, int]  # accesses of shared memory, of a block once, and for each tile of keys

# ---- Steps


def tiled(m: Tile) -> tuple[Step, ...]:
    """Load Q once, K and V tile after tile, and store O."""
    return (
        Step("Load Q", (Move("Q", "Q", QUERIES),)),
        Step("Load K and V", (Move("K", "K", KEYS), Move("V", "V", KEYS)), tiles=True),
        STORE,
    )


def three_launches(m: Tile) -> tuple[Step, ...]:
    """Scores tile by tile, which the softmax reads three times, and writes again; then a product with V."""
    read = Move("S", REGISTERS, ALL_SCORES)
    scores = Move("Q", REGISTERS, QUERIES), Move("K", REGISTERS, KEYS), Move("S", DEVICE, SCORES)
    values = Move("S", REGISTERS, SCORES), Move("V", REGISTERS, {"keys*d*blocks": FLOAT})
    return (
        Step("Scores", scores, tiles=True),
        Step("Maximum", (read,)),
        Step("Sum", (read,)),
        Step("Weights", (read, Move("S", DEVICE, ALL_SCORES))),
        Step("Values", values, tiles=True),
        STORE,
    )


def two_passes(m: Tile) -> tuple[Step, ...]:
    """K comes twice, V once."""
    return (
        Step("Load Q", (Move("Q", REGISTERS, QUERIES),)),
        Step("Load K", (Move("K", "K", KEYS),), tiles=True),
        Step("Load K and V", (Move("K", "K", KEYS), Move("V", "V", KEYS)), tiles=True),
        STORE,
    )


# ---- Who holds S, and who O


def linear(m: Tile) -> Layouts:
    """Element after element."""
    return Linear(m["BC"]), Linear(m["D"])


def rows_of_warps(m: Tile) -> Layouts:
    """A warp has four rows, or as many as the knob says; a lane a key."""
    rows = (m["WARP_ROWS"], SAME_THREAD), (m["BR"] // m["WARP_ROWS"], 32)
    return Digitwise(rows, ((32, 1),)), Digitwise(rows, ((32, 1), (ceil_div(m["D"], 32), SAME_THREAD)))


def rows_of_half_warps(m: Tile) -> Layouts:
    """S: even lanes have two rows, odd ones the next two. O: as many lanes as a row has float4s, a power of two; groups
    of them take keys in turn."""
    scores = Digitwise(((2, SAME_THREAD), (2, 1), (m["BR"] // 4, 32)), ((16, 2), (m["BC"] // 16, SAME_THREAD)))
    lanes = next(n for n in (2, 4, 8, 16, 32) if n >= m["D"] // 4)
    return scores, Digitwise(((4, SAME_THREAD), (m["BR"] // 4, 32)), ((4, SAME_THREAD), (lanes, 1)), 32 // lanes, lanes)


def four_lanes(m: Tile) -> Layouts:
    """Four lanes have a row."""
    rows = ((m["BR"], 4),)
    scores = Digitwise(rows, ((m["BC"], SAME_THREAD),), 4, 1)
    return scores, Digitwise(rows, ((4, 1), (m["D"] // 4, SAME_THREAD)))


# ---- Accesses of shared memory


def _warps(m: Tile) -> int:
    return m["THREADS"] // LANES


def _floats(rows: int, m: Tile) -> int:
    """Accesses that bring so many rows of float32."""
    return ceil_div(rows * m["D"], LANES)


def none(m: Tile) -> Counts:
    """Without shared memory."""
    return 0, 0


def _softmax(m: Tile) -> int:
    """block_softmax.cuh: the threads of rows read their scores, and leave weights and a factor."""
    return ceil_div(m["BR"], LANES) * (2 * m["BC"] + 1)


def _values(m: Tile) -> int:
    """O of a block's rows, an element a thread: for each key a weight and a number of V, and a factor."""
    return ceil_div(m["BR"] * m["D"], m["THREADS"]) * _warps(m) * (2 * m["BC"] + 1)


def _scores(m: Tile) -> int:
    """Of a tile: a score is a row of K, number by number, and one of Q, 16 bytes at a time."""
    return ceil_div(m["BR"] * m["BC"], LANES) * (m["D"] + m["D"] // 4 * ALIKE + 1)


def by_elements(m: Tile) -> Counts:
    """A score, then an element of O, a thread."""
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _scores(m) + _softmax(m) + _values(m)


def by_fragments_of_scores(m: Tile) -> Counts:
    """Fragments of 16 rows and 8 keys: six words of Q and K for each 16 columns; four scores of each lane."""
    steps = ceil_div(m["D"], 16)
    fragments = m["BR"] // 16 * (m["BC"] // 8)
    halves = steps * 8 * m["BC"] // LANES  # words of a tile of K
    tile = halves + _floats(m["BC"], m) + fragments * (6 * steps + 4) + _softmax(m) + _values(m)
    return steps * 8 * m["BR"] // LANES, tile


def row_a_thread(m: Tile) -> Counts:
    """A thread reads its row of Q number by number; K and V, of which all lanes read the same, by 16 bytes."""
    products = m["D"] + 2 * (m["D"] // 4) * m["BC"] * ALIKE
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _warps(m) * products


def key_a_lane(m: Tile) -> Counts:
    """A lane's key, and the warp's rows of Q, of which all lanes read the same 16 bytes; columns of V."""
    scores = m["D"] + m["WARP_ROWS"] * (m["D"] // 4) * ALIKE
    values = m["BC"] * ceil_div(m["D"], LANES)
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _warps(m) * (scores + values)


def vectors(m: Tile) -> Counts:
    """Neighbours read the same K, and every second lane the same Q; of V, lanes read rows side by side."""
    chunks = m["D"] // 4
    columns = next(lanes for lanes in (2, 4, 8, 16, 32) if lanes >= min(chunks, LANES))
    scores, values = chunks * (m["BC"] // 16 + 2) * ALIKE, m["BC"] * columns // LANES * FOURS
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _warps(m) * (scores + values)


def _slices(m: Tile) -> tuple[int, int, int]:
    """halfwarp.cuh: floats of a load, loads of a row, and how many of them a lane has."""
    vector = 4 if m["D"] > 32 else 2
    return vector, m["D"] // vector, ceil_div(m["D"] // vector, 16)


def slices(m: Tile) -> Counts:
    """Of each key a slice of K and of V, which serve both rows."""
    vector, _, own = _slices(m)
    return 0, _floats(2 * m["BC"], m) + _warps(m) * 2 * m["BC"] * own * vector


def slices_by_columns(m: Tile) -> Counts:
    """halfwarp_scalar: of each key every sixteenth number of K and of V, which serve both rows."""
    return 0, _floats(2 * m["BC"], m) + _warps(m) * 2 * m["BC"] * ceil_div(m["D"], 16)


def slices_by_numbers(m: Tile) -> Counts:
    """The same, number by number, for each row again."""
    vector, _, own = _slices(m)
    return 0, _floats(2 * m["BC"], m) + _warps(m) * 4 * m["BC"] * own * vector


def keys_then_slices(m: Tile) -> Counts:
    """Whole rows of a lane's own keys; then of each key a slice of V."""
    vector, loads, own = _slices(m)
    return 0, _floats(2 * m["BC"], m) + _warps(m) * (loads * (m["BC"] // 16) + m["BC"] * own) * vector


def doubles(m: Tile) -> Counts:
    """K passes twice, and V once, as float64: two accesses for 8 bytes of each lane."""
    return 0, 2 * _floats(3 * m["BC"], m) + _warps(m) * 2 * 3 * m["D"] * m["BC"] // 4


# ---- paper, naive, and pitched


def pitched(block: Block, plan: Plan, shape: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """K and V are copied; then all is as where they are read as they are, but for sectors that rows share with gaps."""
    _, main = fused(block, plan, shape, props)
    copied = 2 * FLOAT * shape.elements
    return [LaunchModel(plan.launches[0].symbol, (copied, copied), (copied, copied), 0), main]


def paper(block: Block, plan: Plan, shape: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """The loop over K and V is outside: for each tile, all rows that see it come, with O, m and l, which go back. All
    blocks do so side by side: from one tile of keys to the next, they touch that of all batches."""
    BR, BC, N = plan.macros["BR"], plan.macros["BC"], shape.N
    tiles_of_rows = [range(key0 // BR * BR if shape.causal else 0, N, BR) for key0 in range(0, N, BC)]
    passes = [N - rows.start for rows in tiles_of_rows]  # rows of a batch, for each tile of keys
    rows, state = shape.B * sum(passes), shape.d + 2  # of a row: O, m and l
    tiles, once = shape.B * sum(map(len, tiles_of_rows)), shape.B * N
    touched = [FLOAT * shape.B * (shape.d + state) * some for some in passes[1:]]
    of_keys, of_both = _paper_accesses(plan.macros)
    main = LaunchModel(
        plan.launches[0].symbol,
        (3 * FLOAT * shape.elements, FLOAT * state * once),
        (FLOAT * (2 * shape.elements + rows * (shape.d + state)), FLOAT * state * (rows + once)),
        WAVEFRONT * (shape.B * len(passes) * of_keys + tiles * of_both),
        ffma_flops=2 * shape.d * (tiles * BR * BC + rows * BC),
        exponentials=rows * (BC + 2),
        tiles=tiles,
        again=lambda resident: Passes([(n, n) for n in touched], scattered=True, written=(state, shape.d + state)),
    )
    return [main]


def _paper_accesses(m: Tile) -> Counts:
    """For each tile of keys, and for each tile of rows that it meets."""
    softmax = ceil_div(m["BR"], LANES) * (3 * m["BC"] + 2)
    values = ceil_div(m["BR"] * m["D"], LANES) * (2 * m["BC"] + 2)
    return _floats(2 * m["BC"], m), _floats(m["BR"], m) + _scores(m) + softmax + values


def naive(block: Block, plan: Plan, shape: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """Three launches, with the scores between them in device memory: of tiles that some row sees, all are written; of
    those, a row reads what it sees. A warp passes its row of scores three times: meanwhile those of all warps that run
    at once are touched."""
    import numpy as np

    tasks, E, m, B, N = tasks_of(plan, shape), FLOAT * shape.elements, plan.macros, shape.B, shape.N
    stored = B * int((tasks.rows * np.minimum(N, -(-tasks.keys // m["BC"]) * m["BC"])).sum())
    scores, softmax, values = plan.launches
    seen = np.arange(1, N + 1) if shape.causal else np.full(N, N)  # keys of each row
    pairs = B * int(seen.sum())
    S = FLOAT * pairs
    read, _ = of_steps(three_launches(m)[:1], tasks, plan, shape)

    def again(resident: int) -> Passes:
        running = min(B * N, resident * props.sms * softmax.block // props.lanes)
        return Passes([(2 * S, FLOAT * N * running)])

    tiles = B * tasks.tiles(m["BC"])
    return [
        LaunchModel(
            scores.symbol,
            (2 * E, FLOAT * stored),
            (read, FLOAT * stored),
            0,
            ffma_flops=2 * shape.d * stored,
            tiles=tiles,
        ),
        LaunchModel(softmax.symbol, (S, S), (3 * S, S), 0, exponentials=2 * pairs, again=again),
        LaunchModel(
            values.symbol,
            (S + E, E),
            (_read_by_elements(values.block, shape, seen), E),
            0,
            ffma_flops=2 * shape.d * pairs,
        ),
    ]


def _read_by_elements(threads: int, shape: Workload, seen: Any) -> int:
    """Bytes that blocks read where each thread has an element of O: the scores of their rows, and V of as many keys as
    the last row of a batch sees."""
    import numpy as np

    N, d, elements = shape.N, shape.d, shape.elements
    first = np.arange(0, elements, threads, dtype=np.int64)
    last_row = np.minimum(first + threads, elements) - 1
    first_row, last_row = first // d, last_row // d
    until = np.concatenate([[0], np.cumsum(np.tile(seen, shape.B))])
    scores = int((until[last_row + 1] - until[first_row]).sum())
    keys = seen[last_row % N] + np.where(last_row // N > first_row // N, seen[-1], 0)
    return FLOAT * (scores + d * int(keys.sum()))
