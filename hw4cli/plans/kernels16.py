"""The kernels for 16-bit numbers under one form: which one answers where, its plan and argument, and how exact it is.

The bounds are those that docs/accuracy.md derives.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from hw4cli.errors import MachineError
from hw4cli.plans import half, halfmma, halfshort, halfwork
from hw4cli.plans.arraykernel import ArrayKernel, Encode, Sums
from hw4cli.plans.bounds import EX2, EX2_CUBIC, EXP, FAR, LN2, Shares
from hw4cli.plans.common import power_below
from hw4cli.plans.dispatch import AUTO, rounded_up
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.half import Arrays, bias
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.plans.scoring import LOG2E
from hw4cli.plans.tensor import truncation
from hw4cli.problem.terms import ALIGNED, U32, half_ulp16
from hw4cli.problem.workload import BFLOAT16, FLOAT16, WIDEST, AbsMax, Span, Workload

TYPES = (FLOAT16, BFLOAT16)
ROWS = 128  # of a tile, about, where the keys are not split
FEW_ROWS, MANY_KEYS = 64, 1024
DIGITS = {BFLOAT16: 8}  # of a number; else 11
LARGEST = {BFLOAT16: 3e38}  # of O; else fp16's


def splits_keys(work: Workload, props: DeviceProperties) -> bool:
    """Whether splitting the keys is worth it: few rows share much, or few multiprocessors would have a tile of rows.

    It is not where every multiprocessor has whole heads of some rows and few keys: of 19200 heads of 64 x 64 numbers
    half takes a quarter of half_split's time, half_mma 0.4 of it (H200).
    """
    if work.sequences:
        return halfmma.packed_rows(work) <= FEW_ROWS and are_many(work.most_keys)
    tiles = work.row_tiles(ROWS)
    if 2 * work.Nq > FEW_ROWS and work.Nk <= halfshort.MOST_KEYS and tiles >= props.sms:
        return False
    return halfmma.packed_rows(work) <= FEW_ROWS or (4 * tiles <= props.sms and work.seen_by(work.Nq) >= MANY_KEYS)


def are_many(keys: int) -> bool:
    """Whether splitting so many keys of the longest sequence is worth it, of few rows."""
    return keys >= MANY_KEYS


def _half_plan(work: Workload, props: DeviceProperties, tiling: Any = None) -> Plan:
    """half's launches, or for short rows half_short's."""
    how = tiling or half_tiling(work, props)
    if isinstance(how, halfshort.ShortTiling):
        return halfshort.plan(work, props, how)
    return half.plan(work, props, how)


def half_tiling(work: Workload, props: DeviceProperties) -> half.Tiling | halfshort.ShortTiling:
    """The tiling that half takes by itself; for short rows, half_short's."""
    reads = work.score is not None and work.score.arrays  # for which half_short's registers would not do
    return halfshort.tiling(work) if halfshort.fits(work) and not reads else half.tiling(work, props)


def _takes_half(work: Workload, props: DeviceProperties) -> bool:
    """Hopper has what half needs."""
    return props.warpgroups


def _prefers_half(work: Workload, props: DeviceProperties) -> bool:
    """A multiprocessor holds four blocks of half_mma, one of half: few narrow rows are for half_mma."""
    small = work.d <= 32 and work.most_rows <= half.FEW_ROWS and not halfshort.fits(work)
    return props.warpgroups and not small and not splits_keys(work, props)


def _sums_of_tiles(work: Workload, planned: Plan) -> Sums:
    """Tile after tile, in one accumulator."""
    m = planned.macros
    return Sums(work.Nk, ceil_div(work.Nk, m["BC"]), bool(m["ONES"]), polynomial="POLYNOMIAL" in m)


def _sums_of_parts(work: Workload, planned: Plan) -> Sums:
    """Splits, of which each team of warps has some tiles."""
    sub, teams = planned.macros["SUB"], planned.macros["THREADS"] // 32 // planned.macros.get("TEAM", 1)
    moves = ceil_div(ceil_div(ceil_div(work.Nk, sub), planned.splits), teams)
    return Sums(moves * sub, moves, bool(planned.macros["ONES"]), (planned.splits, teams))


def _weighed() -> list[half.Tiling]:
    """The usual tilings, of which other shares go by polynomial, or other numbers of keys are weighed together."""
    usual, ones = ((3, 128, 2), (4, 64, 4), (3, 80, 2)), (False, True)
    shares = ((0, 4), (1, 4), (2, 4), (3, 4), (4, 4), (6, 4))
    return [
        half.Tiling(*one, summed, polynomial=share, in_order=order)
        for one, summed, (share, order) in product(usual, ones, shares)
    ]


