#pragma once
// What a group of four warps does with scores (turns.cuh): it asks for them, and makes weights of them.
//
// INT8: the corrections are asked for one tile ahead, and when they are computed, the sums of hi hi begin with them: the tensor
// cores compute them while the group waits for its turn, or takes exponentials.

#include "fragments.cuh"
#include "hopper.cuh"
#include "integers.cuh"
#include "warpgroup.cuh"

#if GROUPS
// Descriptors as sums of 32 bits: the upper half is a constant.
__device__ __forceinline__ unsigned long long descriptor(unsigned low) { return matrix_at(0) | low; }

#if INT8
struct Corrections { int of[SL][4]; };
// Q: hi in registers, its integers at `to` in shared memory, for a group whose barrier is `id`.
__device__ __forceinline__ Largest bring_queries(RowState& r, const Params&, const float* q, int rows_left, unsigned to, int id) {
    meet_group(id);  // all products with those of the task before are computed
    const Largest found = each_query(q, rows_left, [&](int i, int step, int e, float2 x) {
        const HiIntegers both = split_integers(x.x, x.y);
        const unsigned row = warp_row() % 64 + threadIdx.x % 32 / 4 + e % 2 * 8, c = step * 16 + threadIdx.x % 4 * 2 + e / 2 * 8;
        r.Q[0][i][step][e] = both.hi;
        store_shared(to + swizzle_integer(row, c, false), (unsigned short)both.lo);
        store_shared(to + swizzle_integer(row, c, true), (unsigned short)both.whole);
    });
    fence_async();
    meet_group(id);
    return found;
}
__device__ __forceinline__ void keep(Corrections& X) { keep(X.of); }
__device__ __forceinline__ void ask_corrections(Corrections& X, unsigned k_at, unsigned q_at) {
    const unsigned k = (k_at + PIECE) >> 4, q = q_at >> 4;
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++) X.of[n][e] = __float_as_int(INTEGERS);
    keep(X.of);
    group_begin();
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(X.of, descriptor(q + n * 2), descriptor(k + n * 2));
    group_end();
}
// The sums of hi hi begin with them.
__device__ __forceinline__ void take_corrections(Scores S, Corrections& X) {
    keep(X.of);
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
        S[0][n][e] = of_integers(X.of[n][e]);
    keep(S[0]);
}
__device__ __forceinline__ void ask_scores(const RowState& r, Scores S, unsigned k_at) {
    group_begin();
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(S[0], r.Q[0][0][n], descriptor((k_at >> 4) + n * 2));
    group_end();
}
#else
struct Corrections {};
__device__ __forceinline__ void keep(const Corrections&) {}
__device__ __forceinline__ Largest bring_queries(RowState& r, const Params& p, const float* q, int rows_left, unsigned, int) {
    return load_queries(r, q, rows_left, p.scale * LOG2E);
}
__device__ __forceinline__ void ask_corrections(const Corrections&, unsigned, unsigned) {}
__device__ __forceinline__ void take_corrections(const Scores, const Corrections&) {}
__device__ __forceinline__ void ask_scores(const RowState& r, Scores S, unsigned k_at) {
    const unsigned k = k_at >> 4;
    group_begin();
    UNROLL for (int n = 0; n < STEPS; n++) {
        wgmma(S[0], r.Q[1][0][n], descriptor(k + n * 2), n > 0);
        wgmma(S[0], r.Q[0][0][n], descriptor(k + (n * 32 + PIECE) / 16));
    }
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(S[0], r.Q[0][0][n], descriptor(k + n * 2));
    group_end();
}
#endif
__device__ __forceinline__ void ask_values(RowState& r, const Probabilities& P, unsigned v_at, unsigned ones) {
    const unsigned v = v_at >> 4 | (ones - v_at) >> 4 << 16;
    group_begin();  // without it, the compiler serialises what a wait stands between (C7520)
    UNROLL for (int j = 0; j < SL / 2; j++)
        wgmma_rows(r.O[0], r.l[0], P.piece[0][j][0], descriptor(v + j * (ROW - (ROW << 16))));
    group_end();
}

