#pragma once
// Attention by warpgroups: four warps multiply 64 rows at once, asynchronously (wgmma, compute capability 9.0).
//
// While the tensor cores compute the next scores and P V, the warps take exponentials. P comes from registers, Q from there or
// from shared memory, K and V from there. Behind V, for the tensor cores, is a column of ones: the sum of the rounded P.

#include "fragments.cuh"
#include "ring.cuh"
#include "wgmma.cuh"

#if WARPGROUPS
// d = 64: a group asks for its next scores before it weighs these. d = 32 has half as many products for an exponential:
// there four groups to a multiprocessor, with fewer registers each, keep the tensor cores busier.
constexpr int PROMOTION_TILES = PROMOTION / BC;
constexpr bool AHEAD = WIDTH == 64;
// Shared memory: the ring; absmax; ones for the 16 keys of a product; a tile of float32: O of the keys before, or Q's hi and lo.
constexpr unsigned ABSMAX_AT = STAGES * (STAGE + 16), ABSMAX_BYTES = FOUND * BlockAbsmax::WARPS * 4;
constexpr unsigned ONES_AT = ceil_div(ABSMAX_AT + ABSMAX_BYTES, 1024) * 1024, ONES_BYTES = 16 * ROW;
constexpr unsigned TILE_AT = ONES_AT + ONES_BYTES;

static_assert(MI == 1 && THREADS == BlockAbsmax::WARPS * 32, "two groups of four warps, each with 64 rows");
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
__device__ __forceinline__ void make_ones(unsigned at) {
    for (unsigned n = threadIdx.x * 4; n < ONES_BYTES; n += THREADS * 4) store_shared(at + n, (unsigned)ONES_BITS);
}
// What the threads have written to shared memory is there for the tensor cores.
__device__ __forceinline__ void show_shared() {
    fence_async();
    __syncthreads();
}

#if INBLOCK
// A block: BR rows against all keys. It converts all that it reads itself, and its groups do one thing after the
// other: other blocks use what they leave idle.
__device__ __forceinline__ void attend(const Params& p) {
    static_assert(BR == BC, "a tile of Q is as large as one of K");
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
        if (first_key == 0) {
            const Loads from_q = load_tile(q, p.Nq - t.row0);
            make_ones(ones);
            absmax.leave(Q_SQUARES, squares_of(from_q));
            store_tile<2>(from_q, p.scale * LOG2E, q_at, top_q);
            absmax.leave(Q_TOP, top_q);
        }
        const Loads from_v = load_tile(v + first_key * D, keys);  // now that Q has left the registers
        absmax.leave(K_SQUARES, squares_of(from_k));
        store_tile<2>(from_k, 1, base, top_k);
        store_tile<1>(from_v, V_FACTOR, base + 2 * PIECE, top_v);
        absmax.leave(K_TOP, top_k);
        absmax.leave(V_TOP, top_v);
        show_shared();
        absmax.note_all(p.absmax, 0);
#pragma unroll 1
        for (int n = 0; n < min(keys, BC); n += SUB) {
            Scores S;
            ask_scores(r, S, query, base + n * ROW);
            group_wait<0>();
            keep(S[0]);
            const int top = end_scores(r, S);
            const Mask mask = mask_at(p, t.row0 + warp_row(), first_key + n, keys - n);
            if (!mask.is_full(SUB)) apply(mask, &S);
            const bool first = first_key + n == 0;
            if (first || outgrown(top)) rescale(r, &S, first);
            Probabilities P;
            UNROLL for (int j = 0; j < SL; j++) weigh(r, S, 0, j, P);
            ask_values(r, P, base + 2 * PIECE + n * ROW, ones);
            finish(r);
        }
    }
    const int row0 = t.row0 + warp_row();
    store(r, p, t.batch, row0, row_of(p.o, t.batch, row0), nullptr, false, true);
}
#else
__device__ __forceinline__ void begin_m(RowState& r, const Scores S) {
    UNROLL for (int h = 0; h < 2; h++) {
        float top = MINUS_INFINITY;
        UNROLL for (int n = 0; n < SL; n++) top = fmaxf(top, fmaxf(S[0][n][2 * h], S[0][n][2 * h + 1]));
        if (top = lanes_max<4>(top); !CAUSAL || top > MINUS_INFINITY) r.base[0][h] = BIAS - top;  // else no key: its P are 0
    }
}

// O, l and BIAS - m of the keys before, added up in float32; O, for want of registers, in shared memory.
struct Promoted {
    unsigned at;
    float l[2], base[2];
    __device__ __forceinline__ unsigned place(int n) const { return at + (n * THREADS + threadIdx.x) * 16; }
    // Takes r, after what is here already (`again`).
    __device__ __forceinline__ void take(RowState& r, bool again) {
        if (again) add_to(r);
        UNROLL for (int h = 0; h < 2; h++) l[h] = r.l[0][2 * h], base[h] = r.base[0][h];
        UNROLL for (int n = 0; n < NO; n++)
            store_shared(place(n), r.O[0][n][0], r.O[0][n][1], r.O[0][n][2], r.O[0][n][3]);
        zero(r);
    }
    __device__ __forceinline__ void add_to(RowState& r) const {
        float shrink[2];
        UNROLL for (int h = 0; h < 2; h++)
            shrink[h] = exp2_fast(r.base[0][h] - base[h]), r.l[0][2 * h] = fmaf(l[h], shrink[h], r.l[0][2 * h]);
        UNROLL for (int n = 0; n < NO; n++) {
            const Four x = load_shared(place(n));
            UNROLL for (int e = 0; e < 4; e++) r.O[0][n][e] = fmaf(x.v[e], shrink[e / 2], r.O[0][n][e]);
        }
    }
};

