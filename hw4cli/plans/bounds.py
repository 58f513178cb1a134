"""How far a kernel's answer can be from the exact one: the bounds that docs/accuracy.md derives, as code.

The input is known by five numbers: the largest |element| of Q, of K and of V, and the largest norm of a row of Q and of
K; or by the first three. Rows with zero columns behind their d (compute/columns.py) have the bounds of d: products
with zeros are exact zeros, and leave all sums and these five numbers as they are. Errors of a score are in units of
log2, as the kernels hold scores; `u` is the unit roundoff, 2^-24 in float32.
"""

import math
from dataclasses import dataclass, field, replace

from hw4cli.plans.common import RESCALE_THRESHOLD, TILED_KEYS, power_below
from hw4cli.plans.flash import CAUSAL_SPLITS
from hw4cli.plans.formulas import MOST_SPLITS, ceil_div
from hw4cli.plans.ladder import DEFAULT, FALLBACK, VARIANTS
from hw4cli.plans.measured import ERRORS
from hw4cli.plans.plan import DEVICES, DeviceProperties, Pieces
from hw4cli.plans.tensor import BIAS, V_FACTOR, Adder, Policy, policy, truncation
from hw4cli.problem.terms import ALIGNED, LARGEST16, U16, U32, InTerms, Terms, by_halves, by_integers, half_ulp16
from hw4cli.problem.workload import AbsMax, Magnitudes

SAFE = 4e-3  # of the tolerance of 5e-3: what is allowed unless the user says less
MARGIN = 1.25  # of a measured error: the largest of ten times as many elements is some 7 % larger
U64 = 2.0**-53
ROUNDED = 1 + 2.0**-15  # a sum of products of up to 256 columns, by how much roundings of 2^-24 can make it larger
EX2, EXP = 2.0**-22, 2.0**-21  # relative, of ex2.approx.ftz.f32, of NumPy's exp
EX2_POLYNOMIAL, EX2_CUBIC = 2.0**-18, 2.0**-13  # of kernels/exponentials.cuh: with what its scaling rounds, but for m
NEAR = 24  # keys whose log2-score is further below a row's largest have next to no weight
GROWN = BIAS + RESCALE_THRESHOLD  # a row's P are at most 2 to this power, but for the errors of its scores
FAR = 64  # splits of the keys whose m is further below the largest have next to no weight: l is 1 to 2^8 N
LN2 = math.log(2)
SMALL_P = "P below fp16's normal numbers"
ON_CPU = "float32"  # the tiled computation of `--device cpu`; all other names are kernels of the ladder
ON_TENSOR_CORES = {name for name, entry in VARIANTS.items() if entry.on_tensor_cores}
PROPORTION = SAFE * 2 / 3  # of V, that the error of fp16 may be
PROVEN = {*(name for name, entry in VARIANTS.items() if entry.proven), ON_CPU}  # the other rungs' sums are estimated
TYPICAL = Magnitudes(3.0, 3.0, 3.0)  # the assignment's range
LARGEST_N = 32768  # of the assignment
SMALLEST = 1e-30  # results below it, float32's subnormal numbers among them, may become 0