__device__ __forceinline__ void multiply(Scores S, float unit) {
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++) S[0][n][e] *= unit;
}
// As end_scores, but that the compiler sees no sum as an integer.
__device__ __forceinline__ int add_base(const RowState& r, Scores S, float unit = 1) {
    int top[2] = {0, 0};
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int h = 0; h < 2; h++) {
        UNROLL for (int e = 2 * h; e < 2 * h + 2; e++) S[0][n][e] = fmaf(S[0][n][e], unit, r.base[0][h]);
        raise_bits(top[h], S[0][n][2 * h], S[0][n][2 * h + 1]);
    }
    return max(top[0], top[1]);
}
// 2^x by a polynomial, at most 2.7e-6 of it wrong, and never less than about 2^-126. (Coefficients: the least largest relative
// error for fractions of -1/2 to 1/2.)
__device__ __forceinline__ float exp2_polynomial(float x) {
    constexpr float INTEGER = 12582912;  // plus a number: its integer in the last bits
    x = fmaxf(x, -126.0f);
    const float n = x + INTEGER, f = x - (n - INTEGER);
    const float y = fmaf(f, fmaf(f, fmaf(f, fmaf(f, 0.0095701f, 0.05591786f), 0.24024745f), 0.69312181f), 0.99999926f);
    return raise_exponent(y, n);
}
// POLYNOMIAL: one in so many by polynomial, where exponentials keep their unit as busy as products theirs.
__device__ __forceinline__ void exponentiate(Scores S) {
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++) {
        const bool by_polynomial = POLYNOMIAL && (n * 4 + e + 1) % (POLYNOMIAL + !POLYNOMIAL) == 0;
        S[0][n][e] = by_polynomial ? exp2_polynomial(S[0][n][e]) : exp2_fast(S[0][n][e]);
    }
}
__device__ __forceinline__ void round_weights(const Scores S, Probabilities& P) {
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 2; e++)
        P.piece[0][n / 2][0][n % 2 * 2 + e] = halves(S[0][n][2 * e], S[0][n][2 * e + 1]);
}
__device__ __forceinline__ float row_top(const Scores S, int h) {
    float top = MINUS_INFINITY;
    UNROLL for (int n = 0; n < SL; n++) top = fmaxf(top, fmaxf(S[0][n][2 * h], S[0][n][2 * h + 1]));
    return lanes_max<4>(top);
}
// The maximum becomes m, before the first weights.
__device__ __forceinline__ void begin_m(RowState& r, const Scores S) {
    UNROLL for (int h = 0; h < 2; h++) {
        const float top = row_top(S, h);
        r.base[0][h] = CAUSAL && top == MINUS_INFINITY ? 0 : BIAS - top;  // no key: its P are 0
    }
}
// As rescale: but O and l, which the tensor cores still add to, follow later.
struct Shrink {
    float by[2];
    bool due;
    __device__ __forceinline__ void raise_m(RowState& r, Scores S) {
        UNROLL for (int h = 0; h < 2; h++) {
            const float top = row_top(S, h), old = r.base[0][h];
            if (!CAUSAL || top > MINUS_INFINITY) r.base[0][h] += fminf(0, BIAS - top);  // else no key: its base stays
            const float change = r.base[0][h] - old;
            by[h] = exp2_fast(change);
            UNROLL for (int n = 0; n < SL; n++) S[0][n][2 * h] += change, S[0][n][2 * h + 1] += change;
        }
    }
    __device__ __forceinline__ void apply_to(RowState& r) const {
        UNROLL for (int h = 0; h < 2; h++) {
            r.l[0][2 * h] *= by[h];
            UNROLL for (int n = 0; n < NO; n++) r.O[0][n][2 * h] *= by[h], r.O[0][n][2 * h + 1] *= by[h];
        }
    }
};
#endif  // GROUPS