# In the order in which auto asks them, and messages name them.
HALF = ArrayKernel(
    half.NAME,
    "Hopper: producer and consumer warps, tiles by the copy engine",
    takes=_takes_half,
    preferred=_prefers_half,
    tile=half_tiling,
    planned=_half_plan,
    packed=half.arguments,
    work=halfwork.half,
    sums=_sums_of_tiles,
    types=TYPES,
    lse=True,
    windows=True,
    widest=WIDEST,
    values=True,
    scores=True,
    sequences=True,
    persistent=True,
    stamps=True,
    # groups that multiply, keys, stages, whether tensor cores sum P; the usual ones also with other exponentials
    space=(
        *(half.Tiling(*one) for one in product((2, 3, 4), (64, 80, 128), (2, 3, 4), (False, True))),
        *_weighed(),
    ),
)

SHORT = ArrayKernel(
    halfshort.NAME,
    "half for few rows and as few keys: a head or more a block",
    takes=lambda work, props: _takes_half(work, props) and halfshort.fits(work),
    tile=lambda work, props: halfshort.tiling(work),
    planned=halfshort.plan,
    packed=halfshort.arguments,
    work=halfwork.short,
    sums=_sums_of_tiles,
    types=TYPES,
    lse=True,
    windows=True,
    scores=True,
    persistent=True,
    launched_by=half.NAME,  # where rows are short
)

MMA = ArrayKernel(
    halfmma.MMA,
    "tensor cores of any GPU that take the numbers, many rows",
    takes=halfmma.runs,
    preferred=lambda work, props: halfmma.runs(work, props) and not splits_keys(work, props),
    tile=halfmma.mma_tiling,
    planned=halfmma.mma_plan,
    packed=halfmma.mma_arguments,
    work=halfwork.warps,
    sums=lambda work, planned: Sums(work.Nk, ceil_div(work.Nk, planned.macros["SUB"]), bool(planned.macros["ONES"])),
    types=TYPES,
    lse=True,
    windows=True,
    widest=WIDEST,
    scores=True,
    sequences=True,
    # warps, fragments of each, keys, keys that are weighed together, blocks of a multiprocessor
    space=tuple(
        halfmma.MmaTiling(warps, fragments, keys, sub, q_registers=True, blocks=blocks)
        for warps, fragments, keys, sub, blocks in product((4, 8), (1, 2), (64, 128), (32, 64), (1, 2))
    ),
)

SPLIT = ArrayKernel(
    halfmma.SPLIT,
    "tensor cores, few rows and many keys, which it splits",
    takes=halfmma.runs,
    tile=halfmma.split_tiling,
    planned=halfmma.split_plan,
    packed=halfmma.split_arguments,
    key_step=halfmma.split_key_step,
    work=halfwork.split,
    sums=_sums_of_parts,
    types=TYPES,
    lse=True,
    sequences=True,
    windows=True,
    widest=WIDEST,
    scores=True,
)

CORES = ArrayKernel(
    halfmma.CORES,
    "CUDA cores, on any GPU: products and sums in float32",
    takes=lambda work, props: True,
    planned=halfmma.cores_plan,
    packed=halfmma.mma_arguments,
    work=halfwork.cores,
    sums=lambda work, planned: _sums_of_tiles(work, planned)._replace(cores=True),
    types=TYPES,
    lse=True,
    windows=True,
    widest=WIDEST,
    scores=True,
    sequences=True,
)

ENTRIES16 = {entry.name: entry for entry in tuple(vars().values()) if isinstance(entry, ArrayKernel)}
KERNELS16 = tuple(name for name, entry in ENTRIES16.items() if not entry.launched_by)  # those that users name


def kernel16(work: Workload, props: DeviceProperties, name: str = AUTO) -> str:
    """The kernel that is named, or else the fastest that runs."""
    if name != AUTO:
        return name
    entries = (ENTRIES16[one] for one in KERNELS16)
    return next(entry.name for entry in entries if entry.is_automatic(work, props))


