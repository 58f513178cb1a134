// What CUDA's language and library do, one thing a kernel, for 64 threads: `splits` says which.
#include "params.cuh"

enum Which {
    COUNT, AND_OR, BALLOT, UP, DOWN, XOR, ATOMICS, STATIC, STATIC_RACE, HALF_WARP, HALF_WARP_RACE, STRONG, WEAK, ENDLESS,
    NULL_POINTER, DIVISION, STRUCT, STRUCT_RACE
};
struct Half { unsigned x[32]; };

extern "C" __global__ void primitive(const Params p) {
    __shared__ unsigned words[64], counter[4];
    const unsigned t = threadIdx.x, which = p.splits;
    unsigned* o = (unsigned*)p.o.data;
    const unsigned x = ((const unsigned*)p.q.data)[t];
    switch (which) {
    case COUNT: o[t] = __syncthreads_count(x % 3 == 0); break;
    case AND_OR: {
        const unsigned all = __syncthreads_and(x < 64), most = __syncthreads_and(x < 63), one = __syncthreads_or(x == 5),
                       none = __syncthreads_or(x == 64);
        o[t] = all | most << 1 | one << 2 | none << 3;
        break;
    }
    case BALLOT: o[t] = __ballot_sync(0xffffffffu, x % 5 == 0) + (__all_sync(0xffffffffu, x < 32) << 31); break;
    case UP: o[t] = __shfl_up_sync(0xffffffffu, x, 3, 16); break;
    case DOWN: o[t] = __shfl_down_sync(0xffffffffu, x, 3, 16); break;
    case XOR: o[t] = __shfl_xor_sync(0xffffffffu, x, 17); break;
    case ATOMICS:
        if (t < 4) counter[t] = t == 1 ? 1000 : t == 2 ? 7 : 0;
        __syncthreads();
        atomicAdd(&counter[0], x), atomicMin(&counter[1], x), atomicCAS(&counter[2], 7, 9u), atomicMax(&counter[3], x);
        __syncthreads();
        o[t] = counter[t % 4];
        break;
    case STATIC:
        words[t] = x;
        __syncthreads();
        o[t] = words[63 - t];
        break;
    case STATIC_RACE:
        words[t] = x;
        o[t] = words[63 - t];
        break;
    case HALF_WARP:
    case HALF_WARP_RACE:
        if (t < 16) {
            words[t] = x;
            if (which == HALF_WARP) __syncwarp(0xffffu);
            o[t] = words[15 - t];
        }
        break;
    case STRONG: ((volatile unsigned*)o)[t / 64] = 1; break;
    case WEAK: o[t / 64] = 1; break;
    case ENDLESS:
        while (((volatile const float*)p.q.data)[0] != 1e30f) {}
        break;
    case NULL_POINTER: *(volatile unsigned*)(p.lse + t) = 1; break;
    case STRUCT:
    case STRUCT_RACE: {  // compilers copy a large struct by memcpy
        __shared__ Half halves[2];
        if (t % 32 == 0) halves[t / 32] = ((const Half*)p.q.data)[t / 32];
        if (which == STRUCT) __syncthreads();
        o[t] = halves[t / 32].x[t % 32];
        break;
    }
    case DIVISION: o[t] = 5 / (int)(x - x); break;
    }
}
