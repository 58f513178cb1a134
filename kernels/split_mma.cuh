#pragma once
// The mainloop of split, split8 and exact by mma.sync (compute capability 8.0): float32 attention in which each warp issues its own
// products.
//
// A block's warps own 16 MI rows each; Q's pieces and O stay in their registers. Tiles of K and V pass through a ring of STAGES
// buffers in shared memory: converted beforehand and copied (cp.async, from 9.0 on the bulk copy engine), or, for few keys,
// converted by the block itself (INBLOCK). The loop is software-pipelined: scores are computed one sub-tile of SUB keys ahead of
// their exponentials, so that one warp's MMA, exp2 and conversions are independent and overlap. INT8: the corrections of the
// scores (integers.cuh) are computed one slice ahead of the scores.

#include "bulk.cuh"
#include "fragments.cuh"
#include "inblock.cuh"
#include "promotion.cuh"
#include "stamps.cuh"

static_assert(!WARPGROUPS, "a plan for mma.sync");
static_assert(PROMOTION % BC == 0, "accumulators are promoted between tiles");
static_assert(!WINDOW || BR + BC <= PROMOTION, "all rows have begun before that");

// ---- The ring of tiles

constexpr bool BULK = !INBLOCK && ARCH >= 900;  // the bulk copy engine copies tiles

// ready(n) returns when all threads may read tile n, and issues the copy of tile n + LEAD, into the buffer of tile
// n + LEAD - STAGES, whose V no thread reads any more.
struct Ring {
    const float *k, *v;  // the first row
    const char* tiles;   // converted
    unsigned base;
    WarpAbsmax absmax;  // INBLOCK: of K and V
    int keys, stages, first_tile;
    static constexpr int LEAD = SUBS > 1 ? STAGES - 2 : STAGES - 3;
    static_assert(INBLOCK || LEAD > 0, "too few stages to load one ahead");

    __device__ __forceinline__ unsigned at(int stage) const { return base + stage % STAGES * STAGE; }
    __device__ __forceinline__ const char* tile(int stage) const {
        return tiles + (long long)(first_tile + stage) * STAGE;
    }

#if ARCH >= 900  // one thread issues copies of whole tiles; the mbarrier `full` counts their bytes, `empty` the threads that are done
    __device__ __forceinline__ unsigned full(int stage) const { return base + STAGES * STAGE + stage % STAGES * 16; }
    __device__ __forceinline__ unsigned empty(int stage) const { return full(stage) + 8; }
    __device__ __forceinline__ void wait(unsigned barrier, unsigned parity) { mbarrier_wait(barrier, parity); }
    __device__ __forceinline__ void fetch(int stage) {
        if (stage >= stages) return;
        if (stage >= STAGES) wait(empty(stage), (stage / STAGES - 1) & 1);
        mbarrier_expect<STAGE>(full(stage)); BEGINS(COPYING, stage * SUBS);
        copy_bulk<STAGE>(at(stage), tile(stage), full(stage));
    }
    // A thread's loads may still be in flight when it arrives, and the copy engine does not wait for them: the fence orders the
    // arrival behind the loads.
    __device__ __forceinline__ void release(int stage) { fence_proxy_async(), mbarrier_arrive(empty(stage)); }
    __device__ __forceinline__ void prepare() {
        if (threadIdx.x == 0) {
            for (int n = 0; n < STAGES; n++) {
                mbarrier_init<1>(full(n));
                mbarrier_init<THREADS>(empty(n));
            }
            fence_mbarrier_init();
        }
        __syncthreads();
    }
#else
    __device__ __forceinline__ unsigned full(int) const { return 0; }
    __device__ __forceinline__ void wait(unsigned, unsigned) {}
    __device__ __forceinline__ void fetch(int) {}
    __device__ __forceinline__ void release(int) {}
    __device__ __forceinline__ void prepare() {}
#endif
#if ARCH >= 800
    __device__ __forceinline__ void copy(int stage) {
        if (stage < stages) {
            const char* from = tile(stage) + threadIdx.x * 16;
            UNROLL for (unsigned n = 0; n < STAGE; n += THREADS * 16)
                copy16_async(at(stage) + threadIdx.x * 16 + n, (const float*)(from + n), true);
        }
        cp_async_commit();
    }
    __device__ __forceinline__ void copied() { cp_async_wait<INBLOCK ? 0 : LEAD - 1>(); }
#endif
    __device__ __forceinline__ void begin() {
        if (BULK) {
            prepare();
            if (threadIdx.x == 0)
                for (int n = 0; n < LEAD; n++) fetch(n);
        } else if (!INBLOCK) {
            UNROLL for (int n = 0; n < LEAD; n++) copy(n);
        }
    }
    __device__ __forceinline__ void ready(int stage) {
        if (BULK) {
            if (threadIdx.x == 0) fetch(stage + LEAD);
            wait(full(stage), stage / STAGES & 1); ENDS(COPYING, stage * SUBS);
        } else if (INBLOCK) {
            if (stage >= STAGES) __syncthreads();
            const int first = stage * BC;
            const Loads from_k = load_tile(k + first * D, keys - first), from_v = load_tile(v + first * D, keys - first);
            unsigned top_k = 0, top_v = 0;
            store_tile<2>(from_k, 1, at(stage), top_k);
            absmax.add(K_SQUARES, squares_of(from_k)), absmax.add(K_TOP, top_k);
            store_tile<PV_PIECES>(from_v, V_FACTOR, at(stage) + 2 * PIECE, top_v);
            absmax.add(V_TOP, top_v);
            __syncthreads();
        } else {
            copied();
            __syncthreads();
            copy(stage + LEAD);
        }
    }
};

