#pragma once
// What half and half_short do for a group of four warps: where its matrices lie in shared memory, its products (wgmma), and its
// rounds of the softmax.
//
// The macros come from hw4cli/plans/half.py and halfshort.py: BR rows of Q and BC keys lie together, in rows of 128 bytes;
// COLUMNS of O are computed, DV rounded up; ONES: the tensor cores sum P.

#include "halfrows.cuh"
#include "hopper.cuh"
#include "swizzled.cuh"

struct HalfTensors { TensorMap q, k, v; };

constexpr int SUBTILES = ceil_div(D, 64), V_SUBTILES = ceil_div(DV, 64);  // of 64 columns, 128 bytes a row
constexpr int STEPS = ceil_div(D, 16);                                    // k16 steps of Q K
constexpr unsigned Q_BYTES = SUBTILES * BR * 128, TILE_BYTES = SUBTILES * BC * 128;
// ONES: behind 64 columns of V are those of all tiles; behind 128 columns each buffer of V has its own.
constexpr bool OWN_ONES = ONES && COLUMNS == 128;
constexpr unsigned V_BYTES = (V_SUBTILES + OWN_ONES) * BC * 128, ONES_BYTES = OWN_ONES ? BC * 128 : 2048;
static_assert(!ONES || COLUMNS == 64 || COLUMNS == 128, "the column of ones lies behind 64 or 128 columns of V");
static_assert(BC % 16 == 0 && COLUMNS >= DV && COLUMNS <= V_SUBTILES * 64, "tiles as wgmma takes them");

typedef float Scores[BC / 8][4];
typedef unsigned Weights[BC / 16][4];

__device__ __forceinline__ void fence_registers4(float (&x)[4]) { fence_registers(*(float (*)[1][4])&x); }
__device__ __forceinline__ void fence_registers(RowState& r) {
    fence_registers(r.O);
    if (ONES) fence_registers4(r.l);
}
__device__ __forceinline__ void begin_softmax(Scores& S, RowState& r, const HalfWork& p) {
    begin_maximum(S, r, p.scale);
    exponentiate(S, r, p.scale);
}

// SCORE_RISES: `line` and `places` are the descriptors of columns more of Q and of K (halfline.cuh).
__device__ __forceinline__ void issue_scores(Scores& S, unsigned q_at, unsigned k_at, [[maybe_unused]] unsigned long long line = 0,
                                             [[maybe_unused]] unsigned long long places = 0) {
    fence_registers(S);
    wgmma_fence();
    const unsigned q = matrix_at(q_at, 16), k = matrix_at(k_at, 16);
    UNROLL for (int n = 0; n < STEPS; n++)
        wgmma(S, descriptor(q + (n / 4 * BR * 128 + n % 4 * 32) / 16),
              descriptor(k + (n / 4 * BC * 128 + n % 4 * 32) / 16), n > 0);
#if SCORE_RISES
    wgmma(S, line, places, true);
#endif
    wgmma_commit();
}
__device__ __forceinline__ void issue_values(RowState& r, const Weights& P, unsigned v_at, unsigned ones) {
    wgmma_fence();  // without it, the compiler serialises what a wait stands between (C7520)
#if ONES
    const unsigned v = matrix_at(v_at, OWN_ONES ? BC * 128 : ones - v_at), next = OWN_ONES ? 128 : 128u - (128u << 16);
    UNROLL for (int n = 0; n < BC / 16; n++) wgmma_rows(r.O, r.l, P[n], descriptor(v + n * next));
#else
    const unsigned v = matrix_at(v_at, BC * 128);
    UNROLL for (int n = 0; n < BC / 16; n++) wgmma_rows(r.O, P[n], descriptor(v + n * 128));
#endif
    wgmma_commit();
}

__device__ __forceinline__ void make_ones(unsigned at) {
    for (unsigned n = threadIdx.x * 4; n < ONES_BYTES; n += THREADS * 4) store_shared(at + n, pack(1, 1));
    fence_proxy_async();
}
// What all threads need before their first tile: the barriers, which thread 0 has initialised, and the ones.
__device__ __forceinline__ void begin_block(unsigned ones_at) {
    if (threadIdx.x == 0) fence_mbarrier_init();
    if (ONES && !OWN_ONES) make_ones(ones_at);
    __syncthreads();
}

// O of a group's 64 rows, in 16 bits, to where their Q was, and from there to its place; one thread issues the copy.
__device__ __forceinline__ void store_by_copy(const RowState& r, const HalfWork& p, const TensorMap& o, const RowTile& t, int row0,
                                              unsigned to, int id) {
    const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16;
    float over[2];
    UNROLL for (int h = 0; h < 2; h++) {
        const float l = row_sum(r, h);
        const int out = row0 + first + lane / 4 + 8 * h;
        over[h] = l == 0 ? 0 : __frcp_rn(l);
        if (p.lse && lane % 4 == 0 && out < p.Nq)
            lse_of(p, t, out) = l == 0 ? MINUS_INFINITY : (r.shift[h] + log2f(l)) * LN2;
    }
    const int row = first + lane % 16;  // whose address this lane gives, of the first or the second of two blocks of 8 columns
    const unsigned at = to + row * 128 + ((lane / 16 ^ row) & 7) * 16;
    UNROLL for (int n = 0; n < COLUMNS / 8; n += 2) {
        unsigned x[4];
        UNROLL for (int e = 0; e < 4; e++) {
            const float* O = r.O[n + e / 2] + e % 2 * 2;
            x[e] = pack(O[0] * over[e % 2], O[1] * over[e % 2]);
        }
        store_matrices((at ^ n % 8 * 16) + n / 8 * BR * 128, x);
    }
    fence_proxy_async();
    warpgroup_sync(id);
    if (threadIdx.x % 128 == 0) {
        UNROLL for (int c = 0; c < SUBTILES; c++) store_box(o, c * 64, row0, t.head, t.batch, to + c * BR * 128);
        bulk_commit();
    }
}