@dataclass
class Shares:
    """Each rounding's size, by what its error does to O. `total` puts them together (docs/accuracy.md, step 1).

    weights: relative error of one weight against another. numerator, denominator: of the sum over keys of P V, of P,
    relative to the largest that a partial sum can be (or, if they are added in several pieces, these together).
    one_sided: of the numerator, where sums are cut off, which is towards zero. tiny: what all weights lose together,
    relative to their sum. fixed: of O itself, absolute.
    """

    v: float
    in_pieces: bool = False
    weights: dict[str, float] = field(default_factory=dict)
    numerator: dict[str, float] = field(default_factory=dict)
    one_sided: dict[str, float] = field(default_factory=dict)
    denominator: dict[str, float] = field(default_factory=dict)
    tiny: dict[str, float] = field(default_factory=dict)
    fixed: dict[str, float] = field(default_factory=dict)

    def parts(self) -> dict[str, float]:
        """What each rounding adds to the bound, where O = y·|V| is as bad as it can be."""
        every = self.weights, self.numerator, self.one_sided, self.denominator, self.tiny
        h, n, sided, l, t = (sum(x.values()) for x in every)  # noqa: E741
        if not h < 1 or not n + sided < 0.5 or not l < 0.5:
            return {"out of range": math.inf}
        growth = math.expm1(h) * math.exp(h) / h if h else 1.0  # 1 + 3h/2 + ...
        after = math.exp(2 * h)  # of weights that have errors already
        slope = l + t * after + sided / 2 + (0 if self.in_pieces else n / 2)
        y = min(1.0, slope / (2 * h * growth)) if h else 1.0
        second = (1 + 2 * l) * (1 + 2 * (n + sided)) * (1 + 2 * t)  # products of two errors
        scale = self.v * second
        partial = 1.0 if self.in_pieces else (1 + y) / 2
        return {
            **{name: x * growth * (1 - y * y) * scale for name, x in self.weights.items()},
            **{name: x * partial * scale for name, x in self.numerator.items()},
            **{name: x * (1 + y) / 2 * scale for name, x in self.one_sided.items()},
            **{name: x * y * scale for name, x in self.denominator.items()},
            **{name: x * after * (1 + y) * scale for name, x in self.tiny.items()},
            **{name: x * second for name, x in self.fixed.items()},
        }

    def total(self) -> float:
        """The bound for |O - exact|."""
        return sum(self.parts().values())


def bound(kernel: str, found: Magnitudes | AbsMax, d: int, N: int, props: DeviceProperties = DEVICES[90]) -> float:
    """The bound for |O - exact| of a kernel, for Q, K and V as large as `found`; inf where it has none, NaN included.

    Proven for PROVEN; in the other rungs' bounds the sums over keys are an estimate.
    The GPU matters to what tensor cores add: how they do it, and in which order the kernel has them do it.
    """
    if not has_bound(kernel) or not Magnitudes(*found).finite:
        return math.inf
    return shares(kernel, found, d, N, props).total() + (kernel != FALLBACK) * min(SMALLEST, found[2])


def has_bound(kernel: str) -> bool:
    """Whether anything is known of a kernel's error: not of a user's file, nor of a rung without a longest sum."""
    return kernel in PROVEN or (kernel in VARIANTS and VARIANTS[kernel].longest_sum(LARGEST_N) > 0)


def expected(kernel: str, found: Magnitudes | AbsMax, d: int, N: int, props: DeviceProperties = DEVICES[90]) -> float:
    """The error to expect: the bound, but for float32's many small roundings, up and down, what was measured.

    That is `measured` and a margin, in proportion to the scores, to V and to longer sums.
    """
    proven = bound(kernel, found, d, N, props)
    entry = VARIANTS.get(kernel)
    if entry and (entry.doubles or (entry.pieces and entry.pieces.terms == 1)):
        return proven
    here, usual = Scores.of(Magnitudes(*found), d), Scores.of(uniform(d), d)
    scores = max(1.0, min(here.by_elements / usual.by_elements, here.largest / usual.largest))
    return min(proven, MARGIN * measured(kernel, d) * scores * found[2] / TYPICAL.v * max(1.0, N / LARGEST_N))


def measured(kernel: str, d: int) -> float:
    """The largest error of a kernel in the records of the next larger head size, for the assignment's range.

    Where no record has one so large, that of the largest, in proportion to the bound; inf where there is no record.
    The CPU, which has none, is taken for as exact as flash.
    """
    errors = ERRORS.get(DEFAULT if kernel == ON_CPU else kernel, {})
    if not errors:
        return math.inf
    size = min((size for size in errors if size >= d), default=max(errors))
    growth = bound(kernel, TYPICAL, d, LARGEST_N) / bound(kernel, TYPICAL, size, LARGEST_N) if d > size else 1.0
    return errors[size] * growth


