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

// Causal: a block's batch, and its number among the `count` blocks of the batch.
struct InSection { int batch, n; };
__device__ __forceinline__ InSection in_section(unsigned block, unsigned count, const Params& p)
{
    const unsigned first = block / (count * SECTION) * SECTION, n = block % (count * SECTION);
    const unsigned batches = min(SECTION, p.batches - first);
    return {int(first + n % batches), int(n / batches)};
}

// The task of a block that takes all keys that its rows see: the blocks of a batch lie side by side, and share K and V in the L2
// cache. Causal: the lowest rows of SECTION batches come first, because they have the most keys; what runs last is short.
__device__ __forceinline__ Task task_of(unsigned block, const Params& p)
{
    const unsigned row_blocks = ceil_div(p.Nq, BR);
    if (CAUSAL) {
        const InSection at = in_section(block, row_blocks, p);
        const int row0 = (row_blocks - 1 - at.n) * BR, last_key = keys_of(p, row0 + BR - 1);
        return {at.batch, row0, 0, WINDOW ? min(first_key_of(p, row0), last_key) / BC * BC : 0, last_key};
    }
    const int batch = block / row_blocks;
    return {batch, int(block % row_blocks) * BR, 0, 0, p.Nk};
}

// Causal: the keys of a split, whole tiles. A block of rows has as many splits as its keys need: all are as long but its last.
__device__ __forceinline__ int keys_of_split(const Params& p) { return ceil_div(ceil_div(p.Nk, BC), p.splits) * BC; }

// Causal: how many blocks of rows, the first ones, do not see so many keys.
__device__ __forceinline__ int blocks_below(const Params& p, int keys)
{
    return max(0, min(ceil_div(p.Nq, BR), (min(p.Nk, keys) - p.causal_offset - 1) / BR));
}

// Causal: first come the splits that are whole; then the last ones of all blocks of rows, from the longest to the shortest: of
// each split in turn, the block of rows that sees most of it. `main_blocks` in
// hw4cli/plans/common.py counts them.
__device__ __forceinline__ Task causal_task_of_split(unsigned block, const Params& p)
{
    const InSection at = in_section(block, gridDim.x / p.batches, p);
    const int keys = keys_of_split(p), row_blocks = ceil_div(p.Nq, BR);
    int n = at.n, split = 0, whole = 0;
    for (; split < p.splits && n >= (whole = row_blocks - blocks_below(p, (split + 1) * keys)); split++) n -= whole;
    int rows = row_blocks - 1 - n;
    if (split == p.splits) split = n % p.splits, rows = blocks_below(p, (split + 1) * keys) - 1 - n / p.splits;
    if (rows < 0) return {};
    return {at.batch, rows * BR, split, split * keys, min(keys_of(p, rows * BR + BR - 1), (split + 1) * keys)};
}

// The task of a block where the keys are split: the splits of a block of rows lie side by side.
__device__ __forceinline__ Task task_of_split(unsigned block, const Params& p)
{
    if (p.splits == 1) return task_of(block, p);
    if (CAUSAL) return causal_task_of_split(block, p);
    const unsigned tiles = ceil_div(p.Nk, BC), split = block % p.splits;
    Task t = task_of(block / p.splits, p);
    t.split = split, t.first_key = tiles * split / p.splits * BC;
    t.last_key = min(p.Nk, int(tiles * (split + 1) / p.splits * BC));
    return t;
}

// How many splits have a key for a row: always the first ones. The others have no result for it.
__device__ __forceinline__ int splits_of(const Params& p, int row)
{
    return CAUSAL ? ceil_div(keys_of(p, row), keys_of_split(p)) : p.splits;
}

// The end of the keys of a task that is not split.
__device__ __forceinline__ int last_key(const Params& p, const Task& t) { return CAUSAL ? t.last_key : p.Nk; }
