"""How far a kernel's answer can be from the exact one: the bounds that docs/accuracy.md derives, as code.

The input is known by three numbers, the largest |element| of Q, of K and of V. Errors of a score are in units of log2,
as the kernels hold scores; `u` is the unit roundoff, 2^-24 in float32.
"""

import math
from dataclasses import dataclass, field

from hw4cli.compute.common import TILED_KEYS
from hw4cli.compute.formulas import MOST_SPLITS, ceil_div
from hw4cli.compute.measured import ERRORS
from hw4cli.compute.plan import DEVICES, DeviceProperties
from hw4cli.compute.tensor import BIAS, V_FACTOR, policy
from hw4cli.compute.variants import VARIANTS
from hw4cli.problem.shape import AbsMax

SAFE = 4e-3  # of the tolerance of 5e-3: what is allowed unless the user says less
MARGIN = 1.25  # of a measured error: the largest of ten times as many elements is some 7 % larger
U32, U16, U64 = 2.0**-24, 2.0**-11, 2.0**-53
EX2, EXP = 2.0**-22, 2.0**-21  # relative errors of ex2.approx.ftz.f32 (2 units in the last place), NumPy's exp (2.6)
LARGEST16 = 65504.0  # of fp16
NEAR = 24  # keys whose log2-score is further below a row's largest have next to no weight
FAR = 64  # splits of the keys whose m is further below the largest have next to no weight: l is 1 to 2^8 N
LN2 = math.log(2)
ALIGNED = 1 + 2.0**-12  # sums of subnormal fp16 numbers: tensor cores align each as 2^-14, and lose 2^-39 of its factor
ON_CPU = "float32"  # the tiled computation of `--device cpu`; all other names are kernels of the ladder
ON_TENSOR_CORES = {"split", "exact"}
PROPORTION = SAFE * 2 / 3  # of V, that the error of fp16 may be
PROVEN = {"split", "exact", "flash", "float64", ON_CPU}  # the other rungs' sums are estimated
TYPICAL = (3.0, 3.0, 3.0)  # the assignment's range
LARGEST_N = 32768  # of the assignment


@dataclass
class Shares:
    """Each rounding's size, by what its error does to O. `total` puts them together (docs/accuracy.md, step 1).

    weights: relative error of one weight against another. numerator, denominator: of the sum over keys of P V, of P,
    relative to the largest that a partial sum can be (or, if they are added in several pieces, these together). tiny:
    what all weights lose together, relative to their sum. fixed: of O itself, absolute.
    """

    v: float
    in_pieces: bool = False
    weights: dict[str, float] = field(default_factory=dict)
    numerator: dict[str, float] = field(default_factory=dict)
    denominator: dict[str, float] = field(default_factory=dict)
    tiny: dict[str, float] = field(default_factory=dict)
    fixed: dict[str, float] = field(default_factory=dict)

    def parts(self) -> dict[str, float]:
        """What each rounding adds to the bound, where O = y·|V| is as bad as it can be."""
        h, n, l = (sum(x.values()) for x in (self.weights, self.numerator, self.denominator))  # noqa: E741
        if not h < 1 or not n < 0.5 or not l < 0.5:
            return {"out of range": math.inf}
        growth = math.expm1(h) * math.exp(h) / h if h else 1.0  # 1 + 3h/2 + ...
        slope = l + sum(self.tiny.values()) + (0 if self.in_pieces else n / 2)
        y = min(1.0, slope / (2 * h * growth)) if h else 1.0
        second = (1 + 2 * l) * (1 + 2 * n)  # products of two errors
        scale = self.v * second
        partial = 1.0 if self.in_pieces else (1 + y) / 2
        return {
            **{name: x * growth * (1 - y * y) * scale for name, x in self.weights.items()},
            **{name: x * partial * scale for name, x in self.numerator.items()},
            **{name: x * y * scale for name, x in self.denominator.items()},
            **{name: x * (1 + y) * scale for name, x in self.tiny.items()},
            **{name: x * second for name, x in self.fixed.items()},
        }

    def total(self) -> float:
        """The bound for |O - exact|."""
        return sum(self.parts().values())


def bound(kernel: str, found: AbsMax, d: int, N: int, props: DeviceProperties = DEVICES[90]) -> float:
    """The bound for |O - exact| of a kernel, for |Q|, |K|, |V| up to `found`; inf where it has none, NaN included.

    Proven for PROVEN; in the other rungs' bounds the sums over keys are an estimate.
    The GPU matters to what tensor cores add: how they do it, and in which order the kernel has them do it.
    """
    if not has_bound(kernel) or not all(map(math.isfinite, found)):
        return math.inf
    return shares(kernel, found, d, N, props).total()


def has_bound(kernel: str) -> bool:
    """Whether anything is known of a kernel's error: not of a file of one's own, nor of a rung that gives no lengths of
    its sums."""
    return kernel in PROVEN or (kernel in VARIANTS and VARIANTS[kernel].longest_sum(LARGEST_N) > 0)


