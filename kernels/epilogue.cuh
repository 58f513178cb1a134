#pragma once
// Where results go: O, and the log of the sum of exponentials (LSE) where it is wanted; or, where the keys are split, what
// combine puts together.

#include "ptx.cuh"
#include "schedule.cuh"

#ifndef V_FACTOR_1024  // V and l are held times so many 1024ths, which drops out of O / l
#define V_FACTOR_1024 1024
#endif

constexpr float V_FACTOR = V_FACTOR_1024 / 1024.0f;

// The number of a row of O among those of all splits.
__device__ __forceinline__ long long partial_row(const Params& p, const Task& t, int row)
{
    return ((long long)t.split * p.batches + t.batch) * p.Nq + row;
}

__device__ __forceinline__ void store_lse(const Params& p, long long batch, int row, float m, float l)
{
    p.lse[batch * p.Nq + row] = fmaf(m, LN2, __logf(l * (1 / V_FACTOR)));
}

// O = sum of 2^(m_s - m) O_s / sum of 2^(m_s - m) l_s, m the largest m_s; in a fixed order. Four columns of O a thread.
__device__ __forceinline__ void combine(const Params& p)
{
    ONLY_IF_CHOSEN(p);
    const long long x = (long long)blockIdx.x * blockDim.x + threadIdx.x, rows = (long long)p.batches * p.Nq;
    const long long row = x / (D / 4);
    if (row >= rows) return;
    griddep_wait();
    const float4* parts = (const float4*)p.partial_o + x;
    const float2* stats = p.row_stats + row;
    const int splits = splits_of(p, row % p.Nq);
    float m = CAUSAL && splits == 0 ? MINUS_INFINITY : stats[0].x, l = 0;
#pragma unroll 4  // so many loads at a time
    for (int s = 1; s < splits; s++) m = fmaxf(m, stats[s * rows].x);
    float4 O{0, 0, 0, 0};
#pragma unroll 4
    for (int s = 0; s < splits; s++) {
        const float weight = exp2_fast(stats[s * rows].x - m);
        const float4 part = parts[s * rows * (D / 4)];
        l = fmaf(weight, stats[s * rows].y, l);
        O.x = fmaf(weight, part.x, O.x), O.y = fmaf(weight, part.y, O.y);
        O.z = fmaf(weight, part.z, O.z), O.w = fmaf(weight, part.w, O.w);
    }
    const float f = __frcp_rn(divisor(l));
    const long long batch = row / p.Nq;
    const int column = x - row * (D / 4), row_in_batch = row - batch * p.Nq;
    *(float4*)(row_of(p.o, batch, row_in_batch) + column * 4) = float4{O.x * f, O.y * f, O.z * f, O.w * f};
    if (p.lse && column == 0) store_lse(p, batch, row_in_batch, m, l);
}
