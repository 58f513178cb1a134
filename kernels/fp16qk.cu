// fp16qk: the scores on tensor cores, from Q and K rounded to fp16: fast, and too inexact for the assignment.
//
// Idea:     mma.sync multiplies 16 rows by 8 keys at once, exactly, and adds in float32. But Q and K lose 13 bits each before,
//           and an error of a score is one in the exponent. Softmax and P V are as in shared.
// Geometry: B * ceil(N/BR) blocks of 256 threads; BR = 64, BC = 32: each of 8 warps computes two of the tile's 16 fragments.
// Shared:   Q and K in fp16 (rows of d rounded up to 16, and 8 more against bank conflicts), V, S, alpha: 2 * (BR + BC) *
//           (ceil(d/16)*16 + 8) + 4 * (BC*d + BR*(BC+1) + BR) bytes.
// Limits:   Compute capability 7.5. An error of 5e-3 on the assignment's data, where 5e-3 is allowed, and up to 0.15 at
//           d = 64 (docs/accuracy.md): hw4 lets a more exact kernel answer instead. P V is still two loads a multiplication.
// Source:   A from-scratch project's kernel with fp16 Q K^T and float32 accumulators (WMMA).
// Before:   shared. Only the scores are computed in another way.

#include "block_softmax.cuh"
#include "mma.cuh"
#include "rows.cuh"
#include "schedule.cuh"

constexpr int PAIRS = ceil_div(D, 16) * 8 + 4;  // of halves, from one row of Q or K to the next
constexpr int FRAGMENTS = BR / 16 * (BC / 8);  // of a tile's scores, 16 rows by 8 keys each

static_assert(BR % 16 == 0 && BC % 8 == 0 && FRAGMENTS % (THREADS / 32) == 0, "the warps must share the fragments evenly");

// Brings COUNT rows to shared memory in fp16; rows and columns past the end become zeros.
template <int COUNT> __device__ inline void load_halves(unsigned* tile, const float* rows, int rows_left)
{
    for (int e = threadIdx.x; e < COUNT * (PAIRS - 4); e += THREADS) {
        const int i = e / (PAIRS - 4), c = e % (PAIRS - 4) * 2;
        const bool inside = i < rows_left && c < D;
        tile[i * PAIRS + c / 2] = inside ? pack(rows[i * D + c], rows[i * D + c + 1]) : 0;
    }
}

extern "C" __global__ void LAUNCH_BOUNDS
fp16qk(const Params p)
{
    extern __shared__ float4 memory[];
    unsigned* Q = reinterpret_cast<unsigned*>(memory);
    unsigned* K = Q + BR * PAIRS;
    float* V = reinterpret_cast<float*>(K + BC * PAIRS);
    float* S = V + BC * D;  // turns into P in place
    float* alpha = S + BR * (BC + 1);

    const Task t = task_of(blockIdx.x, p);
    const float *q = row_of(p.q, t.batch, t.row0), *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);
    float* o = row_of(p.o, t.batch, t.row0);

    float m = BELOW_ALL_SCORES, l = 0.0f;  // of row threadIdx.x; only the first BR threads use them
    float O[OUTPUTS] = {};
    load_halves<BR>(Q, q, p.Nq - t.row0);

    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        const Mask mask = mask_at(p, t.row0, key0, p.Nk - key0);
        __syncthreads();  // all threads have read the tile before
        load_halves<BC>(K, k + (long long)key0 * D, p.Nk - key0);
        load_rows<BC, D>(V, v + (long long)key0 * D, p.Nk - key0);
        __syncthreads();

        const int lane = threadIdx.x % 32;
        for (int f = threadIdx.x / 32; f < FRAGMENTS; f += THREADS / 32) {
            const int i = f / (BC / 8) * 16 + lane / 4, j = f % (BC / 8) * 8;
            float s[4] = {};  // rows i and i + 8, keys j + 2(lane%4) and the next
            for (int c = lane % 4; c < PAIRS - 4; c += 8) {
                const unsigned a[4] = {Q[i * PAIRS + c], Q[(i + 8) * PAIRS + c],
                                       Q[i * PAIRS + c + 4], Q[(i + 8) * PAIRS + c + 4]};
                const unsigned* K_row = K + (j + lane / 4) * PAIRS + c;
                const unsigned b[2] = {K_row[0], K_row[4]};
                mma(s, a, b);
            }
            for (int n = 0; n < 4; ++n) {
                const int row = i + n / 2 * 8, key = j + lane % 4 * 2 + n % 2;
                S[row * (BC + 1) + key] = mask.allows(row, key) ? p.scale * LOG2E * s[n] : MINUS_INFINITY;
            }
        }
        __syncthreads();

        take_softmax(S, alpha, m, l);
        __syncthreads();

#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {  // unrolled, or O would not be in registers
            const int e = min(int(threadIdx.x) + n * THREADS, BR * D - 1), i = e / D, c = e % D;
            float sum = 0.0f;
#pragma unroll 16
            for (int j = 0; j < BC; ++j) sum += S[i * (BC + 1) + j] * V[j * D + c];
            O[n] = alpha[i] * O[n] + sum;
        }
    }

    write_rows(o, O, alpha, l, t.row0, p.Nq);
}
