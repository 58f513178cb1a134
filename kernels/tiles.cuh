#pragma once
// Float32 as sums of fp16 pieces (the hi/lo split: x = hi + lo to 22 bits), and a tile of them as tensor cores read it.
//
// A tile holds BC keys: K hi, K lo, V hi, and V lo where P V takes two pieces. A row of a piece is WIDTH halves, swizzled by
// 16-byte chunks so that ldmatrix and wgmma meet no bank twice. The numeric policy comes from hw4cli/plans/tensor.py.

#include "mma.cuh"
#include "platform.cuh"

#ifndef GROUPS  // consumer warpgroups of a block, beside one producer (split_wgmma.cuh)
#define GROUPS 0
#endif
#ifndef BALANCED  // whether persistent blocks share out the last tasks equally, some of them in two ranges (streamk.cuh)
#define BALANCED 0
#endif

constexpr int WORKERS = THREADS - (GROUPS ? 128 : 0);  // threads that have rows
constexpr int MI = BR * 2 / WORKERS;               // m16 blocks of rows of a warp
constexpr int STEPS = WIDTH / 16, NO = WIDTH / 8;  // k16 steps of a product QK, n8 blocks of O
constexpr int SL = MI == 2 ? 2 : SUB / 8, SLICES = SUB / 8 / SL;  // n8 blocks of keys that are computed together, of SUB
constexpr int SUBS = BC / SUB;                     // sub-tiles, whose scores are in registers at once
constexpr int CHUNKS = WIDTH / 8;                  // 16-byte chunks of a row
constexpr unsigned ROW = WIDTH * 2, PIECE = BC * ROW, STAGE = (2 + PV_PIECES) * PIECE;  // bytes

static_assert(MI * WORKERS == BR * 2 && (MI == 1 || MI == 2), "each warp owns 16 or 32 rows");
static_assert(BC % SUB == 0, "a tile is whole sub-tiles");
static_assert(SL % 2 == 0, "P V takes 16 keys a step");

extern __shared__ __align__(1024) float4 shared[];

struct HiLo { unsigned hi, lo; };
__device__ __forceinline__ HiLo split_hi_lo(float x, float y) {
    HiLo pair;
    pair.hi = halves(x, y);
    const float2 rounded = floats(pair.hi);
    pair.lo = halves(x - rounded.x, y - rounded.y);
    return pair;
}

// The offset of a 16-byte chunk in a piece. Chunk c + 2k lies at the offset of chunk c, exclusive-or 32 k.
__device__ __forceinline__ unsigned swizzle(unsigned row, unsigned chunk) {
    return row * ROW + (WIDTH == 32 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) * 16;
}
