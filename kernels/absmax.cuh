#pragma once
// The largest |element| of Q, of K and of V, found by who reads them anyway: the error bound follows from it.
//
// It is kept as its bits, which are ordered as magnitudes are: NaN is above infinity, infinity above numbers.

#include "ptx.cuh"

__device__ __forceinline__ unsigned abs_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ unsigned noted(const unsigned* absmax, int matrix) {
    return ((const volatile unsigned*)absmax)[matrix];
}
// What was noted a while ago spares most warps the atomic: thousands would queue for one address.
__device__ __forceinline__ void note(unsigned* absmax, int matrix, unsigned top, unsigned before) {
    top = warp_max(top);
    if (threadIdx.x % 32 == 0 && top > before) atomicMax(absmax + matrix, top);
}
// The same with an atomic a block: its warps leave what they found in shared memory; then, after a barrier, thread n notes
// matrix n, from `first` on.
struct BlockAbsmax {
    static constexpr int WARPS = 256 / 32;
    unsigned* found;  // a number for each matrix and warp
    unsigned before;
    __device__ __forceinline__ static bool notes(int first) { return first <= threadIdx.x && threadIdx.x < 3; }
    __device__ __forceinline__ void begin(const unsigned* absmax, int first) {
        before = notes(first) ? noted(absmax, threadIdx.x) : 0;
    }
    __device__ __forceinline__ void leave(int matrix, unsigned top) {
        top = warp_max(top);
        if (threadIdx.x % 32 == 0) found[matrix * WARPS + threadIdx.x / 32] = top;
    }
    __device__ __forceinline__ void note_all(unsigned* absmax, int first) {
        if (!notes(first)) return;
        unsigned top = 0;
        UNROLL for (int n = 0; n < WARPS; n++) top = max(top, found[threadIdx.x * WARPS + n]);
        if (top > before) atomicMax(absmax + threadIdx.x, top);
    }
};
