// Products and copies of matrices, one instruction each: operands come from Q, K and V as bits, results go to O. `splits`
// says which.
#include "probe.cuh"

extern __shared__ float4 window[];
using emu::Format;
typedef unsigned u32;

// A warp: a, b and c of lane l are 4, 2 and 4 words.
KERNEL(warp_product) {
    const int lane = threadIdx.x;
    const u32 *a = (const u32*)q + lane * 4, *b = (const u32*)k + lane * 2;
    union { float f[4]; int i[4]; u32 h[2]; } c;
    memcpy(&c, v + lane * 4, 16);
    const emu::Site site{"mma", __FILE__, __LINE__};
    switch (splits) {
    case 0: emu::mma(site, Format::HALF, 16, c.f, a, b); break;
    case 1: emu::mma(site, Format::HALF, 8, c.f, a, b); break;
    case 2: emu::mma(site, Format::BFLOAT, 16, c.f, a, b); break;
    case 3: emu::mma(site, Format::BFLOAT, 8, c.f, a, b); break;
    case 4: emu::mma(site, Format::TF32, 8, c.f, a, b); break;
    case 5: emu::mma(site, Format::SIGNED, 32, c.i, a, b); break;
    case 6: emu::mma(site, Format::UNSIGNED, 32, c.i, a, b); break;
    case 7: emu::mma_halves(site, 16, c.h, a, b); break;
    case 8: emu::mma_halves(site, 8, c.h, a, b); break;
    }
    memcpy(o + lane * 4, &c, 16);
}

// Four 8x8 matrices from K, through shared memory, to a register each; and back, to the same place in O.
KERNEL(warp_matrices) {
    const int lane = threadIdx.x;
    const emu::Site load{"ldmatrix", __FILE__, 1}, store{"stmatrix", __FILE__, 2};
    u32 r[4] = {};
    if (splits < 6) {  // 1, 2 or 4 matrices, as they are or transposed
        window[lane] = ((const float4*)k)[lane];
        __syncwarp();
        const u32 at = __cvta_generic_to_shared(window + lane);
        switch (splits) {
        case 0: emu::load_matrix<1>(load, r, at, false); break;
        case 1: emu::load_matrix<2>(load, r, at, false); break;
        case 2: emu::load_matrix<4>(load, r, at, false); break;
        case 3: emu::load_matrix<1>(load, r, at, true); break;
        case 4: emu::load_matrix<2>(load, r, at, true); break;
        case 5: emu::load_matrix<4>(load, r, at, true); break;
        }
        memcpy(o + lane * 4, r, 16);
    } else {
        memcpy(r, k + lane * 4, 16);
        const u32 at = __cvta_generic_to_shared(window + lane);
        if (splits == 6) emu::store_matrix<4>(store, at, r, false);
        else emu::store_matrix<4>(store, at, r, true);
        __syncwarp();
        ((float4*)o)[lane] = window[lane];
    }
}

// A warp group: a is 4 words a thread in Q, or lies in shared memory, whose image K is; V begins with the descriptors, then
// c, 4 words a thread and block of 8 columns.
template <int BLOCKS> __device__ void group_product(ARGUMENTS) {
    const int shape = splits;  // its bits are the flags of test_wgmma.py
    for (int n = threadIdx.x; n < 2048; n += 128) window[n] = ((const float4*)k)[n];
    emu::fence_proxy_async();
    __syncthreads();
    float c[BLOCKS][4];
    void* at[BLOCKS];
    for (int n = 0; n < BLOCKS; n++) memcpy(c[n], v + 4 + (threadIdx.x * BLOCKS + n) * 4, 16), at[n] = c[n];
    unsigned long long a, b;
    memcpy(&a, v, 8), memcpy(&b, v + 2, 8);
    const unsigned start = __cvta_generic_to_shared(window) >> 4;
    const Format format = (Format)(shape & 7);
    const bool integers = format == Format::SIGNED || format == Format::UNSIGNED;
    u32 registers[4];
    memcpy(registers, q + threadIdx.x * 4, 16);
    emu::wgmma_fence();
    emu::wgmma({"wgmma", __FILE__, __LINE__},
               {format, integers, (shape & 64) == 0, (shape & 128) != 0, false, shape & 8 ? registers : nullptr, a + start,
                b + start, (shape & 16) == 0, (shape & 32) == 0, BLOCKS, at});
    emu::wgmma_commit();
    emu::wgmma_wait(0);
    for (int n = 0; n < BLOCKS; n++) memcpy(o + (threadIdx.x * BLOCKS + n) * 4, c[n], 16);
}
#define GROUP(n) \
    KERNEL(group_product_##n) { group_product<n>(q, k, v, o, scratch, B, N, splits); }
GROUP(1) GROUP(4) GROUP(8) GROUP(9) GROUP(32)
