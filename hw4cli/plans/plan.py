"""How a kernel is launched: what that depends on, and the data that a kernel gives. No GPU is touched."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from hw4cli.errors import MachineError
from hw4cli.problem.scores import Score
from hw4cli.problem.workload import FLOAT32, MAX_D, Workload

SHARED_DEFAULT = 48 << 10  # what any block may use without asking for more
MAX_THREADS = 1024
MAX_BLOCKS = 2**31 - 1
STAGED_AT = 256  # bytes, a multiple of which begins what is staged


@dataclass(frozen=True)
class DeviceProperties:
    """What a launch depends on: compute capability (90 for 9.0), multiprocessors, and shared memory in bytes:
    what a block may use, and what a multiprocessor has for all its blocks; and whether warpgroups multiply there
    (wgmma).

    A GPU of AMD's has an architecture such as gfx90a instead of a compute capability, which is 0: it has none of what
    NVIDIA's GPUs gained over the years."""

    cc: int
    sms: int
    shared_limit: int
    shared_sm: int
    warpgroups: bool = False
    gfx: str = ""

    @property
    def architecture(self) -> str:
        """The architecture in words."""
        return self.gfx or f"compute capability {self.cc / 10:.1f}"

    @property
    def vendor(self) -> str:
        """Who makes the GPU."""
        return "AMD" if self.gfx else "NVIDIA"

    @property
    def lanes(self) -> int:
        """Threads of a warp; AMD calls it a wavefront: 64 threads on GPUs for data centres (gfx9), 32 from gfx10 on."""
        return 64 if re.fullmatch(r"gfx9\w\w", self.gfx) else 32

    @property
    def shared_reserved(self) -> int:
        """Bytes that the system takes of each block's share."""
        return 1024 if self.cc >= 80 else 0


# A GPU of each compute capability (CUDA programming guide, table of technical specifications), for planning
# where there is no GPU.
DEVICES = {
    cc: DeviceProperties(cc, sms, block << 10, multiprocessor << 10, warpgroups=cc == 90)
    for cc, sms, block, multiprocessor in (
        (61, 20, 48, 96),
        (75, 40, 64, 64),
        (80, 108, 163, 164),
        (86, 82, 99, 100),
        (89, 128, 99, 100),
        (90, 132, 227, 228),
        (100, 148, 227, 228),
        (120, 170, 99, 100),
    )
}

# The same of AMD's: MI210, MI100, Radeon RX 6900 XT. All have 64 KB of shared memory (LDS) for a block, of which HIP's
# __syncthreads_or takes some.
HIP_VOTES = 256
AMD_DEVICES = {
    gfx: DeviceProperties(0, units, (64 << 10) - HIP_VOTES, per_unit << 10, gfx=gfx)
    for gfx, units, per_unit in (("gfx90a", 104, 64), ("gfx908", 120, 64), ("gfx1030", 40, 128))
}


class Launch(NamedTuple):
    """One kernel launch: symbol, blocks (one-dimensional), threads a block, dynamic shared bytes.

    early: where the GPU can, it begins before the launch in front of it has ended, for which the kernel waits itself
    (griddep_wait)."""

    symbol: str
    grid: int
    block: int
    shared: int
    early: bool = False


class Scratch(NamedTuple):
    """Device memory that a plan needs beside the arrays, in bytes, and where its parts begin. absmax begins at 0."""

    size: int = 0
    tiles: int = 0
    row_stats: int = 0
    partial_o: int = 0
    sequences: int = 0  # where a plan's table of sequences goes
    staged: int | None = None  # where Q, K, V and O have copies whose rows kernels can load (compute/columns.py)


NO_SCRATCH = Scratch()


