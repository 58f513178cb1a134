"""What `hw4 tune` tries: a kernel with each tile that it may have, on files and on arrays; and what became of each."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from hw4cli.device.timing import GpuTimer
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.lab.cases import ArrayCase, FileCase
from hw4cli.lab.contender import Case, Contender
from hw4cli.lab.kernels import ArrayKernel, FileKernel, check_type, named
from hw4cli.plans import gradients as choice
from hw4cli.plans import half
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16, plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DeviceProperties, Pieces, Plan, Tile, Variant, knobs_of
from hw4cli.plans.tensor import policy
from hw4cli.problem.workload import Workload

# What `auto` chooses from, those on tensor cores first: their bounds hold for every tile.
AUTOMATIC = sorted((one for one in VARIANTS if VARIANTS[one].automatic), key=lambda one: VARIANTS[one].pieces is None)
# Tiles of the documents: of the course's best report; of a tutorial on Triton; of one on TileLang.
PRESETS = {
    "report": ((64, 64), (32, 32), (64, 32), (32, 64), (128, 32), (128, 64), (128, 16)),
    "triton": ((64, 64), (128, 64), (64, 128), (128, 128)),
    "tilelang": ((128, 128),),
}
# The same documents' configurations for kernels of 16 bits, which they are of: rows, keys, warps, and stages where the
# document has them. TileLang's 256 threads are two warpgroups beside the one that copies.
PRESETS16 = {
    "triton": ((64, 64, 4, 0), (64, 64, 8, 0), (128, 64, 8, 0), (64, 128, 8, 0), (128, 128, 8, 0)),
    "tilelang": ((128, 128, 8, 2),),
}
SPACES = {name: entry.space for name, entry in ENTRIES16.items() if entry.space}  # of kernels of 16 bits


class Tiled:
    """A kernel with a tile, and macros that have another value than would follow from it."""

    kernel: str
    tile: tuple[int, int]
    knobs: tuple[tuple[str, int], ...]

    @property
    def sizes(self) -> Tile:
        """The tile as macros."""
        return {"BR": self.tile[0], "BC": self.tile[1], **dict(self.knobs)}

    @property
    def name(self) -> str:
        """As a table has it: "flash 128x32 BLOCKS=4"."""
        return named(self.kernel, self.sizes)


@dataclass(frozen=True)
class Candidate(Tiled):
    """What could be taken; `own`: all is as the kernel takes it by itself. `tiling`: of a kernel of 16 bits, as it
    takes it."""

    kernel: str
    tile: tuple[int, int]
    own: bool
    knobs: tuple[tuple[str, int], ...] = ()
    tiling: Any = None

    def row(self, status: str, reason: str = "", **facts: Any) -> "TunedRow":
        """What became of it."""
        return TunedRow(self.kernel, self.tile, self.own, status, reason, **facts, knobs=self.knobs)


@dataclass(frozen=True)
class TunedRow(Tiled):
    """What became of a candidate. Times in milliseconds; low and high bound the median with 95 % confidence. `status`:
    "ok", "dropped" (timed, and clearly slower), "refused" (it cannot start, or is wrong; `reason`), "fits" (without a
    GPU: it could start)."""

    kernel: str
    tile: tuple[int, int]
    own: bool
    status: str
    reason: str = ""
    median: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    knobs: tuple[tuple[str, int], ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON and CSV have it."""
        knobs = " ".join(f"{name}={value}" for name, value in self.knobs)
        return {**asdict(self), "tile": f"{self.tile[0]}x{self.tile[1]}", "knobs": knobs}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "TunedRow":
        """From what `record` made."""
        rows, keys = map(int, record["tile"].split("x"))
        knobs = (word.split("=") for word in record["knobs"].split())
        return cls(**{**record, "tile": (rows, keys), "knobs": tuple((name, int(value)) for name, value in knobs)})


class Space(Protocol):
    """The candidates for one case."""

    @property
    def case(self) -> Case:
        """What they are tried on."""

    def candidates(self, props: DeviceProperties) -> Iterator[Candidate]:
        """Those of a GPU."""

    def plan(self, one: Candidate, props: DeviceProperties) -> Plan:
        """A candidate's launches. Raises MachineError where it cannot start, LookupError and the like for no tile."""

    def contender(self, one: Candidate, timer: GpuTimer) -> Contender:
        """What is checked and timed."""

    def elsewhere(self, reason: str) -> str:
        """Why a candidate cannot start, as it is said of a GPU that is not here."""


# ---- Files


