"""half, the kernel for fp16 and bf16 on Hopper (kernels/half.cu): its plan, and the bytes that a launch passes."""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans.common import RESCALE_THRESHOLD
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.launch import COORDINATES, Box, Matrix, coordinates
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Scratch, mask_macros, sequence_macros
from hw4cli.plans.scoring import LOG2E, scoring, way_of
from hw4cli.problem.workload import BFLOAT16, MAX_D, Span, Workload

NAME = "half"
LARGEST = 3e38  # about the largest float32
ATOM = 64  # columns of 16 bits in the 128 bytes that a copy swizzles
GROUP_ROWS = 64
FEW_ROWS = 128  # two groups' rows
MOST_IDLE = 16  # one in so many groups may be without rows where blocks take tiles in a fixed order
WIDE_WINDOW = 4096  # keys, for more than which turns are taken at d = 128, as without a window
LEAST_KEYS = 1024  # causal, for two tiles of two groups to be faster than one of more
MOST_TILES = 8  # of two groups for a multiprocessor; of more tiles, larger ones are balanced as well
TWO_GROUPS_COST = 1.2, 1.1  # a row's time by two groups over that by more, of up to 64 columns, and of more
LONG_ROWS = 4096  # keys, for more than which what a tile of rows begins and ends with hardly counts
WIDTHS = (32, 64, 96, 128, 192, 256)  # columns of O that are computed
# For 2, 3 or 4 groups that multiply: the registers of a thread of theirs, and of one of the group that copies. Together
# they are what the block was launched with (setmaxnreg).
REGISTERS = {2: (240, 24), 3: (160, 32), 4: (112, 32)}
MOST_Q_BUFFERS = 2  # tiles of Q: the next one comes while one is used, if rows leave room for it
LEAST_SCALE = 2.0**-100  # of which float32 has a 256th, times log2(e)
# Causal: of so many heads the tiles are computed together, from the longest to the shortest. Many are balanced
# better; the K and V of few stay in the L2 cache, through which Q and O pass, too.
L2_BYTES, LEAST_SECTION, MOST_SECTION = 8 << 20, 16, 64
MAP_BYTES, MAP_ALIGNMENT = 128, 64
# Which pairs have a score, where a launch before finds that (half_bits): so many rows and keys a warp at a time, from
# so many keys on, in so many bytes at most, the first so far behind the number of tasks; how many heads share them.
KEPT_ROWS, KEPT_KEYS, KEPT_THREADS = 16, 64, 256
LEAST_KEPT, MOST_KEPT, KEPT_AT, LEAST_SHARING = 512, 1 << 28, 128, 12
# HalfWork in kernels/halfrows.cuh.
_LAYOUT = struct.Struct(f"<{COORDINATES} Q 10i 3f 2i 4x Q")
_SEQUENCE = struct.Struct("<9i")  # Sequence there
SEQUENCE_BYTES = _SEQUENCE.size


class Tiling(NamedTuple):
    """How a block works: `groups` of four warps with 64 rows each, keys of a tile, buffers for tiles of K and of V,
    whether the tensor cores sum P; the schedule: scores one tile ahead, groups in turns; whether a row's maximum
    moves, and O is rescaled, only when a score has grown far beyond it; of 16 exponentials, how many are by
    polynomial; and of how many blocks of 8 keys weights are computed before the next ones (0: as the compiler does)."""

    groups: int
    keys: int
    stages: int
    ones: bool = False
    ahead: bool = True
    turns: bool = True
    lazy: bool = True
    polynomial: int = 0
    in_order: int = 0

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return GROUP_ROWS * self.groups


