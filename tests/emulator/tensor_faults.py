"""Mistakes on the way to the tensor cores: wrong layouts, missing waits and fences, barriers that count wrongly."""

from functools import partial

from faults import Fault

from hw4cli.emulator.check import EQUAL, LONG
from hw4cli.problem.workload import Shape

SHORT, RING = Shape(1, 131, 64), LONG[0]  # each block converts for itself; tiles come through a ring
MMA = partial(Fault, kernel="split", file="tensor.cuh", kind="wrong answer", cc=80, shape=SHORT)
GROUPS = partial(Fault, kernel="split", file="warpgroup.cuh", kind="wgmma", cc=90, shape=SHORT)
TURNS = partial(Fault, kernel="split", file="turns.cuh", kind="wgmma", cc=90, shape=Shape(1, 777, 64))
CONVERTERS = partial(TURNS, shape=Shape(8, 530, 64), sms=2)
QUERIES = partial(Fault, kernel="split", file="queries.cuh", kind="race", cc=90, shape=Shape(8, 530, 32), sms=2)
COPIES = partial(Fault, kernel="split", file="ring.cuh", kind="race", cc=100, shape=RING)

TENSOR_FAULTS = [
    MMA(
        "split: tail mask one key off",
        file="mask.cuh",
        old="return key < keys &&",
        new="return key <= keys &&",
        data=EQUAL,
    ),
    MMA(
        "split: halves of a fragment of K swapped",
        old="swizzle((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1)",
        new="swizzle((lane & 7) + (lane >> 3 & 1) * 8, lane >> 4)",
    ),
    MMA("split: V is not transposed", old="load_transposed(V[t],", new="load_matrices(V[t],"),
    MMA(
        "split: no wait for the ring's copies",
        file="ring.cuh",
        old="copies_arrived_but<INBLOCK ? 0 : LEAD - 1>();",
        new="",
        kind="race",
        says="asynchronous copy",
        shape=RING,
    ),
    MMA(
        "split: the wait leaves one group too many",
        file="ring.cuh",
        old="INBLOCK ? 0 : LEAD - 1>",
        new="INBLOCK ? 0 : LEAD>",
        kind="race",
        shape=RING,
    ),
    GROUPS(
        "wgmma: another swizzle than the stores'",
        file="tiles.cuh",
        old="chunk ^ (row & 7)",
        new="chunk ^ (row & 3)",
        kind="wrong answer",
    ),
    GROUPS(
        "wgmma: a descriptor's stride is half",
        old="(8 * ROW >> 4) << 32",
        new="(4 * ROW >> 4) << 32",
        kind="wrong answer",
    ),
    GROUPS(
        "wgmma: the leading offset is an address",
        old="matrix_at(at, ones - at)",
        new="matrix_at(at, ones)",
        kind="out of bounds",
    ),
    GROUPS(
        "wgmma: no wait for scores",
        old="            group_wait<0>();\n            keep(S[0]);\n            if (ONE_TILE) keep(r);",
        new="            keep(S[0]);",
        says="wait for it first",
    ),
    GROUPS(
        "wgmma: no wait for P V",
        old="            if (!ONE_TILE) finish(r);\n",
        new="",
        says="wait for it first",
    ),
    GROUPS(
        "wgmma: no wait for the last P V of a batch in one block",
        old="        if (ONE_TILE) finish(r);\n",
        new="",
        says="wait for it first",
        shape=Shape(1, 100, 64),
    ),
    GROUPS(
        "wgmma: no fence before the products",
        old="    keep(S[0]);\n    group_begin();",
        new="    keep(S[0]);",
        says="after the last wgmma.fence",
    ),
    GROUPS(
        "wgmma: scores are not committed",
        old="* 32));\n    group_end();\n}\n__device__ __forceinline__ void ask_values",
        new="* 32));\n}\n__device__ __forceinline__ void ask_values",
        says="wait for it first",
    ),
    GROUPS(
        "wgmma: no fence of the proxy",
        old="    fence_async();\n",
        new="",
        kind="proxy",
        says="fence.proxy.async is missing",
    ),
    GROUPS(
        "wgmma: tail mask one key off",
        file="mask.cuh",
        old="return key < keys &&",
        new="return key <= keys &&",
        kind="wrong answer",
        data=EQUAL,
    ),
    GROUPS(
        "wgmma: the tile is replaced under the other group",
        old="if (first_key > 0) __syncthreads();",
        new="",
        kind="race",
        says="asynchronous copy or product read",
    ),
    TURNS("turns: no wait for scores", old="group_wait<1 + INT8>();", new="group_wait<2>();", says="wait for it first"),
    TURNS(
        "turns: no wait for P V",
        old="            group_wait<0>();\n            keep(r); ENDS(ADDING, used - 1);",
        new="            keep(r); ENDS(ADDING, used - 1);",
        says="wait for it first",
    ),
    TURNS(
        "turns: ones that nobody has written",
        old="    make_ones(tiles.base + ONES_AT);\n",
        new="",
        kind="uninitialised",
    ),
    TURNS(
        "turns: a tile is released before its products are computed",
        old="            exponentiate(S);\n            group_wait<0>();",
        new="            exponentiate(S);\n            tiles.release(used - 1);\n            group_wait<0>();",
        kind="race",
        says="asynchronous copy",
    ),
    TURNS(
        "turns: a turn is not passed on",
        old="            give_turn(turn % GROUPS + 1);\n",
        new="",
        kind="divergence",
        says="bar.sync",
    ),
    TURNS(
        "turns: nobody has the first turn",
        old="        if (turn == GROUPS) give_turn(1);\n",
        new="",
        kind="divergence",
        says="bar.sync",
    ),
    TURNS(
        "turns: the parity of the other phase",
        old="barrier_wait(full(n), n / STAGES % 2)",
        new="barrier_wait(full(n), ~(n / STAGES) % 2)",
        kind="race",
        says="asynchronous copy",
    ),
    CONVERTERS(
        "converters: a batch is not waited for",
        old="        if (t.batch >= kept(FIRST)) wait_for_count(count_of(p, t.batch), ceil_div(p.Nk, BC));\n",
        new="",
        kind="race",
        says="nothing orders blocks",
    ),
    CONVERTERS(
        "converters: all tiles but one are waited for",
        old="wait_for_count(count_of(p, t.batch), ceil_div(p.Nk, BC));",
        new="wait_for_count(count_of(p, t.batch), ceil_div(p.Nk, BC) - 1);",
        kind="divergence",
        says="for a count",
    ),
    CONVERTERS(
        "converters: the first block leaves before all batches are claimed",
        file="converters.cuh",
        old="while (tile.batch < p.batches)",
        new="while (tile.batch < p.batches - 1)",
        kind="divergence",
        says="for a count",
    ),
    CONVERTERS(
        "converters: rows are read before they have come",
        file="converters.cuh",
        old="        barrier_wait(barriers + n * 8, used++ / DEPTH % 2);\n",
        new="        used++;\n",
        kind="race",
        says="asynchronous copy",
    ),
    QUERIES(
        "queries: those of the next task are not waited for",
        old="        if (Q_AHEAD && n > 0) barrier_wait(come, n % 2 ^ 1);\n",
        new="",
    ),
    QUERIES(
        "queries: those of the next task come before all warps have taken these",
        old="            barrier_wait(taken(), n % 2 ^ 1);\n",
        new="",
        kind="divergence",
        says="mbarrier",
    ),
    QUERIES(
        "queries: the warp that copies tiles does not say that it knows its part",
        file="turns.cuh",
        old="        queries.release();\n        if (!t.any) return;\n",
        new="        if (!t.any) return;\n",
        kind="divergence",
        says="mbarrier",
    ),
    GROUPS(
        "split: more keys are asked for than a later block has",
        old="prefetch_bulk(row_of(p.v, t.batch, 0), p.Nk * D * 4)",
        new="prefetch_bulk(row_of(p.v, t.batch, 0), 2 * BC * D * 4)",
        kind="out of bounds",
        shape=Shape(2, 131, 64),
        tile={"BR": 128, "BC": 128, "RESIDENT_BLOCKS": 2},
    ),
    TURNS(
        "turns: a copy does not wait for those that read",
        old="        barrier_wait(empty(n), n / STAGES % 2 ^ 1);\n",
        new="",
        kind="race",
        says="asynchronous copy",
    ),
    COPIES(
        "bulk: the parity of the other phase",
        old="wait(full(stage), stage / STAGES & 1)",
        new="wait(full(stage), ~(stage / STAGES) & 1)",
        says="asynchronous copy",
    ),
    COPIES(
        "bulk: the ring does not wait for those that read",
        old="        if (stage >= STAGES) wait(empty(stage), (stage / STAGES - 1) & 1);\n",
        new="",
        says="an asynchronous copy or product writes",
    ),
    COPIES(
        "bulk: the bytes are not announced",
        old="barrier_expect<STAGE>(full(stage));",
        new="barrier_arrive(full(stage));",
        says="asynchronous copy",
    ),
    COPIES("bulk: a barrier counts one warp too few", old="barrier_init<THREADS>", new="barrier_init<THREADS - 32>"),
    COPIES(
        "bulk: a barrier counts one thread too many",
        old="barrier_init<THREADS>",
        new="barrier_init<THREADS + 1>",
        kind="divergence",
        says="mbarrier",
    ),
    COPIES(
        "bulk: the barriers are not made visible to the copy engine",
        old="            barriers_made();\n",
        new="",
        kind="mbarrier",
        says="fence.mbarrier_init",
    ),
    COPIES(
        "bulk: no barrier after the barriers are made",
        old="            barriers_made();\n        }\n        __syncthreads();",
        new="            barriers_made();\n        }",
    ),
    COPIES(
        "mma: a tile is released before it is read",
        file="tensor.cuh",
        old="!INT8 && u == 0 && stage > 0) ring.release(stage - 1);",
        new="!INT8 && u == 0) ring.release(stage);",
    ),
]
