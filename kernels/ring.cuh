#pragma once
// The ring of STAGES tiles in shared memory through which K and V pass.

#include "bulk.cuh"
#include "convert.cuh"
#include "stamps.cuh"

constexpr bool BULK = !INBLOCK && ARCH >= 900;  // tiles come by the bulk copy engine

// The ring of stages. ready(n) brings stage n to all threads. Then, or where they have nothing better to do (load_ahead),
// stage n + LEAD is asked for, into the buffer of stage n + LEAD - STAGES, of which no V is wanted any more.
struct Ring {
    const float *k, *v;  // the first row
    const char* tiles;   // converted
    unsigned base;
    WarpAbsmax absmax;  // INBLOCK: of K and V
    int keys, stages, first_tile;
    static constexpr int LEAD = SUBS > 1 ? STAGES - 2 : STAGES - 3;
    static_assert(INBLOCK || GROUPS || LEAD > 0, "too few stages to load one ahead");

    __device__ __forceinline__ unsigned at(int stage) const { return base + stage % STAGES * STAGE; }
    __device__ __forceinline__ const char* tile(int stage) const {
        return tiles + (long long)(first_tile + stage) * STAGE;
    }

#if ARCH >= 900  // one thread asks for whole tiles; barriers in shared memory count bytes that came and threads that are done
    __device__ __forceinline__ unsigned full(int stage) const { return base + STAGES * STAGE + stage % STAGES * 16; }
    __device__ __forceinline__ unsigned empty(int stage) const { return full(stage) + 8; }
    __device__ __forceinline__ void wait(unsigned barrier, unsigned parity) { barrier_wait(barrier, parity); }
    __device__ __forceinline__ void fetch(int stage) {
        if (stage >= stages) return;
        if (stage >= STAGES) wait(empty(stage), (stage / STAGES - 1) & 1);
        barrier_expect<STAGE>(full(stage)); BEGINS(COPYING, stage * SUBS);
        copy_bulk<STAGE>(at(stage), tile(stage), full(stage));
    }
    // A load that has been asked for may still wait when its thread arrives, and the copy engine waits for no load: the fence has
    // the thread arrive behind its loads.
    __device__ __forceinline__ void release(int stage) { fence_async(), barrier_arrive(empty(stage)); }
    __device__ __forceinline__ void prepare() {
        if (threadIdx.x == 0) {
            for (int n = 0; n < STAGES; n++) {
                barrier_init<1>(full(n));
                barrier_init<THREADS>(empty(n));
            }
            barriers_made();
        }
        __syncthreads();
    }
#else
    __device__ __forceinline__ unsigned full(int) const { return 0; }
    __device__ __forceinline__ void wait(unsigned, unsigned) {}
    __device__ __forceinline__ void fetch(int) {}
    __device__ __forceinline__ void release(int) {}
    __device__ __forceinline__ void prepare() {}
#endif
#if ARCH >= 800
    __device__ __forceinline__ void copy(int stage) {
        if (stage < stages) {
            const char* from = tile(stage) + threadIdx.x * 16;
            UNROLL for (unsigned n = 0; n < STAGE; n += THREADS * 16)
                copy16_async(at(stage) + threadIdx.x * 16 + n, (const float*)(from + n), true);
        }
        group_copies();
    }
    __device__ __forceinline__ void copied() { copies_arrived_but<INBLOCK ? 0 : LEAD - 1>(); }
#endif
    __device__ __forceinline__ void begin() {
        if (BULK) {
            prepare();
            if (threadIdx.x == 0)
                for (int n = 0; n < LEAD; n++) fetch(n);
        } else if (!INBLOCK) {
            UNROLL for (int n = 0; n < LEAD; n++) copy(n);
        }
    }
    __device__ __forceinline__ void load_ahead(int stage) {
        if (threadIdx.x == 0) fetch(stage + LEAD);
    }
    __device__ __forceinline__ void ready(int stage) {
        if (BULK) {
            if (!WARPGROUPS) load_ahead(stage);
            wait(full(stage), stage / STAGES & 1); ENDS(COPYING, stage * SUBS);
        } else if (INBLOCK) {
            if (stage >= STAGES) __syncthreads();
            const int first = stage * BC;
            const Loads from_k = load_tile(k + first * D, keys - first), from_v = load_tile(v + first * D, keys - first);
            unsigned top_k = 0, top_v = 0;
            store_tile<2>(from_k, 1, at(stage), top_k);
            absmax.add(K_SQUARES, squares_of(from_k)), absmax.add(K_TOP, top_k);
            store_tile<PV_PIECES>(from_v, V_FACTOR, at(stage) + 2 * PIECE, top_v);
            absmax.add(V_TOP, top_v);
            __syncthreads();
        } else {
            copied();
            __syncthreads();
            copy(stage + LEAD);
        }
    }
};
