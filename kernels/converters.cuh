#pragma once
// Conversion by some blocks, before they attend (turns.cuh), while the other blocks attend already: a multiprocessor that
// converts alone moves more than twice its share of what all of them move together.
//
// Blocks are numbered as they start, and converters are the first. Their warps claim tiles in order, and count those of each
// batch that are done; the warps that copy tiles wait for all of a batch. So nobody waits for a block that may not have started:
// some block before has claimed the tile or, as the first one claims as long as there are any, will; and who converts waits for
// nobody.

#include "convert.cuh"

#if CONVERTING
static_assert(GROUPS && BALANCED, "blocks that stay, numbered as they start");
// A warp's step: so many rows of K and of V, and so many chunks of each for a lane.
constexpr int OF_LANE = WIDTH == 32 ? 1 : 2, WARP_ROWS = OF_LANE * 32 / CHUNKS, STEPS_OF_TILE = BC / WARP_ROWS;
constexpr unsigned WARP_BYTES = WARP_ROWS * D * 4;  // of K, or of V

// How many tiles of a batch are converted; behind the stats of all rows.
__device__ __forceinline__ int* count_of(const Params& p, int batch) {
    return (int*)(p.row_stats + (long long)p.batches * p.Nq + batch);
}
// A tile that a warp has claimed; none is left where its batch is past the last.
struct Claimed {
    int batch, row;
    __device__ __forceinline__ Claimed(const Params& p, int first) {
        const int tiles = ceil_div(p.Nk, BC), n = SHFL(threadIdx.x % 32 ? 0 : atomicAdd(p.absmax + CLAIMS, 1), 0);
        batch = first + n / tiles, row = n % tiles * BC;
    }
};
// A warp's rows of K and V on their way to a ring of its own in shared memory, of which all warps have ROOM: past the registers,
// and past the L1 cache, which is small where shared memory is large.
template <unsigned ROOM> struct Arriving {
    static constexpr int WARPS = THREADS / 32, FITTING = ROOM / (WARPS * 2 * WARP_BYTES), DEPTH = FITTING < 3 ? FITTING : 3;
    static_assert(DEPTH > 0 && DEPTH < STEPS_OF_TILE, "the first steps of the next tile are asked for during this one");
    unsigned at, barriers, asked = 0, used = 0;
    __device__ __forceinline__ Arriving(unsigned ring, unsigned all_barriers)
        : at(ring + threadIdx.x / 32 * DEPTH * 2 * WARP_BYTES), barriers(all_barriers + threadIdx.x / 32 * DEPTH * 8) {
        if (threadIdx.x % 32 == 0) {
            for (int n = 0; n < DEPTH; n++) barrier_init<1>(barriers + n * 8);
            barriers_made();
        }
        __syncwarp();
    }
    __device__ __forceinline__ void ask(const Params& p, const Claimed& tile, int step) {
        const int row = tile.row + step * WARP_ROWS, rows = min(WARP_ROWS, p.Nk - row);
        if (tile.batch >= p.batches || rows <= 0) return;
        const unsigned n = asked++ % DEPTH, to = at + n * 2 * WARP_BYTES, barrier = barriers + n * 8, bytes = rows * D * 4;
        if (threadIdx.x % 32) return;
        barrier_expect(barrier, 2 * bytes);
        copy_bulk(to, row_of(p.k, tile.batch, row), bytes, barrier);
        copy_bulk(to + WARP_BYTES, row_of(p.v, tile.batch, row), bytes, barrier);
    }
    __device__ __forceinline__ unsigned wait() {
        const unsigned n = used % DEPTH;
        barrier_wait(barriers + n * 8, used++ / DEPTH % 2);
        return at + n * 2 * WARP_BYTES;
    }
};
__device__ __forceinline__ Chunk arrived_chunk(unsigned at, int c) {
    Chunk r;
    auto half = [](unsigned from) {
        const Four x = load_shared(from);
        return float4{x.v[0], x.v[1], x.v[2], x.v[3]};
    };
    if (c * 8 < D) r.x = half(at);
    if (c * 8 + 4 < D) r.y = half(at + 16);
    return r;
}
// What a warp converts of the batches from `first` on.
template <unsigned ROOM> __device__ __forceinline__ void convert_share(const Params& p, int first, Arriving<ROOM> arriving) {
    constexpr int DEPTH = Arriving<ROOM>::DEPTH;
    const int mine = threadIdx.x % 32 / CHUNKS, c = threadIdx.x % CHUNKS;
    Largest of_k;
    unsigned top_v = 0;
    Claimed tile(p, first);
    for (int step = 0; step < DEPTH; step++) arriving.ask(p, tile, step);
    while (tile.batch < p.batches) {
        const Claimed next(p, first);
        char* to = p.tiles + ((long long)tile.batch * ceil_div(p.Nk, BC) + tile.row / BC) * STAGE;
#pragma unroll 1
        for (int step = 0; step < STEPS_OF_TILE; step++) {
            const int left = p.Nk - tile.row - step * WARP_ROWS;
            Chunk k[OF_LANE], v[OF_LANE];
            if (left > 0) {
                const unsigned at = arriving.wait();
                UNROLL for (int i = 0; i < OF_LANE; i++) {
                    const int row = mine + i * 32 / CHUNKS;
                    const unsigned from = at + (row * D + c * 8) * 4;
                    if (row < left) k[i] = arrived_chunk(from, c), v[i] = arrived_chunk(from + WARP_BYTES, c);
                }
            }
            UNROLL for (int i = 0; i < OF_LANE; i++)
                convert_chunks(k[i], v[i], to, 0, step * WARP_ROWS + mine + i * 32 / CHUNKS, c, of_k, top_v);
            __syncwarp();
            const int later = step + DEPTH;
            if (later < STEPS_OF_TILE) arriving.ask(p, tile, later);
            else arriving.ask(p, next, later - STEPS_OF_TILE);
        }
        if (threadIdx.x % 32 == 0) add_count(count_of(p, tile.batch), 1);
        tile = next;
    }
    WarpAbsmax found;
    found.add(K_TOP, of_k), found.add(V_TOP, top_v);
    found.note(p.absmax, WarpAbsmax::before(p.absmax));
}
#endif  // CONVERTING