@dataclass(frozen=True)
class FileSpace:
    """Kernels of the ladder, or in users' files: each one's own tile; then it with other values of its knobs, and the
    tiles of its space, or given ones. `quick`: without a space."""

    variants: Sequence[Variant]
    case: FileCase
    tiles: Sequence[Tile] = ()
    quick: bool = False

    def candidates(self, props: DeviceProperties) -> Iterator[Candidate]:
        """Each kernel's own tile comes first."""
        shape, several = self.case.work, len(self.variants) > 1
        for variant in self.variants:
            if several and variant.name in {*AUTOMATIC} - {*automatic(shape, props)}:
                continue
            space = () if self.quick else [sized(*tile) for tile in variant.space]
            with suppress(MachineError):
                chosen = variant.tile(shape, props)
                own = chosen["BR"], chosen["BC"]
                yield Candidate(variant.name, own, own=True)
                if space and not self.tiles:
                    yield from _turned(variant, own, shape, props)
                yield from (_sized_as(variant, tile) for tile in self.tiles or space if tile != sized(*own))

    def plan(self, one: Candidate, props: DeviceProperties) -> Plan:
        """A candidate's launches."""
        variant = next(variant for variant in self.variants if variant.name == one.kernel)
        return variant.plan(self.case.work, props, one.sizes)

    def contender(self, one: Candidate, timer: GpuTimer) -> Contender:
        """What is checked and timed."""
        return FileKernel(timer, one.kernel, self.case, one.sizes)

    def elsewhere(self, reason: str) -> str:
        """Without what the GPU here has."""
        here = r", this GPU (?:has|is) (?:\d+\.\d+|gfx\w+)$"
        return re.sub(here, "", reason).replace("this GPU has", "there are")


def sized(rows: int, keys: int) -> Tile:
    """A tile of so many rows and keys as macros."""
    return {"BR": rows, "BC": keys}


def _sized_as(variant: Variant, tile: Tile) -> Candidate:
    """The kernel with a tile that is not its own."""
    knobs = tuple((name, value) for name, value in tile.items() if name not in ("BR", "BC"))
    return Candidate(variant.name, (tile["BR"], tile["BC"]), own=False, knobs=knobs)


def automatic(shape: Workload, props: DeviceProperties) -> list[str]:
    """What `auto` chooses from: AUTOMATIC, but split8 only where it is not the same as split."""

    def apart(held: Pieces | None) -> bool:
        return held is None or not held.integers or policy(held, shape.N, shape.d, props).integers

    return [name for name in AUTOMATIC if apart(VARIANTS[name].pieces)]


def _turned(variant: Variant, tile: tuple[int, int], shape: Workload, props: DeviceProperties) -> Iterator[Candidate]:
    """A tile with each other value of each knob."""
    with suppress(Hw4Error, ArithmeticError, StopIteration):
        follows = variant.plan(shape, props, {"BR": tile[0], "BC": tile[1]}).macros
        for name, values in variant.knobs(follows).items():
            for value in values:
                if value != follows[name]:
                    yield Candidate(variant.name, tile, own=False, knobs=((name, value),))


# ---- Arrays of 16 bits


@dataclass(frozen=True)
class ArraySpace:
    """A kernel of 16 bits: its own tiling, the same in half's other schedules; then, unless `quick`, those of SPACES,
    or with a `preset` those of a document."""

    kernel: str
    case: ArrayCase
    quick: bool = False
    preset: str = ""

    def candidates(self, props: DeviceProperties) -> Iterator[Candidate]:
        """The kernel's own tiling comes first. Raises MachineError for another element type."""
        kernel, work = self.kernel, self.case.work
        check_type(kernel, work)
        tile = ENTRIES16[kernel].tile
        assert tile is not None  # every kernel with a space has one of its own
        own = tile(work, props)
        if self.preset:
            yield from self._of_a_document(own)
            return
        for tiling in dict.fromkeys((own, *_other_schedules(own), *(() if self.quick else SPACES[kernel]))):
            if isinstance(tiling, half.Tiling) and not _is_for(tiling, work):
                continue
            yield Candidate(kernel, (tiling.rows, tiling.keys), tiling == own, _knobs_of(tiling), tiling)

    def _of_a_document(self, own: Any) -> Iterator[Candidate]:
        """The kernel's own tiling, then those of the preset, each with every further knob of the space; of a
        configuration that the kernel cannot have, one candidate without a tiling."""
        yield Candidate(self.kernel, (own.rows, own.keys), True, _knobs_of(own), own)
        for rows, keys, warps, stages in PRESETS16[self.preset]:
            fitting = [
                one
                for one in SPACES[self.kernel]
                if (one.rows, one.keys, warps_of(one)) == (rows, keys, warps)
                and stages in (0, getattr(one, "stages", 0))
                and not (isinstance(one, half.Tiling) and one.ones)
            ]
            for tiling in fitting:
                if tiling != own:
                    yield Candidate(self.kernel, (rows, keys), False, _knobs_of(tiling), tiling)
            if not fitting:
                knobs = (("warps", warps), *((("stages", stages),) if stages else ()))
                yield Candidate(self.kernel, (rows, keys), False, knobs)

    def plan(self, one: Candidate, props: DeviceProperties) -> Plan:
        """A candidate's launches. Raises MachineError where a block needs more memory than there is, too, and where the
        kernel has no such tiling."""
        if one.tiling is None:
            each = "64 rows for each four warps, two or more times" if self.kernel == half.NAME else "16 rows a warp"
            raise MachineError(f"has {each}: no tiling with these rows and warps")
        plan = plan16(self.case.work, props, one.kernel, one.tiling)
        needed = max(launch.shared for launch in plan.launches)
        if needed > props.shared_limit:
            raise MachineError(f"needs {needed:,} bytes of shared memory a block, there are {props.shared_limit:,}")
        return plan

    def contender(self, one: Candidate, timer: GpuTimer) -> Contender:
        """What is checked and timed."""
        return ArrayKernel(timer, one.kernel, self.case, one.tiling, one.name)

    def elsewhere(self, reason: str) -> str:
        """As it is."""
        return reason


