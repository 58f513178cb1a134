"""What one block of each kernel does, step by step, in words: what is computed from which tile.

What moves where in a step is what the kernel's entry says (`Block.steps`); tiles, threads, launches and parts of shared
memory are those of the kernels' plans; the order of the steps is that of the kernels' loops.
"""

from dataclasses import dataclass, replace

from hw4cli.plans.plan import DEVICE, REGISTERS, SECTION, STAGE, Block, Move, Tile
from hw4cli.plans.tensorwork import lead
from hw4cli.plans.work import KEYS, QUERIES, WITH_STATS


@dataclass(frozen=True)
class Phase:
    """A step, with the moves that the kernel's entry has under its name. It begins these, computes from the parts that
    it `reads`, and then `does` something to a row's numbers: "scores", "max", "sum" (m and l, or l), "values" (O),
    "done". The parts in `come` have come, too. In the text, {tile}, {keys} and {rows} stand for numbers. A phase with
    `only` is left out unless the keys are, or are not, split."""

    name: str
    text: str
    reads: tuple[str, ...] = ()
    does: str = ""
    come: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    only: str = ""


@dataclass(frozen=True)
class Part:
    """Phases that come once, or again for each tile of keys; then, with `inner`, for each tile of rows, too."""

    phases: tuple[Phase, ...]
    tiles: bool = False
    inner: tuple[Phase, ...] = ()


@dataclass(frozen=True)
class Work:
    """A kernel's block: its parts, how a row's maximum is kept ("online", "lazy", "zero" or "first"), and a sentence on
    what is peculiar. Whether one block does all of it; where there is a causal mask, of how many batches the longest
    blocks start first; whether tiles are on their way until they are read; and whether O is always divided by l."""

    parts: tuple[Part, ...]
    maximum: str
    note: str
    fused: bool = True
    section: int = SECTION
    overlaps: bool = False
    divided: bool = False


def _once(*phases: Phase) -> Part:
    return Part(phases)


def _each_tile(*phases: Phase) -> Part:
    return Part(phases, tiles=True)


LOAD_TILE = Phase(
    "Load K and V",
    "Tile {tile}: K and V of keys {keys} come to shared memory. A barrier, and all threads see them.",
)
STORE = Phase("Store O", "O / l goes to device memory.", does="done")
STORE_PART = Phase(
    "Store a part",
    "This block had a part of the keys: O, not yet divided, m and l go to scratch. A last launch adds up the parts.",
    does="done",
)


def _plain(scores: str, softmax: str, values: str, s_at: str = REGISTERS) -> Work:
    """The rungs whose loop is: load, scores, softmax, values."""
    load_q = Phase(
        "Load Q",
        "The block's rows {rows} of Q, times log2(e)/√d, come to shared memory, and stay.",
    )
    loop = (
        LOAD_TILE,
        Phase("Scores", f"S = Q Kᵀ of this tile: {scores}", ("Q", "K"), "scores"),
        Phase("Softmax", f"{softmax} What was added up before is multiplied by α = 2^(old m − m).", (s_at,), "sum"),
        Phase("Values", f"O = α O + P V: {values}", (s_at, "V"), "values"),
    )
    note = "A tile is used when all of it has come: nothing is computed while it is on its way."
    return Work((_once(load_q), _each_tile(*loop), _once(STORE)), "online", note)


BY_ROWS = "A thread a row: its maximum m, P = 2^(S − m) in place of S, and l, while the others wait."
SHUFFLES = "The maximum m of a row is found by shuffles among {}; P = 2^(S − m) and l stay in registers."
SOME_SCORES = "several scores a thread, into shared memory."
PLAIN = {
    "a score a thread": _plain("a score a thread, into shared memory.", BY_ROWS, "in registers.", "S"),
    "some scores a thread": _plain(SOME_SCORES, BY_ROWS, "in registers.", "S"),
    "a key a lane": _plain(
        "a lane has one key, and its warp's four rows.", SHUFFLES.format("a warp"), "P by shuffles."
    ),
    "rows a half-warp": _plain(
        "four floats a load, two rows a half-warp.", SHUFFLES.format("a half-warp"), "P by shuffles."
    ),
}

