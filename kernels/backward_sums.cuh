#pragma once
// One pass over keys: the sums in device memory, before and after. Tiles of keys add to dQ in chains, each with its own sums;
// parts of the queries have their own sums of dK and dV.

#include "backward_stats.cuh"

constexpr int BC = ONCE_TILE, BR = 128;  // queries that are streamed, keys that are owned
static_assert(BC * COLUMNS == 64 * 128, "each group computes 64 x 64 numbers of a tile of dQ");
constexpr unsigned DQ_BYTES = BC * COLUMNS * 4;

typedef float Part[8][4];  // of a tile of dQ: 64 x 64 numbers, a group's

__device__ __forceinline__ int tiles_of(const BackwardParams& p) { return ceil_div(p.Nq, BC); }
__device__ __forceinline__ int sums_of(const BackwardParams& p) { return p.batches * p.heads * tiles_of(p); }  // of a chain
// Where 16 bytes of a thread's part of dQ lie, in a tile of it.
__device__ __forceinline__ unsigned place(int group, int n) { return ((group * 8 + n) * 128 + threadIdx.x % 128) * 16; }
// Where a part's sums lie, of dK (0) or of dV (1): what the `thread`-th of two groups has of the n-th 8 columns.
__device__ __forceinline__ float4* part_sums(const BackwardParams& p, int part, int key_tile, int which, int n, int thread) {
    const long long tile = ((long long)part * ceil_div(p.Nk, BR) + key_tile) * 2 + which;
    return (float4*)(p.parts + tile * (BR * COLUMNS)) + n * 256 + thread;
}

// What runs before: stats, and nothing is counted. Sums that are added as they come begin at 0.
template <bool IN_ORDER> __device__ __forceinline__ void prepare(const BackwardParams& p) {
    const int n = blockIdx.x * THREADS + threadIdx.x;
    for (int i = n; i <= p.chains * sums_of(p); i += gridDim.x * THREADS) p.counts[i] = 0;
    const long long numbers = (long long)p.chains * p.batches * p.heads * p.stats_rows * COLUMNS;
    if (!IN_ORDER)
        for (long long i = n * 4LL; i < numbers; i += gridDim.x * THREADS * 4LL) *(float4*)(p.dq_sums + i) = float4{0, 0, 0, 0};
    compute_stats(p);
}

// What runs after. First blocks: chains' sums become dQ. In order, a tile that no keys have been added to has not been written.
template <bool IN_ORDER> __device__ __forceinline__ void round_dq(const BackwardParams& p) {
    const int tiles = tiles_of(p), head = blockIdx.x / tiles, tile = blockIdx.x % tiles, group = threadIdx.x / 128;
    Part dQ;
    UNROLL for (int n = 0; n < 8; n++) UNROLL for (int e = 0; e < 4; e++) dQ[n][e] = 0;
    for (int chain = 0; chain < p.chains; chain++) {
        const long long at = (long long)chain * sums_of(p) + blockIdx.x;
        if (IN_ORDER && !p.counts[at]) continue;
        const char* from = (const char*)p.dq_sums + at * DQ_BYTES;
        UNROLL for (int n = 0; n < 8; n++) {
            const float4 x = *(const float4*)(from + place(group, n));
            dQ[n][0] += x.x, dQ[n][1] += x.y, dQ[n][2] += x.z, dQ[n][3] += x.w;
        }
    }
    const int row = tile * BC + (BC == 128 ? group * 64 : 0) + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    store(dQ, p.dq, head / p.heads, head % p.heads, row, p.Nq, p.scale, BC == 128 ? 0 : group * 64);
}
// Blocks behind these: 32 columns of a tile of dK or dV that parts have summed up. Parts are added in their order.
__device__ __forceinline__ void add_parts(const BackwardParams& p, int block) {
    constexpr int PIECES = COLUMNS / 32;
    const int tiles = ceil_div(p.Nk, BR), parts = p.split_heads * p.split_rows;
    const int piece = block % PIECES, which = block / PIECES % 2, tile = block / PIECES / 2 % tiles;
    const int split = block / PIECES / 2 / tiles, head = p.split_from + split;
    const int first = CAUSAL ? min(max(0, tile * BR - p.causal_offset) / BC, tiles_of(p) - 1) : 0;
    float sum[4][4];
    UNROLL for (int n = 0; n < 4; n++) UNROLL for (int e = 0; e < 4; e++) sum[n][e] = 0;
    for (int part = 0; part < parts; part++) {
        if ((part % p.split_rows + 1) * tiles_of(p) / p.split_rows <= first) continue;  // of no rows that see these keys
        UNROLL for (int n = 0; n < 4; n++) {
            const float4 x = *part_sums(p, split * parts + part, tile, which, piece * 4 + n, threadIdx.x);
            sum[n][0] += x.x, sum[n][1] += x.y, sum[n][2] += x.z, sum[n][3] += x.w;
        }
    }
    const int row = tile * BR + threadIdx.x / 128 * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    store(sum, which ? p.dv : p.dk, head / p.kv_heads, head % p.kv_heads, row, p.Nk, which ? 1 : p.scale, piece * 32);
}
template <bool IN_ORDER> __device__ __forceinline__ void round_sums(const BackwardParams& p) {
    if (blockIdx.x < sums_of(p)) round_dq<IN_ORDER>(p);
    else add_parts(p, blockIdx.x - sums_of(p));
}
