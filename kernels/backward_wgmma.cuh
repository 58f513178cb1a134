#pragma once
// What backward_wgmma's two passes share: what a launch passes, where tiles lie in shared memory, which are a block's, and how
// sums leave the registers.
//
// The macros come from hw4cli/plans/backwardwgmma.py: COLUMNS of the sums are computed, D rounded up to a multiple of 64.

#include "hopper.cuh"
#include "mma.cuh"
#include "pairs.cuh"
#include "mask.cuh"
#include "platform.cuh"
#include "sixteen.cuh"
#include "scored.cuh"
#include "spans.cuh"
#include "swizzled.cuh"

// The bytes that hw4cli/plans/backwardwgmma.py lays out. A pass owns rows of two matrices, and streams tiles of two others.
struct PassMaps { TensorMap own[2], streamed[2]; };
struct TiledMaps {
    PassMaps dq_maps, dkdv_maps;  // own q and dO, streamed k and v; own k and v, streamed q and dO
    TensorMap stats_map;          // of lines of 128 bytes: stats of 16 rows
};
struct TiledWork {
    Matrix<const unsigned short> o, d_o;
    Matrix<unsigned short> dq, dk, dv;
    const float* lse;    // natural: of the forward pass; of each head its rows one after the other
    long long lse_batch, lse_head;
    float2* stats;       // (batches, heads, stats_rows), scratch: of each row, -LSE in base 2, and delta
    float* parts;        // backward_once: of each part dK and dV, not yet scaled, in the order of registers; scratch
    float* dq_sums;      // backward_once: dQ, not yet scaled, of each tile of queries in the order of registers; scratch
    int* counts;         // backward_once: how many tiles of keys each of these tiles has the sum of; behind them the next task.
                         // CLAIMS: the next task of the pass that owns queries, and of the one that owns keys
    int batches, heads, kv_heads, Nq, Nk, stats_rows;  // stats_rows: Nq rounded up to whole tiles
    int causal_offset;   // causal: row i sees the keys 0 to i + causal_offset
    int section;         // heads whose rows are owned that are worked on together
    // backward_once. What is streamed past the keys of heads from the first on is cut into parts: so many of the heads that share
    // keys, times so many of their rows. Tiles of keys add to dQ in so many chains, each with its own sums.
    int split_from, split_heads, split_rows, chains;
    float scale, log2_scale;  // of the scores; times log2(e)
    int window;               // WINDOW: of the keys that a row sees by causal_offset, the last so many
    // SEQUENCES: of each tile of stats, and of the tiles that a pass owns, its sequence; how many tiles each pass owns in a head.
    const Span* stats_spans;
    const Span* dq_spans;
    const Span* dkdv_spans;
    int dq_tiles, dkdv_tiles;
#if SCORED
    Scoring scoring;
#endif
};
struct TiledParams : TiledMaps, TiledWork {};

#if SCORED && SCORE_SLOPES
constexpr bool SLOPED = true;
#else
constexpr bool SLOPED = false;
#endif
constexpr bool CLAIMS = COLUMNS > 128;  // blocks of two passes claim task after task (`counts`), as these are not equally long
#ifndef DV  // columns of V, dO and dV
#define DV D
#endif
constexpr int SUBTILES = COLUMNS / 64, V_SUBTILES = ceil_div(DV, 64);  // of 64 columns, 128 bytes a row
static_assert(COLUMNS % 64 == 0 && COLUMNS >= D && COLUMNS <= 256 && D % 8 == 0, "rows of 16-byte chunks, as TMA copies them");
static_assert(V_SUBTILES <= SUBTILES && DV % 8 == 0, "V has as many columns as K, or fewer");

// A block of a pass: GROUPS of four warps own 64 rows each; tiles of BC rows pass through STAGES buffers. KEYS: the rows that are
// owned are keys, and beside the tiles come their rows' stats. AHEAD: a tile's scores are issued before the sums of the tile
// before have been computed. EARLY_BLOCKS: of so many blocks of 8 queries of a tile, P is summed up while dP is computed.
// TOGETHER: two groups own the same 64 keys, as the registers of one do not hold the sums of dK and of dV. One computes scores and
// P, and hands P to the other one, which computes dP: as 2^14 P in fp16, which holds 11 bits of it down to 2^-28; times slopes, which may
// be large, in float32.
template <bool KEYS_OWNED, int GROUPS_OF_WARPS, int TILE, int BUFFERS, bool SCORES_AHEAD, int EARLY_BLOCKS = 0,
          bool OWNED_TOGETHER = false>
