"""Mistakes as people make them in kernels, each a replacement in one file, and which check must find it."""

from dataclasses import dataclass, field

from hw4cli.emulator.build import ASAN, RACE
from hw4cli.emulator.check import EQUAL, HUGE, RANDOM_DATA
from hw4cli.problem.workload import Shape, Workload

TAIL = Shape(1, 130, 32)


@dataclass(frozen=True)
class Fault:
    """A mistake in kernels/FILE of a kernel: `old` becomes `new`; `kind` is the check that finds it, `says` is in the
    sentence."""

    name: str
    kernel: str
    old: str
    new: str
    kind: str
    says: str = ""
    file: str = ""  # if not the kernel's own
    source: str = ""  # the kernel's file, if it is not called after the kernel
    shape: Workload = TAIL
    data: str = RANDOM_DATA
    build: str = RACE
    lanes: int = 32
    cc: int = 80
    sms: int = 0  # if not as many multiprocessors as usual
    tile: dict[str, int] = field(default_factory=dict)


BARRIERS = [
    Fault(
        "flash: no barrier after K has come", "flash", "K.finish();\n        __syncthreads();", "K.finish();", "race"
    ),
    Fault(
        "flash: no barrier after V has come", "flash", "V.finish();\n        __syncthreads();", "V.finish();", "race"
    ),
    Fault(
        "flash without cp.async: no barrier after V has come",
        "flash",
        "V.finish();\n        __syncthreads();",
        "V.finish();",
        "race",
        cc=61,
    ),
    Fault(
        "flash: P is read without __syncwarp",
        "flash",
        "__syncwarp();  // a warp reads",
        "// a warp reads",
        "race",
        "__syncwarp() is missing",
    ),
    Fault(
        "flash: no wait for copies",
        "flash",
        "void finish() { cp_async_wait_all(); }",
        "void finish() {}",
        "race",
        "asynchronous copy",
        "stream.cuh",
    ),
    Fault(
        "flash: K's next tile is asked for before the barrier",
        "flash",
        "V.finish();\n        __syncthreads();\n        if (mask.keys > BC) K.start(mask.keys - BC);",
        "V.finish();\n        if (mask.keys > BC) K.start(mask.keys - BC);\n        __syncthreads();",
        "race",
    ),
    Fault(
        "float4: no barrier before the tile is replaced",
        "float4",
        "__syncthreads();  // all threads",
        "// all threads",
        "race",
        "__syncthreads() is missing",
    ),
    Fault(
        "float4: no barrier before the tile is used",
        "float4",
        "else V[chunk] = x;\n        }\n        __syncthreads();",
        "else V[chunk] = x;\n        }",
        "race",
    ),
    Fault(
        "shared: no barrier before the softmax",
        "shared",
        "s : MINUS_INFINITY;\n        }\n        __syncthreads();",
        "s : MINUS_INFINITY;\n        }",
        "race",
    ),
    Fault(
        "shared: no barrier before alpha is replaced",
        "shared",
        "    __syncthreads();\n    if (threadIdx.x < BR) alpha",
        "    if (threadIdx.x < BR) alpha",
        "race",
        file="block_softmax.cuh",
    ),
    Fault(
        "smallbr: no barrier before P is used",
        "smallbr",
        "take_softmax(S, alpha, m, l);\n        __syncthreads();",
        "take_softmax(S, alpha, m, l);",
        "race",
    ),
    Fault(
        "warp: no barrier before the tile is used",
        "warp",
        "- key0);\n        __syncthreads();\n\n        float S",
        "- key0);\n\n        float S",
        "race",
    ),
    Fault(
        "float64: no barrier in the second pass",
        "float64",
        "load_tile(V, v + (long long)key0 * D, p.Nk - key0);\n        __syncthreads();",
        "load_tile(V, v + (long long)key0 * D, p.Nk - key0);",
        "race",
    ),
    Fault(
        "float4: a barrier in a branch",
        "float4",
        "__syncthreads();  // all threads",
        "if (t.row0 + warp_row < p.Nq) __syncthreads();  // all threads",
        "divergence",
        "__syncthreads",
    ),
    Fault(
        "warp: a shuffle in a branch",
        "warp",
        "const float p = SHFL(P[r], j);",
        "const float p = lane < 31 ? SHFL(P[r], j) : 0;",
        "divergence",
    ),
    Fault(
        "shared: threads without a row leave early",
        "shared",
        "        __syncthreads();\n\n        take_softmax",
        "        if (threadIdx.x >= BR) return;\n        __syncthreads();\n\n        take_softmax",
        "wrong answer",
    ),
]
MEMORY = [
    Fault(
        "flash: loads one key past the end",
        "flash",
        "from + n * D, row + n < rows)",
        "from + n * D, row + n <= rows)",
        "out of bounds",
        "of K of batch 0, which has",
        file="stream.cuh",
    ),
    Fault(
        "flash: stores one row past the end",
        "flash",
        "if (row_at(i) >= p.Nq - row) continue;",
        "if (row_at(i) > p.Nq - row) continue;",
        "out of bounds",
        "of O of batch 0, which has",
    ),
    Fault(
        "float4: loads a chunk past the end",
        "float4",
        "chunk < rows_left * CHUNKS",
        "chunk <= rows_left * CHUNKS",
        "out of bounds",
    ),
    Fault(
        "float4: V one chunk too far",
        "float4",
        "else V[chunk] = x;",
        "else V[chunk + 1] = x;",
        "out of bounds",
        "outside shared memory",
    ),
    Fault(
        "naive: scores of rows past the end",
        "naive",
        "if (i >= p.Nq || j >= p.Nk) return;",
        "if (j >= p.Nk) return;",
        "out of bounds",
    ),
    Fault(
        "rows: rows past the end are read",
        "warp",
        "e / D < rows_left ?",
        "e / D <= rows_left ?",
        "out of bounds",
        file="rows.cuh",
    ),
    Fault(
        "smallbr: a local array one too long",
        "smallbr",
        "O[n] = alpha[i] * O[n] + sum;",
        "O[n + (key0 > 64)] = alpha[i] * O[n] + sum;",
        "out of bounds",
    ),
    Fault(
        "warp: a local array one too long",
        "warp",
        "for (int r = 0; r < ROWS; ++r) {\n        m[r] = BELOW_ALL_SCORES;",
        "for (int r = 0; r <= ROWS; ++r) {\n        m[r] = BELOW_ALL_SCORES;",
        "out of bounds",
        build=ASAN,
    ),
    Fault(
        "flash: padding of d is not zeroed",
        "flash",
        "if (rows >= BC) {",
        "if (row >= BC) return; if (rows >= BC) {",
        "uninitialised",
        file="stream.cuh",
        shape=Shape(2, 130, 36),
    ),
    Fault(
        "shared: alpha is not written for the last row",
        "shared",
        "    alpha[threadIdx.x] = exp2f(m - m_new);",
        "    if (threadIdx.x + 1 < BR) alpha[threadIdx.x] = exp2f(m - m_new);",
        "uninitialised",
        file="block_softmax.cuh",
    ),
    Fault(
        "naive: the softmax skips a row's first score",
        "naive",
        "if (i >= p.Nq || j >= p.Nk) return;",
        "if (i >= p.Nq || j >= p.Nk || j == 0) return;",
        "uninitialised",
        "scratch",
    ),
    Fault(
        "shared: Q is scaled where it lies",
        "shared",
        "    load_rows<BR, D>(Q, q, p.Nq",
        "    if (!threadIdx.x) const_cast<float*>(q)[0] += 1;\n    load_rows<BR, D>(Q, q, p.Nq",
        "input written",
        "Q of batch 0",
    ),
    Fault(
        "flash: O behind an odd number of floats in scratch",
        "flash",
        "p.partial_o + partial_row(p, t, row) * D",
        "(float*)(p.row_stats + p.splits * p.batches * p.Nq) + partial_row(p, t, row) * D",
        "misaligned",
        "flash.cu:2",
        shape=Shape(1, 401, 32),
        tile={"BR": 128, "BC": 16},
    ),
    Fault(
        "flash: P is stored 8 bytes off",
        "flash",
        "store_shared(p_at + (across_at",
        "store_shared(8 + p_at + (across_at",
        "misaligned",
    ),
    Fault(
        "shared: blocks share their first row of O",
        "shared",
        "row_of(p.o, t.batch, t.row0)",
        "row_of(p.o, t.batch, t.row0 ? t.row0 - 1 : 0)",
        "race",
        "blocks of one launch",
    ),
]
RESULTS = [
    Fault(
        "flash: tail mask one key off",
        "flash",
        "RUN + key_of(j))) S[i][j]",
        "RUN + key_of(j) - 1)) S[i][j]",
        "wrong answer",
        data=EQUAL,
    ),
    Fault(
        "float4: tail mask one key off",
        "float4",
        "allows(warp_row + 2 * half + r, key",
        "allows(warp_row + 2 * half + r, -1 + key",
        "wrong answer",
        data=EQUAL,
    ),
    Fault(
        "flash: swizzle in the stores alone",
        "flash",
        "(to ^ Swizzle::of(n))",
        "(to ^ Swizzle::of(n + 4))",
        "wrong answer",
        file="stream.cuh",
    ),
    Fault(
        "flash: no way back from an overflow",
        "flash",
        "if (__syncthreads_or(!sound)) {",
        "if (__syncthreads_or(0)) {",
        "wrong answer",
        data=HUGE,
    ),
    Fault("warp: O is not rescaled", "warp", "O[r][x] *= alpha;", "O[r][x] *= 1;", "wrong answer"),
    Fault("float4: keys of K swapped", "float4", "return j * CHUNKS + (c", "return (j + 1) * CHUNKS + (c", "race"),
]
WIDE = [
    Fault(
        "64 lanes: a shuffle without its width",
        "warp",
        "__shfl(value, lane, 32)",
        "__shfl(value, lane)",
        "wrong answer",
        file="platform.cuh",
        lanes=64,
    ),
    Fault(
        "64 lanes: rows by warps of 64",
        "warp",
        "const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * ROWS;",
        "const int lane = threadIdx.x % 64, warp_row = threadIdx.x / 64 * ROWS;",
        "wrong answer",
        lanes=64,
    ),
    Fault(
        "64 lanes: a mask of 32 bits",
        "flash",
        "__any(condition)",
        "__any_sync(0xffffffffu, condition)",
        "does not compile",
        file="platform.cuh",
        lanes=64,
    ),
    Fault(
        "64 lanes: a row's softmax by warps of 64",
        "naive",
        "const int lane = threadIdx.x % SOFTMAX_LANES;",
        "const int lane = threadIdx.x % warpSize;",
        "wrong answer",
        lanes=64,
    ),
    Fault(
        "64 lanes: a warp to a row of scores",
        "smallbr",
        "const int i = threadIdx.x / BC, j = threadIdx.x % BC;",
        "const int i = threadIdx.x / warpSize, j = threadIdx.x % warpSize;",
        "race",
        lanes=64,
    ),
    Fault(
        "64 lanes: a warp to a row of a tile",
        "shared",
        "i = e / BC, j = e % BC;",
        "i = e / warpSize, j = e % warpSize;",
        "race",
        lanes=64,
    ),
    Fault(
        "64 lanes: four rows for a warp of 64",
        "float4",
        "warp_row = threadIdx.x / 32 * 4;",
        "warp_row = threadIdx.x / warpSize * 4;",
        "wrong answer",
        lanes=64,
    ),
    Fault(
        "64 lanes: the four lanes of a row without their width",
        "float64",
        "__shfl(value, lane, LANES)",
        "__shfl(value, lane)",
        "wrong answer",
        lanes=64,
    ),
    Fault(
        "64 lanes: 32 rows for a warp of 64",
        "flash",
        "const int first_row = threadIdx.x / 32 * 32",
        "const int first_row = threadIdx.x / warpSize * 32",
        "race",
        lanes=64,
    ),
]
FAULTS = [*BARRIERS, *MEMORY, *RESULTS, *WIDE]