def expected(kernel: str, found: AbsMax, d: int, N: int, props: DeviceProperties = DEVICES[90]) -> float:
    """The error to expect: the bound, but for float32's many small roundings, up and down, what was measured.

    That is `measured` and a margin, in proportion to the scores, to V and to longer sums.
    """
    proven = bound(kernel, found, d, N, props)
    if kernel in ("split", "float64"):
        return proven
    q, k, v = found
    scores = max(1.0, q * k / (TYPICAL[0] * TYPICAL[1]))
    return min(proven, MARGIN * measured(kernel, d) * scores * v / TYPICAL[2] * max(1.0, N / LARGEST_N))


def measured(kernel: str, d: int) -> float:
    """The largest error of a kernel in the records of the next larger head size, for the assignment's range.

    Where no record has one so large, that of the largest, in proportion to the bound; inf where there is no record.
    The CPU, which has none, is taken for as exact as flash.
    """
    errors = ERRORS.get("flash" if kernel == ON_CPU else kernel, {})
    if not errors:
        return math.inf
    size = min((size for size in errors if size >= d), default=max(errors))
    growth = bound(kernel, TYPICAL, d, LARGEST_N) / bound(kernel, TYPICAL, size, LARGEST_N) if d > size else 1.0
    return errors[size] * growth


def suffices(kernel: str, found: AbsMax, d: int, N: int, props: DeviceProperties, allowed: float) -> bool:
    """Whether a kernel may answer: its bound holds for SAFE, its expected error for less than that.

    fp16 has no small numbers: where V is so small that this shows, the tensor cores are not asked, though they may.
    """
    proven = bound(kernel, found, d, N, props)
    if not proven <= max(allowed, SAFE) or proven == math.inf:
        return False
    if kernel in ON_TENSOR_CORES and proven > PROPORTION * found[2]:
        return False
    return expected(kernel, found, d, N, props) <= allowed


def shares(kernel: str, found: AbsMax, d: int, N: int, props: DeviceProperties = DEVICES[90]) -> Shares:
    """Every rounding of a kernel, and its size."""
    if kernel == "float64":
        return _float64(found, d, N)
    if kernel in ON_TENSOR_CORES:
        return _split(kernel, found, d, N, props)
    return _float32(kernel, found, d, N)


def longest_score(q: float, k: float, d: int) -> float:
    """The largest |score| that Q and K can have, in units of log2: d·|Q|·|K|·log2(e)/sqrt(d)."""
    return math.sqrt(d) * q * k / LN2


def half_ulp16(x: float) -> float:
    """The largest error of rounding a value of size up to x to fp16."""
    if x == 0:
        return 0.0
    mantissa, exponent = math.frexp(x)  # x = mantissa·2^exponent, 0.5 <= mantissa < 1
    if mantissa == 0.5:  # a power of two is exact: what is below it counts
        exponent -= 1
    return math.ldexp(1.0, max(exponent - 1, -14) - 11)


def _float32(kernel: str, found: AbsMax, d: int, N: int) -> Shares:
    """FFMA everywhere, and the online softmax. The rungs before flash: with an estimate in place of proven sums."""
    q, k, v = found
    top = longest_score(q, k, d)
    if not (top < 1e30 and v * N * 2.0**8 < 1e38):  # P is 2^8 at most
        return Shares(math.inf, weights={"overflow": math.inf})
    n = TILED_KEYS + ceil_div(N, TILED_KEYS) if kernel == ON_CPU else VARIANTS[kernel].longest_sum(N)
    proven = kernel in PROVEN
    power = EXP if kernel == ON_CPU else EX2
    shares = Shares(
        v,
        in_pieces=n < N,
        weights={
            "Q scaled": 4 * U32 * top * LN2,
            "sum of a score": (d + 1) / 2 * U32 * top * LN2,
            "exponent": 2 * U32 * top * LN2 + power,
            "rescaling": (2 * U32 * top * LN2 + power * ceil_div(n, 16)) if proven else 0.0,
            # flash adds the exponent of l to m, where |m| <= top; then the splits' m are subtracted.
            "combining": (U32 * (top + FAR + min(2 * top, FAR)) * LN2 + power) if kernel == "flash" else 0.0,
        },
        fixed={"combining, division": 4 * MOST_SPLITS * U32 * v},
    )
    if proven:
        # flash: eight threads share the sum of P; and each rescaling rounds both sums once more.
        shares.numerator["sum of P V"] = (n + ceil_div(n, 16)) * U32
        shares.denominator["sum of P"] = ((n if kernel == ON_CPU else ceil_div(n, 8) + 3) + ceil_div(n, 16)) * U32
    else:
        shares.fixed["sums (estimate)"] = n / 4 * U32 * v
    return shares


