"""The arithmetic of `split` and `exact` in NumPy, tensor cores included; and inputs made to do the worst."""

from typing import Any

import numpy as np
from secondterms import corrections, fp16, two_terms

from hw4cli.plans.bounds import longest_score
from hw4cli.plans.tensor import V_FACTOR
from hw4cli.problem.terms import QK_FACTOR

BIAS, GROWN = np.float32(7), 15
LOG2E = np.float32(1.44269504088896341)


def power_of_two(x):
    """2^floor(log2 |x|); 0 for 0."""
    mantissa, exponent = np.frexp(np.abs(x))
    return np.where(mantissa == 0, 0.0, np.ldexp(0.5, exponent))


def exponent16(x):
    """2 to the exponent of an fp16 value: 2^-14 for subnormal ones, too."""
    return np.maximum(power_of_two(x), 2.0**-14)


def cut(x, grain):
    """x without what is below a grain, towards zero."""
    return np.trunc(x / np.where(grain == 0, 1, grain)) * grain


def mma(acc, a, b, cc):
    """acc + a bᵀ for fp16 values a (rows, k) and b (cols, k), held in float64, as tensor cores add.

    Blocks of products and the accumulator are aligned with the largest of them and cut, then the sum is cut to 24 bits;
    the exponent of a product is the sum of its factors' (an H100's bits are the same; Fasi, Higham, Mikaitis, Pranesh
    2021; Khattak, Mikaitis 2025).
    """
    block, extra = (16, 2) if cc in (90, 100) else (8, 1)
    for first in range(0, a.shape[1], block):
        left, right = a[:, None, first : first + block], b[None, :, first : first + block]
        addends = np.concatenate([left * right, acc[:, :, None]], axis=2)
        powers = np.where(left * right == 0, 0, exponent16(left) * exponent16(right)).max(axis=2)
        powers = np.maximum(powers, power_of_two(acc))
        grain = powers * 2.0 ** (-23 - extra)
        total = cut(addends, grain[:, :, None]).sum(axis=2)  # exact: 30 bits suffice
        acc = cut(total, power_of_two(total) * 2.0**-23)
    return acc


def split_attention(q, k, v, adds, cc=90, exact=False):
    """O (rows, d) of Q (rows, d) and K, V (N, d) float32; `adds` (Sums) is the order of the additions."""
    d, part = q.shape[1], adds.promotion
    scale, pad = np.float32(np.float32(d**-0.5) * LOG2E), -d % 16
    q, k = (q * np.float32(QK_FACTOR), k * np.float32(QK_FACTOR)) if adds.integers else (q * scale, k)
    q, k = (np.pad(x, ((0, 0), (0, pad))) for x in (q, k))
    shift = past = None
    for n in range(0, len(k), part):
        past_shift = shift
        shift, l, o = _part(q, k[n : n + part], v[n : n + part], adds, cc, exact, shift, d)  # noqa: E741
        if past is not None:
            shrink = np.exp2(shift - past_shift)
            l, o = fma(past[0], shrink, l), fma(past[1], shrink[:, None], o)  # noqa: E741
        past = l, o
    return (o * (np.float32(1) / l)[:, None]).astype(np.float32)


