#define KEYS_IN_PARALLEL 1
#include "halfwarp.cuh"
extern "C" __global__ void __launch_bounds__(THREADS, 1)
halfwarp_keys(const Params p) { attend_by_half_warps(p); }
