#pragma once
// The mainloop of split for few keys on Hopper (split_short, split8_short): a block converts all that it reads itself, and multiplies
// by wgmma.
//
// Two warpgroups have 64 rows each. They run one step after the other, without overlap inside the block: while one block converts
// or takes exponentials, the other blocks of the multiprocessor use the tensor cores.

#include "bulk.cuh"
#include "inblock.cuh"
#include "warpgroup.cuh"

// Shared memory: the tile of K and V; absmax; ones for the 16 keys of a product; Q's hi and lo.
constexpr unsigned ABSMAX_AT = STAGES * (STAGE + 16), ABSMAX_BYTES = FOUND * BlockAbsmax::WARPS * 4;
constexpr unsigned ONES_AT = ceil_div(ABSMAX_AT + ABSMAX_BYTES, 1024) * 1024, TILE_AT = ONES_AT + ONES_BYTES;
// A batch is one block, so that no tile follows: there are registers for P V beside the next scores. AT_ONCE: for V beside Q and
// K, too, and for unrolled sub-tiles. At d = 64 that is slower, but with a mask everything else spills.
constexpr bool ONE_TILE = RESIDENT_BLOCKS > 0;
#define AT_ONCE (RESIDENT_BLOCKS > 0 && (WIDTH == 32 || CAUSAL))

static_assert(WARPGROUPS && INBLOCK, "a plan for few keys");
static_assert(MI == 1 && THREADS == BlockAbsmax::WARPS * 32, "two warpgroups, each with 64 rows");
static_assert(BR == BC, "a tile of Q is as large as one of K");
static_assert(PASSES * 32 == 16 * CHUNKS && CHUNKS <= 8, "a warp has 16 rows of a tile (squares_by_pairs)");

// The squares of a warp's 16 rows of a tile, through shared memory at `to`, where the warp will store the first of them: a row's
// sums lie side by side there, and two lanes add them. That is cheaper than shuffles.
__device__ __forceinline__ unsigned squares_by_pairs(const Loads& r, unsigned to) {
    const unsigned lane = threadIdx.x % 32, at = to + (threadIdx.x - lane) / CHUNKS * ROW;
    UNROLL for (int n = 0; n < PASSES; n++) store_shared(at + (n * 32 + lane) * 4, sum_of_squares(r.x[n]) - SQUARES_FROM);
    __syncwarp();
    float sum;
    if constexpr (CHUNKS == 8) {
        const Four x = load_shared(at + lane * 16);
        sum = (x.v[0] + x.v[1]) + (x.v[2] + x.v[3]);
    } else {
        const float2 x = load_shared2(at + lane * 8);
        sum = x.x + x.y;
    }
    __syncwarp();
    return __float_as_uint(sum + SHFL_XOR(sum, 1));
}

__device__ __forceinline__ void wait_for_values(RowState& r) { wgmma_wait<0>(), fence_registers(r); }
// Issues the scores of SUB keys. query(piece, n) is the descriptor of hi or lo of Q in 16 columns.
template <class Query>
__device__ __forceinline__ void issue_scores(const RowState& r, Scores S, Query query, unsigned k_at) {
    begin_scores(r, S);
    fence_registers(S[0]);
    wgmma_fence();
    UNROLL for (int n = 0; n < STEPS; n++) {
        wgmma(S[0], query(1, n), matrix_at(k_at + n * 32));
        wgmma(S[0], query(0, n), matrix_at(k_at + n * 32 + PIECE));
    }
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(S[0], query(0, n), matrix_at(k_at + n * 32));
    wgmma_commit();
}
// Issues O += P V, and l += P 1: eight equal columns.
__device__ __forceinline__ void issue_values(RowState& r, const Probabilities& P, unsigned v_at, unsigned ones) {
    fence_registers(r);
    wgmma_fence();
    UNROLL for (int j = 0; j < SL / 2; j++) {
        const unsigned at = v_at + j * 16 * ROW;
        wgmma_rows(r.O[0], r.l[0], P.piece[0][j][0], matrix_at(at, ones - at));
    }
    wgmma_commit();
}

// Prefetches to the L2 cache what the block reads that will follow this one on its multiprocessor.
__device__ __forceinline__ void prefetch_later_block(const Params& p) {
    const unsigned block = blockIdx.x + RESIDENT_BLOCKS;
    if (block >= gridDim.x) return;
    const Task t = task_of(block, p);
    prefetch_bulk(row_of(p.q, t.batch, t.row0), min(BR, p.Nq - t.row0) * D * 4);
    if (t.row0 > 0) return;
    prefetch_bulk(row_of(p.k, t.batch, 0), p.Nk * D * 4), prefetch_bulk(row_of(p.v, t.batch, 0), p.Nk * D * 4);
}
// Stores O / l of the warp's rows from row0 on, and their LSE: 16 bytes a lane, of which neighbouring lanes exchange half.
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

// A block: BR rows against all keys.
__device__ __forceinline__ void attend(const Params& p) {
    ONLY_IF_CHOSEN(p);
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
    for (int first_key = t.first_key; first_key < last_key(p, t); first_key += BC) {
        const int keys = last_key(p, t) - first_key;
        if (first_key > t.first_key) __syncthreads();
        absmax.begin(p.absmax, 0);
        unsigned top_q = 0, top_k = 0, top_v = 0;
        const Loads from_k = load_tile(k + first_key * D, keys);
        Loads from_v;
        if (first_key == t.first_key) {
            const Loads from_q = load_tile(q, p.Nq - t.row0);
            if (AT_ONCE) from_v = load_tile(v, keys);
            make_ones(ones);
            absmax.add(Q_SQUARES, squares_by_pairs(from_q, q_at));
            store_tile<2>(from_q, p.scale * LOG2E, q_at, top_q);
            absmax.add(Q_TOP, top_q);
        }
        if (!AT_ONCE) from_v = load_tile(v + first_key * D, keys);  // now that Q has left the registers
        absmax.add(K_SQUARES, squares_by_pairs(from_k, base));
        store_tile<2>(from_k, 1, base, top_k);
        store_tile<1>(from_v, V_FACTOR, base + 2 * PIECE, top_v);
        absmax.add(K_TOP, top_k);
        absmax.add(V_TOP, top_v);
        fence_shared();
        if (ONE_TILE && threadIdx.x == 0) prefetch_later_block(p);
        absmax.record_all(p.absmax, 0);
#if AT_ONCE
        UNROLL for (int n = 0; n < BC; n += SUB) {
            if (n >= keys) break;
#else
#pragma unroll 1
        for (int n = 0; n < min(keys, BC); n += SUB) {
#endif
            Scores S;
            issue_scores(r, S, query, base + n * ROW);
            wgmma_wait<0>();
            fence_registers(S[0]);
            if (ONE_TILE) fence_registers(r);
            const int top = end_scores(r, S);
            const Mask mask = mask_at(p, t.row0 + warp_row(), first_key + n, keys - n);
            if (!mask.is_full(SUB, 16)) apply(mask, &S);
            const bool first = first_key + n == t.first_key;
            if (first || mask.begins_any(SUB, 16) || outgrown(top)) rescale(r, &S, first, mask);
            Probabilities P;
            UNROLL for (int j = 0; j < SL; j++) exponentiate(r, S, 0, j, P);
            issue_values(r, P, base + 2 * PIECE + n * ROW, ones);
            if (!ONE_TILE) wait_for_values(r);
        }
        if (ONE_TILE) wait_for_values(r);
        if (ONE_TILE) break;  // known to the compiler
    }
    const int row0 = t.row0 + warp_row();
    store_once(r, p, t.batch, row0);
}
