// shared: many rows share each tile of K and V.
//
// Idea:     A block owns 64 rows, so a tile of K and V, once in shared memory, serves 64 rows and not 4. Each
//           thread computes several scores and keeps several elements of O in its registers.
// Geometry: B * ceil(N/BR) blocks of 256 threads; BC = 32, BR = the largest of 64, 32, 16 that fits into 48
//           KB.
// Shared:   Q, K (rows padded by one float against bank conflicts), V, S, alpha: 4 * (BR*d + BC*(d+1) + BC*d
//           + BR*(BC+1) + BR) bytes.
// Limits:   Two loads for each multiplication, and one thread per row does the softmax while the others wait.
//           Any d on any device: 48 KB suffice (BR = 64 to d = 76, 32 to d = 116, then 16).
// Source:   Dao et al. 2022, FlashAttention, section 3.1 (tiling); Dao 2023, FlashAttention-2, algorithm 1.
// Before:   smallbr. BR grows from 4 to 64, which takes 16 times less K and V out of L2; a thread now loops
//           over several scores.

#include "block_softmax.cuh"
#include "rows.cuh"
#include "schedule.cuh"

static_assert(BR * BC % THREADS == 0, "the scores of a tile must divide evenly among the threads");

constexpr int SCORES = BR * BC / THREADS;  // scores of a tile that one thread computes

extern "C" __global__ void LAUNCH_BOUNDS
shared(const Params p)
{
    extern __shared__ float4 memory[];
    float* Q = reinterpret_cast<float*>(memory);
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

        for (int n = 0; n < SCORES; ++n) {
            const int e = threadIdx.x + n * THREADS, i = e / BC, j = e % BC;
            float s = 0.0f;
            for (int c = 0; c < D; ++c) s += Q[i * D + c] * K[j * (D + 1) + c];
            S[i * (BC + 1) + j] = mask.allows(i, j) ? s : MINUS_INFINITY;
        }
        __syncthreads();

        take_softmax(S, alpha, m, l);
        __syncthreads();

#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {  // unrolled, or O would not be in registers
            const int e = min(int(threadIdx.x) + n * THREADS, BR * D - 1), i = e / D, c = e % D;
            float sum = 0.0f;
#pragma unroll 16  // all 32 would gain little and compile six times as long
            for (int j = 0; j < BC; ++j) sum += S[i * (BC + 1) + j] * V[j * D + c];
            O[n] = alpha[i] * O[n] + sum;
        }
    }

    write_rows(o, O, alpha, l, t.row0, p.Nq);
}