ASK_K = Phase(
    "Ask for K, load Q",
    "The first tile of K is asked for; meanwhile rows {rows} of Q are scaled and turned k-major.",
)
SCORES_BESIDE_V = Phase(
    "Scores, V comes",
    "K of tile {tile} has come. V is asked for, and beside the copy S = Q Kᵀ is computed: 8 rows by an eighth of the "
    "keys a thread, in registers.",
    ("Q", "K"),
    "scores",
)
SOFTMAX_BESIDE_K = Phase(
    "Softmax, K comes",
    "V has come, and all threads have read K: the copy of its next tile is issued. P = 2^S goes to shared memory; "
    "m stays 0.",
    (REGISTERS,),
    "sum",
    come=("V",),
)
VALUES_BESIDE_K = Phase(
    "Values", "O += P V, beside the copy of K: 8 rows by d/8 columns a thread.", ("P", "V"), "values"
)
CHECK = Phase(
    "Check",
    "Was m = 0 good enough? l and O say so: if one over- or underflowed, the block does all of it again with a running "
    "maximum.",
)
FLASH = Work(
    (
        _once(ASK_K),
        _each_tile(SCORES_BESIDE_V, SOFTMAX_BESIDE_K, VALUES_BESIDE_K),
        _once(CHECK, STORE, STORE_PART),
    ),
    "zero",
    "K's next tile is on its way while V is used, V's while K is: one buffer each.",
    overlaps=True,
)

NAIVE_SCORES = Phase(
    "Scores",
    "naive_scores has a block for each tile of S: this one reads its rows of Q and keys {keys} of K, and writes a tile "
    "of S to device memory.",
    does="scores",
)
NAIVE_SOFTMAX = (
    Phase("Maximum", "naive_softmax has a warp for each row. It reads all of S for m,", does="max"),
    Phase("Sum", "reads it again for l, the sum of e^(S − m),", does="sum"),
    Phase("Weights", "and reads it once more, to write P = e^(S − m) / l in its place."),
)
NAIVE_VALUES = Phase(
    "Values",
    "naive_values has a thread for each element of O: it adds up P V along the keys, here {keys}.",
    does="values",
)
NAIVE = Work(
    (_each_tile(NAIVE_SCORES), _once(*NAIVE_SOFTMAX), _each_tile(NAIVE_VALUES), _once(STORE)),
    "first",
    "Three launches, whose blocks share nothing: followed are those that work on these rows. S and P cross device "
    "memory six times.",
    fused=False,
    divided=True,
)

FLOAT64 = Work(
    (
        _once(
            Phase(
                "Load Q",
                "Rows {rows} of Q become doubles in registers, a quarter of a row in each lane.",
            )
        ),
        _each_tile(
            Phase(
                "Load K",
                "First pass, tile {tile}: K of keys {keys} becomes doubles in shared memory.",
            ),
            Phase("Maximum", "Four lanes compute each score together; m is the largest so far.", ("K",), "max"),
        ),
        _each_tile(
            Phase(
                "Load K and V",
                "Second pass, tile {tile}: K of keys {keys} comes again, and V with it.",
            ),
            Phase("Weights", "The scores again; P = e^(S − m) with the final m; l += ΣP.", ("K",), "sum"),
            Phase("Values", "O += P V in registers.", ("V",), "values"),
        ),
        _once(STORE),
    ),
    "first",
    "Two passes over the keys: nothing is ever rescaled, and K is read twice.",
)
OTHERS = {"three launches": NAIVE, "register tiles": FLASH, "two passes": FLOAT64}