def suffices(kernel: str, found: Magnitudes | AbsMax, d: int, N: int, props: DeviceProperties, allowed: float) -> bool:
    """Whether a kernel may answer: its bound holds for SAFE, its expected error for less than that.

    fp16 has no small numbers: where V is so small that this shows, the tensor cores are not asked, though they may.
    """
    proven = bound(kernel, found, d, N, props)
    if not proven <= max(allowed, SAFE) or proven == math.inf:
        return False
    if kernel in ON_TENSOR_CORES and proven > PROPORTION * found[2]:
        return False
    return expected(kernel, found, d, N, props) <= allowed


def shares(kernel: str, values: Magnitudes | AbsMax, d: int, N: int, props: DeviceProperties = DEVICES[90]) -> Shares:
    """Every rounding of a kernel, and its size."""
    found = Magnitudes(*values)
    entry = VARIANTS.get(kernel)
    if entry and entry.doubles:
        return _float64(found, d, N)
    if entry and entry.pieces and entry.proven:
        return _split(entry.pieces, found, d, N, props)
    return _float32(kernel, found, d, N)


def longest_score(q: float, k: float, d: int) -> float:
    """The largest |score| that elements of Q and K allow, in units of log2: d·|Q|·|K|·log2(e)/sqrt(d)."""
    return math.sqrt(d) * q * k / LN2


@dataclass(frozen=True)
class Scores:
    """How large the scores of rows of d columns can be, and their sums on the way, in units of log2.

    The sum over some of the columns is at most as many times the largest product of two elements; and no more than the
    product of the two rows' norms, by Cauchy and Schwarz, whichever columns they are.
    """

    d: int
    by_elements: float
    largest: float

    @classmethod
    def of(cls, found: Magnitudes, d: int) -> "Scores":
        """What the largest elements and norms allow, the roundings on the way included."""
        q_norm, k_norm = found.norms(d)
        by_elements = longest_score(found.q, found.k, d) * ROUNDED
        return cls(d, by_elements, min(by_elements, q_norm * k_norm / math.sqrt(d) / LN2 * ROUNDED))

    def after(self, columns: int) -> float:
        """The largest |sum| over so many columns."""
        return min(self.by_elements * min(columns, self.d) / self.d, self.largest)


def uniform(d: int) -> Magnitudes:
    """What to expect of the assignment's data: a row's sum of squares is 3 d ± 2.7 sqrt(d), and six times that is more
    than any of a billion rows has."""
    norm = math.sqrt(min(9.0 * d, 3 * d + 6 * math.sqrt(7.2 * d)))
    return TYPICAL._replace(q_norm=norm, k_norm=norm)


def _float32(kernel: str, found: Magnitudes, d: int, N: int) -> Shares:
    """FFMA everywhere, and the online softmax. The rungs before flash: with an estimate in place of proven sums."""
    scores, v = Scores.of(found, d), found.v
    top = scores.largest
    if not (scores.by_elements < 1e30 and v * N * 2.0**8 < 1e38):  # P is 2^8 at most
        return Shares(math.inf, weights={"overflow": math.inf})
    n = TILED_KEYS + ceil_div(N, TILED_KEYS) if kernel == ON_CPU else VARIANTS[kernel].longest_sum(N)
    entry = VARIANTS.get(kernel)
    proven = kernel in PROVEN
    power = EXP if kernel == ON_CPU else EX2
    shares = Shares(
        v,
        in_pieces=n < N,
        weights={
            "Q scaled": 4 * U32 * top * LN2,
            "sum of a score": U32 * sum(map(scores.after, range(1, d + 1))) * LN2,
            **({"Q and K rounded to fp16": _rounded16(found, d)} if entry and entry.rounded else {}),
            "exponent": 2 * U32 * top * LN2 + power,
            "rescaling": (2 * U32 * top * LN2 + power * ceil_div(n, 16)) if proven else 0.0,
            # flash adds the exponent of l to m, where |m| <= top; then the splits' m are subtracted.
            "combining": (U32 * (top + FAR + min(2 * top, FAR)) * LN2 + power) if entry and entry.splits_keys else 0.0,
        },
        fixed={"combining, division": (2 * CAUSAL_SPLITS + 8) * U32 * v},  # O and l of each split; the rest of a row
    )
    if proven:
        # flash: eight threads share the sum of P; and each rescaling rounds both sums once more.
        shares.numerator["sum of P V"] = (n + ceil_div(n, 16)) * U32
        shares.denominator["sum of P"] = ((n if kernel == ON_CPU else ceil_div(n, 8) + 3) + ceil_div(n, 16)) * U32
    else:
        shares.fixed["sums (estimate)"] = n / 4 * U32 * v
    return shares


