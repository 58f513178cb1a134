#pragma once
// The online softmax in the fragments of tensor cores: the state of a warp's 16 MI rows, and what scores do to it. One copy for
// mma.sync (split_mma.cuh) and wgmma (split_wgmma.cuh, split_short.cuh).
//
// Milakov and Gimelshein 2018, algorithm 3. Lazy: m stays where it is, and O and l are not rescaled, until a score has grown so
// far past it that P could pass 2^GROWN (FlashAttention-4).

#include "absmax.cuh"
#include "epilogue.cuh"
#include "integers.cuh"
#include "tiles.cuh"

// A row's largest P is 2^BIAS to 2^GROWN: no P that matters is below fp16's normal numbers, and none overflows.
constexpr float GROWN = BIAS + RESCALE_THRESHOLD;

typedef float Scores[MI][SL][4];
struct Probabilities { unsigned piece[PV_PIECES][SL / 2][MI][4]; };  // P as the left operand
struct RowState {
    unsigned Q[2][MI][STEPS][4];                  // hi and lo of Q log2(e)/sqrt(d)
    float O[MI][NO][4], l[MI][4], base[MI][2];    // O and l not yet divided, l in 0 and 2; base: BIAS - m
};

// Where element e of a thread's fragment lies: its row of 16, its column of 8; and the warp's first row in the block.
__device__ __forceinline__ int fragment_row(int e) { return e / 2 * 8 + threadIdx.x % 32 / 4; }
__device__ __forceinline__ int fragment_column(int e) { return threadIdx.x % 4 * 2 + e % 2; }
__device__ __forceinline__ int warp_row() { return threadIdx.x / 32 * 16 * MI; }

// Loads a warp's rows of Q, and calls use(i, step, e, x), x two columns, for each register of the fragments. Returns the largest.
template <class Use> __device__ __forceinline__ Largest each_query(const float* q, int rows_left, Use use) {
    const int lane = threadIdx.x % 32;
    Largest found;
    float sum[MI][2];
    UNROLL for (int i = 0; i < MI; i++) sum[i][0] = sum[i][1] = SQUARES_FROM;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int step = 0; step < STEPS; step++) UNROLL for (int e = 0; e < 4; e++) {
        const int row = i * 16 + lane / 4 + e % 2 * 8, c = step * 16 + lane % 4 * 2 + e / 2 * 8;
        const float2 x = row < rows_left && c < D ? *(const float2*)(q + row * D + c) : float2{0, 0};
        found.top = max(found.top, max(abs_bits(x.x), abs_bits(x.y)));
        sum[i][e % 2] = add_square(add_square(sum[i][e % 2], x.x), x.y);
        use(i, step, e, x);
    }
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++)
        found.squares = max(found.squares, row_squares<4>(sum[i][h]));
    return found;
}
// Q as hi and lo.
__device__ __forceinline__ Largest load_halves(RowState& r, const float* q, int rows_left, float to_log2) {
    return each_query(q, rows_left, [&](int i, int step, int e, float2 x) {
        const HiLo pair = split_hi_lo(x.x * to_log2, x.y * to_log2);
        r.Q[0][i][step][e] = pair.hi, r.Q[1][i][step][e] = pair.lo;
    });
}
#if INT8
// Q as hi and, in place of lo, integers.
__device__ __forceinline__ Largest load_integers(RowState& r, const float* q, int rows_left) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int step = 0; step < STEPS; step++) UNROLL for (int e = 0; e < 4; e++) {
        const int row = i * 16 + threadIdx.x % 32 / 4 + e % 2 * 8, c = step % (STEPS / 2) * 32 + threadIdx.x % 4 * 4 + e / 2 * 16;
        const float4 x = row < rows_left && c < D ? *(const float4*)(q + row * D + c) : float4{0, 0, 0, 0};
        const HiIntegers a = split_integers(x.x, x.y), b = split_integers(x.z, x.w);
        r.Q[1][i][step][e] = step < STEPS / 2 ? __byte_perm(a.lo, b.lo, 0x5410) : __byte_perm(a.whole, b.whole, 0x5410);
    }
    return each_query(q, rows_left, [&](int i, int step, int e, float2 x) {
        r.Q[0][i][step][e] = halves(x.x * QK_FACTOR, x.y * QK_FACTOR);
    });
}
#endif

