#pragma once
// What the kernels of split by warpgroups share (split_wgmma.cuh, split_short.cuh): four warps multiply 64 rows at once,
// asynchronously (wgmma, compute capability 9.0).
//
// P comes from registers, Q from there or from shared memory, K and V from there. Behind V, for the tensor cores, is a column of
// ones: the product with it is the sum of the rounded P.

#include "fragments.cuh"
#include "wgmma.cuh"

constexpr unsigned ONES_BYTES = 16 * ROW;

static_assert(PROMOTION % BC == 0, "accumulators are promoted between tiles");
static_assert(PV_PIECES == 1 && SMALL_FIRST && WIDTH <= 64, "wgmma is written and measured for this case alone");

// The descriptor of a matrix in shared memory: rows of ROW bytes, swizzled as in tiles.cuh, in groups of eight.
// What lies `beyond` bytes after it are further columns. (PTX ISA, "Matrix-Descriptor Format".)
__device__ __forceinline__ unsigned long long matrix_at(unsigned address, unsigned beyond = 0) {
    constexpr unsigned long long SWIZZLE = WIDTH == 64 ? 1 : 2;  // over 128 or 64 bytes
    return (address & 0x3ffff) >> 4 | (unsigned long long)(beyond >> 4) << 16 |
           (unsigned long long)(8 * ROW >> 4) << 32 | SWIZZLE << 62;
}
__device__ __forceinline__ void fence_registers(RowState& r) { fence_registers(r.O[0]), fence_registers(r.l); }

__device__ __forceinline__ void make_ones(unsigned at) {
    for (unsigned n = threadIdx.x * 4; n < ONES_BYTES; n += THREADS * 4) store_shared(at + n, (unsigned)ONES_BITS);
}
// All threads' stores to shared memory are visible to the tensor cores.
__device__ __forceinline__ void fence_shared() {
    fence_proxy_async();
    __syncthreads();
}
