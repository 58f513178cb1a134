#pragma once
// K or V in float32 as it is: tile after tile of BC rows into one buffer of shared memory, one tile ahead.

#include "platform.cuh"
#include "ptx.cuh"
#include "stamps.cuh"

constexpr int CHUNKS = WIDTH / 4;  // 16-byte chunks of a row
constexpr unsigned ROW_BYTES = WIDTH * 4;

#if ARCH >= 700
#define UNROLL_LOADS UNROLL
#else  // more than 8 loads at once would leave O too few registers
#define UNROLL_LOADS _Pragma("unroll 8")
#endif

struct Unswizzled { __device__ static constexpr unsigned of(int) { return 0; } };

// Swizzle::of(row): what a chunk's offset in a row is exclusive-ored with; of(r + n) = of(r) ^ of(n) for r < PASS <= n's stride.
// COLUMNS of the rows' WIDTH, all or those from `first` on.
template <class Swizzle, int COLUMNS = WIDTH>
struct Stream {
    static constexpr int CHUNKS = COLUMNS / 4, PASS = THREADS / CHUNKS;  // rows of a tile that the block copies at once
    static constexpr unsigned ROW_BYTES = COLUMNS * 4;
    static_assert(BC % PASS == 0, "a pass of the loader covers whole rows of a tile");
    const float* from;
    unsigned to;
    int row;
#if ARCH < 800  // no cp.async: the next tile waits in registers, where O leaves enough of them
    static constexpr bool AHEAD = COLUMNS <= 64;
    static_assert(!AHEAD || BC / PASS <= 8, "what waits in registers is stored by a loop that is unrolled whole");
    float4 held[BC / PASS];
    int rows;
    __device__ __forceinline__ float4 fetch(int n) const {
        return row + n < rows ? *(const float4*)(from + n * D) : float4{0, 0, 0, 0};
    }
#endif
    __device__ __forceinline__ Stream(const float* matrix, unsigned buffer, int first = 0) {
        const int c = threadIdx.x % CHUNKS, r = threadIdx.x / CHUNKS;
        from = matrix + r * D + first + c * 4;
        to = buffer + r * ROW_BYTES + (c * 16 ^ Swizzle::of(r));
        row = c < (D - first) / 4 ? r : BC;  // the padding of d: a row that no tile has
    }
    __device__ __forceinline__ unsigned at(int n) const { return (to ^ Swizzle::of(n)) + n * ROW_BYTES; }
#if ARCH >= 800
    __device__ __forceinline__ void start(int rows) {
        if (rows >= BC) {
            UNROLL for (int n = 0; n < BC; n += PASS)
                copy16_async(at(n), from + n * D, D == WIDTH || row < BC);
        } else {
            UNROLL for (int n = 0; n < BC; n += PASS) copy16_async(at(n), from + n * D, row + n < rows);
        }
        from += BC * D;
    }
    __device__ __forceinline__ void finish() { cp_async_wait_all(); }  // a barrier must follow
#else
    __device__ __forceinline__ void start(int left) {
        rows = min(left, BC);
        UNROLL for (int n = 0; n < BC && AHEAD; n += PASS) held[n / PASS] = fetch(n);
    }
    __device__ __forceinline__ void finish() {
        UNROLL_LOADS for (int n = 0; n < BC; n += PASS) store_shared(at(n), AHEAD ? held[n / PASS] : fetch(n));
        from += BC * D;
    }
#endif
};