struct Geometry {
    static constexpr bool KEYS = KEYS_OWNED, AHEAD = SCORES_AHEAD, TOGETHER = OWNED_TOGETHER;
    static constexpr bool HALVES = TOGETHER && !SLOPED;
    static constexpr float BIAS = HALVES ? 14 : 0, OVER_BIAS = HALVES ? 0x1p-14f : 1;  // P is held as 2^BIAS P
    static constexpr int EARLY = EARLY_BLOCKS;
    static constexpr int GROUPS = GROUPS_OF_WARPS, BC = TILE, STAGES = BUFFERS, BLOCK = 128 * (GROUPS + 1);
    static constexpr int SETS = TOGETHER ? 1 : GROUPS, BR = 64 * SETS;  // of 64 owned rows
    // Of the first matrix, of Q's columns, and of both with the second, which has V's.
    static constexpr unsigned OWN_BYTES = SUBTILES * 64 * 128, TILE_BYTES = SUBTILES * BC * 128;
    static constexpr unsigned BOTH_OWN_BYTES = OWN_BYTES + V_SUBTILES * 64 * 128, BOTH_TILE_BYTES = TILE_BYTES + V_SUBTILES * BC * 128;
    static constexpr unsigned STATS_BYTES = KEYS ? BC * 8 : 0, STAGE_BYTES = BOTH_TILE_BYTES + STATS_BYTES;
    static constexpr unsigned HANDED_BYTES = TOGETHER ? 64 * BC * 4 : 0;  // of a tile's P, at most
    static constexpr unsigned STREAM_AT = SETS * BOTH_OWN_BYTES, HANDED_AT = STREAM_AT + STAGES * BOTH_TILE_BYTES;
    static constexpr unsigned STATS_AT = HANDED_AT + 2 * HANDED_BYTES, BARRIERS_AT = STATS_AT + STAGES * STATS_BYTES;
    // Of each group's registers, for the threads that claim tasks.
    static constexpr int MORE = CLAIMS ? 16 : SEQUENCES && EARLY > 0 ? 8 : 0;
    static constexpr int REGISTERS = GROUPS == 3 ? 160 : 240 - MORE, COPY_REGISTERS = GROUPS == 3 ? 32 : 24 + 2 * MORE;
    static_assert(BC % 16 == 0, "products of 16 rows");
    static_assert(!CLAIMS || SETS <= 2, "numbers of 8 bytes");
    static_assert(!TOGETHER || (KEYS && GROUPS == 2 && AHEAD && EARLY == 0), "one group has dV, the other one dK");

    unsigned base;  // of shared memory
    __device__ __forceinline__ unsigned own(int group, int which) const { return base + group * BOTH_OWN_BYTES + which * OWN_BYTES; }
    __device__ __forceinline__ unsigned own_full(int group) const { return base + BARRIERS_AT + group * 16; }
    __device__ __forceinline__ unsigned own_empty(int group) const { return own_full(group) + 8; }
    __device__ __forceinline__ unsigned tile(unsigned n, int which) const {
        // As n % STAGES * BOTH_TILE_BYTES + which * TILE_BYTES it would cost registers, and ptxas would spill some.
        return base + STREAM_AT + (n % STAGES * 2 + which) * TILE_BYTES - n % STAGES * (2 * TILE_BYTES - BOTH_TILE_BYTES);
    }
    __device__ __forceinline__ unsigned stats(unsigned n) const { return base + STATS_AT + n % STAGES * STATS_BYTES; }
    __device__ __forceinline__ unsigned full(unsigned n) const { return own_full(GROUPS + n % STAGES); }
    __device__ __forceinline__ unsigned empty(unsigned n) const { return full(n) + 8; }
    // TOGETHER: where the n-th tile's P passes from group to group.
    __device__ __forceinline__ unsigned handed(unsigned n) const { return base + HANDED_AT + n % 2 * HANDED_BYTES; }
    __device__ __forceinline__ unsigned handed_full(unsigned n) const { return own_full(GROUPS + STAGES + n % 2); }
    __device__ __forceinline__ unsigned handed_empty(unsigned n) const { return handed_full(n) + 8; }
    __device__ __forceinline__ unsigned number(int set) const { return own_full(GROUPS + STAGES + 2 * TOGETHER) + set * 8; }  // CLAIMS: the task's
    __device__ __forceinline__ unsigned cleared() const { return own_full(GROUPS + STAGES + 2 * TOGETHER + CLAIMS); }  // SEQUENCES
    __device__ __forceinline__ void make_barriers() const {
        if (SEQUENCES) mbarrier_init<4 * GROUPS>(cleared());
        for (int g = 0; g < SETS; g++) mbarrier_init<1>(own_full(g)), mbarrier_init<4 * GROUPS / SETS>(own_empty(g));
        if (TOGETHER) for (int n = 0; n < 2; n++) mbarrier_init<128>(handed_full(n)), mbarrier_init<128>(handed_empty(n));
        for (int n = 0; n < STAGES; n++) mbarrier_init<1>(full(n)), mbarrier_init<4 * GROUPS>(empty(n));
        fence_mbarrier_init();
    }
    __device__ __forceinline__ void wait(unsigned n) const { mbarrier_wait(full(n), n / STAGES % 2); }
    __device__ __forceinline__ void release(unsigned n) const {
        if (KEYS) __syncwarp();  // all lanes have read the stats
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(n));
    }
};

