#pragma once
// What half does for its tiles: where their parts lie in shared memory, which are a block's, and its rounds of the softmax.
//
// The macros come from hw4cli/arrays/half.py: GROUPS of four warps share a tile of BR = 64 GROUPS rows; K and V pass in tiles of
// BC keys through STAGES buffers each; COLUMNS of O are computed, D rounded up; ONES: the tensor cores sum P.

#include "halfrows.cuh"
#include "hopper.cuh"

// The bytes that hw4cli/arrays/half.py lays out: the tensors d, rows, heads, batches of 16-bit numbers first.
struct HalfTensors { TensorMap q, k, v; };
struct HalfParams : HalfTensors, HalfWork {};

constexpr int SUBTILES = ceil_div(D, 64), STEPS = ceil_div(D, 16);  // of 64 columns, 128 bytes a row; k16 steps of Q K
constexpr unsigned Q_BYTES = SUBTILES * BR * 128, TILE_BYTES = SUBTILES * BC * 128;
constexpr unsigned K_AT = Q_BYTES, V_AT = K_AT + STAGES * TILE_BYTES, ONES_AT = V_AT + STAGES * TILE_BYTES;
constexpr unsigned BARRIERS_AT = ONES_AT + (ONES ? 2048 : 0);
static_assert(BR == 64 * GROUPS && THREADS == 128 * (GROUPS + 1), "a group of four warps for each 64 rows, and one that copies");
static_assert(!ONES || COLUMNS == 64, "the column of ones lies behind 64 columns of V");
static_assert(BC % 16 == 0 && COLUMNS >= D && COLUMNS <= SUBTILES * 64, "tiles as wgmma takes them");

// The matrix that begins at an address, of rows of 128 bytes, swizzled, in groups of eight. What lies `beyond` bytes after it are
// further columns. (PTX ISA, "Matrix-Descriptor Format".) The upper half is a constant, the lower one a sum with constants.
__device__ __forceinline__ unsigned matrix_at(unsigned address, unsigned beyond) { return address >> 4 | beyond >> 4 << 16; }
__device__ __forceinline__ unsigned long long descriptor(unsigned low) { return 0x40000040ull << 32 | low; }

// Calls work(tile) for this block's tiles. Causal: every second round goes backwards, so that no block gets all the long ones.
template <class Work> __device__ __forceinline__ void each_row_tile(const HalfParams& p, Work work) {
    const int blocks = gridDim.x;
    for (int round = 0; round * blocks < p.tiles; round++) {
        const int n = round * blocks + (CAUSAL && round % 2 ? blocks - 1 - blockIdx.x : blockIdx.x);
        if (n < p.tiles) work(row_tile(p, n));
    }
}

typedef float Scores[BC / 8][4];
typedef unsigned Weights[BC / 16][4];

__device__ __forceinline__ void keep4(float (&x)[4]) { keep(*(float (*)[1][4])&x); }
__device__ __forceinline__ void keep(RowState& r) {
    keep(r.O);
    if (ONES) keep4(r.l);
}
__device__ __forceinline__ void begin_softmax(Scores& S, RowState& r, const HalfParams& p) {
    begin_maximum(S, r, p.scale);
    weigh(S, r, p.scale);
}
__device__ __forceinline__ void go_on_softmax(Scores& S, RowState& r, const HalfParams& p) {
    r.grown = ANY(outgrown(S, r, p));
    if (__builtin_expect(r.grown, 0)) raise_maximum(S, r, p.scale);
    weigh(S, r, p.scale);
}
