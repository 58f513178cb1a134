#pragma once
// Attention by warpgroups: four warps multiply 64 rows at once, asynchronously (wgmma, compute capability 9.0).
//
// P comes from registers, Q from there or from shared memory, K and V from there. Behind V, for the tensor cores, is a column of
// ones: the sum of the rounded P. Below is what a block does for few keys; for more, groups take turns (turns.cuh).

#include "fragments.cuh"
#include "ring.cuh"
#include "wgmma.cuh"

#if WARPGROUPS
constexpr unsigned ONES_BYTES = 16 * ROW;

static_assert(PROMOTION % BC == 0, "accumulators are promoted between tiles");
static_assert(PV_PIECES == 1 && SMALL_FIRST && WIDTH <= 64, "what was written, and measured");

// The descriptor of a matrix in shared memory: rows of ROW bytes, swizzled as in tiles.cuh, in groups of eight.
// What lies `beyond` bytes after it are further columns. (PTX ISA, "Matrix-Descriptor Format".)
__device__ __forceinline__ unsigned long long matrix_at(unsigned address, unsigned beyond = 0) {
    constexpr unsigned long long SWIZZLE = WIDTH == 64 ? 1 : 2;  // over 128 or 64 bytes
    return (address & 0x3ffff) >> 4 | (unsigned long long)(beyond >> 4) << 16 |
           (unsigned long long)(8 * ROW >> 4) << 32 | SWIZZLE << 62;
}
__device__ __forceinline__ void keep(RowState& r) { keep(r.O[0]), keep(r.l); }

__device__ __forceinline__ void make_ones(unsigned at) {
    for (unsigned n = threadIdx.x * 4; n < ONES_BYTES; n += THREADS * 4) store_shared(at + n, (unsigned)ONES_BITS);
}
// What the threads have written to shared memory is there for the tensor cores.
__device__ __forceinline__ void show_shared() {
    fence_async();
    __syncthreads();
}

#if INBLOCK
// Shared memory: the stage; absmax; ones for the 16 keys of a product; Q's hi and lo.
constexpr unsigned ABSMAX_AT = STAGES * (STAGE + 16), ABSMAX_BYTES = FOUND * BlockAbsmax::WARPS * 4;
constexpr unsigned ONES_AT = ceil_div(ABSMAX_AT + ABSMAX_BYTES, 1024) * 1024, TILE_AT = ONES_AT + ONES_BYTES;
// A batch is one block, so that no tile follows: there are registers for P V beside the next scores. AT_ONCE: for V beside Q and
// K, too, and for sub-tiles unrolled; at d = 64 that is slower, but with a mask all else spills.
constexpr bool ONE_TILE = RESIDENT_BLOCKS > 0;
#define AT_ONCE (RESIDENT_BLOCKS > 0 && (WIDTH == 32 || CAUSAL))

static_assert(MI == 1 && THREADS == BlockAbsmax::WARPS * 32, "two groups of four warps, each with 64 rows");