// BR owned rows of a head, and the tiles [first, end) that are streamed past them, of each of `heads` heads from `head` on.
struct Task {
    int batch, own_head, row0;
    int head, heads, first, end;
    int part;  // of all heads that are split; -1: the whole
#if SEQUENCES
    Span span;  // in which rows, keys and tiles are counted
    __device__ __forceinline__ int in_batch() const { return span.batch; }
    __device__ __forceinline__ int row(int n) const { return span.row + n; }
    __device__ __forceinline__ int key(int n) const { return span.key + n; }
#else
    __device__ __forceinline__ int in_batch() const { return batch; }
    __device__ __forceinline__ int row(int n) const { return n; }
    __device__ __forceinline__ int key(int n) const { return n; }
#endif
};

#if SEQUENCES
template <class T> __device__ __forceinline__ void move(Matrix<T>& m, int batch, int row) {
    m.data += batch * m.batch + row * m.row;
}
// A sequence in the place of the arrays, as if these were of one batch.
__device__ __forceinline__ TiledWork of_sequence(const TiledWork& p, const Span& s) {
    TiledWork one = p;
    one.batches = 1, one.split_from = p.kv_heads, one.Nq = s.rows, one.Nk = s.keys, one.causal_offset = s.causal_offset;
    move(one.o, s.batch, s.row), move(one.d_o, s.batch, s.row), move(one.dq, s.batch, s.row);
    move(one.dk, s.batch, s.key), move(one.dv, s.batch, s.key);
    one.lse += s.batch * p.lse_batch + s.row;
#if SCORED
    move(one.scoring, s);
#endif
    return one;
}
// What a task is counted in.
__device__ __forceinline__ TiledWork work_of(const TiledParams& p, const Task& t) { return of_sequence(p, t.span); }
#else
__device__ __forceinline__ const TiledParams& work_of(const TiledParams& p, const Task&) { return p; }
#endif

// Which task of a pass is the n-th. Tasks of several heads are mixed, so that few blocks wait for each other's sums
// (backward_once); causal: the longest first.
template <class G, class Work> __device__ __forceinline__ Task task_in(const Work& p, int n) {
    const int own_rows = G::KEYS ? p.Nk : p.Nq, streamed = G::KEYS ? p.Nq : p.Nk, heads = G::KEYS ? p.kv_heads : p.heads;
    const int own_tiles = ceil_div(own_rows, G::BR), tiles = ceil_div(streamed, G::BC), group = p.heads / p.kv_heads;
    const bool split = G::KEYS && n >= p.split_from * own_tiles;
    const int parts = split ? p.split_heads * p.split_rows : 1, begin = split ? p.split_from : 0;
    const int of_section = p.section * parts;
    n -= begin * own_tiles;
    const int first_part = n / (of_section * own_tiles) * of_section;
    const int section = min(of_section, ((G::KEYS && !split ? p.split_from : p.batches * heads) - begin) * parts - first_part);
    const int rest = n - first_part * own_tiles, part = first_part + rest % section, at = begin + part / parts;
    const int tile = CAUSAL && !G::KEYS ? own_tiles - 1 - rest / section : rest / section;
    const int batch = at / heads, head = at - batch * heads, row0 = tile * G::BR;
    if (G::KEYS) {
        const int first = CAUSAL ? min(max(0, row0 - p.causal_offset) / G::BC, tiles - 1) : 0;
        const int end = WINDOW ? max(first + 1, ceil_div(end_row_of(p, row0 + G::BR - 1), G::BC)) : tiles;
        if (!split) return {batch, head, row0, head * group, group, first, end, -1};
        const int of_heads = part % parts / p.split_rows, of_rows = part % p.split_rows;
        const int first_head = of_heads * group / p.split_heads, end_head = (of_heads + 1) * group / p.split_heads;
        return {batch, head, row0, head * group + first_head, end_head - first_head,
                max(first, of_rows * tiles / p.split_rows), (of_rows + 1) * tiles / p.split_rows, part};
    }
    const int end = CAUSAL ? max(1, min(tiles, ceil_div(row0 + G::BR + p.causal_offset, G::BC))) : tiles;
    return {batch, head, row0, head / group, 1, min(first_key_of(p, row0) / G::BC, end - 1), end, -1};
}
// SEQUENCES: tasks of a sequence follow one another, those of the longest one come first.
template <class G> __device__ __forceinline__ Task task_of(const TiledParams& p, int n) {
#if SEQUENCES
    const int heads = G::KEYS ? p.kv_heads : p.heads;
    const Span s = (G::KEYS ? p.dkdv_spans : p.dq_spans)[n / heads];
    Task t = task_in<G>(of_sequence(p, s), n - s.first * heads);
    t.span = s;
    return t;
#else
    return task_in<G>(p, n);
#endif
}
// How many tasks a pass has.
template <class G> __device__ __forceinline__ int count_of(const TiledParams& p) {
#if SEQUENCES
    return G::KEYS ? p.kv_heads * p.dkdv_tiles : p.heads * p.dq_tiles;
#else
    return p.batches * (G::KEYS ? p.kv_heads * ceil_div(p.Nk, G::BR) : p.heads * ceil_div(p.Nq, G::BR));
#endif
}
// Calls work(task) for this block's tasks. Causal: every second round goes backwards, so that no block gets all the long ones.
template <class G, class Work> __device__ __forceinline__ void each_task(const TiledParams& p, Work work) {
    const int tasks = count_of<G>(p), blocks = gridDim.x;
    for (int round = 0; round * blocks < tasks; round++) {
        const int n = round * blocks + (CAUSAL && round % 2 ? blocks - 1 - blockIdx.x : blockIdx.x);
        if (n < tasks) work(task_of<G>(p, n));
    }
}