@dataclass(frozen=True)
class Plan:
    """How a variant computes a shape on a GPU: macros to compile with, launches in order, scratch memory."""

    variant: str
    macros: Mapping[str, int]
    launches: tuple[Launch, ...]
    layout: Scratch = NO_SCRATCH
    splits: int = 1
    finds_absmax: bool = False
    main_symbol: str = ""  # of the launch that does the work, where that is not the variant's name
    cut: tuple[int, ...] = ()  # how work is cut into parts, as the launches' argument says it
    table: bytes = b""  # what stands at layout.sequences before the launches begin
    file: str = ""  # kernels/FILE.cu, where that is not the variant's name
    score: Score | None = None  # what is done with scores, for which `macros` say SCORED

    @property
    def source(self) -> str:
        """The kernel's file: kernels/SOURCE.cu, or PATH.cu of the user's own."""
        return self.file or self.variant

    @property
    def scratch(self) -> int:
        """Bytes of scratch."""
        return self.layout.size

    @property
    def d(self) -> int:
        """The columns of the rows that the kernels load and store."""
        return self.macros["D"]

    @cached_property
    def defines(self) -> Mapping[str, int | str]:
        """The macros, and the texts of what is done with scores."""
        return {**self.macros, **(self.score.texts if self.score else {})}

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The compiler's options for the macros."""
        own = ("-arch=sm_90a",) if self.macros.get("WARPGROUPS") else ()  # wgmma is of this one architecture alone
        return (*own, *(f"-D{name}={value}" for name, value in self.defines.items()))

    @property
    def main(self) -> int:
        """Which launch does the work that figures of registers and occupancy are about: the one with the variant's own
        name, not one that converts for it or adds up after it; else the first."""
        symbol = self.main_symbol or self.variant
        return next((i for i, launch in enumerate(self.launches) if launch.symbol == symbol), 0)


def one_split(shape: Workload, tile: "Tile", props: DeviceProperties) -> int:
    """The keys are not split."""
    return 1


Tile = Mapping[str, int]  # the macros that size a kernel: BR, BC, THREADS and what else it declares


def knobs_of(tile: Tile) -> list[str]:
    """What a tile says beside its rows and keys: "BLOCKS=4"."""
    return [f"{name}={value}" for name, value in tile.items() if name not in ("BR", "BC")]


Regions = Callable[[int, Tile], Mapping[str, int]]  # of d and a tile: the parts of shared memory in order, in bytes


def total(regions: Regions) -> Callable[[int, Tile], int]:
    """The formula for the bytes of a block's shared memory that goes with the one for its parts."""
    return lambda d, tile: sum(regions(d, tile).values())


# An entry is there once: it equals itself alone, and needs no text. So it is made in a third of the time.
@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """What an entry of the registry (registry.py) says of a kernel, of whatever family."""

    name: str  # its file kernels/NAME.cu, what its symbols' names begin with, and the value of --kernel
    idea: str
    _: KW_ONLY
    strategies: tuple[str, ...] = ()  # files kernels/NAME.cu of other strategies, which its plans name
    # In pictures, on light paper and on dark, with a contrast of 4.5 to 1 as text; None: the next that is free.
    colour: tuple[str, str] | None = None
    types: tuple[str, ...] = (FLOAT32,)  # of the elements that it takes
    lse: bool = False  # gives each row's log of the sum of exp(score), where that is wanted
    persistent: bool = False  # its blocks stay, and take task after task: any number of them computes the same
    stamps: bool = False  # its code can say what it does when (`hw4 profile --set timeline`)
    windows: bool = False  # computes windows of keys
    widest: int = MAX_D  # columns of a row that it computes at most
    values: bool = False  # V may have another number of columns than Q and K
    scores: bool = False  # computes what is done with scores before the softmax
    score_gradients: bool = False  # and their gradients

    def check_takes(self, work: Workload) -> None:
        """Raise MachineError if a workload has a window of keys, or scores of its own, and the kernel computes none, or
        wider rows."""
        if work.window and not self.windows:
            raise MachineError(f"kernel {self.name} computes no windows of keys")
        if work.dv and not self.values:
            raise MachineError(f"kernel {self.name} computes V of as many columns as Q has, not {work.dv} and {work.d}")
        if work.d > self.widest:
            raise MachineError(f"kernel {self.name} computes d up to {self.widest}, and this is d={work.d}")
        if not self.takes_scores(work):
            raise MachineError(f"kernel {self.name} computes no {'gradients of ' * self.scores}scores of one's own")

    def takes_scores(self, work: Workload) -> bool:
        """Whether it does with scores what the workload asks for."""
        return not work.score or (self.score_gradients if work.score.gradient else self.scores)


