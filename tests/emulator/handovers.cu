// Data that one block of a launch hands to another, rightly and wrongly: `which` says how. 64 threads a block.
struct Handover {
    unsigned *data, *flag, *to;
    int which;
};
enum Which {
    RIGHT, ONE_FENCES, LAST_BLOCK, CHAIN,
    NO_FENCE, FENCE_TOO_EARLY, FLAG_TOO_EARLY, NO_FENCE_BEHIND, BROKEN_CHAIN, ONE_OF_TWO_FENCES
};

extern "C" __global__ void clear(const Handover h) { h.flag[threadIdx.x] = 0; }

extern "C" __global__ void handover(const Handover h) {
    __shared__ bool last;
    const unsigned t = threadIdx.x, block = blockIdx.x;
    volatile unsigned* flag = h.flag;
    const int which = h.which;
    if (which == LAST_BLOCK) {
        h.data[block * 64 + t] = t;
        __threadfence();
        __syncthreads();
        if (t == 0) last = atomicAdd(h.flag, 1u) == gridDim.x - 1;
        __syncthreads();
        if (last) h.to[t] = h.data[t] + h.data[64 + t];
        return;
    }
    if (block == 0) {
        if (which == FLAG_TOO_EARLY && t == 0) __threadfence(), flag[0] = 1;
        if (which == FENCE_TOO_EARLY) __threadfence();
        h.data[t] = t;
        if (which == ONE_OF_TWO_FENCES ? t == 32 : which != NO_FENCE && which != FENCE_TOO_EARLY && which != ONE_FENCES)
            __threadfence();
        __syncthreads();
        if (t == 0) {
            if (which == ONE_FENCES) __threadfence();
            if (which != FLAG_TOO_EARLY) flag[0] = 1;
        }
        return;
    }
    if (block == 1 && (which == CHAIN || which == BROKEN_CHAIN)) {
        if (t == 0) {
            if (which == CHAIN) while (!flag[0]) {}
            __threadfence();
            flag[1] = 1;
        }
        return;
    }
    const int at = which == CHAIN || which == BROKEN_CHAIN;
    if (which == NO_FENCE_BEHIND) {
        while (!flag[at]) {}
        h.to[t] = h.data[t];
        return;
    }
    if (t == 0) {
        while (!flag[at]) {}
        __threadfence();
    }
    __syncthreads();
    h.to[t] = h.data[t];
}