def _part(q, k, v, adds, cc, exact, shift, d):
    """(shift, l, O) of some keys. `shift` is BIAS - m, which the parts hand on; None for the first."""
    (q_hi, q_lo), (k_hi, k_lo) = two_terms(q), two_terms(k)
    small, large = () if adds.integers else ((q_lo, k_hi), (q_hi, k_lo)), ((q_hi, k_hi),)
    unit = np.float32(np.float32(d**-0.5) * np.float32(float(LOG2E) / QK_FACTOR**2))
    factor = np.float32(1 if exact else V_FACTOR)
    v = np.concatenate([v, np.ones((len(v), 1), np.float32)], axis=1) * factor  # and l, in the last column
    begin = shift is None
    if begin:
        shift = np.zeros(len(q), np.float32)
    threads = np.zeros((len(q), 4), np.float32)  # four share a row and the sum of P, unless tensor cores add it
    o = np.zeros((len(q), v.shape[1]))
    for first in range(0, len(k), adds.sub):
        keys = slice(first, first + adds.sub)

        def scores(shift, keys=keys):
            s = np.zeros((len(q), len(k[keys]))) + (0 if adds.small_first else shift[:, None].astype(np.float64))
            if adds.integers:
                s += corrections(q, k[keys])
            for products in (small, large) if adds.small_first else (large + small,):
                for c in range(0, q.shape[1], 16):
                    for a, b in products:
                        s = mma(s, a[:, c : c + 16], b[keys, c : c + 16], cc)
            if adds.integers:
                return fma(s.astype(np.float32), np.broadcast_to(unit, s.shape), shift[:, None])
            return s.astype(np.float32) + (shift[:, None] if adds.small_first else np.float32(0))

        s = scores(shift)
        top = s.max(axis=1)
        if begin or (top > GROWN).any():
            new = shift + (BIAS - top if begin else np.minimum(0, BIAS - top))
            shrink = np.zeros_like(shift) if begin else np.exp2(new - shift)
            begin = False
            s = s + (new - shift)[:, None] if adds.small_first else scores(new)
            shift = new
            threads, o = threads * shrink[:, None], (o.astype(np.float32) * shrink[:, None]).astype(np.float64)
        p = np.exp2(s)
        if exact:
            p_hi, p_lo = two_terms(p)
            v_hi, v_lo = two_terms(v[keys])
            terms = [(p_hi, v_hi), (p_lo, v_hi), (p_hi, v_lo)]
        else:
            terms = [(fp16(p), fp16(v[keys]))]
        for n in range(0, p.shape[1], 16):
            for a, b in terms:
                o = mma(o, a[:, n : n + 16], b[n : n + 16].T, cc)
        padded = np.pad(p, ((0, 0), (0, -p.shape[1] % 8)))
        for n in range(0, padded.shape[1], 8):
            threads += padded[:, n : n + 8 : 2]
            threads += padded[:, n + 1 : n + 8 : 2]
    o = o.astype(np.float32)
    return shift, o[:, -1] if adds.rounded_sum else threads.sum(axis=1, dtype=np.float32) * factor, o[:, :-1]


def fma(x, y, z):
    """x y + z in float32, rounded once (but for what float64 cannot hold of the sum)."""
    return (x.astype(np.float64) * y.astype(np.float64) + z).astype(np.float32)


def flash_attention(q, k, v, part):
    """flash's O: FFMA along d and along the keys, eight threads to a row; a running maximum only where needed."""
    scaled = q * np.float32(np.float32(q.shape[1] ** -0.5) * LOG2E)
    results = []
    for first in range(0, len(k), part):
        keys, values = k[first : first + part], v[first : first + part]
        s = np.zeros((len(q), len(keys)), np.float32)
        for c in range(q.shape[1]):
            s = fma(scaled[:, c, None], keys[None, :, c], s)
        l, o = _flash_sums(exp2(s), values)  # noqa: E741
        m = np.zeros(len(q), np.float32)
        if not ((l >= 2.0**-64) & (l <= 2.0**120) & np.isfinite(o).all(axis=1)).all():
            m = s.max(axis=1)
            l, o = _flash_sums(exp2(s - m[:, None]), values)  # noqa: E741
        exponent = np.frexp(l)[1] - 1
        results.append((m + exponent.astype(np.float32), np.ldexp(l, -exponent), np.ldexp(o, -exponent[:, None])))
    return combine(results)


