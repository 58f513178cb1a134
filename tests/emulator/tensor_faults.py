"""Mistakes on the way to the tensor cores: wrong layouts, missing waits and fences, barriers that count wrongly."""

from functools import partial

from faults import Fault

from hw4cli.emulator.check import EQUAL, LONG, some_rows
from hw4cli.problem.workload import Shape

SHORT, RING = Shape(1, 131, 64), LONG[0]  # each block converts for itself; tiles come through a ring
MMA = partial(Fault, kernel="split", file="split_mma.cuh", kind="wrong answer", cc=80, shape=SHORT)
SHORTS = partial(Fault, kernel="split", source="split_short", file="split_short.cuh", kind="wgmma", cc=90, shape=SHORT)
PINGPONG = partial(Fault, kernel="split", source="split_wgmma", file="split_wgmma.cuh", kind="wgmma", cc=90)
TURNS = partial(PINGPONG, shape=some_rows(1, 530, 64, 300, 200))
# Of two blocks one converts ahead: the fewest batches for which one does, with five tasks each.
AHEAD = {"shape": Shape(4, 513, 32), "sms": 2, "tile": {"BR": 128, "BC": 64}}
PRODUCERS = partial(PINGPONG, **AHEAD)
QUERIES = partial(PINGPONG, file="producers.cuh", kind="race", **AHEAD)
COPIES = partial(Fault, kernel="split", file="split_mma.cuh", kind="race", cc=100, shape=RING)

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
        old="cp_async_wait<INBLOCK ? 0 : LEAD - 1>();",
        new="",
        kind="race",
        says="asynchronous copy",
        shape=RING,
    ),
    MMA(
        "split: the wait leaves one group too many",
        old="INBLOCK ? 0 : LEAD - 1>",
        new="INBLOCK ? 0 : LEAD>",
        kind="race",
        shape=RING,
    ),
    SHORTS(
        "wgmma: another swizzle than the stores'",
        file="tiles.cuh",
        old="chunk ^ (row & 7)",
        new="chunk ^ (row & 3)",
        kind="wrong answer",
    ),
    SHORTS(
        "wgmma: a descriptor's stride is half",
        file="warpgroup.cuh",
        old="(8 * ROW >> 4) << 32",
        new="(4 * ROW >> 4) << 32",
        kind="wrong answer",
    ),
    SHORTS(
        "wgmma: the leading offset is an address",
        old="matrix_at(at, ones - at)",
        new="matrix_at(at, ones)",
        kind="out of bounds",
    ),
    SHORTS(
        "wgmma: no wait for scores",
        old="            wgmma_wait<0>();\n            fence_registers(S[0]);\n            if (ONE_TILE)",
        new="            fence_registers(S[0]);\n            if (0)",
        says="wait for it first",
    ),
    SHORTS(
        "wgmma: no wait for P V",
        old="            if (!ONE_TILE) wait_for_values(r);\n",
        new="",
        says="wait for it first",
    ),
    SHORTS(
        "wgmma: no wait for the last P V of a batch in one block",
        old="        if (ONE_TILE) wait_for_values(r);\n",
        new="",
        says="wait for it first",
        shape=Shape(1, 100, 64),
    ),
    SHORTS(
        "wgmma: no fence before the products",
        old="    fence_registers(S[0]);\n    wgmma_fence();",
        new="    fence_registers(S[0]);",
        says="after the last wgmma.fence",
    ),
    SHORTS(
        "wgmma: scores are not committed",
        old="* 32));\n    wgmma_commit();\n}\n// Issues O",
        new="* 32));\n}\n// Issues O",
        says="wait for it first",
    ),
    SHORTS(
        "wgmma: no fence of the proxy",
        file="warpgroup.cuh",
        old="    fence_proxy_async();\n",
        new="",
        kind="proxy",
        says="fence.proxy.async is missing",
    ),
    SHORTS(
        "wgmma: tail mask one key off",
        file="mask.cuh",
        old="return key < keys &&",
        new="return key <= keys &&",
        kind="wrong answer",
        data=EQUAL,
    ),
    SHORTS(
        "wgmma: the tile is replaced under the other group",
        old="if (first_key > t.first_key) __syncthreads();",
        new="",
        kind="race",
        says="asynchronous copy or product read",
    ),
    TURNS("turns: no wait for scores", old="wgmma_wait<1 + INT8>();", new="wgmma_wait<2>();", says="wait for it first"),
    TURNS(
        "turns: no wait for P V",
        old="            wgmma_wait<0>();\n            fence_registers(r); ENDS(ADDING, consumed - 1);",
        new="            fence_registers(r); ENDS(ADDING, consumed - 1);",
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
        old="            exponentiate(S);\n            wgmma_wait<0>();",
        new="            exponentiate(S);\n            tiles.release(consumed - 1);\n            wgmma_wait<0>();",
        kind="race",
        says="asynchronous copy",
    ),
    TURNS(
        "turns: a turn is not passed on",
        old="            pingpong_arrive(id % GROUPS + 1);\n",
        new="",
        kind="divergence",
        says="bar.sync",
    ),
    TURNS(
        "turns: nobody has the first turn",
        old="        if (id == GROUPS) pingpong_arrive(1);\n",
        new="",
        kind="divergence",
        says="bar.sync",
    ),
    TURNS(
        "turns: the parity of the other phase",
        old="mbarrier_wait(full(n), n / STAGES % 2)",
        new="mbarrier_wait(full(n), ~(n / STAGES) % 2)",
        kind="race",
        says="asynchronous copy",
    ),
    PRODUCERS(
        "producers: a batch is not waited for",
        old="        if (t.batch >= block_info(FIRST)) semaphore_wait(count_of(p, t.batch), ceil_div(p.Nk, BC));\n",
        new="",
        kind="race",
        says="nothing orders blocks",
    ),
    PRODUCERS(
        "producers: all tiles but one are waited for",
        old="semaphore_wait(count_of(p, t.batch), ceil_div(p.Nk, BC));",
        new="semaphore_wait(count_of(p, t.batch), ceil_div(p.Nk, BC) - 1);",
        kind="divergence",
        says="for a count",
    ),
    PRODUCERS(
        "producers: the first block leaves before all batches are claimed",
        file="producers.cuh",
        old="while (tile.batch < p.batches)",
        new="while (tile.batch < p.batches - 1)",
        kind="divergence",
        says="for a count",
    ),
    PRODUCERS(
        "producers: rows are read before they have come",
        file="producers.cuh",
        old="        mbarrier_wait(barriers + n * 8, consumed++ / DEPTH % 2);\n",
        new="        consumed++;\n",
        kind="race",
        says="asynchronous copy",
    ),
    QUERIES(
        "queries: those of the next task are not waited for",
        old="        if (Q_AHEAD && n > 0) mbarrier_wait(full, n % 2 ^ 1);\n",
        new="",
    ),
    QUERIES(
        "queries: those of the next task come before all warps have taken these",
        old="            mbarrier_wait(empty(), n % 2 ^ 1);\n",
        new="",
        kind="divergence",
        says="mbarrier",
    ),
    QUERIES(
        "queries: the warp that copies tiles does not say that it knows its part",
        file="split_wgmma.cuh",
        old="        queries.release();\n        if (!t.any) return;\n",
        new="        if (!t.any) return;\n",
        kind="divergence",
        says="mbarrier",
    ),
    SHORTS(
        "split: more keys are asked for than a later block has",
        old="prefetch_bulk(row_of(p.v, t.batch, 0), p.Nk * D * 4)",
        new="prefetch_bulk(row_of(p.v, t.batch, 0), 2 * BC * D * 4)",
        kind="out of bounds",
        shape=Shape(2, 131, 64),
        tile={"BR": 128, "BC": 128, "RESIDENT_BLOCKS": 2},
    ),
    TURNS(
        "turns: a copy does not wait for those that read",
        old="        mbarrier_wait(empty(n), n / STAGES % 2 ^ 1);\n",
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
        old="mbarrier_expect<STAGE>(full(stage));",
        new="mbarrier_arrive(full(stage));",
        says="asynchronous copy",
    ),
    COPIES("bulk: a barrier counts one warp too few", old="mbarrier_init<THREADS>", new="mbarrier_init<THREADS - 32>"),
    COPIES(
        "bulk: a barrier counts one thread too many",
        old="mbarrier_init<THREADS>",
        new="mbarrier_init<THREADS + 1>",
        kind="divergence",
        says="mbarrier",
    ),
    COPIES(
        "bulk: the barriers are not made visible to the copy engine",
        old="            fence_mbarrier_init();\n",
        new="",
        kind="mbarrier",
        says="fence.mbarrier_init",
    ),
    COPIES(
        "bulk: no barrier after the barriers are made",
        old="            fence_mbarrier_init();\n        }\n        __syncthreads();",
        new="            fence_mbarrier_init();\n        }",
    ),
    COPIES(
        "mma: a tile is released before it is read",
        old="!INT8 && u == 0 && stage > 0) ring.release(stage - 1);",
        new="!INT8 && u == 0) ring.release(stage);",
    ),
]
