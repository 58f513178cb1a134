"""How the kernels of one pass (backward_once, backward_atomic) share the work out: which heads together, in how many
parts."""

from typing import NamedTuple

from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.problem.workload import MAX_D, Workload

KEYS = 2 * hopper.OWNED  # that a block owns
LARGE_TILE = 80  # rows of Q, of 128 columns
# Bytes of sums of dQ of heads worked on together: of shared heads, of others; of more than 16 heads without a mask,
# or 8 with one. The best on an H200, with a mask on an H100.
SHARED_SUMS, OWN_SUMS, MANY_SUMS = 1 << 26, 1 << 24, 1 << 23
OF_LONG = 2  # shared heads worked on together without a mask, of OWN_SUMS or more (docs/notes/gradients.md)
OF_WINDOWS = 2  # heads of 128 columns worked on together (docs/notes/gradients.md)
OF_ATOMIC = 4  # heads worked on together where no block waits for another
SHORT_ROWS = 1024  # where with a mask a third group computes dQ, and the pass rounds it; as measured on an H200
# Where the pass rounds dQ: at most so many heads are worked on together; at least so many without a mask, and with one,
# but that for all at once so many of each tile of keys suffice; pairs of a head without a mask. Measured on an H200.
MOST_ROUNDED, FULL_HEADS, MASKED_HEADS, HEADS_OF_A_TILE, FULL_PAIRS = 96, 80, 48, 6, 640 * 640
# With a mask, tiles of keys add to dQ in so many chains where a head has more than `FEW_TILES` tiles of keys; one more
# at 64 columns from so many rows on. Only where the sums of the further chains take no more bytes than that.
CAUSAL_CHAINS, FEW_TILES, MANY_ROWS, MOST_SUMS = 2, 3, 4096, 1 << 30
# Microseconds, as measured on an H200: for a tile of Q; for a task besides; from one tile of keys that adds to a tile
# of dQ to the next; and for a megabyte of sums to be written, read and added.
STEP, TASK, TURN, PER_MB = 2.4, 4.0, 2.8, 0.4
LEAST_GAIN = 0.92  # of the time without cuts
MOST_PARTS, MOST_CHAINS = 256, 32


class Cut(NamedTuple):
    """How the work is cut, so that there are enough blocks, and few that wait for each other.

    What is streamed past the keys of heads of K and V from the `first` on is cut into parts: the heads of Q that share
    them into so many, times their rows into so many. Each part has its own sums of dK and dV. Tiles of keys add to dQ
    in so many `chains`, by turns, each with its own sums. `rounded`: the last tile of keys that adds to one of dQ, of
    one chain, rounds the sum, and no launch after the pass.
    """

    first: int
    heads: int = 1
    rows: int = 1
    chains: int = 1
    rounded: int = False

    @property
    def passed(self) -> tuple[int, ...]:
        """What is passed to the kernel."""
        return self[:4]

    @property
    def parts(self) -> int:
        """Of each of these heads' tiles of keys."""
        return self.heads * self.rows


def best_cut(work: Workload, sms: int) -> Cut:
    """The cut of least `duration` on so many multiprocessors; none where it gains little, nor of windows: each tile of
    keys begins behind the one before, and does not wait for it. Sequences of several lengths are not cut, nor short
    rows of many heads, whose dQ the pass rounds."""
    rounded, heads_of_keys = is_rounded(work), (1 if work.sequences else work.batch) * work.kv_heads
    whole = Cut(heads_of_keys, chains=1 if rounded else usual_chains(work), rounded=rounded)
    if work.window or work.sequences or (rounded and work.Nk > KEYS):
        return whole
    group, rows = work.heads // work.kv_heads, tile_rows(work)
    steps = work.computed_pairs(rows, KEYS) / (rows * KEYS) if work.causal else 0
    heads = [n for n in _powers(group) if group % n == 0]
    cuts = [
        Cut(whole.first if h * r == 1 else 0, h, r, chains, rounded)
        for h in heads
        for r in _powers(ceil_div(work.Nq, rows))
        for chains in _powers(min(MOST_CHAINS, ceil_div(work.Nk, KEYS)))
        if h * r <= MOST_PARTS and (r == 1 or h == heads[-1]) and (h * r > 1 or chains > whole.chains)
    ]
    took = {cut: duration(work, cut, sms, steps) for cut in (whole, *cuts)}
    best = min(took, key=took.__getitem__)
    return best if took[best] < LEAST_GAIN * took[whole] else whole


