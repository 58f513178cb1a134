// What asynchronous copies and products need of a program, done right and left out: `splits` says which.
#include "probe.cuh"
#define AT(what) (emu::Site{what, __FILE__, __LINE__})

extern __shared__ float4 window[];
constexpr unsigned BYTES = 1024;  // of a copy; a word for each of 256 threads

// Q to O through shared memory, by bulk copies that an mbarrier counts.
enum Load {
    RIGHT, NO_WAIT, WRONG_PARITY, NO_FENCE, NO_SYNC, TOO_FEW_BYTES, TOO_MANY_BYTES, NO_EXPECT, ONE_WAITS, NO_RELEASE, RELEASED,
    TWICE_MADE, NOT_MADE, NEVER_AWAITED, MISALIGNED, OUTSIDE, ONE_WAITS_AND_SYNCS
};
KERNEL(load) {
    const unsigned base = __cvta_generic_to_shared(window), full = base + 4096, empty = full + 8;
    const int t = threadIdx.x;
    if (t == 0) {
        if (splits != NOT_MADE) emu::mbarrier_init(full, 1);
        emu::mbarrier_init(empty, blockDim.x);
        if (splits == TWICE_MADE) emu::mbarrier_init(full, 1);
        if (splits != NO_FENCE) emu::fence_mbarrier_init();
    }
    if (splits != NO_SYNC) __syncthreads();
    auto fetch = [&](int n) {
        const unsigned announced = splits == TOO_FEW_BYTES ? BYTES - 16 : splits == TOO_MANY_BYTES ? BYTES + 16 : BYTES;
        if (splits != NO_EXPECT) emu::mbarrier_expect(full, announced);
        emu::mbarrier_arrive(full);
        emu::copy_bulk(base + (splits == MISALIGNED ? 8 : splits == OUTSIDE ? 32768 : 0), q + n * BYTES / 4, BYTES, full);
    };
    auto wait = [&](unsigned parity) {
        if (splits == NO_WAIT || splits == NEVER_AWAITED) return;
        if ((splits == ONE_WAITS || splits == ONE_WAITS_AND_SYNCS) && t != 0) return;
        emu::mbarrier_wait(AT("mbarrier"), full, splits == WRONG_PARITY ? !parity : parity);
    };
    const float* tile = (const float*)window;
    if (t == 0) fetch(0);
    wait(0);
    if (splits == ONE_WAITS_AND_SYNCS) __syncthreads();
    if (splits == NEVER_AWAITED) return;
    float x = tile[t];
    if (splits == NO_RELEASE || splits == RELEASED) {
        if (splits == RELEASED) emu::mbarrier_arrive(empty);
        if (t == 0) {
            if (splits == RELEASED) emu::mbarrier_wait(AT("mbarrier"), empty, 0);
            fetch(1);
        }
        wait(1);
        x += tile[t];
    }
    o[t] = x;
}

// Q to O through shared memory, and from there by a bulk copy.
enum Store { STORED, NO_PROXY_FENCE, FENCE_BY_READER, OVERWRITTEN, OVERWRITTEN_AFTER_READ, NEVER_READ, NEVER_COMMITTED };
KERNEL(store) {
    const unsigned base = __cvta_generic_to_shared(window);
    const int t = threadIdx.x;
    float* tile = (float*)window;
    tile[t] = q[t];
    if (splits != NO_PROXY_FENCE && splits != FENCE_BY_READER) emu::fence_proxy_async();
    __syncthreads();
    if (t == 0) {
        if (splits == FENCE_BY_READER) emu::fence_proxy_async();
        emu::store_bulk(o, base, BYTES);
        if (splits != NEVER_COMMITTED) emu::store_commit();
        if (splits == OVERWRITTEN_AFTER_READ) emu::store_wait(0, true);
    }
    __syncthreads();
    if (splits == OVERWRITTEN || splits == OVERWRITTEN_AFTER_READ) tile[t] = 0;
    if (t == 0 && splits != NEVER_READ && splits != OVERWRITTEN_AFTER_READ) emu::store_wait(0, false);
}