def key_step(work: Workload, props: DeviceProperties, name: str = AUTO) -> int:
    """Plans for numbers of keys that lie between two multiples of this, and for the same mask, are the same: of the
    kernel that is named, or else of the fastest, if that is the same for all numbers. 0 where it is not known."""
    entry = ENTRIES16[kernel16(work, props, name)]
    few = 2 * work.Nq <= FEW_ROWS and halfmma.packed_rows(work) <= FEW_ROWS  # whose keys are split, however many
    is_known = entry.key_step and not (work.sequences or work.score) and (few or name != AUTO)
    return entry.key_step(work.stored, props) if entry.key_step and is_known else 0


def length_step(work: Workload, props: DeviceProperties) -> int:
    """Plans for sequences of the same rows and the same mask are the same but for tables, where the keys of the longest
    one lie between two multiples of this, and on the same side of what `are_many`. 0 where it is not known."""
    few = work.sequences and halfmma.packed_rows(work) <= FEW_ROWS and not work.score
    return halfmma.split_key_step(work.stored, props) if few else 0


def table16(sequences: Sequence[Span], work: Workload, planned: Plan) -> bytes:
    """The table of sequences, for the plan of a workload of others with the same rows."""
    return half.sequence_table(sequences, planned.macros["BR"], halfmma.heads_of_tile(work, planned.variant))


def takes_values(work: Workload, props: DeviceProperties, kernel: str) -> bool:
    """Whether a kernel, or the fastest, computes V of another number of columns than Q and K as it is."""
    return bool(work.dv) and ENTRIES16[kernel16(work.stored, props, kernel)].values


def takes_sequences(kernel: str) -> bool:
    """Whether one launch of a kernel, or of the fastest that does, computes sequences of several lengths."""
    return kernel == AUTO or ENTRIES16[kernel].sequences


def plan16(work: Workload, props: DeviceProperties, name: str = AUTO, tiling: Any = None) -> Plan:
    """The launches for a workload, with a tiling of the kernel's own if one is given; for rows that kernels can load.

    Raises MachineError where the kernel does not run.
    """
    return ENTRIES16[kernel16(work, props, name)].plan(work, props, tiling)


def arguments16(work: Workload, planned: Plan, arrays: Arrays, encode: Encode) -> bytes:
    """The launches' one argument. `encode` makes a tensor map's 128 bytes."""
    return ENTRIES16[planned.variant].arguments(work, planned, arrays, encode)


# ---- How exact


def sums(work: Workload, planned: Plan) -> Sums:
    """How a plan's kernel adds. Every entry of this family says it."""
    found = ENTRIES16[planned.variant].sums
    assert found is not None
    return found(work, planned)


def bound16(work: Workload, found: AbsMax, planned: Plan, cc: int) -> float:
    """The bound for |O - exact|, for |Q|, |K|, |V| up to `found`, on a GPU of a compute capability."""
    return shares16(work, found, planned, cc).total()


def shares16(work: Workload, found: AbsMax, planned: Plan, cc: int) -> Shares:
    """Every rounding of a GPU's kernel, and its size."""
    q, k, v = found
    top, unit, adds = work.scale * LOG2E * work.d * q * k, _unit(work), sums(work, planned)
    lost = U32 if adds.cores else truncation(cc)
    score = (work.d + 1) / 2 * U32 * work.d * q * k if adds.cores else _score_sum(work, q, k, lost)
    if not _in_range(work, found, top):
        return Shares(math.inf, weights={"out of range": math.inf})
    merges = sum(count + 2 for count in adds.parts if count > 1)
    levels = sum(count > 1 for count in adds.parts)
    exponents = top + 3 * FAR + 2 * min(2 * top, FAR)  # of the LSE of a part, its logarithm, its difference
    shares = Shares(
        v,
        in_pieces=levels > 0,
        weights={
            "scale": 2 * U32 * top * LN2,
            "sum of a score": work.scale * LOG2E * score * LN2,
            "exponent": U32 * (2 * top + 16) * LN2 + (U32 * top * LN2 + EX2_CUBIC if adds.polynomial else EX2),
            "rescaling": 2 * U32 * top * LN2 + EX2 * (adds.moves + 1),
            "combining": levels * (U32 * exponents * LN2 + EX2),
        },
        numerator={"sum of P V": adds.keys * lost + (adds.moves + merges) * U32},
        denominator={
            "sum of P": (adds.keys * lost if adds.ones else (ceil_div(adds.keys, 8) + 3) * U32)
            + (adds.moves + merges) * U32
        },
        tiny={"P below the smallest numbers": work.Nk * (2.0**-126 if adds.cores else _smallest_weight(work))},
        fixed={"division": 4 * U32 * v, "O rounded": _half_ulp(v * (1 + 2 * unit), work)},
    )
    if adds.cores:
        return shares
    if adds.ones:
        shares.weights["P rounded"] = unit * (1 + 2 * unit)
    else:
        shares.fixed["P rounded"] = unit * (1 + 2 * unit) * v
    if work.dtype != BFLOAT16:
        shares.fixed["products of subnormal V"] = 2.0**-34
    return shares


