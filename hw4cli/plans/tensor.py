"""split and exact: kernels on tensor cores (kernels/split*.cu, kernels/exact.cu); and what fp16 and these lose."""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans import tensorwork
from hw4cli.plans.common import (
    COMBINE_THREADS,
    NO_LIMIT,
    RESCALE_THRESHOLD,
    combine_launch,
    converters_of,
    converting,
    groups_in_turns,
    main_blocks,
    padded_d,
    scratch_of,
    splits_for,
    tiles_of,
    turns_of,
)
from hw4cli.plans.formulas import FLOAT, convert_blocks, key_tiles, row_blocks
from hw4cli.plans.plan import DeviceProperties, Launch, Pieces, Regions, Scratch, Tile, Variant
from hw4cli.plans.tensorwork import HALF
from hw4cli.problem.workload import Workload

POLYNOMIAL = 1  # d = 32: of 16 exponentials, so many are by polynomial
ONE_PIECE, BY_INTEGERS, TWO_PIECES = Pieces(1), Pieces(1, integers=True), Pieces(2)
# V, and the ones that sum P, times this, before they are rounded: it drops out of O / l. 3 becomes just less than 4,
# where fp16 is as fine as at 2.
V_FACTOR = 1365 / 1024
BIAS = 7  # P is held as 2^(s - m + BIAS), at least 2^BIAS for a row's largest, so that fp16 holds small ones, too
SPLIT_COST, CAUSAL_COST = 256, {1: 512, 2: 128}  # of a split of the keys, in keys; with a mask, by pieces
ABSMAX_BYTES = 128  # of scratch, before the tiles
CONVERT_THREADS, CONVERT_CHUNKS = 256, 4  # of the pass that converts, each of eight columns


def _warpgroups(d: int, props: DeviceProperties, pieces: int) -> bool:
    """Whether warpgroups multiply (kernels/split_wgmma.cu, split_short.cu): rows of 8 columns at least, with zeros.

    `pieces` is that of P and of V."""
    return props.warpgroups and pieces == 1 and 4 < d <= 64


def _inblock(keys: int, d: int, props: DeviceProperties, pieces: int) -> bool:
    """Whether each block converts its keys itself: for few keys that is less traffic than a pass over all."""
    return keys <= _longest_inblock(d, props, pieces)


def _longest_inblock(d: int, props: DeviceProperties, pieces: int) -> int:
    """The most keys for which it does."""
    return 512 if _warpgroups(d, props, pieces) else 256


def integers_from(d: int, props: DeviceProperties) -> int | None:
    """From how many keys on split8 multiplies integers; None where it always is split."""
    least = _longest_inblock(d, props, BY_INTEGERS.terms) + 1
    return least if policy(BY_INTEGERS, least, d, props).integers else None


class Adder(NamedTuple):
    """How a tensor core adds: a block of products and what was added before are aligned with the largest of them and
    cut off towards zero, so many bits beyond float32's 24; then their sum is cut off to 24 bits.

    Products are exact. (Fasi, Higham, Mikaitis, Pranesh 2021; Khattak, Mikaitis 2025: blocks of 8 and one extra bit on
    sm_80, 16 and two on sm_90 and sm_100; before, as a V100's, of 4 and none.)
    """

    block: int
    extra: int

    @classmethod
    def of(cls, cc: int) -> "Adder":
        """Of a compute capability."""
        return cls(16, 2) if cc in (90, 100) else cls(8, 1) if cc >= 80 else cls(4, 0)

    @property
    def grain(self) -> float:
        """What each product may lose, relative to the power of two at or below the largest partial sum."""
        return 2.0 ** (-23 - self.extra)


def truncation(cc: int) -> float:
    """What a tensor core may lose for each product that it adds, relative to the largest partial sum: the product's
    last bits, and its share of its block's."""
    adder = Adder.of(cc)
    return adder.grain + 2.0**-23 / adder.block