def _rounded16(found: Magnitudes, d: int) -> float:
    """The error of a score, natural, whose Q and K were rounded to fp16: what two terms would hold is lost."""
    if not max(found.q, found.k) <= LARGEST16:
        return math.inf
    q, k = (Terms.of(x, norm, d) for x, norm in zip((found.q, found.k), found.norms(d), strict=True))
    q_error, k_error = q.second + q.rest, k.second + k.rest
    return (q_error * k.norm + q.norm * k_error + q_error * k_error) / math.sqrt(d)


def _split(held: Pieces, found: Magnitudes, d: int, N: int, props: DeviceProperties) -> Shares:
    """Tensor cores: Q and K split in hi and lo fp16, three products; P and V in one fp16, or (exact) split, too."""
    v, rounded_v = found.v, held.terms == 1
    scaled_v = v * V_FACTOR * (1 + U32) if rounded_v else v
    scores = Scores.of(found, d)
    top = scores.largest
    adds = policy(held, N, d, props)
    terms = (by_integers if adds.integers else by_halves)(found, d)
    if terms is None or not scaled_v <= LARGEST16:
        return Shares(math.inf, weights={"beyond fp16": math.inf})
    n = min(N, adds.promotion + adds.late)
    moves, pieces = ceil_div(n, adds.sub), ceil_div(N, adds.promotion)
    sum_of_score = _small_first(scores, terms, props.cc) if adds.small_first else _together(scores, props.cc)
    power = EX2_POLYNOMIAL if adds.polynomial else EX2
    shares = Shares(
        v,
        in_pieces=pieces > 1 or adds.shared,  # equal splits of the keys are short enough to count as one
        weights={
            "Q scaled": terms.scaled * U32 * top * LN2,
            "Q and K in two terms": terms.left_out * LN2,
            "sum of a score": sum_of_score * LN2,
            "exponent": U32 * (power_below(2 * top + BIAS) + GROWN + 1) * LN2 + power,
            "rescaling": U32 * (RESCALE_THRESHOLD + 1) * LN2 + EX2 * (moves + (pieces + 1) / 2),
        },
        tiny={
            # P below fp16's smallest normal number: an error of 2^-25 each, beside a sum of 2^BIAS at least.
            SMALL_P: N * 2.0 ** (-25 - BIAS) * ALIGNED,
            "distance to the largest": _by_distance((terms.common + 3) * U32, top, N),
        },
        fixed={"division": 4 * U32 * v},
    )
    if not adds.small_first:
        # Keys whose score is NEAR below the largest may have a larger error: their sums need not come back to 0.
        far = 3 * d * truncation(props.cc) * (3 * top + NEAR) * LN2
        shares.fixed["keys far below"] = 2 * v * N * 2.0**-NEAR * math.expm1(far) if far < 1 else math.inf
    _add_sums(shares, adds, n, moves, (pieces + MOST_SPLITS) * U32, props.cc, 1 if rounded_v else 3)
    if not rounded_v:
        shares.fixed["P in two terms"] = U16**2 * v
        shares.fixed["V in two terms"] = half_ulp16(half_ulp16(v)) * ALIGNED + U16 * half_ulp16(v)  # and lo lo
        return shares
    shares.fixed["V rounded"] = half_ulp16(scaled_v) / V_FACTOR + U32 * v
    rounded = U16 * (1 + 2 * U16)
    if adds.rounded_sum:
        shares.weights["P rounded"] = rounded
    else:
        shares.fixed["P rounded"] = rounded * v
    return _worse_of_two(shares) if adds.rounded_sum and adds.small_first else shares