def mask_macros(work: Workload) -> dict[str, int]:
    """What kernels are compiled with, beside CAUSAL, for a window of keys (kernels/mask.cuh) and for scores of one's
    own (kernels/score.cuh)."""
    return {**({"WINDOW": 1} if work.window else {}), **(work.score.numbers if work.score else {})}


def sequence_macros(work: Workload) -> dict[str, int]:
    """What kernels are compiled with where sequences of several lengths are computed (kernels/spans.cuh)."""
    return {"SEQUENCES": 1} if work.sequences else {}


class Pieces(NamedTuple):
    """How a kernel holds P and V for the tensor cores."""

    terms: int  # fp16 numbers for an element: 1 (hi), or 2 (hi and lo)
    integers: bool = False  # the products of a score with a second term may be of 8-bit integers


# ---- What a launch moves and computes: work.py has what formulas share

SECTION = 16  # batches: SECTION of kernels/schedule.cuh
Bytes = tuple[int, int]  # read, written
DRAM, L2, SHARED, FFMA, DFMA, EXP2, TENSOR = "DRAM", "L2", "shared memory", "FFMA", "DFMA", "exp2", "tensor cores"
# What amounts are counted in: elements of the block's rows of Q or O; of a tile's rows of K or V; scores of the block's
# rows with a tile's keys, or with all keys; rows; elements of a whole padded tile; and rows of K or V once for each
# block that computes some of the rows' O.
UNITS = ("rows*d", "keys*d", "rows*keys", "rows*N", "rows", "tile", "keys*d*blocks")
DEVICE, REGISTERS, STAGE = "device", "registers", "stage"  # places beside the named parts of shared memory
ONE, SPLIT = "one", "split"  # whether a block takes all keys


class Move(NamedTuple):
    """Bytes between device memory and the block: `what` goes `to` a part of shared memory, to registers, or to device
    memory; bytes a unit; of the tile so many `ahead`. STAGE is the part whose number is the tile's, modulo all."""

    what: str
    to: str
    amount: Mapping[str, int]
    ahead: int = 0


class Step(NamedTuple):
    """A step of a block in which moves begin: once, or again for each of its `tiles` of keys; and `only` where the keys
    are, or are not, split."""

    name: str
    moves: tuple[Move, ...]
    tiles: bool = False
    only: str = ""


Digits = tuple[tuple[int, int], ...]
SAME_THREAD = 0  # a stride: these neighbours are one thread's


class Digitwise(NamedTuple):
    """Who holds an element. A row's number and a column's, read as digits from the lowest, each of (how many values,
    stride in threads): an element is that thread's whose number is the sum of digits times strides. So are the `copies`
    threads, `apart` from each other, that hold the same element, or a part of its sum."""

    rows: Digits
    columns: Digits
    copies: int = 1
    apart: int = 0


class Linear(NamedTuple):
    """Element after element, row by row of `width`: one for each thread, then again from the first."""

    width: int


Layouts = tuple[Digitwise | Linear, Digitwise | Linear]  # who holds S, and who holds O


class Visit(NamedTuple):
    """A task: whose keys it visits (the number of a batch or a head), from the first on, up to before the last; the
    bytes that it alone reads, and that it writes at its end. `rows`: the number of rows that are several visits' task,
    each some keys of it; `adds`: it reads what the visit before left of them."""

    keys_of: int
    first: int
    last: int
    reads: int
    writes: int
    rows: int | None = None
    adds: bool = False