class Policy(NamedTuple):
    """How a kernel on tensor cores adds up, as far as its error depends on it (docs/accuracy.md)."""

    promotion: int  # keys, after which the accumulators are added to sums in float32: tensor cores cut off, FADD rounds
    sub: int  # keys that are weighed together, or twice as many: m moves once in so many at most
    small_first: bool  # a score's sum begins at 0 with the small products; else at BIAS - m, with all of a column
    rounded_sum: bool  # l is the sum of the rounded P, by a product with ones, so that P's rounding cancels in part
    integers: bool = False  # the products of a score with a second term are of 8-bit integers (kernels/integers.cuh)
    polynomial: bool = False  # some exponentials may be by polynomial (kernels/exponentials.cuh)
    shared: bool = False  # two blocks may add up a row, each any number of its keys (kernels/streamk.cuh)
    late: int = 0  # keys at most, whose products with V follow a promotion that their scores are before (SKEW)


def policy(held: Pieces, N: int, d: int, props: DeviceProperties) -> Policy:
    """How a kernel on tensor cores adds up that holds P and V so.

    With two pieces nothing is left to cancel in l, and FADD rounds. In a block that converts at d = 64, without
    warpgroups, no registers are left for it. Above d = 64, sums of scores from BIAS - m on and of 4096 keys would be
    most of the bound."""
    pieces, width = held.terms, padded_d(d)
    inblock = _inblock(N, d, props, pieces)
    if _warpgroups(d, props, pieces):
        sub = 32 if inblock and width == 32 else 64
        integers = held.integers and not inblock and width == 64
        adds = Policy(1024, sub, small_first=True, rounded_sum=True, integers=integers, shared=not inblock)
        return adds._replace(polynomial=not inblock and width == 32)
    sub = 16 if inblock or width == 128 or (pieces == 2 and width > 32) else 32
    if pieces == 2:
        return Policy(1024, sub, small_first=True, rounded_sum=False)
    if held.integers and not inblock and width <= 64:
        return Policy(1024, 16, small_first=True, rounded_sum=True, integers=True)
    late = 32 if props.cc == 90 and not inblock else 0
    if width == 128:
        return Policy(1024, sub, small_first=True, rounded_sum=True, late=late)
    return Policy(4096, sub, small_first=False, rounded_sum=not (inblock and width == 64), late=late)


def _tile(pieces: int) -> Callable[[Workload, DeviceProperties], Tile]:
    """Measured on an H200: without warpgroups, 256 rows and one large block for long sequences at d = 64."""

    def tile(shape: Workload, props: DeviceProperties) -> Tile:
        width, short = padded_d(shape.d), _inblock(shape.N, shape.d, props, pieces)
        if _warpgroups(shape.d, props, pieces):
            return {"BR": 128, "BC": 128} if short else {"BR": 64 * groups_in_turns(shape, props), "BC": 64}
        if width == 128:
            return {"BR": 64, "BC": 32}
        if width == 32:
            return {"BR": 128, "BC": 128 if pieces == 1 and not short else 64}
        if short:
            return {"BR": 64 if pieces == 2 and props.cc >= 100 else 128, "BC": 64}  # there, 128 rows spill
        if shape.causal and pieces == 2 and props.cc == 90 and 4 * row_blocks(shape.B, shape.Nq, 256) <= props.sms:
            return {"BR": 128, "BC": 64}  # two blocks: one begins while the other multiplies
        if shape.N >= 4096 or pieces == 2 or props.cc in (80, 86, 89):  # on 8.0, 128 rows spill a register
            return {"BR": 256, "BC": 128 if props.shared_limit > 200 << 10 and pieces == 1 else 64}
        return {"BR": 128, "BC": 64}

    return tile