def bound_on_cpu(work: Workload, found: AbsMax) -> float:
    """The bound of the CPU's computation in float32, whose sums a BLAS adds in any order."""
    q, k, v = found
    top = work.scale * LOG2E * work.d * q * k
    if not _in_range(work, found, top):
        return math.inf
    shares = Shares(
        v,
        weights={"scores": (work.d + 6) * U32 * top * LN2 + EXP},
        numerator={"sum of P V": work.Nk * U32},
        denominator={"sum of P": work.Nk * U32},
        tiny={"P below the smallest numbers": work.Nk * 2.0**-126},
        fixed={"division": 4 * U32 * v, "O rounded": _half_ulp(v * (1 + 2 * _unit(work)), work)},
    )
    return shares.total()


def kernel_within(allowed: float, work: Workload, found: AbsMax, props: DeviceProperties, name: str = AUTO) -> str:
    """The kernel that is named, or the first, whose bound is at most what is allowed.

    Raises ValueError, with the least bound, if none keeps it; MachineError if none runs.
    """
    first = kernel16(work, props, name)
    others = (other for other in KERNELS16 if ENTRIES16[other].sequences or not work.sequences)
    candidates = [first, *(other for other in others if name == AUTO and other != first)]
    bounds = {kernel: _bound_of(kernel, work, found, props) for kernel in candidates}
    for kernel, bound in bounds.items():
        if bound <= allowed:
            return kernel
    raise _too_exact(allowed, min(bounds.values()), min(bounds, key=bounds.__getitem__))


def check_on_cpu(allowed: float, work: Workload, found: AbsMax) -> None:
    """Raise ValueError unless the CPU's error stays within what is allowed."""
    bound = bound_on_cpu(work, found)
    if not bound <= allowed:
        raise _too_exact(allowed, bound, "the CPU")


def _too_exact(allowed: float, bound: float, kernel: str) -> ValueError:
    can = "is not bounded for such elements" if bound == math.inf else f"can be as large as {rounded_up(bound)}"
    return ValueError(f"max_error is {allowed:g}, and the error of {kernel} {can}: give float32, or allow more")


def _bound_of(kernel: str, work: Workload, found: AbsMax, props: DeviceProperties) -> float:
    try:
        return bound16(work, found, plan16(work, props, kernel), props.cc)
    except MachineError:
        return math.inf


def _unit(work: Workload) -> float:
    """The largest relative error of a rounding to 16 bits."""
    return 2.0 ** -DIGITS.get(work.dtype, 11)


def _in_range(work: Workload, found: AbsMax, top: float) -> bool:
    """Whether nothing overflows: scores, sums of P V, where P is 2^15 at most, O."""
    q, k, v = found
    largest = LARGEST.get(work.dtype, 65504.0)
    return (
        top < 1e30 and work.d * q * k < 1e38 and v * work.Nk * 2.0**15 < 1e38 and v * (1 + 8 * _unit(work)) <= largest
    )


def _half_ulp(x: float, work: Workload) -> float:
    """The largest error of rounding a number of size up to x to 16 bits."""
    if work.dtype != BFLOAT16 or x == 0:
        return half_ulp16(x)
    return math.ldexp(1.0, max(math.frexp(x)[1] - 1, -126) - 8)


def _smallest_weight(work: Workload) -> float:
    """What a P may lose that is smaller than all normal numbers, beside a largest one of 2^bias."""
    return 2.0**-126 if work.dtype == BFLOAT16 else 2.0 ** (-25 - bias(work)) * ALIGNED


def _score_sum(work: Workload, q: float, k: float, lost: float) -> float:
    """Error of the sum of d products, 16 columns a step; subnormal fp16 numbers are cut off as if they were 2^-14."""
    steps = ceil_div(work.d, 16)
    sizes = (min(16 * step, work.d) * q * k for step in range(1, steps + 1))
    subnormal = 0.0 if work.dtype == BFLOAT16 else work.d * 2.0**-38 * max(q, k)
    return 16 * lost * sum(map(power_below, sizes)) + subnormal
