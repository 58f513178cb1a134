#pragma once
// From float32 to the pieces that tensor cores multiply: eight columns of a row at a time, and the launch that converts all of K
// and V to tiles in global memory (tiles.cuh). inblock.cuh converts tiles in the block that multiplies them.

#include "absmax.cuh"
#include "epilogue.cuh"
#include "integers.cuh"
#include "ptx.cuh"
#include "schedule.cuh"
#include "tiles.cuh"

// Eight columns of a row; zeros past the end.
struct Chunk { float4 x{0, 0, 0, 0}, y{0, 0, 0, 0}; };
__device__ __forceinline__ Chunk load_chunk(const float* row, int c, bool inside) {
    Chunk r;
    if (inside && c * 8 < D) r.x = *(const float4*)(row + c * 8);
    if (inside && c * 8 + 4 < D) r.y = *(const float4*)(row + c * 8 + 4);
    return r;
}
__device__ __forceinline__ void chunk_top(const Chunk& r, unsigned& top) {
    const float4 x = r.x, y = r.y;
    top = max(top, max(max(abs_bits(x.x), abs_bits(x.y)), max(abs_bits(x.z), abs_bits(x.w))));
    top = max(top, max(max(abs_bits(y.x), abs_bits(y.y)), max(abs_bits(y.z), abs_bits(y.w))));
}
// Eight columns times a factor as pieces, hi and lo.
__device__ __forceinline__ void split_chunk(const Chunk& r, float factor, uint4* piece, unsigned& top) {
    const float4 x = r.x, y = r.y;
    chunk_top(r, top);
    const HiLo a = split_hi_lo(x.x * factor, x.y * factor), b = split_hi_lo(x.z * factor, x.w * factor);
    const HiLo e = split_hi_lo(y.x * factor, y.y * factor), f = split_hi_lo(y.z * factor, y.w * factor);
    piece[0] = uint4{a.hi, b.hi, e.hi, f.hi}, piece[1] = uint4{a.lo, b.lo, e.lo, f.lo};
}
#if INT8
// Columns 8 c on of row `row` of a tile of K: hi, and integers in place of lo.
__device__ __forceinline__ void store_keys(const Chunk& r, char* tile, int row, int c, unsigned& top) {
    chunk_top(r, top);
    const HiIntegers a = split_integers(r.x.x, r.x.y), b = split_integers(r.x.z, r.x.w);
    const HiIntegers e = split_integers(r.y.x, r.y.y), f = split_integers(r.y.z, r.y.w);
    auto eight = [](unsigned a, unsigned b, unsigned e, unsigned f) {
        return uint2{__byte_perm(a, b, 0x5410), __byte_perm(e, f, 0x5410)};
    };
    *(uint4*)(tile + swizzle(row, c)) = uint4{a.hi, b.hi, e.hi, f.hi};
    *(uint2*)(tile + PIECE + swizzle_integer(row, c * 8, false)) = eight(a.whole, b.whole, e.whole, f.whole);
    *(uint2*)(tile + PIECE + swizzle_integer(row, c * 8, true)) = eight(a.lo, b.lo, e.lo, f.lo);
}
#endif
// The squares of a chunk, and of the row whose chunks CHUNKS neighbouring lanes hold.
__device__ __forceinline__ float sum_of_squares(const Chunk& r) {
    const float sum = add_square(add_square(add_square(add_square(SQUARES_FROM, r.x.x), r.x.y), r.x.z), r.x.w);
    return add_square(add_square(add_square(add_square(sum, r.y.x), r.y.y), r.y.z), r.y.w);
}
__device__ __forceinline__ unsigned squares_of(const Chunk& r) { return row_squares<CHUNKS>(sum_of_squares(r)); }

// Columns 8 c to 8 c + 7 of row r of K and V become pieces in a tile.
__device__ __forceinline__ void convert_chunks(const Chunk& from_k, const Chunk& from_v, char* tiles, long long tile, int r,
                                               int c, Largest& of_k, unsigned& top_v) {
    uint4 V[2];
    of_k.squares = max(of_k.squares, squares_of(from_k));
    char* to = tiles + tile * STAGE + swizzle(r, c);
#if INT8
    store_keys(from_k, tiles + tile * STAGE, r, c, of_k.top);
#else
    uint4 K[2];
    split_chunk(from_k, 1, K, of_k.top);
    UNROLL for (int t = 0; t < 2; t++) *(uint4*)(to + t * PIECE) = K[t];
#endif
    split_chunk(from_v, V_FACTOR, V, top_v);
    UNROLL for (int t = 0; t < PV_PIECES; t++) *(uint4*)(to + (2 + t) * PIECE) = V[t];
}
// Whether no block reads the tile that begins with this key: it lies outside of all rows' windows, those of a last block's rows that are
// not there, too.
__device__ __forceinline__ bool is_unseen(const Params& p, int key) {
    return key + BC <= first_key_of(p, 0) || key >= keys_of(p, ceil_div(p.Nq, BR) * BR - 1);
}
// The launch that converts K and V of the first batches_of(p) batches, tile by tile: eight columns a thread, CONVERT_CHUNKS times at
// most. Keys past the end become zeros.
template <class Batches> __device__ __forceinline__ void convert(const Params& p, Batches batches_of) {
    const int tiles = ceil_div(p.Nk, BC), batches = batches_of(p);
    __shared__ unsigned found[FOUND * BlockAbsmax::WARPS];
    BlockAbsmax absmax{found};
    absmax.begin(p.absmax, K_TOP);
    Largest of_k;
    unsigned top_v = 0;
    UNROLL for (int n = 0; n < CONVERT_CHUNKS; n++) {
        const long long e = (blockIdx.x + (long long)gridDim.x * n) * blockDim.x + threadIdx.x;
        const long long tile = e / (BC * CHUNKS), batch = tile / tiles;
        const int r = e / CHUNKS % BC, c = e % CHUNKS, row = (tile - batch * tiles) * BC + r;
        if (batch >= batches) break;
        if (WINDOW && is_unseen(p, row - r)) continue;
        const Chunk from_k = load_chunk(row_of(p.k, batch, row), c, row < p.Nk);
        const Chunk from_v = load_chunk(row_of(p.v, batch, row), c, row < p.Nk);
        convert_chunks(from_k, from_v, p.tiles, tile, r, c, of_k, top_v);
    }
    absmax.add(K_TOP, of_k);
    absmax.add(V_TOP, top_v);
    __syncthreads();
    absmax.record_all(p.absmax, K_TOP);
}