def tiling(work: Workload, props: DeviceProperties) -> Tiling:
    """The fastest as measured on an H100 and an H200: the groups whose rounds of tiles come out best."""
    ones = 32 < work.d <= 64
    line = rises(work)
    # Not measured: as many keys as registers and shared memory hold beside O and Q.
    if work.dv:
        return Tiling(2, 64 if columns(work) > 128 else 80 if work.d > 192 else 128, 2)
    if work.d > MAX_D:
        return Tiling(2, 96 if columns(work) == 192 else 64 if line else 80, 2)
    if work.most_rows <= FEW_ROWS:
        return Tiling(2, 128, 2, ones) if work.d <= 64 else Tiling(2, 64, 2)
    three = Tiling(3, 128, 2, ones) if work.d <= 64 else Tiling(3, 80, 2)
    four = Tiling(4, 64, 4, ones)
    if work.score and work.d > 64:  # registers hold so many keys beside what changes them
        if line and not work.score.keep:
            return three
        copied = copied_bytes(work, KEPT_KEYS)
        ones = columns(work) == 128 and copied < 4  # beside which there is no room for tiles of float32
        return Tiling(3, 64, 3 if ones and not copied else 2, ones)
    if work.score and not work.score.tile:
        if line and work.score.keep:
            return Tiling(3, 64, 2, ones)
        return four if work.causal and ones and (line or is_tanh(work)) else three
    if work.score:
        return four if work.causal or work.score.tile_is_mask else Tiling(3, 96, 2, ones)
    if work.window:  # 64 keys end where groups' rows do; groups begin at other tiles, and turns would hold them up
        wide = Tiling(3, 64, 4, turns=work.window > WIDE_WINDOW)
        return wide if work.d > 64 else four._replace(stages=8, turns=False)
    if work.d > 64 and work.most_rows <= 2 * FEW_ROWS:  # of two tiles of 128 rows none is partly empty
        return Tiling(2, 128, 2)
    if work.d > 64:
        usual, two = Tiling(3, 64, 4), Tiling(2, 128, 2)
    else:
        if ones and work.Nk <= LONG_ROWS:
            four = four._replace(stages=8, turns=not work.causal)
        is_four = work.causal or rounds(work, four, props) < rounds(work, three, props)
        usual, two = four if is_four else three, Tiling(2, 128, 4, ones)
    return two if is_faster_by_two(work, two, usual, props) else usual


def rounds(work: Workload, how: Tiling, props: DeviceProperties) -> int:
    """Rows that the busiest multiprocessor computes, where all tiles take as long."""
    return ceil_div(work.row_tiles(how.rows), props.sms) * how.rows


def is_faster_by_two(work: Workload, two: Tiling, usual: Tiling, props: DeviceProperties) -> bool:
    """Whether two groups are faster than more, which need less time a row: where tiles are so few that larger ones
    leave multiprocessors without work, or with less than others have. Causal, a block has its next tile before it is
    done with one, so that more than two for each are no better balanced than larger ones."""
    tiles = ceil_div(work.row_tiles(two.rows), props.sms)
    if work.sequences or tiles > MOST_TILES:
        return False
    if work.causal:
        return tiles == 1 or (tiles == 2 and work.Nk >= LEAST_KEYS)
    return tiles * two.rows * TWO_GROUPS_COST[work.d > 64] < rounds(work, usual, props)


def check_runs(name: str, props: DeviceProperties) -> None:
    """Raise MachineError unless the GPU has what Hopper's kernels need."""
    if not props.warpgroups:
        raise MachineError(
            f"kernel {name} needs compute capability 9.0 (H100, H200, GH200), "
            f"this GPU {'is' if props.gfx else 'has'} {props.gfx or props.cc / 10}"
        )