// The same for a group. CLAIMS: of each task that the block's producer thread has claimed; its rows have come.
template <class G, class Work>
__device__ __forceinline__ void each_task_of_group(const TiledParams& p, const G& memory, int set, Work work) {
    if constexpr (!CLAIMS) each_task<G>(p, work);
    else for (unsigned n = 0;; n++) {
        mbarrier_wait(memory.own_full(set), n % 2);
        // Read by the lane that will arrive.
        const int task = __float_as_int(__shfl_sync(0xffffffffu, threadIdx.x % 32 ? 0 : load_shared2(memory.number(set)).x, 0));
        if (task >= count_of<G>(p)) return;
        work(task_of<G>(p, task));
    }
}

// Issues the copy of a group's owned rows, or of tile j of a head as the n-th tile, once their buffers are empty.
template <class G> __device__ __forceinline__ void copy_own(const PassMaps& maps, const G& memory, const Task& t, int group,
                                                            unsigned barrier) {
    UNROLL for (int w = 0; w < 2; w++) UNROLL for (int c = 0; c < (w ? V_SUBTILES : SUBTILES); c++)
        copy_box(memory.own(group, w) + c * 64 * 128, maps.own[w], c * 64, G::KEYS ? t.key(t.row0 + group * 64) : t.row(t.row0 + group * 64),
                 t.own_head, t.in_batch(), barrier);
}
template <class G> __device__ __forceinline__ void copy_tile(const TiledParams& p, const PassMaps& maps, const G& memory,
                                                             const Task& t, int head, int j, unsigned n) {
    const unsigned barrier = memory.full(n);
    mbarrier_wait(memory.empty(n), n / G::STAGES % 2 ^ 1);
    mbarrier_expect<G::STAGE_BYTES>(barrier);
    UNROLL for (int w = 0; w < 2; w++) UNROLL for (int c = 0; c < (w ? V_SUBTILES : SUBTILES); c++)
        copy_box(memory.tile(n, w) + c * G::BC * 128, maps.streamed[w], c * 64, G::KEYS ? t.row(j * G::BC) : t.key(j * G::BC), head,
                 t.in_batch(), barrier);
    if (G::KEYS) {  // as a box: compute-sanitizer holds other copies against reads that __syncwarp and an arrival order
#if SEQUENCES
        const long long row = (long long)head * p.stats_rows + (t.span.query_tile + j) * G::BC;
#else
        const long long row = ((long long)t.batch * p.heads + head) * p.stats_rows + j * G::BC;
#endif
        copy_box(memory.stats(n), p.stats_map, 0, row / 16, 0, 0, barrier);
    }
}
// Calls work(task, its number) for this block's tasks. CLAIMS: for the next one that no block has claimed.
template <class G, class Work> __device__ __forceinline__ void each_task_to_copy(const TiledParams& p, Work work) {
    if constexpr (!CLAIMS) each_task<G>(p, work);
    else for (int n; (n = atomicAdd(p.counts + G::KEYS, 1)) < count_of<G>(p);) work(task_of<G>(p, n), n);
}
// The loop of the producer thread.
template <class G> __device__ __forceinline__ void copy_tiles(const TiledParams& p, const PassMaps& maps, const G& memory) {
    unsigned issued = 0, tasks = 0;
    each_task_to_copy<G>(p, [&](const Task& t, int number = 0) {
        for (int g = 0; g < G::SETS; g++) {
            mbarrier_wait(memory.own_empty(g), tasks % 2 ^ 1);
            if (CLAIMS) store_shared(memory.number(g), __int_as_float(number), 0);
            mbarrier_expect<G::BOTH_OWN_BYTES>(memory.own_full(g));
            copy_own(maps, memory, t, g, memory.own_full(g));
        }
        tasks++;
        for (int head = t.head; head < t.head + t.heads; head++)
            for (int j = t.first; j < t.end; j++) copy_tile(p, maps, memory, t, head, j, issued++);
    });
    if (CLAIMS) for (int g = 0; g < G::SETS; g++) {  // none is left
        mbarrier_wait(memory.own_empty(g), tasks % 2 ^ 1);
        store_shared(memory.number(g), __int_as_float(count_of<G>(p)), 0);
        mbarrier_arrive(memory.own_full(g));
    }
}

