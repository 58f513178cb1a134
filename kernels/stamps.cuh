#pragma once
// When the warps of one block begin and end what they do with each tile, by their multiprocessor's clock: what
// `hw4 profile --set timeline` reads. Nothing at all, unless STAMPS is defined: for how many tiles there is room. STAMPED is the
// block.

#ifdef STAMPS
enum Activity { COPYING, COPYING_V, SCORING, WEIGHING, ADDING, ACTIVITIES };  // COPYING: K; or K and V, if they come together
extern "C" { __device__ long long stamps[THREADS / 32][STAMPS][ACTIVITIES][2]; }

__device__ __forceinline__ void stamp(Activity activity, int end, int tile, int warp = threadIdx.x / 32) {
    if (blockIdx.x == STAMPED && threadIdx.x % 32 == 0 && (unsigned)tile < STAMPS)
        stamps[warp][tile][activity][end] = clock64();
}
#define BEGINS(activity, tile) stamp(activity, 0, tile)
#define ENDS(activity, tile) stamp(activity, 1, tile)
// What the first warp began has come to its end: thread `by` of another warp finds it so.
#define FOUND(by, activity, tile) if (threadIdx.x == (by)) stamp(activity, 1, tile, 0)
#else
#define BEGINS(activity, tile)
#define ENDS(activity, tile)
#define FOUND(by, activity, tile)
#endif
