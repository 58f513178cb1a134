#pragma once
// Which keys a row may see: those that are there and, of a causal workload, none behind the diagonal. Row i sees the keys up to
// i + causal_offset; Nk - Nq as the offset lets the last row see the last key ("bottom right"). WINDOW: the last `window` of them.

#include "params.cuh"

#define HOLES (CAUSAL || SCORED)  // whether a row may see no key, or see its first ones late
#define MINUS_INFINITY __int_as_float(0xff800000)
#define LOWEST __int_as_float(0xff7fffff)  // of all numbers
// Where a running maximum begins. HOLES: a number, so that exp(score - m) is 0, not NaN, for a row that sees no key.
#define BELOW_ALL_SCORES (HOLES ? LOWEST : MINUS_INFINITY)

// How many keys a row sees: always the first ones. WINDOW: up to before which key.
__device__ __forceinline__ int keys_of(const Params& p, int row)
{
    return CAUSAL ? max(0, min(p.Nk, row + p.causal_offset + 1)) : p.Nk;
}
// The first key that a row, and each below it, sees; it may be behind all keys. `Work`: a struct with the members of Params.
template <class Work> __device__ __forceinline__ int first_key_of(const Work& p, int row)
{
    return WINDOW ? max(0, row + p.causal_offset + 1 - p.window) : 0;
}

// The row behind the last one that sees a key, or one of those before it; it may be behind all rows.
template <class Work> __device__ __forceinline__ int end_row_of(const Work& p, int key)
{
    return WINDOW ? max(0, min(p.Nq, key - p.causal_offset + p.window)) : p.Nq;
}

// Of some rows or keys, counted from one of them, those that a key or a row sees: [first, end).
struct Seen {
    int first, end;
    __device__ __forceinline__ Seen after(int count) const { return {first - count, end - count}; }  // `count` further
};

// What O is divided by: l. HOLES: infinity for a row without keys, whose O and l are 0.
__device__ __forceinline__ float divisor(float l) { return HOLES && l == 0 ? -MINUS_INFINITY : l; }

// A tile of some keys, seen from its first key and from the first of some rows.
struct Mask {
    int keys;  // that are there, from the tile's first on
    int last;  // causal: the last key that the first row sees; each row below sees one more
#if WINDOW
    int window;
#else
    static constexpr int window = 1 << 30;
#endif
    // Whether all rows see all `count` keys. WINDOW: so many rows; of more, none is sure to.
    __device__ __forceinline__ bool is_full(int count, int rows = 1 << 20) const {
        return keys >= count && (!CAUSAL || last >= count - 1) && (!WINDOW || last + rows <= window);
    }
    __device__ __forceinline__ bool is_empty() const { return keys <= 0; }  // no row sees any
    __device__ __forceinline__ bool allows(int row, int key) const {
        return key < keys && (!CAUSAL || key <= last + row) && (!WINDOW || key > last + row - window);
    }
    // WINDOW: whether a row sees none of the keys before these; whether the first key of one of the first `rows` rows is among these.
    __device__ __forceinline__ bool begins(int row) const { return WINDOW && last + row >= window - 1; }
    __device__ __forceinline__ bool begins_any(int count, int rows) const { return begins(rows - 1) && !begins(-count); }
    // Whether a row sees one of the keys.
    __device__ __forceinline__ bool allows_any(int row) const {
        return WINDOW ? min(keys - 1, last + row) > max(-1, last + row - window) : allows(row, 0);
    }
    __device__ __forceinline__ Mask moved(int rows, int count) const {  // so many rows below, and `count` keys further
        Mask mask = *this;
        mask.keys -= count, mask.last += rows - count;
        return mask;
    }
    __device__ __forceinline__ Mask below(int rows) const { return moved(rows, 0); }
    __device__ __forceinline__ Mask after(int count) const { return moved(0, count); }
};

// The mask of `keys` keys from `key` on, for rows from `row` on.
__device__ __forceinline__ Mask mask_at(const Params& p, int row, int key, int keys)
{
    Mask mask;
    mask.keys = keys, mask.last = row + p.causal_offset - key;
#if WINDOW
    mask.window = p.window;
#endif
    return mask;
}