def _add_sums(shares: Shares, adds: Policy, n: int, moves: int, merges: float, cc: int, products: int) -> None:
    """The sums of P and of P V, of n keys each, with so many products a key; `merges`: what adding the pieces, one by
    one, and then the splits, rounds."""
    adder = Adder.of(cc)
    by_float32 = (ceil_div(n, 4) + moves + 3) * U32
    shares.denominator["sum of P"] = (n * truncation(cc) + moves * U32 if adds.rounded_sum else by_float32) + merges
    shares.numerator["products P V"] = products * n * adder.grain + moves * U32 + merges
    shares.one_sided["sums of P V"] = products * n * 2 * U32 / adder.block


def _by_distance(error: float, top: float, N: int) -> float:
    """What weights lose together, relative to their sum, where the error of a score is as many times its distance to
    the largest one. The mean of the distances by the weights is no more than the weights' entropy, log2(N)."""
    return error * math.log2(N) * LN2 * math.exp(min(1.0, error * 2 * top))


def _worse_of_two(shares: Shares) -> Shares:
    """A row that loses by P below fp16's normal numbers has its weight on keys with a P of 2^BIAS, which P's rounding
    leaves as they are, but for their exponent's error. So it is that loss, or the rounding of P."""
    weights, tiny = shares.weights, shares.tiny
    loss = tiny[SMALL_P] + 2 * weights["exponent"]
    return max(
        replace(shares, tiny={**tiny, SMALL_P: 0.0}),
        replace(shares, weights={**weights, "P rounded": weights["P rounded"] / 2}, tiny={**tiny, SMALL_P: loss}),
        key=Shares.total,
    )


def _together(scores: Scores, cc: int) -> float:
    """Error of a score whose sum starts at BIAS - m and takes three products a column, 16 columns a step.

    The sum ends within NEAR - BIAS of 0: before, it is no further from there than the columns that are still to come
    can move it.
    """
    sizes = (scores.after(last) * (1 + 2 * U16) + NEAR - BIAS for last in _ends(scores.d))
    return 48 * truncation(cc) * sum(map(power_below, sizes))


def _small_first(scores: Scores, terms: InTerms, cc: int) -> float:
    """Error of a score whose sum starts at 0, with the products with a lo: these add up to 2^-10 of the score at most.

    Then come the other products, a block at a time, beside what was added before and the products with a lo of the
    columns that are still to come. Each loses up to a grain, and the block's sum its last bits. But a product with a
    subnormal number is aligned as one with 2^-14: `largest` is that of Q's and of K's elements. And no product loses
    more than what a grain is above the `grid` (docs/accuracy.md).
    """
    d, unit, adder = scores.d, terms.unit, Adder.of(cc)
    subnormal = 2.0**-14 * terms.largest * (1 + 2 * U16)

    def sum_after(columns: int) -> float:
        with_lo = min(2 * U16 * scores.largest / unit, (d - columns) * terms.with_lo)
        return scores.after(columns) / unit + max(with_lo, subnormal) + terms.left_out / unit

    product = scores.after(1) / unit * (1 + 2 * U16)
    beside = above = cut = 0.0
    for first in range(0, d, adder.block):
        columns = min(adder.block, d - first)
        grain = adder.grain * power_below(max(sum_after(first), product))
        beside, above = beside + columns * grain, above + columns * max(0.0, grain - terms.grid)
        cut += 2 * U32 * power_below(sum_after(first + columns))
    before = 0.0 if terms.grid else 2 * len(_ends(d)) * 16 * truncation(cc) * sum_after(0)  # integers lose nothing
    return unit * (min(beside, above + terms.spare) + cut + before)


def _ends(d: int) -> range:
    """The columns up to the end of each step of 16."""
    return range(16, d + 16, 16)


def _float64(found: Magnitudes, d: int, N: int) -> Shares:
    """Double, rounded to float32 at the end; where even double's scores are worthless, O is still between the Vs."""
    v, scores = found.v, U64 * (d + 8) * Scores.of(found, d).largest * LN2
    fixed = {"O rounded": U32 * v, "sums": 4 * N * U64 * v, "float32's smallest numbers": 2.0**-149}
    return Shares(v, fixed={**fixed, "scores": min(2.0, 2 * scores) * v})
