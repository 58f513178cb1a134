"""The kernels: one entry each, and the arithmetic that turns an entry and a shape into a launch. No GPU is touched.

An entry's name is its file kernels/NAME.cu, the prefix of its symbols, and the value of --kernel.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hw4cli.errors import MachineError
from hw4cli.shape import Shape

SHARED_DEFAULT = 48 << 10  # what any block may use without asking for more
MAX_THREADS = 1024
MAX_BLOCKS = 2**31 - 1

# Bytes of shared memory that a block may use, by compute capability (CUDA programming guide, table 30).
SHARED_LIMITS = {
    61: 48 << 10,
    75: 64 << 10,
    80: 163 << 10,
    86: 99 << 10,
    89: 99 << 10,
    90: 227 << 10,
    100: 227 << 10,
    120: 99 << 10,
}


@dataclass(frozen=True)
class Chip:
    """What a launch depends on: compute capability (90 for 9.0), multiprocessors, shared bytes a block may use."""

    cc: int
    sms: int
    shared_limit: int


@dataclass(frozen=True)
class Launch:
    """One kernel launch: symbol, blocks (one-dimensional), threads a block, dynamic shared bytes."""

    symbol: str
    grid: int
    block: int
    shared: int


@dataclass(frozen=True)
class Plan:
    """How a variant computes a shape on a chip: macros to compile with, launches in order, scratch bytes."""

    variant: str
    macros: Mapping[str, int]
    launches: tuple[Launch, ...]
    scratch: int = 0
    splits: int = 1

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler's options for the macros."""
        return tuple(f"-D{name}={value}" for name, value in self.macros.items())


Tile = Mapping[str, int]  # the macros that size a kernel: BR, BC, THREADS and what else it declares


@dataclass(frozen=True)
class Variant:
    """A kernel as data. The callables are its formulas; `blocks` gives, in launch order, symbol and block count."""

    name: str
    idea: str
    error_bound: float  # largest error on the assignment's inputs, elements in [-3, 3)
    tile: Callable[[int, Chip], Tile]  # the best tile for a head size on a chip, without THREADS
    threads: Callable[[Tile], int]
    shared: Callable[[int, Tile], int]  # bytes a block
    blocks: Callable[[Shape, Tile, int], dict[str, int]]
    scratch: Callable[[Shape, Tile, int], int] = lambda shape, tile, splits: 0
    splits: Callable[[Shape, Tile, Chip], int] = lambda shape, tile, chip: 1

    def plan(self, shape: Shape, chip: Chip, tile: Tile | None = None) -> Plan:
        """The launches for a shape on a chip, with macros of `tile` (BR and BC, say) in place of the best ones.

        Raises MachineError if the chip cannot start such a launch.
        """
        chosen = {**self.tile(shape.d, chip), **(tile or {})}
        threads = self.threads(chosen)
        shared, splits = self.shared(shape.d, chosen), self.splits(shape, chosen, chip)
        what = f"kernel {self.name} with tiles of {chosen['BR']}x{chosen['BC']} at d={shape.d}"
        if shared > chip.shared_limit:
            raise MachineError(
                f"{what} needs {shared:,} bytes of shared memory a block, this GPU has {chip.shared_limit:,}"
            )
        if not 32 <= threads <= MAX_THREADS:
            raise MachineError(f"{what} would need {threads} threads a block, GPUs have 32 to {MAX_THREADS}")
        launches = tuple(
            Launch(symbol, grid, threads, shared) for symbol, grid in self.blocks(shape, chosen, splits).items()
        )
        if max(launch.grid for launch in launches) > MAX_BLOCKS:
            raise MachineError(f"{what} would need more than {MAX_BLOCKS:,} blocks for (B, N, d) = {shape}")
        macros = {"D": shape.d, **chosen, "THREADS": threads}
        return Plan(self.name, macros, launches, self.scratch(shape, chosen, splits), splits)


def ceil_div(a: int, b: int) -> int:
    """The quotient a/b, rounded up."""
    return -(-a // b)


def row_blocks(symbol: str) -> Callable[[Shape, Tile, int], dict[str, int]]:
    """One launch, a block for every BR rows of every batch."""
    return lambda shape, tile, splits: {symbol: shape.B * ceil_div(shape.N, tile["BR"])}


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            "flash",
            "register micro-tiles, swizzled shared memory, asynchronous copies",
            error_bound=2e-5,
            tile=lambda d, chip: {"BR": 128, "BC": 32, "STAGES": 2},
            threads=lambda tile: tile["BR"],
            shared=lambda d, tile: 0,
            blocks=row_blocks("flash"),
        ),
        Variant(
            "float64",
            "everything in double: the oracle, and the fallback where scores leave float32's range",
            error_bound=1e-6,
            tile=lambda d, chip: {"BR": 32, "BC": 16},
            threads=lambda tile: 4 * tile["BR"],
            shared=lambda d, tile: 2 * 8 * tile["BC"] * d,
            blocks=row_blocks("float64"),
        ),
    )
}
DEFAULT = "flash"
FALLBACK = "float64"


def float32_suffices(magnitudes: tuple[float, float, float], d: int) -> bool:
    """Whether float32 scores keep the answer well inside the tolerance, for |Q|, |K|, |V| up to `magnitudes`.

    A score is at most sqrt(d)·|Q|·|K|, and its rounding error about 2^-24·sqrt(d) of that (the errors of d products
    add up like a random walk); an error e in every score moves O by at most 2·e·|V|. 4e-3 of the tolerance of 5e-3
    may be used up. Scores that overflow are caught by the same bound, sums of V by the second condition.
    """
    q, k, v = magnitudes
    score_error = d * q * k * 2.0**-24
    return 2 * score_error * v <= 4e-3 and v < 1e30