class Visits(NamedTuple):
    """Tasks in the order in which they begin on so many places, with bytes a key: each when another has ended, or
    `in_rounds`, every so many tasks. `footprint`: the bytes that a key takes in the L2 cache, if not those of what is
    read there by many. `scattered`: blocks at a time are at many places of several matrices. Of what comes again, a
    share is also written again."""

    visits: Sequence[Visit]
    slots: int
    key_bytes: int
    in_rounds: bool = False
    footprint: float | None = None
    scattered: bool = False
    written: tuple[int, int] = (0, 1)


class Passes(NamedTuple):
    """Bytes that are read again after so many others were touched, pass by pass; the rest as in Visits."""

    read: Sequence[tuple[int, int]]
    scattered: bool = False
    written: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class LaunchModel:
    """What one launch moves and computes: bytes read and written of device memory and of the L2 cache (None: not
    known), bytes of shared memory that threads read and write, and that tensor cores read, FLOPs on CUDA cores (of
    float32, of float64) or on tensor cores as tiles are computed, exponentials by special units, and tiles of BR x BC
    scores that are computed."""

    symbol: str
    dram: Bytes
    l2: Bytes | None = None
    shared: int | None = None
    operands: int = 0
    ffma_flops: int = 0
    tensor_flops: int = 0
    exponentials: int = 0
    tiles: int = 0
    dfma_flops: int = 0
    int8_operations: int = 0  # of tensor cores, on integers of 8 bits: twice as fast as FLOPs of fp16
    # What comes from DRAM again if the L2 cache is small, where a multiprocessor holds so many blocks.
    again: Callable[[int], Visits | Passes] | None = field(default=None, compare=False, repr=False)

    @property
    def l2_hits(self) -> float | None:
        """Of what is read from the L2 cache and written there, the share that does not come from DRAM first; None where
        the bytes are not known. A profiler counts fewer hits where blocks side by side ask for a line that is still on
        its way."""
        asked = sum(self.l2) if self.l2 else 0
        return max(0.0, 1 - self.dram[0] / asked) if asked else None

    @property
    def amounts(self) -> dict[str, float | None]:
        """What is asked of each resource of a GPU."""
        return {
            DRAM: sum(self.dram),
            L2: sum(self.l2) if self.l2 else None,
            SHARED: (self.shared or 0) + self.operands,
            FFMA: self.ffma_flops,
            DFMA: self.dfma_flops,
            TENSOR: self.tensor_flops + self.int8_operations / 2,
            EXP2: self.exponentials,
        }


class Block(NamedTuple):
    """What a rung's blocks do, by its macros; of a kernel in a user's file nothing is known."""

    steps: Callable[[Tile], tuple[Step, ...]] | None = None  # which bring and take what
    walk: str = ""  # the text that the stepper shows beside the steps (lab/stepper/work.py); "": it does not show them
    owns: Callable[[Tile], Layouts] | None = None  # which thread holds which scores and elements of O
    # Whole accesses of shared memory by its warps (work.py): of a block once, and for each tile of keys.
    accesses: Callable[[Tile], tuple[int, int]] | None = None
    # Of a score, for so many columns: operations in float32 on CUDA cores, on tensor cores, in float64.
    products: Callable[[int], tuple[int, int, int]] = lambda columns: (4 * columns, 0, 0)
    exponentials: tuple[int, int] = (1, 0)  # of a score; of a row and a tile, for the factor of what was added up
    section: int = SECTION  # with a mask: of so many batches the longest blocks start first
    scattered: bool = False  # rows of O are written number by number, each of which leaves as a sector
    known_on_amd: bool = False  # shared memory is read in the same way there


NOTHING_KNOWN = Block()
ONE_CORE = 6e7  # operations that a kernel executed on one core of a CPU does a second, at least