def tiling_of(kernel: str, work: Workload, props: DeviceProperties, tile: Tile) -> Any:
    """The tiling of a kernel of 16 bits with these rows and keys, and what else `tile` says (STAGES, POLYNOMIAL): its
    own one if that is so, else the first of its space. MachineError where none is so."""
    named_work = NamedWorkload("", work)
    for one in ArraySpace(kernel, ArrayCase(named_work)).candidates(props) if kernel in SPACES else ():
        knobs = {"BR": one.tile[0], "BC": one.tile[1], **{name.upper(): value for name, value in one.knobs}}
        unsaid = {name.upper(): int(value) for name, value in getattr(one.tiling, "_field_defaults", {}).items()}
        if all(value == knobs.get(name, unsaid.get(name)) for name, value in tile.items()):
            return one.tiling
    stages = f" with {tile['STAGES']} stages" if "STAGES" in tile else ""
    others = "".join(f", {knob}" for knob in knobs_of(tile) if not knob.startswith("STAGES="))
    raise MachineError(
        f"{kernel} has no tiling of {tile['BR']}x{tile['BC']}{stages}{others}: `hw4 tune {kernel}` lists them"
    )


def plan_of(name: str, work: Workload, props: DeviceProperties, tile: Tile | None = None) -> Plan:
    """The launches of a kernel of arrays for a workload, with a tile of a kernel of 16 bits if one is given. Raises
    MachineError where it does not run."""
    if name in GRADIENTS:
        return choice.plan(work, props, name)
    check_type(name, work)
    return plan16(work, props, name, tiling_of(name, work, props, tile) if tile else None)


def _is_for(tiling: half.Tiling, work: Workload) -> bool:
    """Whether half could be fastest so: ones beside 64 columns, or 128 where scores are changed (halfgroup.cuh);
    another way to take exponentials where the tiling is as usual, and scores are not changed."""
    ones = 32 < work.d <= 64 or (work.score is not None and half.columns(work) == 128)
    weighed = tiling.polynomial or tiling.in_order
    if weighed and (work.score or (tiling.keys == 80) != (work.d > 64) or tiling.ones != ones):
        return False
    return ones or not tiling.ones


def warps_of(tiling: Any) -> int:
    """The warps of a block that multiply."""
    return 4 * tiling.groups if isinstance(tiling, half.Tiling) else int(tiling.warps)


def _other_schedules(own: Any) -> tuple[Any, ...]:
    """half's tiling without turns, without scores ahead, and with O rescaled for every tile of keys."""
    if not isinstance(own, half.Tiling):
        return ()
    return own._replace(turns=False), own._replace(ahead=False, turns=False), own._replace(lazy=False)


def _knobs_of(tiling: Any) -> tuple[tuple[str, int], ...]:
    """All that a tiling says beside its rows and keys; of schedule and exponentials what is not as usual."""
    usual = half.Tiling._field_defaults if isinstance(tiling, half.Tiling) else {}
    return tuple(
        (name, int(value))
        for name, value in tiling._asdict().items()
        if name != "keys" and (name == "ones" or value != usual.get(name))
    )
