// paper: FlashAttention's Algorithm 1 as it is printed, with the loop over K and V outside.
//
// Idea:     Tiles of K and V come once. For each of them a block goes through all rows, and O, l and m, which it has not
//           finished, come from device memory and go back there.
// Geometry: One block of 1024 threads for each batch: the inner loop changes what the outer one left, so that rows
//           cannot be shared among blocks. Tiles by the paper's formula, BC = ceil(M/4d) and BR = min(BC, d), where M is
//           40 KB.
// Shared:   Q, K (rows padded by one float against bank conflicts), V, S, and two factors a row: 4 * (BR*d + BC*(d+1) +
//           BC*d + BR*(BC+1) + 2*BR) bytes. The formula leaves a quarter to O; here a thread changes O in device memory.
// Limits:   B blocks keep B multiprocessors busy, whatever N is. O crosses the L2 cache twice for each tile of keys: 8*B*N*N*d
//           / BC bytes. Scratch: 8*B*N bytes, l and m.
// Source:   Dao et al. 2022, FlashAttention, algorithm 1; its numbers stand beside the lines. Printed without the scores'
//           1/sqrt(d), which belongs to attention.
// Before:   naive. One launch, and S stays on the chip.

#include "rows.cuh"
#include "schedule.cuh"

static_assert(BR <= THREADS, "each row of the tile needs a thread for its softmax");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
paper(const Params p)
{
    extern __shared__ float4 memory[];
    float* Q = reinterpret_cast<float*>(memory);
    float* K = Q + BR * D;
    float* V = K + BC * (D + 1);
    float* S = V + BC * D;  // turns into P in place
    float* of_old = S + BR * (BC + 1);
    float* of_new = of_old + BR;

    const int batch = blockIdx.x;
    const float *q = row_of(p.q, batch, 0), *k = row_of(p.k, batch, 0), *v = row_of(p.v, batch, 0);
    float* o = row_of(p.o, batch, 0);
    float* l = static_cast<float*>(p.scratch) + 2LL * batch * p.Nq;
    float* m = l + p.Nq;

    for (int e = threadIdx.x; e < p.Nq * D; e += THREADS) o[e] = 0.0f;  // 2
    for (int i = threadIdx.x; i < p.Nq; i += THREADS) l[i] = 0.0f, m[i] = BELOW_ALL_SCORES;

    for (int key0 = 0; key0 < p.Nk; key0 += BC) {  // 5
        __syncthreads();  // all threads have read the tile before
        load_rows<BC, D + 1>(K, k + (long long)key0 * D, p.Nk - key0);  // 6
        load_rows<BC, D>(V, v + (long long)key0 * D, p.Nk - key0);

        for (int row0 = 0; row0 < p.Nq; row0 += BR) {  // 7
            const Mask mask = mask_at(p, row0, key0, p.Nk - key0);
            if (CAUSAL && !mask.allows(BR - 1, 0)) continue;  // none of these rows sees a key of the tile
            __syncthreads();
            load_rows<BR, D>(Q, q + (long long)row0 * D, p.Nq - row0, p.scale);  // 8
            __syncthreads();

            for (int e = threadIdx.x; e < BR * BC; e += THREADS) {  // 9
                const int i = e / BC, j = e % BC;
                float s = 0.0f;
#pragma unroll 8
                for (int c = 0; c < D; ++c) s += Q[i * D + c] * K[j * (D + 1) + c];
                S[i * (BC + 1) + j] = mask.allows(i, j) ? s : MINUS_INFINITY;
            }
            __syncthreads();

            const int row = row0 + threadIdx.x;
            if (threadIdx.x < BR && row < p.Nq) {  // 10, 11
                float* S_row = S + threadIdx.x * (BC + 1);
                float m_tile = BELOW_ALL_SCORES, l_tile = 0.0f;
                for (int j = 0; j < BC; ++j) m_tile = fmaxf(m_tile, S_row[j]);
                for (int j = 0; j < BC; ++j) l_tile += S_row[j] = expf(S_row[j] - m_tile);
                const float m_new = fmaxf(m[row], m_tile), old = expf(m[row] - m_new), now = expf(m_tile - m_new);
                const float l_new = old * l[row] + now * l_tile;
                of_old[threadIdx.x] = old * l[row] / divisor(l_new);
                of_new[threadIdx.x] = now / divisor(l_new);
                l[row] = l_new, m[row] = m_new;  // 13
            }
            __syncthreads();

            for (int e = threadIdx.x; e < BR * D; e += THREADS) {  // 12
                const int i = e / D, c = e % D;
                if (row0 + i >= p.Nq) break;
                float sum = 0.0f;
#pragma unroll 8
                for (int j = 0; j < BC; ++j) sum += S[i * (BC + 1) + j] * V[j * D + c];
                float* o_element = o + (long long)row0 * D + e;
                *o_element = of_old[i] * *o_element + of_new[i] * sum;
            }
        }
    }
}
