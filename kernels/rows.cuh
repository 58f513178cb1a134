#pragma once
// Tiles of float32 as they are, brought to shared memory one element at a time.

#include "platform.cuh"

// Brings ROWS rows to shared memory, STRIDE floats apart, times a factor; rows past the end become zeros.
template <int ROWS, int STRIDE>
__device__ inline void load_rows(float* tile, const float* rows, int rows_left, float factor = 1.0f)
{
    for (int e = threadIdx.x; e < ROWS * D; e += THREADS)
        tile[e / D * STRIDE + e % D] = e / D < rows_left ? factor * rows[e] : 0.0f;
}
