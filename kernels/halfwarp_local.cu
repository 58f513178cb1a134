#define IN_REGISTERS 0
#include "halfwarp.cuh"
extern "C" __global__ void __launch_bounds__(THREADS, 1)
halfwarp_local(const Params p) { attend_by_half_warps(p); }
