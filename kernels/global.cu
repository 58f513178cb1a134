// global: fused, and nothing in shared memory: a thread a row, and all threads read K and V from device memory.
//
// Idea:     A thread owns a row of Q: it goes through the keys, BC at a time, keeps their scores, m, l and O in its
//           registers, and needs nothing of another thread. All 32 lanes of a warp load the same element of K at the
//           same time, which is one access.
// Geometry: B * ceil(N/BR) blocks of BR threads; BR = 32, a warp, and BC = 8, or 4 where d is above 64.
// Shared:   none.
// Limits:   An access to the L1 cache for each multiplication. Elements of Q, read again for every tile, are 4*d bytes
//           apart from lane to lane: 32 sectors an access. BC + d floats must fit into a thread's registers.
// Source:   The first step of the course's best report ("global memory only"); Milakov and Gimelshein 2018, Online
//           normalizer calculation for softmax, algorithm 3, a tile at a time.
// Before:   paper. The loops are exchanged: O, l and m never leave the thread, and rows are independent.

#include "ptx.cuh"
#include "schedule.cuh"

constexpr int ROOM = D <= 32 ? 512 : D <= 64 ? 384 : 256;  // threads on a multiprocessor: each has 128 registers, 168, or 255

static_assert(THREADS == BR, "each row needs a thread");
static_assert(THREADS <= ROOM, "a thread must have registers for its row of O");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT(ROOM / THREADS))
global(const Params p)
{
    const Task t = task_of(blockIdx.x, p);
    const int row = t.row0 + threadIdx.x;
    const float* q = row_of(p.q, t.batch, min(row, p.Nq - 1));
    const float *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);

    float m = BELOW_ALL_SCORES, l = 0.0f, O[D] = {};
    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        const Mask mask = mask_at(p, row, key0, p.Nk - key0);
        const float* k_tile = k + (long long)key0 * D;
        const int last = p.Nk - key0 - 1;  // where there are fewer keys than BC, this one again

        float S[BC] = {}, m_new = m;
#pragma unroll 4
        for (int c = 0; c < D; ++c) {
            const float x = q[c];
            UNROLL for (int j = 0; j < BC; ++j) S[j] += x * k_tile[min(j, last) * D + c];
        }
        UNROLL for (int j = 0; j < BC; ++j) {
            S[j] = mask.allows(0, j) ? p.scale * LOG2E * S[j] : MINUS_INFINITY;
            m_new = fmaxf(m_new, S[j]);
        }

        const float alpha = exp2f(m - m_new);
        float sum = 0.0f;
        UNROLL for (int j = 0; j < BC; ++j) sum += S[j] = exp2f(S[j] - m_new);  // S becomes P
        l = alpha * l + sum;
        m = m_new;
        UNROLL for (int c = 0; c < D; ++c) O[c] *= alpha;
        UNROLL for (int j = 0; j < BC; ++j) {
            const float* v_row = v + (long long)(key0 + min(j, last)) * D;
            UNROLL for (int c = 0; c < D; ++c) O[c] += S[j] * v_row[c];
        }
    }

    if (row >= p.Nq) return;
    float* o = row_of(p.o, t.batch, row);
    const float inverse_l = 1.0f / divisor(l);
    UNROLL for (int c = 0; c < D; ++c) o[c] = O[c] * inverse_l;
}
