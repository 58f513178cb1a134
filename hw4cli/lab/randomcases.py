"""Random legal inputs to test kernels with: a seed and a number always give the same kernel, shape and data."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli.errors import InputError
from hw4cli.plans.bounds import LN2, ON_CPU, PROVEN
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.problem.suite import uniform
from hw4cli.problem.workload import MAX_D, Workload

MOST_B, MOST_N, MOST_BYTES = 600, 40001, 1_000_000_000
FAST = PROVEN - {
    FALLBACK
}  # the kernels that `--kernel auto` takes for nearly all files: drawn more often, and with larger shapes
FAST_SHARE = 8  # how much more often
# The largest B·N² by device and kernel: some seconds of work.
WORK = {
    "cuda": {name: 20_000_000_000 if name in FAST else 2_000_000_000 for name in VARIANTS} | {"paper": 200_000_000},
    "cpu": {ON_CPU: 30_000_000, FALLBACK: 30_000_000},
}


@dataclass(frozen=True)
class RandomCase:
    """A kernel, and the shape, the kind and the seed of its data."""

    kernel: str
    shape: Workload
    kind: str
    data_seed: int
    command: str = ""  # repeats exactly this case

    def __str__(self) -> str:
        return f"{self.kernel} on {self.shape}, {self.kind}"

    def block(self) -> Floats:
        """The input (B, 3, N, d), the same at every call."""
        values, filled = np.empty(3 * self.shape.elements, FLOAT32), 0
        for chunk in uniform(self.data_seed, len(values)):
            values[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
        block = values.reshape(self.shape.B, 3, self.shape.N, self.shape.d)
        KINDS[self.kind](Random(self.data_seed), block)
        return block


def on_shape(shape: Workload, seed: int, device: str, kernel: str | None = None) -> list[RandomCase]:
    """Each kind of data on one shape, for a kernel or for all of a device, smallest seeds first.

    Raises InputError if the device has no such kernel.
    """
    work = WORK[device]
    if kernel is not None and kernel not in work:
        raise InputError(f"--device {device} has no kernel {kernel!r}: choose from {', '.join(work)}")
    where = "" if device == "cuda" else f" --device {device}"
    sizes = ",".join(map(str, shape.sizes))
    return [
        RandomCase(name, shape, kind, seed, f"hw4 selftest {name} {sizes} --seed {seed}{where}")
        for name in ([kernel] if kernel else work)
        for kind in KINDS
    ]


def draw(seed: int, number: int, device: str = "cuda", kernel: str | None = None) -> RandomCase:
    """Case `number` of a seed on "cuda" or "cpu", by this kernel or a random one.

    Raises InputError if the device has no such kernel.
    """
    work = WORK[device]
    if kernel is not None and kernel not in work:
        raise InputError(f"--device {device} has no kernel {kernel!r}: choose from {', '.join(work)}")
    rng = Random(f"{seed}:{number}")
    drawn = rng.choices(list(work), [FAST_SHARE if name in FAST else 1 for name in work])[0]
    kernel = kernel or drawn
    shape, kind = _shape(rng, work[kernel]), rng.choice(list(KINDS))
    where = "" if device == "cuda" else f" --device {device}"
    command = f"hw4 selftest {kernel} --seed {seed} --number {number}{where}"
    return RandomCase(kernel, shape, kind, rng.getrandbits(63), command)


def _shape(rng: Random, most: int) -> Workload:
    """A legal shape with B·N² up to `most`: of any order of magnitude, most of them small enough to be quick.

    Half of all d are 32, 64 or 128. N is a multiple of a random power of two, or one more or less. Few batches are
    more likely than many: then kernels cut the keys into parts.
    """
    d = rng.choice((32, 64, 128)) if rng.random() < 0.5 else rng.randint(1, MAX_D)
    work = int(most ** rng.uniform(0.5, 1))
    longest = min(MOST_N, isqrt(work))
    N = int(longest ** rng.random() ** 0.3)
    step = 1 << rng.randrange(N.bit_length())
    N = min(max(N // step * step + rng.choice((-1, 0, 0, 1)), 1), longest)
    batches = min(MOST_B, work // N**2, MOST_BYTES // Workload.one_head(1, N, d).input_bytes)
    return Workload.one_head(int(batches ** rng.random() ** 2), N, d)


# The kinds of data: each function changes a block of values that are uniform in [-3, 3).
Kind = Callable[[Random, Floats], object]
Profile = Callable[[Random, int], NDArray[Any]]  # a height in [0, 1] for each of N keys


def _one_dominant_key(rng: Random, block: Floats) -> None:
    scores = _noise(block, 4)
    scores[rng.randrange(len(scores))] = rng.uniform(10, 200)
    _set_scores(rng, block, scores)


def _huge_v(rng: Random, block: Floats) -> None:
    block[:, 2] *= 10 ** rng.uniform(2, 25)


def _tiny(rng: Random, block: Floats) -> None:
    for part in range(3):
        block[:, part] *= 10 ** -rng.uniform(3, 40)


def _equal(rng: Random, block: Floats) -> None:
    for part in range(3):
        block[:, part] = rng.uniform(-3, 3)


def _zeros_and_threes(rng: Random, block: Floats) -> None:
    """All weights are equal and O is 3, unless a key behind the end gets a weight."""
    block[:, 0], block[:, 2] = 0, 3


def _every_second_batch(rng: Random, block: Floats) -> None:
    block[1::2] *= rng.choice((0.01, 0.1, 10))


def _edge(rng: Random, block: Floats) -> None:
    """Peaks of different heights about where exp2 leaves float32, 2^±126, and where flash begins to need a running
    maximum, 2^120 and 2^-64."""
    top = rng.choice((-126, -64, 120, 126)) + rng.uniform(-8, 8)
    scores = top - 60 + _noise(block, 30)
    for _ in range(16):
        scores[rng.randrange(len(scores))] = top - rng.uniform(0, 16)
    _set_scores(rng, block, scores)


def _scores_along(profile: Profile) -> Kind:
    """The scores of all queries follow a profile along the keys, up to hundreds: above 0, below or around."""

    def scores_along(rng: Random, block: Floats) -> None:
        _set_scores(rng, block, rng.uniform(20, 250) * (profile(rng, block.shape[2]) - rng.choice((0, 0.5, 1))))

    return scores_along


def _spread_along(profile: Profile) -> Kind:
    """Scores are of both signs, and how large they are follows a profile along the keys."""

    def spread_along(rng: Random, block: Floats) -> None:
        heights = profile(rng, block.shape[2]) * rng.uniform(2, 12)
        block[:, 1] *= heights[:, None].astype(FLOAT32)

    return spread_along


def _ups_and_downs(rng: Random, N: int) -> NDArray[Any]:
    return np.arange(N) // rng.choice((1, 16, 32, 64, 128, 1024)) % 2


def _plateaus(rng: Random, N: int) -> NDArray[Any]:
    levels = rng.randint(2, 9)
    return np.arange(N) * levels // N / (levels - 1)


def _noise(block: Floats, reach: float) -> Floats:
    """A number in [-reach, reach) for each key, taken from V: so the weights go with V, and show in O."""
    return block[0, 2, :, 0] * np.float32(reach / 3)


def _set_scores(rng: Random, block: Floats, scores: NDArray[Any]) -> None:
    """Make the scores of each query about these, one for each key, in units of log2; times a factor that grows with the
    row, so that a fault at one height only shows in some row."""
    N, reach = len(scores), rng.choice((0, 0.03, 0.1, 0.5))
    rows, size = np.linspace(1 - reach, 1 + reach, N), scores * (LN2 / (3 * block.shape[3] ** 0.5))
    for part, middle, factor in ((0, 3, rows), (1, 1, size)):
        block[:, part] *= 0.01
        block[:, part] += middle
        block[:, part] *= factor[:, None].astype(FLOAT32)


PROFILES: dict[str, Profile] = {
    "a rise": lambda rng, N: np.arange(1, N + 1) / N,
    "a fall": lambda rng, N: np.arange(N, 0, -1) / N,
    "a late peak": lambda rng, N: np.arange(N) == N - 1,
    "ups and downs": _ups_and_downs,
    "plateaus": _plateaus,
}
KINDS: dict[str, Kind] = {
    "uniform": lambda rng, block: None,
    "threes": lambda rng, block: np.copysign(3, block, out=block),
    "times 10": lambda rng, block: np.multiply(block, 10, out=block),
    "times 1000": lambda rng, block: np.multiply(block, 1000, out=block),
    "one dominant key": _one_dominant_key,
    "huge V": _huge_v,
    "tiny values": _tiny,
    "equal values": _equal,
    "zeros in Q, threes in V": _zeros_and_threes,
    "every second batch scaled": _every_second_batch,
    "scores at the edge of float32": _edge,
    **{f"{name} in scores": _scores_along(profile) for name, profile in PROFILES.items()},
    **{f"{name} in the spread of scores": _spread_along(profile) for name, profile in PROFILES.items()},
}