// ---- The products

constexpr int PROMOTION_TILES = PROMOTION / BC;

__device__ __forceinline__ void multiply(Scores S, const unsigned (*Q)[STEPS][4], int step, const unsigned (*K)[4]) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < SL; n++) mma(S[i][n], Q[i][step], K[n / 2] + n % 2 * 2);
}
// One k16 step of a slice's scores: Q hi K hi + Q lo K hi + Q hi K lo. SMALL_FIRST: in the first STEPS of SCORE_STEPS steps the two
// small products, in the others the large one. INT8: the large one alone.
constexpr int SCORE_STEPS = SMALL_FIRST && !INT8 ? 2 * STEPS : STEPS;
__device__ __forceinline__ void add_scores(const RowState& r, Scores S, int n, unsigned k_at) {
    const bool small = !INT8 && (!SMALL_FIRST || n < STEPS), large = INT8 || !SMALL_FIRST || n >= STEPS;
    const int step = n % STEPS;
    unsigned hi[SL / 2][4], lo[SL / 2][4];
    UNROLL for (int j = 0; j < SL / 2; j++) {
        load_matrices(hi[j], (k_at ^ step * 32) + j * 16 * ROW);
        if (small) load_matrices(lo[j], (k_at ^ step * 32) + j * 16 * ROW + PIECE);
    }
    if (large) multiply(S, r.Q[0], step, hi);
    if (small) multiply(S, r.Q[1], step, hi), multiply(S, r.Q[0], step, lo);
}
#if INT8
static_assert(SMALL_FIRST && SUBS > 1 && !INBLOCK && !SKEW, "int8 corrections are written and measured for this case alone");

// A slice's corrections. The sums of hi hi begin with them.
struct Corrections { int of[MI][SL][4]; };
__device__ __forceinline__ void add_corrections(const RowState& r, Corrections& X, int step, unsigned k_at) {
    unsigned K[SL / 2][4];
    UNROLL for (int j = 0; j < SL / 2; j++) load_matrices(K[j], (k_at ^ step * 32) + j * 16 * ROW + PIECE);
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < SL; n++) {
        if (step == 0) mma(X.of[i][n], r.Q[1][i][step], K[n / 2] + n % 2 * 2, __float_as_int(INTEGERS));
        else mma(X.of[i][n], r.Q[1][i][step], K[n / 2] + n % 2 * 2);
    }
}
__device__ __forceinline__ void begin_scores(const RowState&, Scores S, const Corrections& X) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
        S[i][n][e] = of_integers(X.of[i][n][e]);
}
__device__ __forceinline__ int end_scores(const RowState& r, Scores S, float unit) {
    int top = 0;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 2 * h; e < 2 * h + 2; e++)
            S[i][n][e] = fmaf(S[i][n][e], unit, r.base[i][h]), top = max(top, __float_as_int(S[i][n][e]));
    }
    return top;
}
__device__ __forceinline__ Largest load_queries(RowState& r, const Params&, const float* q, int rows_left) {
    return load_integers(r, q, rows_left);
}
#else
struct Corrections {};
__device__ __forceinline__ void add_corrections(const RowState&, const Corrections&, int, unsigned) {}
__device__ __forceinline__ void begin_scores(const RowState& r, Scores S, const Corrections&) { begin_scores(r, S); }
__device__ __forceinline__ int end_scores(const RowState& r, Scores S, float) { return end_scores(r, S); }
__device__ __forceinline__ Largest load_queries(RowState& r, const Params& p, const float* q, int rows_left) {
    return load_halves(r, q, rows_left, p.scale * LOG2E);
}
#endif
// O += P V in 16 columns: hi hi, and with two pieces lo hi and hi lo.
__device__ __forceinline__ void add_values(RowState& r, const Probabilities& P, int c, unsigned v_at) {
    UNROLL for (int j = 0; j < SL / 2; j++) {
        unsigned V[PV_PIECES][4];
        UNROLL for (int t = 0; t < PV_PIECES; t++) load_transposed(V[t], (v_at ^ c * 32) + j * 16 * ROW + t * PIECE);
        const unsigned ones[2] = {ONES_BITS, ONES_BITS};
        if (ROUNDED_SUM && c == 0) UNROLL for (int i = 0; i < MI; i++) mma(r.l[i], P.piece[0][j][i], ones);
        UNROLL for (int product = 0; product < 2 * PV_PIECES - 1; product++)
            UNROLL for (int i = 0; i < MI; i++)
                UNROLL for (int n = 0; n < 2; n++)
                    mma(r.O[i][2 * c + n], P.piece[product == 1][j][i], V[product == 2] + 2 * n);
    }
}

