// The tensor-core instructions of kernels/*.cuh, on bits: the same text for a GPU and for the CPU. Operands come from Q, K and V,
// those of each block after those of the one before; results go to O.
#include "params.cuh"
#include "mma.cuh"
#include "bulk.cuh"
#include "wgmma.cuh"

extern __shared__ __align__(1024) float4 window[];

// Of lane l: a is 4 words of Q, b 2 words of K, c 4 words of V.
extern "C" __global__ void one_mma(const Params p) {
    const unsigned lane = blockIdx.x * 32 + threadIdx.x;
    const unsigned *a = (const unsigned*)p.q.data + lane * 4, *b = (const unsigned*)p.k.data + lane * 2;
    float c[4];
    for (int n = 0; n < 4; n++) c[n] = p.v.data[lane * 4 + n];
    mma(c, a, b);
    for (int n = 0; n < 4; n++) p.o.data[lane * 4 + n] = c[n];
}

// Four 8x8 matrices of K, as they are and transposed: 8 words a lane.
extern "C" __global__ void one_load(const Params p) {
    const unsigned lane = threadIdx.x;
    const unsigned at = shared_address(window) + lane * 16;
    window[lane] = ((const float4*)p.k.data)[lane];
    __syncthreads();
    unsigned r[8];
    load_matrices(r, at), load_transposed(r + 4, at);
    for (int n = 0; n < 8; n++) ((unsigned*)p.o.data)[lane * 8 + n] = r[n];
}

#if WARPGROUPS
// Of thread t: a is 4 words of Q; b is 64 x 16 from 8 KB of K, its rows 128 bytes apart and swizzled over as many; c is 32
// words of V. `splits` 1: b is 16 x 64 instead, and eight more columns lie 1 KB after every 64.
extern "C" __global__ void one_wgmma(const Params p) {
    const unsigned t = threadIdx.x, of = blockIdx.x * 128 + t;
    for (unsigned n = t; n < 512; n += 128) window[n] = ((const float4*)p.k.data)[blockIdx.x * 512 + n];
    fence_proxy_async();
    __syncthreads();
    const unsigned at = shared_address(window);
    const unsigned long long b = (at & 0x3ffff) >> 4 | 4096ull >> 4 << 16 | 1024ull >> 4 << 32 | 1ull << 62;
    float c[8][4], more[4];
    for (int n = 0; n < 32; n++) c[n / 4][n % 4] = p.v.data[of * 32 + n], more[n % 4] = c[0][n % 4];
    unsigned a[4];
    for (int n = 0; n < 4; n++) a[n] = ((const unsigned*)p.q.data)[of * 4 + n];
    fence_registers(c);
    wgmma_fence();
    if (p.splits == 1) wgmma_rows(c, more, a, b);
    else wgmma(c, a, b);
    wgmma_commit();
    wgmma_wait<0>();
    fence_registers(c);
    for (int n = 0; n < 32; n++) p.o.data[of * 32 + n] = c[n / 4][n % 4] + (p.splits == 1 && n < 4 ? more[n] : 0);
}
#endif
