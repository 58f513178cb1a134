#pragma once
// Sums of tensor cores on their way to memory.

#include "platform.cuh"
#include "ptx.cuh"

// Four lanes hold four pairs of columns each; they exchange them, so that each has 16 bytes that lie side by side.
__device__ __forceinline__ void exchange_pairs(unsigned (&x)[4]) {
    UNROLL for (int bit = 1; bit <= 2; bit *= 2) UNROLL for (int s = 0; s < 2; s++) {
        const int low = bit == 1 ? 2 * s : s, high = low + bit;
        const bool upper = threadIdx.x & bit;
        const unsigned got = SHFL_XOR(upper ? x[low] : x[high], bit);
        if (upper) x[low] = got;
        else x[high] = got;
    }
}
