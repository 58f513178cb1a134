#pragma once
// The source of tiles: float32, converted by a pass over all of K and V before (convert), or, for few keys (INBLOCK), by the
// block that needs them (load_tile, store_tile). Both leave a tile in the layout of tiles.cuh.

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
__device__ __forceinline__ void note_chunk(const Chunk& r, unsigned& top) {
    const float4 x = r.x, y = r.y;
    top = max(top, max(max(abs_bits(x.x), abs_bits(x.y)), max(abs_bits(x.z), abs_bits(x.w))));
    top = max(top, max(max(abs_bits(y.x), abs_bits(y.y)), max(abs_bits(y.z), abs_bits(y.w))));
}
// Eight columns times a factor as pieces, hi and lo.
__device__ __forceinline__ void split_chunk(const Chunk& r, float factor, uint4* piece, unsigned& top) {
    const float4 x = r.x, y = r.y;
    note_chunk(r, top);
    const HiLo a = split_hi_lo(x.x * factor, x.y * factor), b = split_hi_lo(x.z * factor, x.w * factor);
    const HiLo e = split_hi_lo(y.x * factor, y.y * factor), f = split_hi_lo(y.z * factor, y.w * factor);
    piece[0] = uint4{a.hi, b.hi, e.hi, f.hi}, piece[1] = uint4{a.lo, b.lo, e.lo, f.lo};
}
#if INT8
// Columns 8 c on of row `row` of a tile of K: hi, and integers in place of lo.
__device__ __forceinline__ void store_keys(const Chunk& r, char* tile, int row, int c, unsigned& top) {
    note_chunk(r, top);
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
// The squares of the row, whose chunks CHUNKS neighbouring lanes have.
__device__ __forceinline__ float sum_of_squares(const Chunk& r) {
    const float sum = add_square(add_square(add_square(add_square(SQUARES_FROM, r.x.x), r.x.y), r.x.z), r.x.w);
    return add_square(add_square(add_square(add_square(sum, r.y.x), r.y.y), r.y.z), r.y.w);
}
__device__ __forceinline__ unsigned squares_of(const Chunk& r) { return row_squares<CHUNKS>(sum_of_squares(r)); }

// A block's way from BC rows of Q, K or V to pieces in shared memory: load_tile asks for all that it loads before store_tile
// uses the first.
constexpr int PASS = THREADS / CHUNKS, PASSES = ceil_div(BC, PASS);
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
// The same of a warp's 16 rows of a tile, through shared memory at `to`, where the warp will store the first of them: a row's
// sums lie side by side there, and two lanes add them. That is cheaper than shuffles.
__device__ __forceinline__ unsigned squares_by_pairs(const Loads& r, unsigned to) {
    const unsigned lane = threadIdx.x % 32, at = to + (threadIdx.x - lane) / CHUNKS * ROW;
    UNROLL for (int n = 0; n < PASSES; n++) store_shared(at + (n * 32 + lane) * 4, sum_of_squares(r.x[n]) - SQUARES_FROM);
    __syncwarp();
    float sum;
    if constexpr (CHUNKS == 8) {
        const Four x = load_shared(at + lane * 16);
        sum = (x.v[0] + x.v[1]) + (x.v[2] + x.v[3]);
    } else {
        const float2 x = load_shared2(at + lane * 8);
        sum = x.x + x.y;
    }
    __syncwarp();
    return __float_as_uint(sum + SHFL_XOR(sum, 1));
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

// CONVERTING: the first `blocks` blocks convert K and V of all but the `first` batches, and attend after so many rounds of the
// others (converters.cuh); 0: there are none. hw4cli/plans/formulas.py has the same, and why.
struct Converters { int blocks, first, rounds; };
__device__ __forceinline__ Converters converters_of(const Params& p) {
#if CONVERTING  // with BR, BC and MOST_BLOCKS of the plan
    const long long tasks = ceil_div(p.Nq, BR), tiles = ceil_div(p.Nk, BC), task = 100 * (2 * tiles + (Q_AHEAD ? 3 : 7));
    const long long batch = 2 * CONVERTING * tiles + 100, first = ceil_div(MOST_BLOCKS * (task + batch), tasks * task);
    if (p.splits > 1 || tasks < 3 || p.batches < 4 * first) return {0, p.batches, 0};
    const long long blocks = ceil_div(6 * MOST_BLOCKS * batch, 5 * tasks * task + 6 * batch);
    return {int(blocks), int(first), int(ceil_div(ceil_div(p.batches - first, blocks) * batch, task))};
#else
    return {0, p.batches, 0};
#endif
}
// BALANCED (parts.cuh): no block has started, and no row has been left in parts: its l is 0 until then; nor
// has any tile been converted beside attention: the count of each batch, behind these, is 0.
__device__ __forceinline__ void expect_parts(const Params& p) {
    const long long step = (long long)gridDim.x * blockDim.x;
    const long long rows = (long long)p.batches * (p.Nq + (CONVERTING > 0));
    if (blockIdx.x == 0 && threadIdx.x < 2) p.absmax[STARTED + threadIdx.x] = 0;
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < rows; n += step) p.row_stats[n] = float2{0, 0};
}
// Columns 8 c on of row r of K and V, in a tile.
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
// K and V as pieces, tile by tile, of the batches that are converted before; eight columns a thread, CONVERT_CHUNKS times at
// most. Keys past the end become zeros.
__device__ __forceinline__ void convert(const Params& p) {
    allow_next_launch();
    if (BALANCED) expect_parts(p);
    const int tiles = ceil_div(p.Nk, BC), batches = converters_of(p).first;
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
        const Chunk from_k = load_chunk(row_of(p.k, batch, row), c, row < p.Nk);
        const Chunk from_v = load_chunk(row_of(p.v, batch, row), c, row < p.Nk);
        convert_chunks(from_k, from_v, p.tiles, tile, r, c, of_k, top_v);
    }
    absmax.leave(K_TOP, of_k);
    absmax.leave(V_TOP, top_v);
    __syncthreads();
    absmax.note_all(p.absmax, K_TOP);
}