@dataclass(frozen=True, eq=False, repr=False)
class Variant(Kernel):
    """A kernel of the ladder, in float32. The callables are its formulas; `launches` gets shape, tile, splits and
    shared bytes."""

    _: KW_ONLY
    error_bound: float  # what its tests allow, on any shape, for elements in [-3, 3)
    tile: Callable[[Workload, DeviceProperties], Tile]  # the best BR and BC for a shape on a GPU
    derived: Callable[[Workload, Tile, DeviceProperties], Tile]  # the macros that follow: THREADS and more
    regions: Regions  # the parts of a block's shared memory
    launches: Callable[[Workload, Tile, int, int], tuple[Launch, ...]]
    longest_sum: Callable[[int], int] = lambda N: 0  # float32 kernels: how many terms are added one by one, of N keys
    scratch: Callable[[Workload, Tile, int], Scratch] = lambda shape, tile, splits: NO_SCRATCH
    splits: Callable[[Workload, Tile, DeviceProperties], int] = one_split
    finds_absmax: bool = False  # it leaves what `launch.magnitudes` reads at the start of its scratch
    own_scale: bool = False  # it computes the scale itself, and must know of how many columns: macro SCALED
    least_cc: int = 0  # the least compute capability that it needs
    main_symbol: str = ""  # of the launch that does the work, where that is not the variant's name
    # Of a tile with all that follows: the file of the strategy that it is for, of a kernel with more than one.
    file: Callable[[Tile], str] | None = None
    space: tuple[tuple[int, int], ...] = ()  # tiles, (BR, BC), that `hw4 tune` tries
    # Of its own tile with all that follows: macros of which `hw4 tune` tries other values, one at a time.
    knobs: Callable[[Tile], Mapping[str, tuple[int, ...]]] = lambda tile: {}
    # What is known of its error (bounds.py): the bound is proven, and not an estimate; how tensor cores multiply; Q and
    # K are rounded to fp16; all is in float64; and its bound holds for scores of any scale, not of 1/sqrt(d) alone.
    proven: bool = False
    pieces: Pieces | None = None
    rounded: bool = False
    doubles: bool = False
    any_scale: bool = True
    automatic: bool = False  # `auto` may choose it, and `hw4 tune` times it: its bound holds for every tile
    native: bool = False  # the native program has it (native.py)
    # How a program of one file launches it (kernels/host/launch_NAME.cuh); "": it cannot stand alone.
    alone: str = ""
    block: Block = NOTHING_KNOWN
    # What each launch of a plan moves and computes, of rows that kernels can load.
    work: Callable[[Block, Plan, Workload, DeviceProperties], list[LaunchModel]]
    emulated: float = ONE_CORE  # operations, 4·B·N²·d in all, that one core of a CPU executes a second

    def shared(self, d: int, tile: Tile) -> int:
        """Bytes of a block's shared memory."""
        return total(self.regions)(d, tile)

    def like(self, name: str, idea: str, symbol: Callable[[str], str] | None = None, **changes: Any) -> "Variant":
        """Another kernel that is launched as this one is, but for `changes`, which replace fields of the entry.

        Its symbols are this one's, renamed by `symbol`: by default, its name stands where this one's stood. It has one
        file: of a kernel with several strategies, it takes the plans that are for this one's own file.
        """
        renamed = symbol or (lambda old: name + old.removeprefix(self.name))

        def launches(shape: Workload, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
            steps = self.launches(shape, tile, splits, shared)
            return tuple(step._replace(symbol=renamed(step.symbol)) for step in steps)

        main = renamed(self.main_symbol or self.name)
        own = {field.name: field.default for field in fields(self) if field.name in OF_ONE_KERNEL}
        made = {**own, "name": name, "idea": idea, "launches": launches, "main_symbol": main, **changes}
        return replace(self, **made)

    def models(self, plan: Plan, shape: Workload, props: DeviceProperties) -> list[LaunchModel]:
        """What each launch of a plan moves and computes. Rows are those that kernels load, zero columns included; to
        copy others to such rows is no launch of the plan."""
        return self.work(self.block, plan, shape.stored, props)

    @property
    def on_tensor_cores(self) -> bool:
        """Whether fp16 numbers are multiplied, which have no small ones."""
        return self.pieces is not None or self.rounded

    @property
    def splits_keys(self) -> bool:
        """Whether it can split the keys."""
        return self.splits is not one_split

    def fits(self, shape: Workload, props: DeviceProperties) -> bool:
        """Whether a GPU can start its launches for a shape."""
        try:
            return bool(self.plan(shape, props).launches)
        except MachineError:
            return False

    def plan(self, shape: Workload, props: DeviceProperties, tile: Tile | None = None, copies: bool = True) -> Plan:
        """The launches for a shape on a GPU, with the BR and BC of `tile` in place of the best ones, and what else it
        holds in place of what would follow from these.

        Where kernels cannot load rows of d columns, the scratch has room for copies of all matrices, which get zero
        columns (compute/columns.py); without `copies`, the caller's rows have them.

        Raises MachineError if the props cannot start such a launch.
        """
        if props.cc < self.least_cc:
            raise MachineError(
                f"kernel {self.name} needs compute capability {self.least_cc / 10}, "
                f"this GPU {'is' if props.gfx else 'has'} {props.gfx or props.cc / 10}"
            )
        if self.file is None and props.warpgroups:  # whose files are others
            props = replace(props, warpgroups=False)
        self.check_takes(shape)
        true_d, shape = shape.d, shape.stored
        given = tile or self.tile(shape, props)
        follows = self.derived(shape, given, props)
        for name in given:
            if name not in ("BR", "BC") and not (tile is None or name in follows or name in self.tile(shape, props)):
                raise MachineError(f"kernel {self.name} has no {name} that could be another")
        chosen = {**given, **follows, **given}
        threads = chosen["THREADS"]
        shared, splits = self.shared(shape.d, chosen), self.splits(shape, chosen, props)
        what = f"kernel {self.name} with tiles of {chosen['BR']}x{chosen['BC']} at d={shape.d}"
        if shared > props.shared_limit:
            raise MachineError(
                f"{what} needs {shared:,} bytes of shared memory a block, this GPU has {props.shared_limit:,}"
            )
        if not 32 <= threads <= MAX_THREADS:
            raise MachineError(f"{what} would need {threads} threads a block, GPUs have 32 to {MAX_THREADS}")
        launches = self.launches(shape, chosen, splits, shared)
        if max(launch.grid for launch in launches) > MAX_BLOCKS:
            raise MachineError(f"{what} would need more than {MAX_BLOCKS:,} blocks for (B, N, d) = {shape}")
        scratch = self.scratch(shape, chosen, splits)
        if copies and shape.d != true_d:
            staged = -(-scratch.size // STAGED_AT) * STAGED_AT
            scratch = scratch._replace(size=staged + shape.moved_bytes, staged=staged)
        macros = {"D": shape.d, **chosen, **({"CAUSAL": 1} if shape.causal else {})} | mask_macros(shape)
        if self.own_scale and shape.d != true_d:
            macros["SCALED"] = true_d
        file = self.file(chosen) if self.file else ""
        of_file: dict[str, Any] = {"main_symbol": self.main_symbol, "file": file, "score": shape.score}
        return Plan(self.name, macros, launches, scratch, splits, self.finds_absmax, **of_file)


# What is known of one kernel, and not of another that is launched in the same way.
OF_ONE_KERNEL = {
    "colour",
    "lse",
    "proven",
    "automatic",
    "native",
    "stamps",
    "emulated",
    "strategies",
    "file",
    "windows",
    "widest",
    "values",
    "scores",
}
