// smallbr: the counter-example. Fused, but a block owns too few rows.
//
// Idea:     Online softmax: with a running maximum m and sum l for each row, S lives on the SM, one tile at
//           a time, and never reaches device memory. One thread per score of the tile.
// Geometry: B * ceil(N/BR) blocks of BR*BC threads; BR = 4 rows, BC = 32 keys, 128 threads.
// Shared:   Q, K (rows padded by one float against bank conflicts), V, S, alpha: 4 * (BR*d + BC*(d+1) + BC*d
//           + BR*(BC+1) + BR) bytes.
// Limits:   Each block reads all of K and V: 8*B*N*N*d / BR bytes out of L2 (137 GB at 4, 16384, 64), and a
//           float so fetched serves only BR multiplications. Try BR = 1, 2, 8, 16 to see what it costs.
// Source:   Milakov and Gimelshein 2018, Online normalizer calculation for softmax, algorithm 3; Dao 2023,
//           FlashAttention-2, algorithm 1.
// Before:   naive. S and P leave device memory; what was three launches is one.

#include "block_softmax.cuh"
#include "rows.cuh"
#include "schedule.cuh"

static_assert(THREADS == BR * BC, "a block must hold one thread for each score of its tile");

extern "C" __global__ void LAUNCH_BOUNDS
smallbr(const Params p)
{
    extern __shared__ float4 shared[];
    float* Q = reinterpret_cast<float*>(shared);
    float* K = Q + BR * D;
    float* V = K + BC * (D + 1);
    float* S = V + BC * D;  // turns into P in place
    float* alpha = S + BR * (BC + 1);

    const Task t = task_of(blockIdx.x, p);
    const float *q = row_of(p.q, t.batch, t.row0), *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);
    float* o = row_of(p.o, t.batch, t.row0);

    float m = BELOW_ALL_SCORES, l = 0.0f;  // of row threadIdx.x; only the first BR threads use them
    float O[OUTPUTS] = {};
    load_rows<BR, D>(Q, q, p.Nq - t.row0, p.scale * LOG2E);

    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        const Mask mask = mask_at(p, t.row0, key0, p.Nk - key0);
        __syncthreads();  // all threads have read the tile before
        load_rows<BC, D + 1>(K, k + (long long)key0 * D, p.Nk - key0);
        load_rows<BC, D>(V, v + (long long)key0 * D, p.Nk - key0);
        __syncthreads();

        const int i = threadIdx.x / BC, j = threadIdx.x % BC;
        float s = 0.0f;
        for (int c = 0; c < D; ++c) s += Q[i * D + c] * K[j * (D + 1) + c];
        S[i * (BC + 1) + j] = mask.allows(i, j) ? s : MINUS_INFINITY;
        __syncthreads();

        take_softmax(S, alpha, m, l);
        __syncthreads();

#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {  // unrolled, or O would not be in registers
            const int e = min(int(threadIdx.x) + n * THREADS, BR * D - 1), i = e / D, c = e % D;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BC; ++j) sum += S[i * (BC + 1) + j] * V[j * D + c];
            O[n] = alpha[i] * O[n] + sum;
        }
    }

    write_rows(o, O, alpha, l, t.row0, p.Nq);
}