__device__ __forceinline__ void finish(RowState& r) { group_wait<0>(), keep(r); }  // all products are computed
// Ask for the scores of SUB keys. query(piece, n) is hi or lo of Q in 16 columns.
template <class Query> __device__ __forceinline__ void ask_scores(const RowState& r, Scores S, Query query, unsigned k_at) {
    begin_scores(r, S);
    keep(S[0]);
    group_begin();
    UNROLL for (int n = 0; n < STEPS; n++) {
        wgmma(S[0], query(1, n), matrix_at(k_at + n * 32));
        wgmma(S[0], query(0, n), matrix_at(k_at + n * 32 + PIECE));
    }
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(S[0], query(0, n), matrix_at(k_at + n * 32));
    group_end();
}
__device__ __forceinline__ void ask_values(RowState& r, const Probabilities& P, unsigned v_at, unsigned ones) {
    keep(r);
    group_begin();
    UNROLL for (int j = 0; j < SL / 2; j++) {
        const unsigned at = v_at + j * 16 * ROW;
        wgmma_rows(r.O[0], r.l[0], P.piece[0][j][0], matrix_at(at, ones - at));  // and l += P 1: eight equal columns
    }
    group_end();
}
// What the block reads that will come after this one on its multiprocessor: from here on, memory brings it to the L2 cache, while
// this block computes.
__device__ __forceinline__ void bring_ahead(const Params& p) {
    const unsigned block = blockIdx.x + RESIDENT_BLOCKS;
    if (block >= gridDim.x) return;
    const Task t = task_of(block, p);
    prefetch_bulk(row_of(p.q, t.batch, t.row0), min(BR, p.Nq - t.row0) * D * 4);
    if (t.row0 > 0) return;
    prefetch_bulk(row_of(p.k, t.batch, 0), p.Nk * D * 4), prefetch_bulk(row_of(p.v, t.batch, 0), p.Nk * D * 4);
}
// Stores O / l of the warp's rows, which begin at row0, and their LSE: 16 bytes a lane, of which neighbours give each other half.
__device__ __forceinline__ void store_once(const RowState& r, const Params& p, long long batch, int row0) {
    const int lane = threadIdx.x % 32;
    const bool odd = lane % 2;
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = row0 + h * 8 + lane / 4;
        const float l = r.l[0][2 * h], over = __frcp_rn(divisor(l));
        const bool inside = row < p.Nq;
        float* to = row_of(p.o, batch, row);
        if (p.lse && inside && lane % 4 == 0) store_lse(p, batch, row, -r.base[0][h], l);
        UNROLL for (int n = 0; n < NO; n += 2) {
            const float2 a{r.O[0][n][2 * h] * over, r.O[0][n][2 * h + 1] * over};
            const float2 b{r.O[0][n + 1][2 * h] * over, r.O[0][n + 1][2 * h + 1] * over};
            const float x = SHFL_XOR(odd ? a.x : b.x, 1), y = SHFL_XOR(odd ? a.y : b.y, 1);
            const int c = (n + odd) * 8 + lane % 4 / 2 * 4;
            if (inside && c < D) store_once(to + c, odd ? float4{x, y, b.x, b.y} : float4{a.x, a.y, x, y});
        }
    }
}
// A block: BR rows against all keys. It converts all that it reads itself, and its groups do one thing after the
// other: other blocks use what they leave idle.
__device__ __forceinline__ void attend(const Params& p) {
    static_assert(BR == BC, "a tile of Q is as large as one of K");
    static_assert(PASSES * 32 == 16 * CHUNKS && CHUNKS <= 8, "a warp has 16 rows of a tile (squares_by_pairs)");
    const Task t = task_of(blockIdx.x, p);
    const float *q = row_of(p.q, t.batch, t.row0), *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);
    const unsigned base = shared_address(shared), ones = base + ONES_AT, q_at = base + TILE_AT;
    const unsigned q_group = q_at + threadIdx.x / 128 * 64 * ROW;
    auto query = [&](int piece, int n) { return matrix_at(q_group + n * 32 + piece * PIECE); };
    BlockAbsmax absmax{(unsigned*)((char*)shared + ABSMAX_AT)};
    RowState r;
    zero(r);
    r.base[0][0] = r.base[0][1] = 0;
#pragma unroll 1
    for (int first_key = 0; first_key < last_key(p, t); first_key += BC) {
        const int keys = last_key(p, t) - first_key;
        if (first_key > 0) __syncthreads();
        absmax.begin(p.absmax, 0);
        unsigned top_q = 0, top_k = 0, top_v = 0;
        const Loads from_k = load_tile(k + first_key * D, keys);
        Loads from_v;
        if (first_key == 0) {
            const Loads from_q = load_tile(q, p.Nq - t.row0);
            if (AT_ONCE) from_v = load_tile(v, keys);
            make_ones(ones);
            absmax.leave(Q_SQUARES, squares_by_pairs(from_q, q_at));
            store_tile<2>(from_q, p.scale * LOG2E, q_at, top_q);
            absmax.leave(Q_TOP, top_q);
        }
        if (!AT_ONCE) from_v = load_tile(v + first_key * D, keys);  // now that Q has left the registers
        absmax.leave(K_SQUARES, squares_by_pairs(from_k, base));
        store_tile<2>(from_k, 1, base, top_k);
        store_tile<1>(from_v, V_FACTOR, base + 2 * PIECE, top_v);
        absmax.leave(K_TOP, top_k);
        absmax.leave(V_TOP, top_v);
        show_shared();
        if (ONE_TILE && threadIdx.x == 0) bring_ahead(p);
        absmax.note_all(p.absmax, 0);
#if AT_ONCE
        UNROLL for (int n = 0; n < BC; n += SUB) {
            if (n >= keys) break;
#else
#pragma unroll 1
        for (int n = 0; n < min(keys, BC); n += SUB) {
#endif
            Scores S;
            ask_scores(r, S, query, base + n * ROW);
            group_wait<0>();
            keep(S[0]);
            if (ONE_TILE) keep(r);
            const int top = end_scores(r, S);
            const Mask mask = mask_at(p, t.row0 + warp_row(), first_key + n, keys - n);
            if (!mask.is_full(SUB)) apply(mask, &S);
            const bool first = first_key + n == 0;
            if (first || outgrown(top)) rescale(r, &S, first);
            Probabilities P;
            UNROLL for (int j = 0; j < SL; j++) weigh(r, S, 0, j, P);
            ask_values(r, P, base + 2 * PIECE + n * ROW, ones);
            if (!ONE_TILE) finish(r);
        }
        if (ONE_TILE) finish(r);
        if (ONE_TILE) break;  // known to the compiler
    }
    const int row0 = t.row0 + warp_row();
    store_once(r, p, t.batch, row0);
}
#endif
#endif  // WARPGROUPS
