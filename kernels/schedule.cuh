#pragma once
// Which rows and which keys a block computes, and where they lie.

#include "mask.cuh"
#include "platform.cuh"

// A row of a matrix. (Heads and other strides of rows would be added here.)
template <class T> __device__ __forceinline__ T* row_of(const Matrix<T>& m, long long batch, int row)
{
    return m.data + batch * m.batch + (long long)row * D;
}

struct Task {
    int batch;
    int row0;                 // the first of BR rows
    int split;                // which part of the keys
    int first_key, last_key;  // from the first on, up to before the last
};

// Causal: so many batches (half: heads) are worked on together; their K and V stay in the L2 cache.
constexpr int SECTION = 16;

// The task of a block that takes all keys that its rows see: the blocks of a batch lie side by side, and share K and V in the L2
// cache. Causal: the lowest rows of SECTION batches come first, because they have the most keys; what runs last is short.
__device__ __forceinline__ Task task_of(unsigned block, const Params& p)
{
    const unsigned row_blocks = ceil_div(p.Nq, BR);
    if (CAUSAL) {
        const unsigned first = block / (row_blocks * SECTION) * SECTION, n = block % (row_blocks * SECTION);
        const unsigned batches = min(SECTION, p.batches - first);
        const int row0 = (row_blocks - 1 - n / batches) * BR;
        return {int(first + n % batches), row0, 0, 0, keys_of(p, row0 + BR - 1)};
    }
    const int batch = block / row_blocks;
    return {batch, int(block % row_blocks) * BR, 0, 0, p.Nk};
}

// Causal: the keys of each split of a block of rows that sees so many keys. Whole tiles; the last splits may be left with none.
__device__ __forceinline__ int keys_of_split(const Params& p, int keys)
{
    return ceil_div(max(1, ceil_div(keys, BC)), p.splits) * BC;
}

// The same where the keys are split: the splits of a block of rows lie side by side.
__device__ __forceinline__ Task task_of_split(unsigned block, const Params& p)
{
    if (p.splits == 1) return task_of(block, p);
    const unsigned tiles = ceil_div(p.Nk, BC), split = block % p.splits;
    Task t = task_of(block / p.splits, p);
    if (CAUSAL) {
        const int keys = keys_of_split(p, t.last_key);
        return {t.batch, t.row0, int(split), int(split) * keys, min(t.last_key, int(split + 1) * keys)};
    }
    t.split = split, t.first_key = tiles * split / p.splits * BC;
    t.last_key = min(p.Nk, int(tiles * (split + 1) / p.splits * BC));
    return t;
}

// How many splits have a key for a row: always the first ones. What the others leave for it is not to be read.
__device__ __forceinline__ int splits_of(const Params& p, int row)
{
    if (!CAUSAL) return p.splits;
    return ceil_div(keys_of(p, row), keys_of_split(p, keys_of(p, row / BR * BR + BR - 1)));
}

// The end of the keys of a task that is not split.
__device__ __forceinline__ int last_key(const Params& p, const Task& t) { return CAUSAL ? t.last_key : p.Nk; }
