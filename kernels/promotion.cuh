#pragma once
// Promotion of accumulators: tensor cores cut off where they add, so that an accumulator takes at most PROMOTION keys. O, l and
// BIAS - m of the keys before lie in shared memory, summed in float32.

#include "fragments.cuh"

constexpr unsigned SUMS_BYTES = MI * (NO + 1) * WORKERS * 16;

struct Sums {
    unsigned at;
    __device__ __forceinline__ unsigned place(int i, int n) const {
        return at + ((i * (NO + 1) + n) * WORKERS + threadIdx.x) * 16;
    }
    // Stores r, plus what is stored already (`again`), and clears it.
    __device__ __forceinline__ void promote(RowState& r, bool again) const {
        if (again) add_to(r);
        UNROLL for (int i = 0; i < MI; i++) {
            store_shared(place(i, NO), r.l[i][0], r.l[i][2], r.base[i][0], r.base[i][1]);
            UNROLL for (int n = 0; n < NO; n++)
                store_shared(place(i, n), r.O[i][n][0], r.O[i][n][1], r.O[i][n][2], r.O[i][n][3]);
        }
        zero(r);
    }
    __device__ __forceinline__ void add_to(RowState& r) const {
        UNROLL for (int i = 0; i < MI; i++) {
            const Four old = load_shared(place(i, NO));
            float shrink[2];
            UNROLL for (int h = 0; h < 2; h++) {
                shrink[h] = exp2_fast(r.base[i][h] - old.v[2 + h]);
                r.l[i][2 * h] = fmaf(old.v[h], shrink[h], r.l[i][2 * h]);
            }
            UNROLL for (int n = 0; n < NO; n++) {
                const Four x = load_shared(place(i, n));
                UNROLL for (int e = 0; e < 4; e++) r.O[i][n][e] = fmaf(x.v[e], shrink[e / 2], r.O[i][n][e]);
            }
        }
    }
};
