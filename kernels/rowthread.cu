// rowthread: a thread a row, as many a first kernel has it, from tiles in shared memory.
//
// Idea:     The block's threads load a tile of K and V to shared memory together; then each computes its own row: its
//           scores, m, l and O are in its registers.
// Geometry: B * ceil(N/BR) blocks of BR threads; BR = 32, a warp, and BC = 8, or 4 where d is above 64.
// Shared:   Q (rows padded by one float against bank conflicts), K, V: 4 * (BR*(d+1) + 2*BC*d) bytes, 12 KB at d = 64.
// Limits:   A tile serves 32 rows. A block is one warp, which waits for every tile that it loads, and twelve of them have
//           registers at d = 64. BC + d floats must fit into a thread's registers: more keys at a time leave fewer warps.
// Source:   A from-scratch project's first fused kernel (Br = Bc = 32, scores and O in registers).
// Before:   global. Q, K and V come to shared memory first; the loops are the same.

#include "ptx.cuh"
#include "rows.cuh"
#include "schedule.cuh"

constexpr int ROOM = D <= 32 ? 512 : D <= 64 ? 384 : 256;  // threads on a multiprocessor: each has 128 registers, 168, or 255

static_assert(THREADS == BR, "each row needs a thread");
static_assert(THREADS <= ROOM, "a thread must have registers for its row of O");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT(ROOM / THREADS))
rowthread(const Params p)
{
    extern __shared__ float4 shared[];
    float* K = reinterpret_cast<float*>(shared);
    float* V = K + BC * D;
    float* Q = V + BC * D;

    const Task t = task_of(blockIdx.x, p);
    const int row = t.row0 + threadIdx.x;
    const float *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);
    load_rows<BR, D + 1>(Q, row_of(p.q, t.batch, t.row0), p.Nq - t.row0, p.scale * LOG2E);

    float m = BELOW_ALL_SCORES, l = 0.0f, O[D] = {};
    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        const Mask mask = mask_at(p, row, key0, p.Nk - key0);
        __syncthreads();  // all threads have read the tile before
        load_rows<BC, D>(K, k + (long long)key0 * D, p.Nk - key0);
        load_rows<BC, D>(V, v + (long long)key0 * D, p.Nk - key0);
        __syncthreads();

        float S[BC] = {}, m_new = m;
#pragma unroll 4
        for (int c = 0; c < D; ++c) {
            const float x = Q[threadIdx.x * (D + 1) + c];
            UNROLL for (int j = 0; j < BC; ++j) S[j] += x * K[j * D + c];
        }
        UNROLL for (int j = 0; j < BC; ++j) {
            if (!mask.allows(0, j)) S[j] = MINUS_INFINITY;
            m_new = fmaxf(m_new, S[j]);
        }

        const float alpha = exp2f(m - m_new);
        float sum = 0.0f;
        UNROLL for (int j = 0; j < BC; ++j) sum += S[j] = exp2f(S[j] - m_new);  // S becomes P
        l = alpha * l + sum;
        m = m_new;
        UNROLL for (int c = 0; c < D; ++c) O[c] *= alpha;
        UNROLL for (int j = 0; j < BC; ++j) {
            const float* v_row = V + j * D;
            UNROLL for (int c = 0; c < D; ++c) O[c] += S[j] * v_row[c];
        }
    }

    if (row >= p.Nq) return;
    float* o = row_of(p.o, t.batch, row);
    const float inverse_l = 1.0f / divisor(l);
    UNROLL for (int c = 0; c < D; ++c) o[c] = O[c] * inverse_l;
}