def plan(work: Workload, props: DeviceProperties, chosen: Tiling | None = None) -> Plan:
    """The launch for a workload. Raises MachineError where the kernel does not run."""
    check_runs(NAME, props)
    how = chosen or tiling(work, props)
    registers, copying = REGISTERS[how.groups]
    threads = 128 * (how.groups + 1)
    q_buffers = q_tiles(work)
    unequal = work.causal or bool(work.sequences) or is_ordered(work) or has_idle_groups(work, how)
    dynamic = unequal and work.row_tiles(how.rows) > props.sms
    atoms, of_values = ceil_div(work.d, ATOM), ceil_div(work.value_columns, ATOM)
    tiles = atoms * q_buffers * how.rows + (atoms + of_values) * how.stages * how.keys
    buffers = 128 * tiles + how.ones * ones_bytes(columns(work), how.keys, how.stages)
    handed = 8 * ceil_div(q_buffers * tile_bytes(work), 8)  # tiles of rows, from the producer to the groups
    shared = buffers + 16 * q_buffers + handed + 32 * how.stages + (8 if work.sequences else 0)
    changing = score_macros(work, how, props.shared_limit - shared)
    if of_scores := changing.get("SCORE_SHARED", 0) + line_bytes(work, how):
        shared = 16 * ceil_div(shared, 16) + of_scores
    macros = {
        "D": work.d,
        **value_macros(work),
        "BR": how.rows,
        "BC": how.keys,
        "THREADS": threads,
        "GROUPS": how.groups,
        "STAGES": how.stages,
        "Q_BUFFERS": q_buffers,
        "COPIES_O": int(copies_o(work)),
        "COLUMNS": columns(work),
        "CAUSAL": int(work.causal),
        **mask_macros(work),
        **changing,
        "BFLOAT16": int(work.dtype == BFLOAT16),
        "ONES": int(how.ones),
        "AHEAD": int(how.ahead),
        "TURNS": int(how.turns),
        "LAZY": int(how.lazy),
        **weight_macros(work, how),
        "DYNAMIC": int(dynamic),
        "REGISTERS": registers,
        "COPY_REGISTERS": copying,
        "WARPGROUPS": 1,
        **sequence_macros(work),
    }
    blocks = min(props.sms, work.row_tiles(how.rows))
    start = (Launch(f"{NAME}_start", 1, 1, 0),) if dynamic else ()
    size = 4 * dynamic
    if sets := kept_sets(work, how.keys):
        start = Launch(f"{NAME}_bits", sets * row_blocks(work), KEPT_THREADS, 0), *start
        size = KEPT_AT + sets * kept_bytes(work, how.keys)
    launches = *start, Launch(NAME, blocks, threads, shared, early=dynamic)
    return with_sequences(Plan(NAME, macros, launches, Scratch(size)), work)


def copied_bytes(work: Workload, keys: int) -> int:
    """Of an element of the array that tiles of scores read, if copies can bring it to shared memory; else 0."""
    score = work.score
    if not score or (kept_sets(work, keys) and not score.changes_by(score.tile)):
        return 0
    return score.copied_bytes(work.Nk)


def is_tanh(work: Workload) -> bool:
    """Whether all scores are the tanh of what they were, times constants."""
    return work.score is not None and not work.score.keep and "SCORE_TANH" in way_of(work.score, work.scale).macros


def kept_sets(work: Workload, keys: int) -> int:
    """For how many batches a launch before finds which pairs have a score, in bits: 1 where that is the same for all;
    0 where each tile of scores finds it for itself, as few heads would share what is found."""
    score = work.score
    if not score or not score.keep or work.sequences or work.window or keys % KEPT_KEYS or work.Nk < LEAST_KEPT:
        return 0
    sets = work.batch if score.keeps_by("b") else 1
    least = LEAST_SHARING * (2 if work.causal else 1)  # who share half of it
    few = score.keeps_by("h") or work.batch * work.heads < least * sets
    return 0 if few or sets * kept_bytes(work, keys) > MOST_KEPT else sets


def row_blocks(work: Workload) -> int:
    """Of 16 rows, in whole groups."""
    return ceil_div(work.Nq, GROUP_ROWS) * GROUP_ROWS // KEPT_ROWS


def kept_bytes(work: Workload, keys: int) -> int:
    """Those of a bit for each pair, of whole tiles."""
    return row_blocks(work) * KEPT_ROWS * ceil_div(work.Nk, keys) * keys // 8


def ones_bytes(width: int, keys: int, stages: int) -> int:
    """Bytes of shared memory for the ones by which tensor cores sum P: of 128 columns of V, in each of its buffers."""
    return 128 * keys * stages if width == 128 else 2048


def tile_bytes(work: Workload) -> int:
    """The size of RowTile in kernels/halfrows.cuh."""
    return 16 + 4 * bool(work.window) + SEQUENCE_BYTES * bool(work.sequences)


def q_tiles(work: Workload) -> int:
    """For how many tiles of Q there is room."""
    return MOST_Q_BUFFERS if work.d <= MAX_D and not work.dv else 1


def copies_o(work: Workload) -> bool:
    """Whether copies take O from where Q was: not beside rows of another sequence. They cost the main loop a few
    instructions, which long rows of few columns do not earn back; beside changed scores nobody has timed it."""
    usual = q_tiles(work) > 1 and not (work.sequences or work.score)
    return usual and (work.d > ATOM or work.Nk <= LONG_ROWS or bool(work.window))