// ---- The mainloop

// A block: BR rows against one split of the keys.
__device__ __forceinline__ void attend(const Params& p) {
    ONLY_IF_CHOSEN(p);
    const Task t = task_of_split(blockIdx.x, p);
    const int lane = threadIdx.x % 32, row0 = t.row0 + warp_row();
    const Mask all = mask_at(p, row0, t.first_key, t.last_key - t.first_key);
    if (CAUSAL && all.is_empty()) return store_empty(p, t);
    Ring ring;
    ring.k = row_of(p.k, t.batch, t.first_key), ring.v = row_of(p.v, t.batch, t.first_key);
    ring.tiles = p.tiles, ring.first_tile = t.batch * ceil_div(p.Nk, BC) + t.first_key / BC;
    ring.base = shared_address(shared), ring.keys = t.last_key - t.first_key, ring.stages = ceil_div(ring.keys, BC);
    if (!INBLOCK) griddep_launch(), griddep_wait();
    ring.begin();
    const float unit = unit_of(p);
    RowState r;
    WarpAbsmax of_q;
    const unsigned recorded = WarpAbsmax::recorded(p.absmax);
    of_q.add(Q_TOP, load_queries(r, p, row_of(p.q, t.batch, row0), p.Nq - row0));
    of_q.record(p.absmax, recorded);
    zero(r);
    UNROLL for (int i = 0; i < MI; i++) r.base[i][0] = r.base[i][1] = 0;
    // Accumulators are promoted to where O will be stored, l and m to scratch. (INBLOCK: few keys are one split, one sum.)
    // The task is computed again here: kept in registers through the loop, it would make them spill.
    auto promote = [&](bool again, bool last) {
        if (INBLOCK) return store(r, p, t.batch, row0, row_of(p.o, t.batch, row0), nullptr, false, true);
        unsigned block, thread;
        read_again(block, thread);
        const Task t = task_of_split(block, p);
        const int row0 = t.row0 + thread / 32 * 16 * MI;
        const long long row = partial_row(p, t, row0);
        float* to = p.splits > 1 ? p.partial_o + row * D : row_of(p.o, t.batch, row0);
        store(r, p, t.batch, row0, to, p.row_stats + row, again, last && p.splits == 1);
    };
    const Sums sums{ring.base + STAGES * (STAGE + 16)};  // SHARED_SUMS: accumulators are promoted to shared memory
    const unsigned k_lane = swizzle((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
    const unsigned v_lane = swizzle(lane & 15, lane >> 4) + 2 * PIECE;
    constexpr unsigned SLICE = SL * 8 * ROW;

    ring.ready(0);
    Scores S[SLICES];
    Corrections X;
    int top = 0;
    if (INT8) UNROLL for (int n = 0; n < STEPS; n++) add_corrections(r, X, n, ring.at(0) + k_lane);
    UNROLL for (int t = 0; t < SLICES; t++) {
        begin_scores(r, S[t], X);
        UNROLL for (int n = 0; n < SCORE_STEPS; n++) {
            if (INT8) add_corrections(r, X, n, ring.at(0) + k_lane + (t + 1) * SLICE);
            add_scores(r, S[t], n, ring.at(0) + k_lane + t * SLICE);
        }
        if (t + 1 < SLICES) top = end_scores(r, S[t], unit);
    }
    Probabilities before = {};  // SKEW: P of the slice before, whose product with V is still to be computed
    unsigned v_before = ring.at(0) + v_lane;
    const int subs = ceil_div(ring.keys, SUB);
#pragma unroll 1
    for (int stage = 0; stage < ring.stages; stage++) {
        UNROLL for (int u = 0; u < SUBS; u++) {
            const int sub = stage * SUBS + u, left = ring.keys - sub * SUB;
            Mask mask{left, all.last - sub * SUB};
#if WINDOW
            mask.window = p.window;
#endif
            if (mask.is_empty()) break;
            const unsigned v_at = ring.at(stage) + v_lane + u * SUB * ROW;
            unsigned k_at = ring.at(stage) + k_lane + (u + 1) * SUB * ROW;
            if (u + 1 + INT8 == SUBS && stage + 1 < ring.stages) ring.ready(stage + 1);
            // Past the end, scores are computed of whatever the buffer holds, and not used (causal: of the last tile again).
            const unsigned next_k = ring.at(CAUSAL ? min(stage + 1, ring.stages - 1) : stage + 1) + k_lane;
            if (u + 1 == SUBS) k_at = next_k;
            // INT8: the first slice behind those
            const unsigned behind = u + 2 < SUBS ? k_at + SUB * ROW : next_k + (u + 2 - SUBS) * SUB * ROW;
            top = max(top, end_scores(r, S[SLICES - 1], unit));
            if (!mask.is_full(SUB, 16 * MI)) apply(mask, S);
            // Lazy rescaling: only when a score has grown so far that P could pass 2^GROWN; always for the first sub-tile, and where
            // rows begin.
            if (mask.begins_any(SUB, 16 * MI)) top = OUTGROWN;
            if (__builtin_expect(sub == 0 || outgrown(top), 0)) {
                if (SKEW) {
                    UNROLL for (int c = 0; c < NO / 2; c++) add_values(r, before, c, v_before);
                    before = {};
                }
                rescale(r, S, sub == 0, mask);
                if (!SMALL_FIRST && sub > 0) {  // a sum that began far from m lost digits: again, from the new m
                    UNROLL for (int t = 0; t < SLICES; t++) {
                        begin_scores(r, S[t]);
                        UNROLL for (int n = 0; n < SCORE_STEPS; n++)
                            add_scores(r, S[t], n, ring.at(stage) + k_lane + u * SUB * ROW + t * SLICE);
                    }
                    if (!mask.is_full(SUB, 16 * MI)) apply(mask, S);
                }
            }
            if (BULK && INT8 && u == 0 && stage > 0) ring.release(stage - 1);  // all products with its V have been issued
            top = 0;
            Scores next[SLICES];
            auto compute = [&](auto more) {
                UNROLL for (int t = 0; t < SLICES; t++) {
                    begin_scores(r, next[t], X);
                    Probabilities P;
                    UNROLL for (int n = 0; n < SCORE_STEPS; n++) {
                        if (INT8) add_corrections(r, X, n, t + 1 < SLICES ? k_at + (t + 1) * SLICE : behind);
                        if (more.value) add_scores(r, next[t], n, k_at + t * SLICE);
                        UNROLL for (int x = n * SL * MI / SCORE_STEPS; x < (n + 1) * SL * MI / SCORE_STEPS; x++)
                            exponentiate(r, S[t], x / SL, x % SL, P);
                        UNROLL for (int c = n * NO / 2 / SCORE_STEPS; SKEW && c < (n + 1) * NO / 2 / SCORE_STEPS; c++)
                            add_values(r, before, c, v_before);
                        if (more.value && n == SCORE_STEPS / 2 && t > 0) top = max(top, end_scores(r, next[t - 1], unit));
                    }
                    if (SKEW) {
                        before = P, v_before = v_at + t * SLICE;
                    } else {
                        UNROLL for (int c = 0; c < NO / 2; c++) add_values(r, P, c, v_at + t * SLICE);
                    }
                }
            };
            if (!INBLOCK || sub + 1 < subs) compute(Bool<true>{});
            else compute(Bool<false>{});  // of few keys, scores past the end would cost too much
            if (BULK && !INT8 && u == 0 && stage > 0) ring.release(stage - 1);
            UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int i = 0; i < MI; i++)
                UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++) S[t][i][n][e] = next[t][i][n][e];
        }
        if (!INBLOCK && (stage + 1) % PROMOTION_TILES == 0 && stage + 1 < ring.stages) {
            const bool again = stage >= PROMOTION_TILES;
            if (SHARED_SUMS) sums.promote(r, again);
            else promote(again, false), zero(r);
        }
    }
    if (SKEW) UNROLL for (int c = 0; c < NO / 2; c++) add_values(r, before, c, v_before);
    if (INBLOCK) ring.absmax.record(p.absmax, WarpAbsmax::recorded(p.absmax));
    const bool again = ring.stages > PROMOTION_TILES;
    if (SHARED_SUMS && again) sums.add_to(r);
    promote(!SHARED_SUMS && again, true);
}

// The launch before: all of K and V become tiles.
__device__ __forceinline__ void convert_all(const Params& p) {
    ONLY_IF_CHOSEN(p);
    griddep_launch();
    convert(p, [](const Params& p) { return p.batches; });
}