// A block: BR rows against one split of the keys.
__device__ __forceinline__ void attend(const Params& p) {
    Ring ring;
    BlockAbsmax absmax{(unsigned*)((char*)shared + ABSMAX_AT)};
    RowState r;
    Mask all;
    {
        const Task t = task_of_split(blockIdx.x, p);
        all = mask_at(p, t.row0, t.first_key, t.last_key - t.first_key);  // of the block: the same in all threads
        if (CAUSAL && all.is_empty()) return leave_empty(p, t);
        ring.tiles = p.tiles, ring.first_tile = t.batch * ceil_div(p.Nk, BC) + t.first_key / BC;
        ring.base = shared_address(shared), ring.keys = t.last_key - t.first_key, ring.stages = ceil_div(ring.keys, BC);
        ring.begin();
        absmax.begin(p.absmax, 0);
        const int row0 = t.row0 + warp_row();
        absmax.leave(Q_TOP, load_queries(r, row_of(p.q, t.batch, row0), p.Nq - row0, p.scale * LOG2E));
    }
    const unsigned ones = ring.base + ONES_AT;
    Promoted promoted{ring.base + TILE_AT};
    make_ones(ones);
    show_shared();
    if (threadIdx.x < K_TOP) absmax.note_all(p.absmax, 0);
    zero(r);
    r.base[0][0] = r.base[0][1] = 0;

    const int subs = ceil_div(ring.keys, SUB);
    auto keys_at = [&](int sub) { return ring.at(sub / SUBS) + sub % SUBS * SUB * ROW; };
    auto mask_tail = [&](Scores& S, int sub) {
        if (const Mask mask = all.after(sub * SUB); !mask.is_full(SUB)) apply(mask.below(warp_row()), &S);
    };
    auto load_ahead = [&](int sub) {
        if (sub % SUBS == 0) ring.load_ahead(sub / SUBS);
    };
    auto ask_next = [&](Scores& S, int sub) {  // past the end: what lies there, or (causal) the last again, is not used
        if (!AHEAD || sub == 0) load_ahead(sub);
        if (sub % SUBS == 0 && sub < subs) ring.ready(sub / SUBS);
        BEGINS(SCORING, sub); const unsigned k_at = keys_at(CAUSAL ? min(sub, subs - 1) : sub);
        ask_scores(r, S, [&](int piece, int n) { return r.Q[piece][0][n]; }, k_at);
    };
    auto release = [&](int sub) {  // all products with the tile before are computed
        if (sub % SUBS == 0 && sub > 0) ring.release(sub / SUBS - 1);
    };
    auto promote = [&](int sub) {
        constexpr int EVERY = PROMOTION / SUB;
        if ((sub + 1) % EVERY == 0 && sub + 1 < subs) finish(r), promoted.take(r, sub >= EVERY);
    };

    Scores S, T;
    ask_next(S, 0);
    group_wait<0>();
    keep(S[0]); ENDS(SCORING, 0);
    mask_tail(S, 0);
    begin_m(r, S);
    auto step = [&](int sub, Scores& now, Scores& next, auto last) {
        if (AHEAD) ask_next(next, sub + 1);
        const int top = end_scores(r, now);
        mask_tail(now, sub);
        group_wait<AHEAD>();  // P V of the keys before
        keep(r);
        release(sub); ENDS(ADDING, sub - 1);
        if (__builtin_expect(outgrown(top), 0)) rescale(r, &now, false);
        Probabilities P; BEGINS(WEIGHING, sub);
        UNROLL for (int n = 0; n < SL; n++) weigh(r, now, 0, n, P);
        ENDS(WEIGHING, sub);
        if (!AHEAD) ask_next(next, sub + 1);
        BEGINS(ADDING, sub); ask_values(r, P, keys_at(sub) + 2 * PIECE, ones);
        if (AHEAD) load_ahead(sub + 1);  // which waits for the other group to leave the buffer: here that costs nothing
        if (last.value) finish(r);
        else group_wait<1>();
        keep(next[0]); ENDS(SCORING, sub + 1);
        promote(sub);
    };
    // Where paths meet, no sum that is read must still be computed: else the compiler waits after each product (C7514).
    if (AHEAD) {
#pragma unroll 1
        for (int sub = 0; sub < subs; sub += 2) {
            step(sub, S, T, Bool<false>{});
            if (sub + 1 == subs) {
                finish(r);
                break;
            }
            step(sub + 1, T, S, Bool<true>{});
        }
    } else {
#pragma unroll 1
        for (int sub = 0; sub < subs; sub++) step(sub, S, S, Bool<false>{});
    }
    finish(r); ENDS(ADDING, subs - 1);
    if (ring.stages > PROMOTION_TILES) promoted.add_to(r);
    unsigned block, thread;
    read_again(block, thread);
    const Task t = task_of_split(block, p);  // computed again, as registers to keep it in are scarce
    const int row0 = t.row0 + thread / 32 * 16;
    const long long row = partial_row(p, t, row0);
    float* to = p.splits > 1 ? p.partial_o + row * D : row_of(p.o, t.batch, row0);
    store(r, p, t.batch, row0, to, p.row_stats + row, false, p.splits == 1);
}
#endif
#endif  // WARPGROUPS