def duration(work: Workload, cut: Cut, sms: int, causal_steps: float) -> float:
    """About how many microseconds the main launch takes, and the sums that are added up after it."""
    group, tiles, keys = work.heads // work.kv_heads, ceil_div(work.Nq, tile_rows(work)), ceil_div(work.Nk, KEYS)
    heads = work.batch * work.kv_heads
    rounds = ceil_div(heads * keys * cut.parts, sms)
    task = STEP * ceil_div(group, cut.heads) * ceil_div(tiles, cut.rows)
    busy = max(STEP * causal_steps / sms + task / 8, task) if work.causal else rounds * task
    at_a_tile = min(section(work), heads) * cut.parts  # tasks of the same keys
    beginning = min(keys, ceil_div(sms, at_a_tile))  # blocks that begin one after the other
    sections = ceil_div(heads, section(work)) / max(1, sms // (at_a_tile * keys))  # one after the other
    waiting = max(TURN * beginning / cut.chains, TURN * sections * keys / cut.chains - busy)
    added = part_bytes(work, cut) + (cut.chains - 1) * sum_bytes(work)
    return busy + TASK * rounds + waiting + PER_MB * added / 1e6


def _powers(most: int) -> list[int]:
    """1, 2, 4 and so on, up to `most`."""
    return [1 << n for n in range(most.bit_length())]


def tile_rows(work: Workload) -> int:
    """Rows of a tile of Q: two groups of four warps compute 64 x 64 numbers of dQ each; or more where all keys are
    there and seen, which leaves registers for it."""
    whole = is_plain(work) and not work.causal and work.Nk % KEYS == 0
    if hopper.columns(work) == MAX_D and whole and work.Nq >= MANY_ROWS:
        return LARGE_TILE
    return KEYS * hopper.OWNED // hopper.columns(work)


def is_plain(work: Workload) -> bool:
    """Whether there is no mask but a causal one, one length, and no changed score."""
    return not (work.window or work.sequences or work.score)


def is_apart(work: Workload) -> bool:
    """Whether a third group computes dQ, for which there are registers at 64 columns: faster but where many causal
    rows wait for each other's additions."""
    masked = work.causal and work.Nq > SHORT_ROWS
    return hopper.columns(work) == hopper.OWNED and is_plain(work) and not masked


def can_round(work: Workload) -> bool:
    """Whether the pass can round dQ: by the third group, where each row sees a key."""
    return is_apart(work) and (not work.causal or work.offset >= 0)


def is_rounded(work: Workload) -> bool:
    """Whether the pass rounds dQ: where one tile of keys is all, or short rows are of so many heads that hardly any
    block waits for another; fewer rows than keys would make blocks wait."""
    tiles, heads, together = ceil_div(work.Nk, KEYS), work.batch * work.kv_heads, rounded_section(work)
    alone = work.heads == work.kv_heads
    if work.causal:
        many = together >= MASKED_HEADS or (alone and together == heads >= HEADS_OF_A_TILE * tiles)
    else:
        many = together >= FULL_HEADS and work.Nq * work.Nk <= FULL_PAIRS and alone
    short = work.Nk <= ceil_div(work.Nq, KEYS) * KEYS <= SHORT_ROWS
    # Few shared heads of one tile of queries are cut into parts, which are added up after the pass anyway.
    one = tiles == 1 and (alone or work.Nq > KEYS or together >= MASKED_HEADS)
    return can_round(work) and (one or (many and short))


def rounded_section(work: Workload) -> int:
    """Heads of K and V that are worked on together where the pass rounds dQ: in sections of about as many, so that none
    waits in the last one more than in those before."""
    heads = work.batch * work.kv_heads
    return ceil_div(heads, ceil_div(heads, MOST_ROUNDED))


def usual_chains(work: Workload) -> int:
    """Chains of a workload that is not cut. With a mask, tasks that run side by side are at different queries, so the
    sums of few heads at a time fit into the L2 cache, whose tiles of keys wait for each other: half as long in two
    chains. Without one, and where heads are shared, chains gain nothing."""
    if not work.causal or work.window or work.sequences or work.heads != work.kv_heads:
        return 1
    if ceil_div(work.Nk, KEYS) <= FEW_TILES:
        return 1
    chains = CAUSAL_CHAINS + (hopper.columns(work) == hopper.OWNED and work.Nq >= MANY_ROWS)
    return chains if (chains - 1) * sum_bytes(work) <= MOST_SUMS else 1


def section(work: Workload, in_order: bool = True) -> int:
    """Heads of K and V that are worked on together, by tiles of keys that add to dQ in their order, or as they come:
    more keep blocks from waiting for each other, fewer keep the sums of dQ in the L2 cache, of which heads that are
    shared have more, long ones more than short ones. Of a window, blocks hardly wait: each begins as many queries
    behind the one before as a tile has keys."""
    group = work.heads // work.kv_heads
    if work.window and hopper.columns(work) > hopper.OWNED:
        return OF_WINDOWS
    if not in_order:
        return OF_ATOMIC
    sums = FLOAT * hopper.columns(work) * work.most_rows * group
    if group == 1 and work.causal and usual_chains(work) == 1:  # blocks wait for each other, but for long rows' sums
        return 8 if sums > OWN_SUMS // 4 else max(16, min(32, 2 * OWN_SUMS // sums))
    if group == 1:
        usual, many = (8, 16) if work.causal else (16, 64)
        return max(4, min(usual, OWN_SUMS // sums), min(many, MANY_SUMS // sums))
    if not work.causal and sums >= OWN_SUMS:
        return OF_LONG
    return max(1 if work.causal else 8, min(16, SHARED_SUMS // sums))


def sum_bytes(work: Workload) -> int:
    """Of dQ in float32, of whole tiles."""
    return FLOAT * hopper.stats_rows(work, tile_rows(work)) * hopper.columns(work)


def kept_bytes(work: Workload, cut: Cut) -> int:
    """Of the chains' sums of dQ in memory; none where the first part is rounded, as one tile of keys is all."""
    return 0 if cut.rounded and work.Nk <= KEYS else cut.chains * sum_bytes(work)


def part_bytes(work: Workload, cut: Cut) -> int:
    """Of dK and dV of all parts, in float32, of whole tiles."""
    split = (work.batch * work.kv_heads - cut.first) * cut.parts if cut.parts > 1 else 0
    return split * ceil_div(work.Nk, KEYS) * KEYS * 2 * FLOAT * hopper.columns(work)
