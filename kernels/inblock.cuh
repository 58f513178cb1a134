#pragma once
// Conversion in the block, for few keys: BC rows of Q, K or V go through registers from float32 in global memory to pieces in
// shared memory. load_tile issues all loads of a tile before store_tile uses the first.

#include "convert.cuh"

constexpr int PASS = THREADS / CHUNKS, PASSES = ceil_div(BC, PASS);  // rows that the block loads at once; how often it does

static_assert(!INBLOCK || BC % PASS == 0, "a pass covers whole rows of a tile");

struct Loads { Chunk x[PASSES]; };
__device__ __forceinline__ Loads load_tile(const float* rows, int left) {
    Loads r;
    UNROLL for (int n = 0; n < PASSES; n++) {
        const int row = n * PASS + threadIdx.x / CHUNKS;
        r.x[n] = load_chunk(rows + row * D, threadIdx.x % CHUNKS, row < left);
    }
    return r;
}
__device__ __forceinline__ unsigned squares_of(const Loads& r) {
    unsigned top = 0;
    UNROLL for (int n = 0; n < PASSES; n++) top = max(top, squares_of(r.x[n]));
    return top;
}
template <int PIECES>
__device__ __forceinline__ void store_tile(const Loads& r, float factor, unsigned to, unsigned& top) {
    UNROLL for (int n = 0; n < PASSES; n++) {
        uint4 piece[2];
        split_chunk(r.x[n], factor, piece, top);
        const unsigned at = to + swizzle(n * PASS + threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
        UNROLL for (int t = 0; t < PIECES; t++) store_shared(at + t * PIECE, piece[t]);
    }
}