def _derived(name: str, held: Pieces) -> Callable[[Workload, Tile, DeviceProperties], Tile]:
    """What follows from a tile: threads and blocks, how tiles come, and the numeric policy."""
    pieces = held.terms

    def derived(shape: Workload, tile: Tile, props: DeviceProperties) -> Tile:
        inblock, warpgroups = _inblock(shape.N, shape.d, props, pieces), _warpgroups(shape.d, props, pieces)
        adds, factor = policy(held, shape.N, shape.d, props), V_FACTOR if pieces == 1 else 1
        threads, blocks, stages = (_with_warpgroups if warpgroups else _by_warps(pieces))(shape.d, tile, props, inblock)
        room, one_each = _room(blocks, props), max(shape.N, shape.Nq) <= tile["BR"]
        fitting = (room - _sums_bytes(shape.d, tile)) // _stage_bytes(shape.d, tile, 1)
        sums = adds.integers and not warpgroups and fitting >= 3
        # on 9.0, a mask takes the registers
        doubled = pieces == 1 and padded_d(shape.d) == 128 and not inblock and not (shape.causal and props.cc == 90)
        stages = min(stages, fitting) if sums else stages
        turns = turns_of(shape, tile, props) if warpgroups and not inblock else {}
        if tile.get("POLYNOMIAL") and not adds.polynomial:
            raise MachineError(f"kernel {name} has polynomials only on Hopper, for d up to 32 and more than 512 keys")
        in_use = 2 + adds.integers if turns else 0  # tiles at once, which the ring has to hold
        if tile.get("STAGES", in_use) < in_use:  # the GPU would wait for ever
            raise MachineError(f"kernel {name} needs {in_use} stages here: so many tiles are in use at once")
        return {
            "THREADS": threads,
            "BLOCKS": blocks,
            "STAGES": max(stages, in_use),
            "INBLOCK": int(inblock),
            "INT8": int(adds.integers),
            "WARPGROUPS": int(warpgroups),
            "WIDTH": padded_d(shape.d),
            "PV_PIECES": pieces,
            # where a batch is one block, it asks for what a later one reads; with more blocks that was slower
            "RESIDENT_BLOCKS": blocks * props.sms if one_each and warpgroups and inblock else 0,
            "SUB": 2 * adds.sub if doubled else adds.sub,
            "PROMOTION": adds.promotion,
            "SMALL_FIRST": int(adds.small_first),
            "ROUNDED_SUM": int(adds.rounded_sum),
            "SHARED_SUMS": int(sums),
            # P V one slice late, where registers allow: measured on an H200 alone
            "SKEW": int(adds.late > 0 and blocks > 1),
            "BIAS": BIAS,
            "RESCALE_THRESHOLD": RESCALE_THRESHOLD,
            "V_FACTOR_1024": int(1024 * factor),
            "ONES_BITS": int.from_bytes(struct.pack("<ee", factor, factor), "little"),
            "CONVERT_THREADS": CONVERT_THREADS,
            "CONVERT_CHUNKS": CONVERT_CHUNKS,
            "COMBINE_THREADS": COMBINE_THREADS,
            **turns,
            "CONVERTING": converting(shape, tile, adds.integers) if turns.get("BALANCED") else 0,
            # measured with four groups: with fewer, exponentials do not limit
            "POLYNOMIAL": POLYNOMIAL if adds.polynomial and turns.get("GROUPS") == 4 else 0,
            **({"IN_ORDER": 0} if turns else {}),
        }

    return derived


