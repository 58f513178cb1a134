#pragma once
// What runs before the kernels that multiply.

#include "backward_group.cuh"

// Of each row, -LSE in base 2 and delta = the sum of dO O. Rows that see no key and rows that are not there get no weight.
constexpr int LANES = D <= 8 ? 1 : D <= 16 ? 2 : D <= 32 ? 4 : D <= 64 ? 8 : 16;  // to a row, 8 columns each

__device__ __forceinline__ void compute_stats(const BackwardParams& p) {
    const long long n = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const int head = n / p.stats_rows, row = n - (long long)head * p.stats_rows, batch = head / p.heads;
    const int column = threadIdx.x % LANES * 8;
    const bool there = batch < p.batches && row < p.Nq;
    float delta = 0;
    if (there && column < D) {
        const int in_batch = head - batch * p.heads;
        const uint4 a = *(const uint4*)(p.o.data + batch * p.o.batch + in_batch * p.o.head + row * p.o.row + column);
        const uint4 b = *(const uint4*)(p.d_o.data + batch * p.d_o.batch + in_batch * p.d_o.head + row * p.d_o.row + column);
        const unsigned x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
        UNROLL for (int i = 0; i < 4; i++) {
            const float2 u = unpack(x[i]), v = unpack(y[i]);
            delta = fmaf(u.x, v.x, fmaf(u.y, v.y, delta));
        }
    }
    delta = lanes_sum<LANES>(delta);
    if (batch >= p.batches || column > 0) return;
    float2 stats = make_float2(MINUS_INFINITY, 0);
    if (there) {
        const float lse = p.lse[(long long)head * p.Nq + row];
        if (lse != MINUS_INFINITY) stats = make_float2(lse * -LOG2E, delta);
    }
    p.stats[n] = stats;
}
