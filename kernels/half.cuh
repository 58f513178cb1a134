#pragma once
// What half does for its tiles: where their parts lie in shared memory, which are a block's, and its rounds of the softmax.
//
// The macros come from hw4cli/plans/half.py: GROUPS of four warps share a tile of BR = 64 GROUPS rows; K and V pass in tiles of
// BC keys through STAGES buffers, Q through Q_BUFFERS; COLUMNS of O are computed, D rounded up; ONES: the tensor cores sum P.

#include "halfgroup.cuh"

// The bytes that hw4cli/plans/half.py lays out: the tensors d, rows, heads, batches of 16-bit numbers first.
struct HalfParams : HalfTensors, HalfWork {
    int* taken;  // DYNAMIC: how many tiles the blocks have taken
};

constexpr unsigned K_AT = Q_BUFFERS * Q_BYTES, V_AT = K_AT + STAGES * TILE_BYTES, ONES_AT = V_AT + STAGES * TILE_BYTES;
constexpr unsigned FULL_Q = ONES_AT + (ONES ? 2048 : 0), EMPTY_Q = FULL_Q + 8 * Q_BUFFERS;  // barriers
constexpr unsigned K_RING = EMPTY_Q + 8 * Q_BUFFERS, V_RING = K_RING + 16 * STAGES;  // barriers: full ones, then empty ones
constexpr unsigned TAKEN_AT = V_RING + 16 * STAGES;  // of each buffer of Q, the tile's number
static_assert(BR == 64 * GROUPS && THREADS == 128 * (GROUPS + 1), "a group of four warps for each 64 rows, and one that copies");

// Which tile of rows a block computes next; from p.tiles on: none. DYNAMIC: the first that no block has taken, because tiles are
// not equally long.
__device__ __forceinline__ int next_tile(const HalfParams& p, int round) {
    return DYNAMIC ? atomicAdd(p.taken, 1) : round * gridDim.x + blockIdx.x;
}

__device__ __forceinline__ void go_on_softmax(Scores& S, RowState& r, const HalfParams& p) {
    r.grown = ANY(outgrown(S, r, p));
    if (__builtin_expect(r.grown, 0)) raise_maximum(S, r, p.scale);
    weigh(S, r, p.scale);
}