// A box of a tensor: V says rank, element, swizzle, nan, then sizes, strides from dimension 1 on, box, first; the tensor is
// K. O gets shared memory, or shared memory (Q) goes to the tensor in O.
KERNEL(box) {
    const unsigned base = __cvta_generic_to_shared(window), full = base + 32768;
    const long long* x = (const long long*)v;
    const int t = threadIdx.x, rank = x[0];
    emu::TensorMap map;
    uint64_t size[5], stride[5];
    uint32_t shape[5];
    int first[5];
    for (int n = 0; n < 5; n++) size[n] = x[4 + n], stride[n] = x[9 + n], shape[n] = x[14 + n], first[n] = x[19 + n];
    const char* wrong = emu::encode_tiled(map, x[1], rank, splits ? (void*)o : (void*)k, size, stride, shape, x[2], x[3]);
    if (wrong) return emu::report("tensor map", wrong);
    if (splits) {
        for (int n = t; n < 2048; n += blockDim.x) window[n] = ((const float4*)q)[n];
        emu::fence_proxy_async();
        __syncthreads();
        if (t == 0) emu::store_tensor(map, first, base), emu::store_commit(), emu::store_wait(0, false);
        return;
    }
    if (t == 0) emu::mbarrier_init(full, 1), emu::fence_mbarrier_init();
    for (int n = t; n < 2048; n += blockDim.x) window[n] = float4{0, 0, 0, 0};
    emu::fence_proxy_async();
    __syncthreads();
    if (t == 0) {
        emu::mbarrier_expect(full, emu::box_bytes(map));
        emu::mbarrier_arrive(full);
        emu::copy_tensor(base, map, first, full);
    }
    emu::mbarrier_wait(AT("mbarrier"), full, 0);
    for (int n = t; n < 2048; n += blockDim.x) ((float4*)o)[n] = window[n];
}

// A product of a warp group, of zeros: what surrounds it.
enum Product {
    MULTIPLIED, NO_FENCE_BEFORE, READ_EARLY, WRITTEN_EARLY, OPERAND_EARLY, NOT_COMMITTED, NO_PROXY, ONE_LEFT, STALE_CHAIN
};
KERNEL(product) {
    const int t = threadIdx.x;
    for (int n = t; n < 1024; n += 128) window[n] = float4{0, 0, 0, 0};
    if (splits != NO_PROXY) emu::fence_proxy_async();
    __syncthreads();
    float c[2][4];
    for (int n = 0; n < 8; n++) c[n / 4][n % 4] = q[t];
    void* at[2] = {c[0], c[1]};
    const unsigned a[4] = {};
    const unsigned long long b = __cvta_generic_to_shared(window) >> 4 | 1024ull >> 4 << 32 | 1ull << 62;
    if (splits != NO_FENCE_BEFORE) emu::wgmma_fence();
    emu::wgmma(AT("wgmma"), {emu::Format::HALF, false, true, false, false, a, 0, b, true, true, 2, at});
    if (splits != NOT_COMMITTED) emu::wgmma_commit();
    if (splits == ONE_LEFT) emu::wgmma_wait(1);
    if (splits == WRITTEN_EARLY) c[1][2] = 7;
    if (splits == OPERAND_EARLY) window[t % 64] = float4{1, 1, 1, 1};
    if (splits == STALE_CHAIN) {
        emu::wgmma_wait(0);
        c[0][0] += 1;
        emu::wgmma(AT("wgmma again"), {emu::Format::HALF, false, true, false, false, a, 0, b, true, true, 2, at});
        emu::wgmma_commit();
    }
    if (splits != READ_EARLY && splits != ONE_LEFT) emu::wgmma_wait(0);
    float sum = 0;
    for (int n = 0; n < 8; n++) sum += c[n / 4][n % 4];
    o[t] = sum;
    if (splits == READ_EARLY || splits == ONE_LEFT) emu::wgmma_wait(0);
}

// Three warp groups share the registers of a block: one gives, two take.
KERNEL(registers) {
    const unsigned more = splits == 0 ? 240 : splits == 1 ? 248 : splits == 2 ? 236 : 160;
    if (threadIdx.x / 128 == 0) emu::set_registers(AT("setmaxnreg.dec"), 24, false);
    else if (splits != 4 || threadIdx.x % 128 < 96) emu::set_registers(AT("setmaxnreg.inc"), more, true);
    o[threadIdx.x] = 1;
}