def has_idle_groups(work: Workload, how: Tiling) -> bool:
    """Whether so many groups of a head's tiles are without rows that a fixed order would leave blocks without work."""
    spare = -work.Nq % how.rows
    return spare // GROUP_ROWS * GROUP_ROWS * MOST_IDLE >= work.Nq + spare


def weight_macros(work: Workload, how: Tiling) -> dict[str, int]:
    """What kernels/halfrows.cuh is compiled with, where weights are not all by exp2 in the compiler's order. No
    polynomial for changed scores, of which it might miss a NaN, nor for a scale whose 256th could be too small."""
    fused = not work.score and work.scale >= LEAST_SCALE
    macros = {"POLYNOMIAL": how.polynomial if fused else 0, "IN_ORDER": how.in_order}
    return {name: value for name, value in macros.items() if value}


def score_macros(work: Workload, how: Tiling, room: int) -> dict[str, int]:
    """What kernels/halfscores.cuh is compiled with, for a workload with a score; so many bytes of shared memory are
    left."""
    score = work.score
    if not score:
        return {}
    macros = way_of(score, work.scale).macros | ({"SCORE_ORDERED": 1} if is_ordered(work) else {})
    if sets := kept_sets(work, how.keys):
        macros["SCORE_BITS"] = min(sets, 2)
        if score.tile and not score.changes_by(score.tile):
            macros["SCORE_TILE_BYTES"] = 0
    if work.batch > 1 and score.tile_is_of_heads:
        macros["SCORE_ACROSS"] = 1
    if element := copied_bytes(work, how.keys):
        if element == 2 and score.tile_is_shared and not work.causal and ATOM < work.d <= MAX_D:
            macros["SCORE_SECTIONS"] = 1
        row = 4 * how.keys + 32 if element == 4 else 16 * (element * how.keys // 16 | 1)
        size = (how.rows if score.tile_has_rows else how.rows // 16) * row
        if size + 16 + line_bytes(work, how) <= room:
            macros |= {"SCORE_SHARED": size, "SCORE_TILE_ROWS": int(score.tile_has_rows)}
    return macros


def is_ordered(work: Workload) -> bool:
    """Whether tiles of keys are computed from where scores are highest along a line, and those passed by that have no
    weights (kernels/halfline.cuh): where keys are counted from the first one on, and registers hold what that takes."""
    whole = not (work.window or work.sequences or work.dv or work.d > MAX_D)
    return rises(work) and whole and not (work.score and work.score.keep)


def rises(work: Workload) -> bool:
    """Whether scores have a line that tensor cores add (kernels/halfline.cuh)."""
    return work.score is not None and "SCORE_RISES" in way_of(work.score, work.scale).macros


def line_bytes(work: Workload, how: Tiling) -> int:
    """Bytes of shared memory for scores that rise along a line: columns of Q and K for it, and where tiles begin."""
    return 32 * (how.rows + how.keys) + 4 * MOST_Q_BUFFERS if rises(work) else 0


def value_macros(work: Workload) -> dict[str, int]:
    """What kernels/halfrows.cuh is compiled with where V has another number of columns than Q."""
    return {"DV": work.dv} if work.dv else {}


def with_sequences(plan: Plan, work: Workload, packed: int = 1) -> Plan:
    """The plan with a table of the sequences behind its scratch; of tiles of so many heads' rows `packed`."""
    if not work.sequences:
        return plan
    table = sequence_table(work.sequences, plan.macros["BR"], packed)
    at = ceil_div(plan.scratch, SEQUENCE_BYTES) * SEQUENCE_BYTES
    return replace(plan, layout=plan.layout._replace(size=at + len(table), sequences=at), table=table)


def sequence_table(sequences: Iterable[Span], rows: int, packed: int) -> bytes:
    """Of each tile of so many rows, of so many heads `packed`, the sequence that it is of. Those of the most keys come
    first, as their tiles take the longest."""
    found, first = [], 0
    for span in sorted(sequences, key=attrgetter("keys"), reverse=True):
        tiles = ceil_div(packed * span.rows, rows)
        found.append(_SEQUENCE.pack(*span, first, tiles) * tiles)
        first += tiles
    return b"".join(found)


def bias(work: Workload) -> int:
    """P is held as 2^(s - m + bias), so that fp16 holds small weights, too (kernels/halfrows.cuh)."""
    return 0 if work.dtype == BFLOAT16 else 7


def columns(work: Workload) -> int:
    """Columns of O that are computed."""
    return next(width for width in WIDTHS if work.value_columns <= width)


class Arrays(NamedTuple):
    """Where Q, K, V and O lie, strides in elements, and the addresses of the LSE and of scratch, or 0; `views`: of the
    arrays that a score names."""

    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    lse: int = 0
    scratch: int = 0
    views: tuple[int, ...] = ()


def boxes(work: Workload, tile: Mapping[str, int], arrays: Arrays) -> tuple[Box, Box, Box]:
    """The tensor maps of Q, K and V, for a plan's macros."""
    q, k, v = arrays[:3]
    keys = (work.kv_heads, work.Nk, tile["BC"])
    of_values = replace(work, d=work.value_columns, dv=0)
    return (
        tensor_box(work, q, work.heads, work.Nq, tile["BR"]),
        tensor_box(work, k, *keys),
        tensor_box(of_values, v, *keys),
    )


def output_box(work: Workload, o: Matrix) -> Box:
    """The tensor map of O, of which a copy leaves a group's rows."""
    return tensor_box(replace(work, d=work.value_columns, dv=0), o, work.heads, work.Nq, GROUP_ROWS)


def tensor_box(work: Workload, m: Matrix, heads: int, rows: int, box_rows: int) -> Box:
    """A matrix of so many heads and rows, of which a copy brings so many rows."""
    # A dimension of one element needs no stride, but the driver wants a valid one.
    row, head, batch = (2 * stride or 16 for stride in (m.row, m.head, m.batch))
    sizes = (work.d, rows, heads, work.batch)
    return Box(m.data, work.dtype == BFLOAT16, sizes, (row, head, batch), (ATOM, box_rows, 1, 1))


def heads_together(work: Workload) -> int:
    """How many heads' K and V fit into the L2 cache, within limits."""
    size = max(1, 4 * work.Nk * work.d * work.kv_heads // work.heads)
    return min(max(LEAST_SECTION, L2_BYTES // size), MOST_SECTION)


def work_arguments(
    work: Workload, planned: Plan, row_tiles: int, tiles: int, arrays: Arrays, section: int | None = None
) -> bytes:
    """What all kernels of 16-bit numbers are passed behind Q, K and V: tiles of rows of a head, and of all heads.
    `section`: how many heads are worked on together, if not as many as the L2 cache can hold."""
    way = way_of(work.score, work.scale) if work.score and planned.variant == NAME else None
    factor = way.factor if way else LOG2E if work.score else min(work.scale * LOG2E, LARGEST)
    unscale = min(1 / factor, LARGEST / 32)
    return _LAYOUT.pack(
        *(*coordinates(arrays.o), arrays.lse),
        *(work.heads, work.heads // work.kv_heads, work.batch * work.heads, work.Nq, work.Nk, work.offset),
        *(row_tiles, tiles, planned.splits, heads_together(work) if section is None else section),
        *(factor, unscale, (RESCALE_THRESHOLD + bias(work)) * unscale),
        *(work.Nq, work.window, arrays.scratch + planned.layout.sequences if planned.table else 0),
    ) + scoring(work, arrays.views, way=way)


def padded(passed: bytes) -> bytes:
    """A struct that begins with tensor maps, as long as the compiler makes it."""
    return passed.ljust(ceil_div(len(passed), MAP_ALIGNMENT) * MAP_ALIGNMENT, b"\0")


def arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Callable[[Box], bytes]) -> bytes:
    """The launch's one argument. `encode` makes a tensor map's 128 bytes."""
    maps = b"".join(encode(box) for box in (*boxes(work, planned.macros, arrays), output_box(work, arrays.o)))
    rows = planned.macros["BR"]
    rest = work_arguments(work, planned, ceil_div(work.Nq, rows), work.row_tiles(rows), arrays)
    taken = struct.pack("<Q", arrays.scratch)
    return padded(maps + rest + taken)