# The other order of the loops: a batch has one block, which takes its rows again and again.
INNER_LOOP = (
    Phase(
        "Load Q, O, m, l",
        "Inner loop, rows {rows}: Q comes, and what O, m and l were after the tiles of keys before.",
        moves=(Move("Q", "Q", QUERIES), Move("O, m, l", "O", WITH_STATS)),
    ),
    Phase("Scores", "S = Q Kᵀ of these rows and this tile.", ("Q", "K"), "scores"),
    Phase("Softmax", "m and l of the rows follow; P = e^(S − m).", ("S",), "sum"),
    Phase(
        "Values, store",
        "O becomes what it would be if there were no further keys, and goes back to device memory, m and l with it.",
        ("S", "V", "O"),
        "values",
        moves=(Move("O, m, l", DEVICE, WITH_STATS),),
    ),
)
ALGORITHM_1 = Work(
    (Part((replace(LOAD_TILE, moves=(Move("K", "K", KEYS), Move("V", "V", KEYS))),), tiles=True, inner=INNER_LOOP),),
    "online",
    "The first paper's loops: a tile of K and V comes once, and every tile of Q and O for each of them. Kernel paper "
    "has this order: a batch is one block's work, and O crosses device memory again and again.",
    divided=True,
)


def work(block: Block, macros: Tile, cc: int) -> Work:
    """What a kernel's block does, compiled with these macros: the text that its `Block.walk` names, with the moves of
    its steps. Raises KeyError for a walk that is not known."""
    assert block.steps is not None
    text = _by_tensor_cores(macros, cc) if block.walk == "tensor cores" else {**PLAIN, **OTHERS}[block.walk]
    steps = {(step.name, step.tiles): step for step in block.steps(macros)}

    def moving(phase: Phase, tiles: bool) -> Phase:
        step = steps.get((phase.name, tiles))
        return replace(phase, moves=step.moves, only=step.only) if step else phase

    parts = (replace(part, phases=tuple(moving(one, part.tiles) for one in part.phases)) for part in text.parts)
    return replace(text, parts=tuple(parts), section=block.section)


def _by_tensor_cores(macros: Tile, cc: int) -> Work:
    pieces, inblock, groups, stages = (macros[name] for name in ("PV_PIECES", "INBLOCK", "WARPGROUPS", "STAGES"))
    lo = "lo in 8-bit integers" if macros["INT8"] else "lo"
    split = f"K hi, K {lo}, {'V hi and V lo' if pieces == 2 else 'and V'}"
    multiply = "four warps ask for 64 rows (wgmma)" if groups else "each warp multiplies its own rows (mma.sync)"
    values = "P hi V hi + P lo V hi + P hi V lo" if pieces == 2 else "P V, P rounded to fp16"
    load_q = Phase("Load Q", f"Rows {{rows}} of Q, scaled, become hi in fp16 and {lo}.")
    lazy = "m moves only if P could pass 2^8. P = 2^(S − m) goes from accumulator to operand in registers."
    compute = (
        Phase("Scores", f"S = Q hi K hi + Q lo K hi + Q hi K lo: {multiply}.", (STAGE,), "scores"),
        Phase("Softmax", lazy, (REGISTERS,), "sum"),
        Phase("Values", f"O += {values}. The next scores are under way meanwhile.", (STAGE,), "values"),
    )
    if inblock:
        convert = Phase(
            "Load and convert",
            f"Tile {{tile}}: keys {{keys}} come as float32; the threads make {split} of them, into a stage.",
        )
        note = "Few keys: each block converts them for itself, which is less traffic than a launch for all of them."
        return Work((_once(load_q), _each_tile(convert, *compute), _once(STORE)), "lazy", note)
    ahead = lead(macros)
    copier = "the bulk copy engine" if cc >= 90 else "asynchronous copies"
    counted = f"tiles 0 to {ahead - 1}" if ahead > 1 else "tile 0"
    convert = Phase("Convert", f"A launch before this one has turned all of K and V into tiles of {split}, in scratch.")
    begin = Phase("Ask ahead", f"{copier.capitalize()}: {counted} into their stages.")
    ask = Phase("Ask ahead", f"{copier.capitalize()}: {{next}}")
    turns = " Groups of four warps take turns; one warp more copies." if macros.get("GROUPS") else ""
    note = f"A ring of {stages} stages: {ahead} on their way while one is used, so that no copy is waited for.{turns}"
    loop = _each_tile(ask, *compute)
    return Work((_once(convert, begin, load_q), loop, _once(STORE, STORE_PART)), "lazy", note, overlaps=True)