def _with_warpgroups(d: int, tile: Tile, props: DeviceProperties, inblock: bool) -> tuple[int, int, int]:
    """Threads; the blocks that registers allow; stages of the ring."""
    if inblock:
        return 2 * tile["BR"], 3 if padded_d(d) == 32 else 2, 1
    row = HALF * padded_d(d)
    rest = 2048 + 16 * row + _sums_bytes(d, tile) + 3 * tile["BR"] * row  # Q in three pieces at most
    most = 4 if padded_d(d) == 64 else 6  # a power of two is a little faster; d = 32 was not tried
    return 2 * tile["BR"] + 128, 1, min(most, (props.shared_limit - rest) // _stage_bytes(d, tile, 1))


def _sums_bytes(d: int, tile: Tile) -> int:
    """Where groups take turns: O of the keys before, l and m, in whole 16 bytes of each thread that multiplies."""
    return 2 * tile["BR"] * (padded_d(d) // 8 + 1) * 4 * FLOAT


def _by_warps(pieces: int) -> Callable[[int, Tile, DeviceProperties, bool], tuple[int, int, int]]:
    """The same where each warp multiplies for itself (mma.sync)."""

    def by_warps(d: int, tile: Tile, props: DeviceProperties, inblock: bool) -> tuple[int, int, int]:
        width = padded_d(d)
        narrow = width == 64 and inblock and (props.cc < 120 if pieces == 1 else tile["BR"] == 64)
        rows = 16 if width == 128 or narrow else 32  # of a warp
        threads = 32 * tile["BR"] // rows
        blocks = 3 if inblock and width == 32 else 2 if width == 32 or inblock else 256 // max(threads, 128)
        fitting = _room(blocks, props) // _stage_bytes(d, tile, pieces)
        least = 4 if tile["BC"] < 64 and pieces == 1 else 3  # to load one ahead: see Ring in split_mma.cuh
        return threads, max(1, blocks), 2 if inblock else max(least, min(4, fitting))

    return by_warps


def _room(blocks: int, props: DeviceProperties) -> int:
    """Bytes of shared memory that each of so many blocks on a multiprocessor can have."""
    return min(props.shared_limit, props.shared_sm // max(1, blocks) - props.shared_reserved)


def tile_bytes(d: int, tile: Tile, pieces: int) -> int:
    """A tile of K, hi and lo, and V."""
    return HALF * (2 + pieces) * tile["BC"] * padded_d(d)


def _stage_bytes(d: int, tile: Tile, pieces: int) -> int:
    """A tile and two barriers."""
    return tile_bytes(d, tile, pieces) + 16


def _regions(pieces: int) -> Regions:
    """The stages, each a tile, and their barriers; for warpgroups also five numbers of each of 8 warps, 16 rows of ones
    and Q's pieces. Where groups take turns, barriers come first, and what a block keeps; then the stages, 16 rows of
    ones, O of the keys before, and of Q the integers of two tasks, or lo, and hi; without Q_AHEAD integers alone."""

    def regions(d: int, tile: Tile) -> dict[str, int]:
        stages, whole, row = tile["STAGES"], tile_bytes(d, tile, pieces), HALF * padded_d(d)
        ring = {f"stage {n}": whole for n in range(stages)}
        barriers = stages * (_stage_bytes(d, tile, pieces) - whole)
        if tile.get("GROUPS"):
            head = {"barriers": barriers + 16, "kept": 160, "padding": 1024 - 160 - 16 - barriers}
            queries = (tile["INT8"] + 2 * tile["Q_AHEAD"]) * tile["BR"] * row
            return {**head, **ring, "ones": 16 * row, "O of keys before": _sums_bytes(d, tile), "Q": queries}
        found = {**ring, "barriers": barriers}
        if tile["SHARED_SUMS"]:
            found["O of keys before"] = _sums_bytes(d, tile)
        if tile["WARPGROUPS"]:
            found["absmax"] = 5 * 8 * FLOAT
            found["padding"] = -sum(found.values()) % 1024
            found["ones"], found["Q"] = 16 * row, 2 * tile["BR"] * row
        return found

    return regions


def _launches(name: str) -> Callable[[Workload, Tile, int, int], tuple[Launch, ...]]:
    """The pass that converts, perhaps the first batches alone; blocks of BR rows and a split; what combines splits."""

    def launches(shape: Workload, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
        most, inblock = tile.get("MOST_BLOCKS") or NO_LIMIT, tile["INBLOCK"]
        blocks = min(most, main_blocks(shape, tile, splits))
        steps = [Launch(name, blocks, tile["THREADS"], shared, early=splits > 1 and not inblock)]
        if not inblock:
            tiles = key_tiles(converters_of(shape, tile, splits).first, shape.N, tile["BC"])
            grid = convert_blocks(tiles, tile["BC"], padded_d(shape.d), CONVERT_CHUNKS, CONVERT_THREADS)
            steps.insert(0, Launch(f"{name}_convert", grid, CONVERT_THREADS, 0))
        if splits > 1:
            steps.append(combine_launch(name, shape))
        return tuple(steps)

    return launches


def _scratch(pieces: int) -> Callable[[Workload, Tile, int], Scratch]:
    """absmax; K and V converted; m and l of each row and split, by which sums are promoted, too, and a count for
    each batch that is converted; each split's O."""

    def scratch(shape: Workload, tile: Tile, splits: int) -> Scratch:
        tiles = 0 if tile["INBLOCK"] else key_tiles(shape.B, shape.N, tile["BC"])
        converted, counts = tiles * tile_bytes(shape.d, tile, pieces), shape.B if tile["CONVERTING"] else 0
        return scratch_of(shape, splits, ABSMAX_BYTES, converted, stats=True, counts=counts)

    return scratch


def _file(name: str) -> Callable[[Tile], str]:
    """The file for a tile: on Hopper there are others, for few keys and for more."""

    def file(tile: Tile) -> str:
        if not tile["WARPGROUPS"]:
            return name
        return f"{name}_short" if tile["INBLOCK"] else f"{name}_wgmma"

    return file


def _knobs(tile: Tile) -> dict[str, tuple[int, ...]]:
    """Stages of the ring; of 16 exponentials, how many are by polynomial; blocks of 8 keys weighed together."""
    if tile["INBLOCK"]:
        return {}
    orders = {"IN_ORDER": (2, 4)} if tile.get("GROUPS") else {}
    shares = {"POLYNOMIAL": (0, 1, 2, 3)} if orders and tile["WIDTH"] == 32 else {}
    return {"STAGES": (2, 3, 4, 5, 6), **shares, **orders}


def _variant(name: str, idea: str, held: Pieces, error_bound: float, **known: Any) -> Variant:
    """A kernel on tensor cores; `known`: other fields of the entry."""
    return Variant(
        name,
        idea,
        error_bound=error_bound,
        tile=_tile(held.terms),
        derived=_derived(name, held),
        regions=_regions(held.terms),
        launches=_launches(name),
        scratch=_scratch(held.terms),
        splits=splits_for(NO_LIMIT, SPLIT_COST, CAUSAL_COST[held.terms]),
        finds_absmax=True,
        least_cc=80,
        strategies=(f"{name}_wgmma", f"{name}_short") if held.terms == 1 else (),
        file=_file(name),
        space=tiles_of((64, 128, 192, 256), (32, 64, 128)),  # by warp groups: 64 rows each
        knobs=_knobs,
        pieces=held,
        block=tensorwork.BLOCK,
        work=tensorwork.attention,
        proven=True,
        automatic=True,
        lse=True,
        windows=True,
        **known,
    )


SPLIT = _variant(
    "split",
    "tensor cores: Q and K in two fp16 terms each, P and V in one",
    ONE_PIECE,
    error_bound=2.7e-3,
    stamps=True,
    native=True,
    emulated=1.5e8,
    colour=("#c4372a", "#ff8672"),
)

SPLIT8 = _variant(
    "split8",
    "split, but by int8 what has second terms, to d = 64, for N > 512 (256)",
    BY_INTEGERS,
    error_bound=3.4e-3,
    any_scale=False,  # the second terms' error follows from how large Q is, not from how large the scores are
    native=True,
    colour=("#9a5b00", "#f0b45c"),
)

EXACT = _variant(
    "exact",
    "tensor cores with the error of float32: six products",
    TWO_PIECES,
    error_bound=2.1e-5,
    emulated=1e8,
    colour=("#8446bd", "#c598f5"),
)