def _flash_sums(p, v):
    """The sum of P and of P V."""
    sums, o = np.zeros((len(p), 8), np.float32), np.zeros((len(p), v.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(p.shape[1]):
            sums[:, j % 8] += p[:, j]
            o = fma(p[:, j, None], v[None, j], o)
        return sums.sum(axis=1, dtype=np.float32), o


def exp2(x):
    """2^x in float32, without subnormal numbers, as ex2.approx.ftz.f32 has it."""
    with np.errstate(over="ignore", under="ignore"):
        power = np.exp2(x.astype(np.float32))
    return np.where(power < 2.0**-126, np.float32(0), power)


def combine(results):
    """O of all keys from (m, l, O) of each part of them."""
    top = np.max([m for m, _, _ in results], axis=0)
    weights = [exp2(m - top) for m, _, _ in results]
    o: Any = sum((w[:, None] * part for w, (_, _, part) in zip(weights, results, strict=True)), np.float32(0))
    total: Any = sum((w * part for w, (_, part, _) in zip(weights, results, strict=True)), np.float32(0))
    return (o * (np.float32(1) / total)[:, None]).astype(np.float32)


def largest_numbers(block):
    """What kernels find in (n, 3, N, d): of Q and of K the largest |element| and row's sum of squares, each rounded up
    to a multiple of 2^-7; of V the former."""
    q, k, v = np.abs(block).max(axis=(0, 2, 3)).tolist()
    squares = np.ceil(block.astype(np.float64) ** 2 * 2**7).sum(axis=3).max(axis=(0, 2)) / 2**7
    return [q, squares[0], k, squares[1], v]


def uniform(rng, size, reach=3.0):
    return rng.uniform(-reach, reach, size).astype(np.float32)


def midpoints(rng, size, factor=1.0):
    """Values in [2, 3) that, times a factor, lie between two neighbours in fp16, with either sign."""
    whole = np.floor(rng.uniform(2, 3, size) * factor * 2**9) / 2**9
    return (rng.choice([-1, 1], size) * (whole - 2.0**-10) / factor).astype(np.float32)


def opposite(rng, N, d):
    """Two keys of almost the same, largest score, and opposite values: what is wrong with a weight shows in full."""
    q = np.full((2, d), 3, np.float32)
    k = uniform(rng, (N, d)) * np.float32(0.1)
    k[:2] = 3 - rng.uniform(0, 0.01, (2, d))
    v = uniform(rng, (N, d))
    v[0], v[1] = 3 - 2.0**-9 - 2.0**-10, -(3 - 2.0**-9 - 2.0**-10)
    return q, k, v


def low_then_high(rng, N, d):
    """A first tile of the lowest scores there are, then two keys of the highest, with opposite values."""
    q, k, v = opposite(rng, N, d)
    k[2:] = -3
    return q, np.roll(k, 40, axis=0), np.roll(v, 40, axis=0)


def one_and_many(rng, N, d, log2_of_others):
    """One dominant key and many whose weights are tiny: their products vanish beside the accumulator, one by one."""
    q = np.full((2, d), 3, np.float32)
    k = np.full((N, d), 3, np.float32)
    k[1:] *= 1 + log2_of_others / longest_score(3, 3, d)
    v = np.full((N, d), 2.998, np.float32)
    return q, k, v


def spikes(rng, N, d, size=11.0):
    """Large elements, one to a row: norms are small beside what such elements could be together."""
    q, k, v = (uniform(rng, (n, d), reach) for n, reach in ((4, 0.3), (N, 0.3), (N, 3)))
    q[:, 1], k[:, 1] = size, rng.choice([-1, 1], N) * rng.uniform(0.9 * size, size, N)
    k[:2, 1], v[0], v[1] = size, 3 - 2.0**-9 - 2.0**-10, -(3 - 2.0**-9 - 2.0**-10)
    return q, k, v


def parallel(rng, N, d, norm):
    """All rows in one direction, and all as long: every score is as large as the norms allow, with either sign."""
    direction = rng.normal(size=d)
    direction *= norm / np.linalg.norm(direction)
    q, k = np.tile(direction, (2, 1)), rng.choice([-1, 1], (N, 1)) * direction
    return q.astype(np.float32), k.astype(np.float32), uniform(rng, (N, d))


def there_and_back(rng, N, d):
    """Scores whose sums grow over half of the columns, and return to nothing: all keys weigh the same."""
    sign = np.where(np.arange(d) < d // 2, 1, -1)
    q, k = np.full((2, d), 2.9, np.float32), sign * rng.uniform(2.9, 3, (N, d))
    k[:, -1] -= k.sum(axis=1)  # up to rounding
    return q, np.clip(k, -3, 3).astype(np.float32), uniform(rng, (N, d))


def one_long_row(rng, N, d):
    """A row of Q and one of K that are longer than all others together."""
    q, k, v = (uniform(rng, (n, d), reach) for n, reach in ((4, 0.2), (N, 0.2), (N, 3)))
    q[1], k[N // 2] = 3, 3
    return q, k, v


def adversaries(N, d):
    rng = np.random.default_rng(N + d)
    threes = np.full((N, d), 3, np.float32)
    yield "uniform", uniform(rng, (4, d)), uniform(rng, (N, d)), uniform(rng, (N, d))
    yield "all threes", threes[:2], threes, threes
    yield "all minus threes", -threes[:2], -threes, -threes
    yield "threes against minus threes", threes[:2], -threes, threes
    yield "threes of all signs", *(3 * np.sign(uniform(rng, (n, d))) for n in (4, N, N))
    yield "rounding midpoints", midpoints(rng, (4, d)), midpoints(rng, (N, d)), midpoints(rng, (N, d), V_FACTOR)
    yield (
        "V at midpoints, equal scores",
        np.zeros((2, d), np.float32),
        uniform(rng, (N, d)),
        np.abs(midpoints(rng, (N, d), V_FACTOR)),
    )
    yield "two keys, opposite values", *opposite(rng, N, d)
    yield "low scores, then high ones", *low_then_high(rng, N, d)
    yield "spikes", *spikes(rng, N, d)
    yield "parallel rows", *parallel(rng, N, d, 12)
    yield "sums that grow and return to nothing", *there_and_back(rng, N, d)
    yield "one long row", *one_long_row(rng, N, d)
    yield "equal scores", np.zeros((2, d), np.float32), uniform(rng, (N, d)), uniform(rng, (N, d))
    yield "tiny values", *(uniform(rng, (n, d), 10.0**-x) for n, x in ((4, 6), (N, 7), (N, 8)))
    yield "values near fp16's largest", *(uniform(rng, (n, d), x) for n, x in ((4, 1e-4), (N, 6.5e4), (N, 4.9e4)))
    yield "small Q and large K", uniform(rng, (4, d), 1e-3), uniform(rng, (N, d), 3e3), uniform(rng, (N, d))
    for log2 in (-16, -24, -25, -26):
        yield f"one key and many of 2^{log2}", *one_and_many(rng, N, d, log2)


def along_the_keys(N, d):
    """Inputs whose scores, in units of log2, follow a curve along the keys: what partial results must bear."""
    rng = np.random.default_rng(N * d)
    x = np.linspace(0, 1, N, dtype=np.float32)
    curves = {
        "rising to 120 and beyond": 320 * x - 150,
        "falling": 320 * (1 - x) - 150,
        "rising by a little": 60 * x,
        "one late peak": np.where(np.arange(N) == N - 2, 130, 0),
        "an early peak": np.where(np.arange(N) == 1, 130, 0),
        "alternating": np.where(np.arange(N) % 2, 125.5, -125.5),
        "plateaus": 42.5 * np.floor(6 * x) - 60,
        "around 2^126": 126 + 2 * rng.uniform(-1, 1, N),
        "around 2^-126": -126 + 2 * rng.uniform(-1, 1, N),
        "2^119 together, then one of 2^126": np.where(np.arange(N) < N - 1, 119.5 - np.log2(N), 126.5),
        "rising past 2^120": 100 + 28 * x,
        "around 2^-64, then far below": np.where(x < 0.5, -63, -190),
    }
    for name, curve in curves.items():
        q, k, v = (uniform(rng, (n, d)) for n in (4, N, N))
        # The first column holds the curve alone; the others, which differ from row to row, are small beside it.
        q[:, 0], k[:, 0] = 8, curve / 8 * (np.sqrt(d) / LOG2E)
        k[:, 1:] *= np.float32(0.2)
        yield name, q, k.astype(np.float32), v
