#pragma once
// The softmax of a block's tile of scores in shared memory, and O, which its threads keep (smallbr, shared, fp16qk): thread i
// takes row i's softmax, and element n of O in thread t is element t + n * THREADS of the block's rows.
//
// S has rows of BC + 1 floats against bank conflicts; alpha has a number for each row.

#include "platform.cuh"
#include "schedule.cuh"

constexpr int OUTPUTS = ceil_div(BR * D, THREADS);  // elements of O that one thread keeps

static_assert(BR <= THREADS, "each row of the tile needs a thread for its softmax");

// S becomes P; m and l of row threadIdx.x take in the tile's keys, and alpha is what O of before is to be multiplied by.
__device__ __forceinline__ void take_softmax(float* S, float* alpha, float& m, float& l)
{
    if (threadIdx.x >= BR) return;
    float* S_row = S + threadIdx.x * (BC + 1);
    float m_new = m;
    for (int j = 0; j < BC; ++j) m_new = fmaxf(m_new, S_row[j]);
    float sum = 0.0f;  // of this tile alone: one long chain of additions would lose digits
    for (int j = 0; j < BC; ++j) sum += S_row[j] = exp2f(S_row[j] - m_new);
    alpha[threadIdx.x] = exp2f(m - m_new);
    l = alpha[threadIdx.x] * l + sum;
    m = m_new;
}
// Writes O / l: rows from `row0` on, of `rows`.
__device__ __forceinline__ void write_rows(float* o, const float (&O)[OUTPUTS], float* alpha, float l, int row0, int rows)
{
    __syncthreads();
    if (threadIdx.x < BR) alpha[threadIdx.x] = 1.0f / divisor(l);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
        const int e = threadIdx.x + n * THREADS, i = e / D;
        if (i < BR && row0 + i < rows) o[e] = O[n] * alpha[i];
    }
}
