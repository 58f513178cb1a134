#pragma once
// Conversion by some blocks, before they attend (turns.cuh), while the other blocks attend already: a multiprocessor that
// converts alone moves more than twice its share of what all of them move together.
//
// Blocks are numbered as they start, and converters are the first. They claim batches in order, and raise a flag for each, for
// which the warps that copy tiles wait. So nobody waits for a block that may not have started: some block before has claimed
// the batch or, as the first one claims as long as there are any, will; and who converts waits for nobody.

#include "convert.cuh"

#if CONVERTING
static_assert(GROUPS && BALANCED, "blocks that stay, numbered as they start");
constexpr int CHUNKS_OF_TILE = BC * CHUNKS, AT_A_TIME = 2;  // AT_A_TIME: of a thread, more would spill

// 1 as soon as a batch is converted; behind the stats of all rows.
__device__ __forceinline__ int* flag_of(const Params& p, int batch) {
    return (int*)(p.row_stats + (long long)p.batches * p.Nq + batch);
}
// Chunks of K and V that a thread loads at a time.
struct Asked {
    Chunk k[AT_A_TIME], v[AT_A_TIME];
    __device__ __forceinline__ Asked(const Params& p, int batch, int e) {
        UNROLL for (int n = 0; n < AT_A_TIME; n++, e += THREADS) {
            const int row = e / CHUNKS, c = e % CHUNKS;
            k[n] = load_chunk(row_of(p.k, batch, row), c, row < p.Nk), v[n] = load_chunk(row_of(p.v, batch, row), c, row < p.Nk);
        }
    }
};
__device__ __forceinline__ void convert_batch(const Params& p, int batch, Largest& of_k, unsigned& top_v) {
    const int tiles = ceil_div(p.Nk, BC), end = tiles * CHUNKS_OF_TILE;
    char* to = p.tiles + (long long)batch * tiles * STAGE;
    int e = threadIdx.x;
    Asked now(p, batch, e);
#pragma unroll 1
    while (e < end) {
        const Asked next(p, batch, e + AT_A_TIME * THREADS);
        UNROLL for (int n = 0; n < AT_A_TIME; n++, e += THREADS)
            if (e < end)
                convert_chunks(now.k[n], now.v[n], to, e / CHUNKS_OF_TILE, e / CHUNKS % BC, e % CHUNKS, of_k, top_v);
        now = next;
    }
}
// What a block converts of the batches from `first` on; all its threads learn by `claimed`, in shared memory, which is next.
__device__ __forceinline__ void convert_share(const Params& p, int first, volatile unsigned* claimed) {
    Largest of_k;
    unsigned top_v = 0;
    for (int batch = -1;;) {
        __syncthreads();  // all have stored what they converted
        if (threadIdx.x == 0) {
            if (batch >= 0) set_count(flag_of(p, batch), 1);
            *claimed = first + atomicAdd(p.absmax + CLAIMS, 1);
        }
        __syncthreads();
        batch = *claimed;
        if (batch >= p.batches) break;
        convert_batch(p, batch, of_k, top_v);
    }
    WarpAbsmax found;
    found.add(K_TOP, of_k), found.add(V_TOP, top_v);
    found.note(p.absmax, WarpAbsmax::before(p.absmax));
}
#endif  // CONVERTING
