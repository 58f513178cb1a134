// warp: a warp owns four rows from the first score to the last output.
//
// Idea:     A lane owns one key of the tile: maximum and sum of a row are shuffles, and m, l, P and O stay in
//           registers. A float of K or V, once loaded, serves all four rows of the warp.
// Geometry: B * ceil(N/BR) blocks of 8*BR threads; BC = 32, BR = the largest of 64, 32, 16 that fits into 48
//           KB. WARP_ROWS, a knob: a warp may own one row or two, and a block then has 32 or 16 threads for each of its rows.
// Shared:   Q, K (rows padded by one float against bank conflicts), V: 4 * (BR*d + BC*(d+1) + BC*d) bytes.
// Limits:   K, V and P move float by float: 3 to 5 loads or shuffles for 4 multiplications. Lanes idle in P V
//           where 32 does not divide d. Any d on any device (BR = 64 to d = 92, 32 to d = 124, then 16).
// Source:   Dao 2023, FlashAttention-2, section 3.3 (each warp keeps its own rows of Q).
// Before:   shared. Gone are S in shared memory, the one thread per row and two of the four barriers.

#include "rows.cuh"
#include "schedule.cuh"

static_assert(BC == 32, "a lane must own one key of the tile");
static_assert(THREADS == 32 / WARP_ROWS * BR, "each warp must own so many rows");

constexpr int ROWS = WARP_ROWS;           // of a warp
constexpr int COLUMNS = ceil_div(D, 32);  // of O that one lane keeps: lane, lane + 32, ...

extern "C" __global__ void __launch_bounds__(THREADS)
warp(const Params p)
{
    extern __shared__ float4 shared[];
    float* Q = reinterpret_cast<float*>(shared);
    float* K = Q + BR * D;
    float* V = K + BC * (D + 1);

    const Task t = task_of(blockIdx.x, p);
    const float *q = row_of(p.q, t.batch, t.row0), *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);
    float* o = row_of(p.o, t.batch, t.row0);

    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * ROWS;
    float m[ROWS], l[ROWS], O[ROWS][COLUMNS];  // l is the sum over this lane's keys until the very end
    for (int r = 0; r < ROWS; ++r) {
        m[r] = BELOW_ALL_SCORES;
        l[r] = 0.0f;
        for (int x = 0; x < COLUMNS; ++x) O[r][x] = 0.0f;
    }
    load_rows<BR, D>(Q, q, p.Nq - t.row0, p.scale * LOG2E);

    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        const Mask mask = mask_at(p, t.row0, key0, p.Nk - key0);
        __syncthreads();  // all threads have read the tile before
        load_rows<BC, D + 1>(K, k + (long long)key0 * D, p.Nk - key0);
        load_rows<BC, D>(V, v + (long long)key0 * D, p.Nk - key0);
        __syncthreads();

        float S[ROWS] = {}, P[ROWS];
#pragma unroll 4
        for (int c = 0; c < D; ++c)
            for (int r = 0; r < ROWS; ++r) S[r] += Q[(warp_row + r) * D + c] * K[lane * (D + 1) + c];

        for (int r = 0; r < ROWS; ++r) {
            if (!mask.allows(warp_row + r, lane)) S[r] = MINUS_INFINITY;
            const float m_new = fmaxf(m[r], lanes_max<32>(S[r]));
            const float alpha = exp2f(m[r] - m_new);
            P[r] = exp2f(S[r] - m_new);
            l[r] = alpha * l[r] + P[r];
            for (int x = 0; x < COLUMNS; ++x) O[r][x] *= alpha;
            m[r] = m_new;
        }

        float PV[ROWS][COLUMNS] = {};  // of this tile alone: one long chain of additions would lose digits
#pragma unroll 8
        for (int j = 0; j < BC; ++j)
            for (int r = 0; r < ROWS; ++r) {
                const float p = SHFL(P[r], j);
                for (int x = 0; x < COLUMNS; ++x) PV[r][x] += p * V[j * D + min(lane + 32 * x, D - 1)];
            }
        for (int r = 0; r < ROWS; ++r)
            for (int x = 0; x < COLUMNS; ++x) O[r][x] += PV[r][x];
    }

    for (int r = 0; r < ROWS; ++r) {
        const float inverse_l = 1.0f / divisor(lanes_sum<32>(l[r]));
        for (int x = 0; x < COLUMNS; ++x)
            if (t.row0 + warp_row + r < p.Nq && lane + 32 * x < D)
                o[(warp_row + r) * D + lane + 32 * x] = O[r][x] * inverse_l;
    }
}