def _split(kernel: str, found: AbsMax, d: int, N: int, props: DeviceProperties) -> Shares:
    """Tensor cores: Q and K split in hi and lo fp16, three products; P and V in one fp16, or (exact) split, too."""
    q, k, v = found
    x = q / (LN2 * math.sqrt(d)) * (1 + 4 * U32)  # the scaled Q
    scaled_v = v * V_FACTOR * (1 + U32) if kernel == "split" else v
    if not max(x, k, scaled_v) <= LARGEST16:
        return Shares(math.inf, weights={"beyond fp16": math.inf})
    top = longest_score(q, k, d) * (1 + 4 * U32)
    adds, lost = policy(kernel, N, d, props), truncation(props.cc)
    n = min(N, adds.promotion)
    moves = ceil_div(n, adds.sub)
    pieces = ceil_div(N, n)
    merges = (pieces + MOST_SPLITS) * U32  # pieces are added one by one, then splits
    rest_x, rest_k, rest_v = (_hi_lo(size) for size in (x, k, v))
    dropped = half_ulp16(x) * half_ulp16(k)
    shares = Shares(
        v,
        in_pieces=pieces > 1,
        weights={
            "Q scaled": 4 * U32 * top * LN2,
            "Q and K in two terms": d * (rest_x * k + x * rest_k + rest_x * rest_k + dropped) * LN2,
            "sum of a score": (_small_first if adds.small_first else _together)(top, d, lost) * LN2,
            "exponent": 2 * U32 * (top + 16) * LN2 + EX2,
            "rescaling": 2 * U32 * top * LN2 + EX2 * (moves + pieces + 1),
            "combining": U32 * min(2 * top, FAR) * LN2,
        },
        # P below fp16's smallest normal number: an error of 2^-25 each, beside a sum of 2^BIAS at least.
        tiny={"P below fp16's normal numbers": N * 2.0 ** (-25 - BIAS) * ALIGNED},
        fixed={"division": 4 * U32 * v},
    )
    if not adds.small_first:
        # Keys whose score is NEAR below the largest may have a larger error: their sums need not come back to 0.
        far = 3 * d * lost * (3 * top + NEAR) * LN2
        shares.fixed["keys far below"] = 2 * v * N * 2.0**-NEAR * math.expm1(far) if far < 1 else math.inf
    by_float32 = (ceil_div(n, 4) + moves + 3) * U32
    shares.denominator["sum of P"] = (n * lost + moves * U32 if adds.rounded_sum else by_float32) + merges
    if kernel == "split":
        if adds.rounded_sum:
            shares.weights["P rounded"] = U16 * (1 + 2 * U16)
        else:
            shares.fixed["P rounded"] = U16 * (1 + 2 * U16) * v
        shares.fixed["V rounded"] = half_ulp16(scaled_v) / V_FACTOR + U32 * v
        shares.numerator["sum of P V"] = n * lost + moves * U32 + merges
    else:
        shares.fixed["P in two terms"] = U16**2 * v
        shares.fixed["V in two terms"] = rest_v + U16 * half_ulp16(v)  # and the product lo lo
        shares.numerator["sum of P V"] = 3 * n * lost + moves * U32 + merges
    return shares


def _hi_lo(x: float) -> float:
    """What is left of a value of size up to x after two fp16 terms, and what sums of subnormal second terms lose."""
    return half_ulp16(half_ulp16(x)) * ALIGNED


def truncation(cc: int) -> float:
    """What a tensor core may lose for each product that it adds, relative to the largest partial sum.

    Products are exact. They and the accumulator are aligned with the largest of them and cut off `extra` bits beyond
    float32's 24; then the block's sum is cut off to 24 bits. (Fasi, Higham, Mikaitis, Pranesh 2021; Khattak, Mikaitis
    2025: blocks of 8 and one extra bit on sm_80, 16 and two on sm_90 and sm_100; before, as a V100's, of 4 and none.)
    """
    block, extra = (16, 2) if cc in (90, 100) else (8, 1) if cc >= 80 else (4, 0)
    return 2.0 ** (-23 - extra) + 2.0**-23 / block


def _together(top: float, d: int, lost: float) -> float:
    """Error of a score whose sum starts at BIAS - m and takes three products a column, 16 columns a step.

    The sum ends within NEAR - BIAS of 0, and a step moves it by top/steps at most: that is how large it can be before.
    """
    steps = ceil_div(d, 16)
    sizes = (top * (1 + 2 * U16) * step / steps + NEAR - BIAS for step in range(1, steps + 1))
    return 48 * lost * sum(map(power_below, sizes))


def _small_first(top: float, d: int, lost: float) -> float:
    """Error of a score whose sum starts at 0, with the products with a lo: these add up to top·2^-10 at most."""
    steps, small = ceil_div(d, 16), 2.0 * U16 * top
    sizes = (top * step / steps + small for step in range(1, steps + 1))
    return 16 * lost * (sum(map(power_below, sizes)) + 2 * steps * small)


def power_below(x: float) -> float:
    """The power of two at or below x."""
    return math.ldexp(0.5, math.frexp(x)[1]) if x else 0.0


def _float64(found: AbsMax, d: int, N: int) -> Shares:
    """Double, rounded to float32 at the end; where even double's scores are worthless, O is still between the Vs."""
    q, k, v = found
    scores = U64 * (d + 8) * longest_score(q, k, d) * LN2
    fixed = {"O rounded": U32 * v, "sums": 4 * N * U64 * v, "float32's smallest numbers": 2.0**-149}
    return Shares(v, fixed={**fixed, "scores": min(2.0, 2 * scores) * v})
