#pragma once
// Which keys a row may see: those that are there and, of a causal workload, none behind the diagonal. Row i sees the keys up to
// i + causal_offset; Nk - Nq as the offset lets the last row see the last key ("bottom right").

#include "params.cuh"

#define MINUS_INFINITY __int_as_float(0xff800000)
// Where a running maximum begins. Causal: a number, so that exp(score - m) is 0, not NaN, for a row that sees no key.
#define BELOW_ALL_SCORES (CAUSAL ? __int_as_float(0xff7fffff) : MINUS_INFINITY)

// How many keys a row sees: always the first ones.
__device__ __forceinline__ int keys_of(const Params& p, int row)
{
    return CAUSAL ? max(0, min(p.Nk, row + p.causal_offset + 1)) : p.Nk;
}

// What O is divided by: l. Causal: infinity for a row without keys, whose O and l are 0.
__device__ __forceinline__ float divisor(float l) { return CAUSAL && l == 0 ? -MINUS_INFINITY : l; }

// A tile of some keys, seen from its first key and from the first of some rows.
struct Mask {
    int keys;  // that are there, from the tile's first on
    int last;  // causal: the last key that the first row sees; each row below sees one more
    __device__ __forceinline__ bool is_full(int count) const {  // all rows see all `count` keys
        return keys >= count && (!CAUSAL || last >= count - 1);
    }
    __device__ __forceinline__ bool is_empty() const { return keys <= 0; }  // no row sees any
    __device__ __forceinline__ bool allows(int row, int key) const { return key < keys && (!CAUSAL || key <= last + row); }
    __device__ __forceinline__ Mask below(int rows) const { return {keys, last + rows}; }           // so many rows below
    __device__ __forceinline__ Mask after(int count) const { return {keys - count, last - count}; }  // `count` keys further
};

// The mask of `keys` keys from `key` on, for rows from `row` on.
__device__ __forceinline__ Mask mask_at(const Params& p, int row, int key, int keys)
{
    return {keys, row + p.causal_offset - key};
}
