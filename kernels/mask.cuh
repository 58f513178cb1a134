#pragma once
// Which keys a row may see. Today a mask is the end of the keys; a causal one is added here, in all three functions, and where
// schedule.cuh ends a block's keys.

#define MINUS_INFINITY __int_as_float(0xff800000)

// A tile of some keys, seen from its first key and from the first of some rows.
struct Mask {
    int keys;  // that are there, from the tile's first on
    __device__ __forceinline__ bool is_full(int count) const { return keys >= count; }  // all rows see all `count` keys
    __device__ __forceinline__ bool is_empty() const { return keys <= 0; }              // no row sees any
    __device__ __forceinline__ bool allows(int row, int key) const { return key < keys; }
};