// SEQUENCES: zeros in the rows from `first` on, which are of another sequence or of none, of a tile of ROWS; by COUNT threads of whole
// groups.
template <int ROWS, int COUNT, int OF = SUBTILES> __device__ __forceinline__ void clear_rows(unsigned at, int first) {
    const int chunks = (ROWS - first) * 8;
    for (int e = (threadIdx.x - 128) % COUNT; e < chunks * OF; e += COUNT)
        store_shared(at + e / chunks * ROWS * 128 + first * 128 + e % chunks * 16, uint4{0, 0, 0, 0});
    fence_proxy_async();
}
// All groups have: each warp arrives, and waits. (synccheck takes a named barrier for divergence, as groups reach it at several
// places.)
__device__ __forceinline__ void meet(unsigned barrier, unsigned& met) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
    mbarrier_wait(barrier, met++ % 2);
}

typedef float Sums[COLUMNS / 8][4];
typedef float ValueSums[V_SUBTILES * 8][4];

template <int N> __device__ __forceinline__ void clear(float (&sum)[N][4]) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) sum[n][e] = 0;
}
// Writes sums of this thread's rows, times a factor; they are those of columns from `first` on, of so many.
template <int OF = D, int N>
__device__ __forceinline__ void store(const float (&sum)[N][4], const Matrix<unsigned short>& m, int batch, int head, int row,
                                      int rows, float factor, int first = 0) {
    UNROLL for (int h = 0; h < 2; h++, row += 8) {
        unsigned short* to = m.data + batch * m.batch + head * m.head + row * m.row;
        UNROLL for (int g = 0; g < N / 4; g++) {
            unsigned x[4];
            UNROLL for (int n = 0; n < 4; n++) x[n] = pack(sum[g * 4 + n][2 * h] * factor, sum[g * 4 + n][2 * h + 1] * factor);
            exchange_pairs(x);
            const int column = first + g * 32 + threadIdx.x % 4 * 8;
            if (row < rows && column < OF) *(uint4*)(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }
}

// ---- What a consumer computes of a tile that is streamed past its 64 owned rows

template <int BC> using Scores = float[BC / 8][4];
template <int BC> using Weights = unsigned[BC / 16][4];

// S = own streamed^T, for 64 owned rows.
template <int BC, int OF = SUBTILES>
__device__ __forceinline__ void issue_scores(Scores<BC>& S, unsigned own_at, unsigned tile_at) {
    const unsigned a = matrix_at(own_at, 16), b = matrix_at(tile_at, 16);
    UNROLL for (int n = 0; n < 4 * OF; n++)  // 16 columns
        wgmma(S, descriptor(a + (n / 4 * 64 * 128 + n % 4 * 32) / 16),
              descriptor(b + (n / 4 * BC * 128 + n % 4 * 32) / 16), n > 0);
    wgmma_commit();
}
// Below, the blocks [FROM, TO) of a tile are meant, of 8 streamed rows.
// sum += P streamed.
template <int BC, int FROM, int TO, int N>
__device__ __forceinline__ void issue_sums(float (&sum)[N][4], const Weights<BC>& P, unsigned tile_at) {
    static_assert(FROM % 2 == 0 && TO % 2 == 0, "products of 16 rows");
    if (FROM == TO) return;
    wgmma_fence();
    const unsigned b = matrix_at(tile_at, BC * 128);
    UNROLL for (int n = FROM / 2; n < TO / 2; n++) wgmma_rows(sum, P[n], descriptor(b + n * 128));
    wgmma_commit();
}
template <int FROM, int TO, int N>
__device__ __forceinline__ void round_weights(const float (&S)[N][4], unsigned (&P)[N / 2][4]) {
    UNROLL for (int n = FROM; n < TO; n++) UNROLL for (int h = 0; h < 2; h++)
        P[n / 2][n % 2 * 2 + h] = pack(S[n][2 * h], S[n][2 * h + 1]);
}
// `otherwise` where the mask is, in columns that are not seen; in the row eight below, `below`. Columns are counted from this
// thread's first. Where they are queries (KEYS) and see a key, so do all behind them, where they are keys, all before: but for a
// WINDOW.
template <bool KEYS, int FROM, int TO, int N>
__device__ __forceinline__ void mask(float (&S)[N][4], Seen seen, Seen below, float otherwise) {
    UNROLL for (int n = FROM; n < TO; n++) UNROLL for (int e = 0; e < 4; e++) {
        const int column = n * 8 + e % 2;
        const Seen& row = e / 2 ? below : seen;
        if (((KEYS || WINDOW) && column < row.first) || ((!KEYS || WINDOW) && column >= row.end)) S[n][e] = otherwise;
    }
}

// Where a thread's scores of a tile are: its first owned row, the first streamed one, and the head of the queries.
struct TilePlace { int batch, head, row, column; };

// What a group computes of a tile: scores and dP, from them P and dS, and what these add to the sums: FIRST, those of dQ or dK;
// SECOND, those of dV. TOGETHER, a group has one of them, and the one with dV computes the scores.
template <class G, bool HAS_FIRST = true, bool HAS_SECOND = G::KEYS> struct Group {
    static constexpr int BC = G::BC, ALL = BC / 8, EARLY = G::EARLY;
    static constexpr bool FIRST = HAS_FIRST, SECOND = HAS_SECOND, WEIGHS = SECOND || !G::TOGETHER;
    Sums first;  // dQ, or dK
    ValueSums second;  // dV
    Scores<BC> S, dP;
    Weights<BC> P, dS;
    float2 row_stats[2];  // of the owned rows, unless they are keys
#if SCORED && SCORE_SLOPES && !defined(SCORE_SLOPE_AFTER)
    Scores<BC> slopes;
#endif

    __device__ __forceinline__ void fence_sums() {
        if (FIRST) fence_registers(first);
        if (SECOND) fence_registers(second);
    }
    __device__ __forceinline__ float4 stats_of(unsigned stats_at, int n, int h) const {
        if (G::KEYS) {
            const Four x = load_shared(stats_at + n * 64 + threadIdx.x % 4 * 16);
            return {x.v[0], x.v[1], x.v[2], x.v[3]};
        }
        return {row_stats[h].x, row_stats[h].y, row_stats[h].x, row_stats[h].y};
    }
    // Issues a tile's scores and dP, waits for the sums of the tile before, and for the scores but TOGETHER.
    __device__ __forceinline__ void begin(const G& memory, int group, unsigned n) {
        wgmma_fence();
        if (WEIGHS) issue_scores<BC>(S, memory.own(group, 0), memory.tile(n, 0));
        if (FIRST) issue_scores<BC, V_SUBTILES>(dP, memory.own(group, 1), memory.tile(n, 1));
        wgmma_wait<1>();
        if (!G::TOGETHER) fence_registers(S);
        fence_sums();
    }
    // What blocks of a tile add to dV.
    template <int FROM, int TO> __device__ __forceinline__ void add_weights(const G& memory, unsigned n) {
        round_weights<FROM, TO>(S, P);
        issue_sums<BC, FROM, TO>(second, P, memory.tile(n, 1));
    }
    // dS, from weights before they are rounded.
    template <int FROM, int TO>
    __device__ __forceinline__ void make_dS(unsigned stats_at, bool masked, Seen seen, Seen below) {
        UNROLL for (int i = FROM; i < TO; i++) UNROLL for (int h = 0; h < 2; h++) {
            const float4 stats = stats_of(stats_at, i, h);
            dP[i][2 * h] = S[i][2 * h] * (dP[i][2 * h] - stats.y);
            dP[i][2 * h + 1] = S[i][2 * h + 1] * (dP[i][2 * h + 1] - stats.w);
#if SCORED && SCORE_SLOPES
            if (!G::TOGETHER) dP[i][2 * h] *= slope(i, 2 * h, stats.x), dP[i][2 * h + 1] *= slope(i, 2 * h + 1, stats.z);
#endif
        }
        if (masked) mask<G::KEYS, FROM, TO>(dP, seen, below, 0);
        round_weights<FROM, TO>(dP, dS);
    }
#if SCORED && SCORE_SLOPES
    // That of a score, where S has its weight: of tanh by the score itself, which is the weight's logarithm, as registers are few.
    __device__ __forceinline__ float slope(int i, int e, [[maybe_unused]] float loss) const {
#ifdef SCORE_SLOPE_AFTER
        return slope_after((log2_fast(S[i][e]) - loss) * (1 / LOG2E));
#else
        return slopes[i][e];
#endif
    }
#endif
#ifdef SCORE_SLOPE_AFTER
    // A cap, where all scores of a warp are small: as halfscores.cuh has it.
    __device__ __forceinline__ bool change_small_scores(float scale) {
        float top = 0, c[SMALL_TERMS];
        UNROLL for (int i = 0; i < ALL; i++) UNROLL for (int e = 0; e < 4; e++) top = fmaxf(top, fabsf(S[i][e]));
        if (ANY(!(top * (scale * float(SCORE_INNER)) <= SMALL_TANH))) return false;
        tanh_terms(c, scale * float(SCORE_INNER));
        UNROLL for (int n = 0; n < SMALL_TERMS; n++) c[n] *= float(SCORE_OUTER);
        UNROLL for (int i = 0; i < ALL; i++) UNROLL for (int e = 0; e < 4; e++) S[i][e] *= tanh_sum(c, S[i][e] * S[i][e]);
        return true;
    }
#endif
#if SCORED
    template <class Work> __device__ __forceinline__ void change_scores(const Work& p, const TilePlace& at) {
#if defined(SCORE_SLOPE_AFTER) && !SCORE_KEPT
        if (change_small_scores(p.scale)) return;
#endif
        const ScoredHead head = scored_head(p.scoring, at.batch, at.head);
        const ScoreIndex first_own(at.row), first_streamed(at.column);
        UNROLL for (int i = 0; i < ALL; i++) UNROLL for (int e = 0; e < 4; e++) {
            const ScoreIndex own = first_own + e / 2 * 8, streamed = first_streamed + (i * 8 + e % 2);
            const ScoreIndex query = G::KEYS ? streamed : own, key = G::KEYS ? own : streamed;
            const float natural = S[i][e] * p.scale, tile = score_tile(p.scoring, head, query.n, key.n);
#if SCORE_SLOPES && !defined(SCORE_SLOPE_AFTER)
            slopes[i][e] = score_slope(p.scoring, head, natural, query, key, tile);
#endif
            S[i][e] = changed_score(p.scoring, head, natural, query, key, tile);
        }
    }
#endif
    // Weights from scores.
    template <class Work>
    __device__ __forceinline__ void weigh(const Work& p, unsigned stats_at, bool masked, Seen seen, Seen below,
                                          [[maybe_unused]] const TilePlace& at) {
        const float to_log2 = SCORED ? LOG2E : p.log2_scale;
#if SCORED
        change_scores(p, at);
#endif
        if (masked) mask<G::KEYS, 0, ALL>(S, seen, below, MINUS_INFINITY);
        UNROLL for (int i = 0; i < ALL; i++) UNROLL for (int h = 0; h < 2; h++) {
            float4 stats = stats_of(stats_at, i, h);
            if (G::HALVES) stats.x += G::BIAS, stats.z += G::BIAS;
            S[i][2 * h] = exp2_fast(fmaf(S[i][2 * h], to_log2, stats.x));
            S[i][2 * h + 1] = exp2_fast(fmaf(S[i][2 * h + 1], to_log2, stats.z));
        }
    }
    // TOGETHER: weights, times the slopes of their scores, from the group that computes them to the other one, thread by thread.
    __device__ __forceinline__ void hand_over(const G& memory, unsigned n) {
        const unsigned at = memory.handed(n) + threadIdx.x % 128 * 16;
        mbarrier_wait(WEIGHS ? memory.handed_empty(n) : memory.handed_full(n), n / 2 % 2 ^ WEIGHS);
        if (G::HALVES) UNROLL for (int i = 0; i < ALL; i += 2) {
            const unsigned mine = at + i / 2 * 128 * 16;
            if (WEIGHS) {
                const float *a = S[i], *b = S[i + 1];
                store_shared(mine, uint4{halves(a[0], a[1]), halves(a[2], a[3]), halves(b[0], b[1]), halves(b[2], b[3])});
            } else {
                const Four x = load_shared(mine);
                UNROLL for (int e = 0; e < 4; e++) {
                    const float2 two = floats(__float_as_uint(x.v[e]));
                    S[i + e / 2][e % 2 * 2] = two.x * G::OVER_BIAS, S[i + e / 2][e % 2 * 2 + 1] = two.y * G::OVER_BIAS;
                }
            }
        } else UNROLL for (int i = 0; i < ALL; i++) {
            if (WEIGHS) {
                float4 x{S[i][0], S[i][1], S[i][2], S[i][3]};
#if SCORED && SCORE_SLOPES
                const float4 a = stats_of(memory.stats(n), i, 0), b = stats_of(memory.stats(n), i, 1);
                x = {x.x * slope(i, 0, a.x), x.y * slope(i, 1, a.z), x.z * slope(i, 2, b.x), x.w * slope(i, 3, b.z)};
#endif
                store_shared(at + i * 128 * 16, x);
            } else {
                const Four x = load_shared(at + i * 128 * 16);
                UNROLL for (int e = 0; e < 4; e++) S[i][e] = x.v[e];
            }
        }
        // Every lane, though one behind __syncwarp would do: racecheck does not see the others' accesses ordered by its arrival.
        mbarrier_arrive(WEIGHS ? memory.handed_full(n) : memory.handed_empty(n));
    }
    // From scores that are complete and dP that is being computed: issues what the tile adds to the sums. TOGETHER, from scores or
    // dP that are being computed.
    template <class Work>
    __device__ __forceinline__ void finish(const Work& p, const G& memory, unsigned n, bool masked, Seen seen, Seen below,
                                           [[maybe_unused]] const TilePlace& at) {
        const unsigned stats_at = memory.stats(n);
        if (G::TOGETHER) {
            wgmma_wait<0>();
            if (WEIGHS) fence_registers(S);
        }
        if (WEIGHS) weigh(p, stats_at, masked, seen, below, at);
        if (G::TOGETHER) hand_over(memory, n);
        if (SECOND) add_weights<0, EARLY>(memory, n);
        if (FIRST) {
            if (!G::TOGETHER) wgmma_wait<(G::KEYS && EARLY > 0)>();
            fence_registers(dP);
            make_dS<EARLY, ALL>(stats_at, masked, seen, below);
        }
        if (SECOND) add_weights<EARLY, ALL>(memory, n);
        if (!FIRST) return;
        make_dS<0, EARLY>(stats_at, masked, seen, below);
        issue_sums<BC, 0, ALL>(first, dS, memory.tile(n, 0));
    }
    __device__ __forceinline__ void end() {
        wgmma_wait<0>();
        fence_sums();
    }
};

// ---- The launch before

// Of each row, -LSE in base 2 and delta = the sum of dO O. Rows that see no key and rows that are not there get no weight.
constexpr int LANES = DV <= 8 ? 1 : DV <= 16 ? 2 : DV <= 32 ? 4 : DV <= 64 ? 8 : DV <= 128 ? 16 : 32;  // to a row, 8 columns each

// TILE: rows of a tile of stats. The first heads come last, so that their dO is in the L2 cache when the pass begins with them.
template <int TILE> __device__ __forceinline__ void compute_stats(const TiledParams& p) {
    const long long n = (long long)(gridDim.x - 1 - blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
    const int head = n / p.stats_rows, row = n - (long long)head * p.stats_rows, batch = head / p.heads;
    const int column = threadIdx.x % LANES * 8;
#if SEQUENCES
    const Span s = p.stats_spans[row / TILE];
    const TiledWork w = of_sequence(p, s);
    const int in_sequence = row - s.query_tile * TILE;
    const bool there = batch < 1 && in_sequence < s.rows;
#else
    const TiledParams& w = p;
    const int in_sequence = row;
    const bool there = batch < p.batches && row < p.Nq;
#endif
    float delta = 0;
    if (there && column < DV) {
        const int in_batch = head - batch * p.heads;
        const uint4 a = *(const uint4*)(w.o.data + batch * p.o.batch + in_batch * p.o.head + in_sequence * p.o.row + column);
        const uint4 b = *(const uint4*)(w.d_o.data + batch * p.d_o.batch + in_batch * p.d_o.head + in_sequence * p.d_o.row + column);
        const unsigned x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
        UNROLL for (int i = 0; i < 4; i++) {
            const float2 u = unpack(x[i]), v = unpack(y[i]);
            delta = fmaf(u.x, v.x, fmaf(u.y, v.y, delta));
        }
    }
    delta = lanes_sum<LANES>(delta);
    if (batch >= p.batches || column > 0) return;
    float2 stats = make_float2(MINUS_INFINITY, 0);
    if (there) {
        const float lse = w.lse[batch * p.lse_batch + (head - batch * p.heads) * p.lse_head + in_sequence];
        if (lse != MINUS_INFINITY) stats = make_float2(lse * -LOG2E, delta);
    }
    p.stats[n] = stats;
}
