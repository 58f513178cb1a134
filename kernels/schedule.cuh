#pragma once
// Which rows and which keys a block computes, and where they lie.

#include "params.cuh"
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

// The task of a block that takes all keys: the blocks of a batch lie side by side, and share K and V in the L2 cache.
__device__ __forceinline__ Task task_of(unsigned block, const Params& p)
{
    const unsigned row_blocks = ceil_div(p.Nq, BR);
    const int batch = block / row_blocks;
    return {batch, int(block % row_blocks) * BR, 0, 0, p.Nk};
}

// The same where the keys are split: the splits of a block of rows lie side by side.
__device__ __forceinline__ Task task_of_split(unsigned block, const Params& p)
{
    if (p.splits == 1) return task_of(block, p);
    const unsigned tiles = ceil_div(p.Nk, BC), split = block % p.splits;
    Task t = task_of(block / p.splits, p);
    t.split = split, t.first_key = tiles * split / p.splits * BC;
    t.last_key = min(p.Nk, int(tiles * (split + 1) / p.splits * BC));
    return t;
}