__device__ __forceinline__ void zero(RowState& r) {
    UNROLL for (int i = 0; i < MI; i++) {
        UNROLL for (int n = 0; n < NO; n++) UNROLL for (int e = 0; e < 4; e++) r.O[i][n][e] = 0;
        UNROLL for (int e = 0; e < 4; e++) r.l[i][e] = 0;
    }
}
__device__ __forceinline__ void begin_scores(const RowState& r, Scores S) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
        S[i][n][e] = SMALL_FIRST ? 0 : r.base[i][e / 2];
}
// A thread's largest score as the bits of a float, correct where it is positive: there is an instruction for the maximum of three
// integers.
__device__ __forceinline__ int end_scores(const RowState& r, Scores S) {
    int top = 0;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        int row = 0;
        UNROLL for (int n = 0; n < SL; n++) {
            if (SMALL_FIRST) S[i][n][2 * h] += r.base[i][h], S[i][n][2 * h + 1] += r.base[i][h];
            row = max(row, max(__float_as_int(S[i][n][2 * h]), __float_as_int(S[i][n][2 * h + 1])));
        }
        top = max(top, row);
    }
    return top;
}
// Whether one of the warp's scores has grown so far that its P could pass 2^GROWN.
constexpr int OUTGROWN = 0x7fffffff;
__device__ __forceinline__ bool outgrown(int top) { return ANY(top > __float_as_int(GROWN)); }
// No weight for keys that a row may not see; `mask` is that of the sub-tile and of the warp's rows.
__device__ __forceinline__ void apply(const Mask& mask, Scores* S) {
    asm volatile("" ::: "memory");  // so that this stays a branch, which full tiles do not take
    UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int i = 0; i < MI; i++)
        UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
            if (!mask.allows(i * 16 + fragment_row(e), (t * SL + n) * 8 + fragment_column(e)))
                S[t][i][n][e] = MINUS_INFINITY;
}
// The rows' maximum becomes m; S, O and l follow, by what m really changed in float32. `first`: there were no keys before; WINDOW: for
// the rows that begin here there were none either.
__device__ __forceinline__ void rescale(RowState& r, Scores* S, bool first, const Mask& mask) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        float top = MINUS_INFINITY;
        UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int n = 0; n < SL; n++)
            top = fmaxf(top, fmaxf(S[t][i][n][2 * h], S[t][i][n][2 * h + 1]));
        top = lanes_max<4>(top);
        const float old = r.base[i][h];
        if (CAUSAL && top == MINUS_INFINITY) continue;  // the row sees no key here: its base stays, its P are 0
        const bool begins = first || mask.begins(i * 16 + fragment_row(2 * h));
        r.base[i][h] += begins ? BIAS - top : fminf(0, BIAS - top);
        const float change = r.base[i][h] - old;
        const float shrink = begins ? 0 : exp2_fast(change);  // begins: nothing is there to shrink, and 2^change may be inf
        r.l[i][2 * h] *= shrink;
        UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int n = 0; n < SL; n++)
            S[t][i][n][2 * h] += change, S[t][i][n][2 * h + 1] += change;
        UNROLL for (int n = 0; n < NO; n++) r.O[i][n][2 * h] *= shrink, r.O[i][n][2 * h + 1] *= shrink;
    }
}
// P of a block of 8 keys, in place and as pieces.
__device__ __forceinline__ void exponentiate(RowState& r, Scores S, int i, int n, Probabilities& P) {
    float* x = S[i][n];
    UNROLL for (int e = 0; e < 4; e++) {
        x[e] = exp2_fast(x[e]);
        if (!ROUNDED_SUM) r.l[i][e / 2 * 2] += x[e];
    }
    UNROLL for (int e = 0; e < 2; e++) {
        const int at = n % 2 * 2 + e;
        if (PV_PIECES == 1) {
            P.piece[0][n / 2][i][at] = halves(x[2 * e], x[2 * e + 1]);
        } else {
            const HiLo pair = split_hi_lo(x[2 * e], x[2 * e + 1]);
            P.piece[0][n / 2][i][at] = pair.hi, P.piece[PV_PIECES - 1][n / 2][i][at] = pair.lo;
        }
    }
}
// m - BIAS and l of a row, for the block or launch that adds up parts of the row: stored in one access, because another block may
// poll it (streamk.cuh).
union RowStats {
    unsigned long long bits;
    float2 of;
    __device__ RowStats() {}
};
__device__ __forceinline__ void store_stats(float2* to, float2 x) {
    RowStats stats;
    stats.of = x;
    *(volatile unsigned long long*)to = stats.bits;
}
// Stores the warp's rows from row0 on: O / l (`divide`), or O and, in stats, (m - BIAS, l), where this is a split of the keys or a
// promotion. What was promoted before (`again`) is added in float32.
__device__ __forceinline__ void store(const RowState& r, const Params& p, long long batch, int row0, float* to,
                                      float2* stats, bool again, bool divide) {
    const int rows_left = p.Nq - row0;
    const int lane = threadIdx.x % 32;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        const int row = i * 16 + h * 8 + lane / 4;
        float l = ROUNDED_SUM ? r.l[i][2 * h] : lanes_sum<4>(r.l[i][2 * h]) * V_FACTOR, shrink = 0;
        if (row < rows_left) {
            if (again) {
                const float2 old = stats[row];
                shrink = exp2_fast(r.base[i][h] + old.x), l = fmaf(old.y, shrink, l);
            }
            if (divide && p.lse && lane % 4 == 0) store_lse(p, batch, row0 + row, -r.base[i][h], l);
            const float over = divide ? __frcp_rn(divisor(l)) : 1;
            UNROLL for (int n = 0; n < NO; n++) {
                const int c = n * 8 + lane % 4 * 2;
                if (c < D) {
                    float2 x{r.O[i][n][2 * h], r.O[i][n][2 * h + 1]};
                    if (again) {
                        const float2 old = *(const float2*)(to + row * D + c);
                        x.x = fmaf(old.x, shrink, x.x), x.y = fmaf(old.y, shrink, x.y);
                    }
                    *(float2*)(to + row * D + c) = float2{x.x * over, x.y * over};
                }
            }
        }
        if (BALANCED && !divide) __threadfence();  // another block reads O as soon as it sees stats
        __syncwarp();  // all lanes have read stats
        if (row < rows_left && !divide && lane % 4 == 0) store_stats(stats + row, float2{-r.base[i][h], l});
    }
    __syncwarp();
}
// Causal: the result of a block whose rows see no key of its split: O = 0; none where combine reads other splits alone.
__device__ __forceinline__ void store_empty(const Params& p, const Task& t) {
    if (p.splits > 1) return;
    RowState r;
    zero(r);
    UNROLL for (int i = 0; i < MI; i++) r.base[i][0] = r.base[i][1] = 0;
    const int row0 = t.row0 + warp_row();
    store(r, p, t.batch, row0, row_of(p.o, t.batch, row0), nullptr, false, true);
}
