#pragma once
// The producers of split_wgmma.cuh beside the one thread that issues copies of tiles. Both convert float32 beside the consumers:
//
// Q_AHEAD: three warps find the block's next unit of work while the consumers compute this one, and load its Q to shared memory as
// the pieces that products take: hi, and lo or, for INT8, integers. So between two units no consumer divides, loads or converts.
// CONVERTING: the blocks that start first convert K and V of later batches before they compute, while the other blocks compute
// already: a multiprocessor that converts alone moves more than twice its share of what all of them move together.

#include "convert.cuh"
#include "hopper.cuh"
#include "streamk.cuh"

// ---- Q of the next unit

// Consumers read integers until a unit ends, so there are two buffers for them; the other pieces go to registers when it begins.
constexpr int LO_BUFFERS = INT8 + Q_AHEAD;
constexpr unsigned Q_PIECE = BR * ROW, Q_BYTES = (LO_BUFFERS + Q_AHEAD) * Q_PIECE;
constexpr int Q_PRODUCERS = 96;  // threads

// At `at` lo or integers, then hi. Two mbarriers. full: Q of the next unit is there. empty: all threads have read Q of this one, and
// the thread that copies tiles has read which unit it is. So no thread is two units behind, where the parity of a phase would be
// ambiguous.
struct Queries {
    unsigned at, full;
    __device__ __forceinline__ unsigned hi() const { return at + LO_BUFFERS * Q_PIECE; }
    __device__ __forceinline__ unsigned lo(unsigned n) const { return at + (LO_BUFFERS > 1 ? n % LO_BUFFERS * Q_PIECE : 0); }
    __device__ __forceinline__ unsigned empty() const { return full + 8; }
    __device__ __forceinline__ void prepare() const { mbarrier_init<Q_PRODUCERS>(full), mbarrier_init<WORKERS + 1>(empty()); }

    // The block's n-th unit of work, once it is known and its Q is there.
    __device__ __forceinline__ Work wait_for_work(const Params& p, unsigned n) const {
        if (Q_AHEAD && n > 0) mbarrier_wait(full, n % 2 ^ 1);
        return work_at(p, n);
    }
    // This thread has read Q, and which unit it is.
    __device__ __forceinline__ void release() const {
        if (Q_AHEAD) mbarrier_arrive(empty());
    }
#if Q_AHEAD
    // Loads a warp's fragments of the pieces that stay in registers.
    __device__ __forceinline__ void load(RowState& r, unsigned n) const {
        const int row = warp_row() + threadIdx.x % 16, c = threadIdx.x % 32 / 16;
        UNROLL for (int step = 0; step < STEPS; step++) {
            load_matrices(r.Q[0][0][step], hi() + swizzle(row, step * 2 + c));
            if (!INT8) load_matrices(r.Q[1][0][step], lo(n) + swizzle(row, step * 2 + c));
        }
    }
    // Stores columns c to c + 3 of row `row` of unit n.
    __device__ __forceinline__ void store(const Params& p, float4 x, unsigned n, int row, int c) const {
        const unsigned to = swizzle(row, c / 8) + c % 8 * 2;
#if INT8
        const HiIntegers a = split_integers(x.x, x.y), b = split_integers(x.z, x.w);
        store_shared(lo(n) + swizzle_integer(row, c, false), __byte_perm(a.lo, b.lo, 0x5410));
        store_shared(lo(n) + swizzle_integer(row, c, true), __byte_perm(a.whole, b.whole, 0x5410));
#else
        const float to_log2 = p.scale * LOG2E;
        const HiLo a = split_hi_lo(x.x * to_log2, x.y * to_log2), b = split_hi_lo(x.z * to_log2, x.w * to_log2);
        store_shared(lo(n) + to, uint2{a.lo, b.lo});
#endif
        store_shared(hi() + to, uint2{a.hi, b.hi});
    }
    // Converts row `row` of unit n, and each row Q_PRODUCERS further, of `rows` rows from `q` on. A thread issues the load of four
    // columns before it stores the four before; not so for INT8, whose units take longer, and which has no register to spare.
    __device__ __forceinline__ void produce(const Params& p, const float* q, int rows, unsigned n, int row, Largest& found) const {
        auto load = [&](bool inside) { return inside ? *(const float4*)q : float4{0, 0, 0, 0}; };
        q += row * D;
        float4 next;
        if (!INT8) next = load(row < rows);
#pragma unroll 1
        for (; row < BR; row += Q_PRODUCERS) {
            float sum = SQUARES_FROM;
#pragma unroll 1
            for (int c = 0; c < D; c += 4) {
                const float4 x = INT8 ? load(row < rows) : next;
                const bool last = c + 4 == D;
                q += last ? (Q_PRODUCERS - 1) * D + 4 : 4;
                if (!INT8) next = load((last ? row + Q_PRODUCERS : row) < rows);
                found.top = max(found.top, max(max(abs_bits(x.x), abs_bits(x.y)), max(abs_bits(x.z), abs_bits(x.w))));
                sum = add_square(add_square(add_square(add_square(sum, x.x), x.y), x.z), x.w);
                store(p, x, n, row, c);
            }
            found.squares = max(found.squares, __float_as_uint(sum - SQUARES_FROM));
        }
    }
    // Zeros for the columns past D, of the buffers that unit 1 takes: the consumers themselves write those of unit 0.
    __device__ __forceinline__ void pad(const Params& p, int row) const {
#pragma unroll 1
        for (; row < BR && D < WIDTH; row += Q_PRODUCERS)
            for (int c = D; c < WIDTH; c += 4) store(p, float4{0, 0, 0, 0}, 1, row, c);
    }
    // The loop of the three warps.
    __device__ __forceinline__ void produce_all(const Params& p) const {
        const int thread = threadIdx.x - WORKERS - 32;
        WarpAbsmax all;
        pad(p, thread);
        for (unsigned n = 1;; n++) {
            const Work t = find_work(p, n);
            const float* q = row_of(p.q, t.batch, t.row0);
            if (t.any && thread == 0) prefetch_bulk(q, min(BR, p.Nq - t.row0) * D * 4);
            mbarrier_wait(empty(), n % 2 ^ 1);
            if (thread == 0) store_work(n, t);
            if (t.any) {
                Largest found;
                produce(p, q, p.Nq - t.row0, n, thread, found);
                all.add(Q_TOP, found);
            }
            fence_proxy_async();
            mbarrier_arrive(full);
            if (!t.any) break;
        }
        all.record(p.absmax, WarpAbsmax::recorded(p.absmax));
    }
#endif  // Q_AHEAD
};

// ---- K and V of later batches

#if CONVERTING
// Blocks are numbered as they start, and the first ones are producers. Their warps claim tiles in order, and count the converted
// tiles of each batch; the threads that copy tiles wait until a batch is complete. No thread waits for a block that may not have
// started: a tile is claimed by a block that runs, since the first block claims as long as there are any; and producers wait for no
// other block.
static_assert(GROUPS && BALANCED, "persistent blocks, numbered as they start");
// A step of a warp: so many rows of K and of V, and so many chunks of each for a lane.
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
// Each warp's ring of bulk copies of rows of K and V, in ROOM bytes of shared memory for all warps: past the registers, and past the
// L1 cache, which is small where shared memory is large.
template <unsigned ROOM> struct Arriving {
    static constexpr int WARPS = THREADS / 32, FITTING = ROOM / (WARPS * 2 * WARP_BYTES), DEPTH = FITTING < 3 ? FITTING : 3;
    static_assert(DEPTH > 0 && DEPTH < STEPS_OF_TILE, "the first copies of the next tile are issued during this one");
    unsigned at, barriers, issued = 0, consumed = 0;
    __device__ __forceinline__ Arriving(unsigned ring, unsigned all_barriers)
        : at(ring + threadIdx.x / 32 * DEPTH * 2 * WARP_BYTES), barriers(all_barriers + threadIdx.x / 32 * DEPTH * 8) {
        if (threadIdx.x % 32 == 0) {
            for (int n = 0; n < DEPTH; n++) mbarrier_init<1>(barriers + n * 8);
            fence_mbarrier_init();
        }
        __syncwarp();
    }
    __device__ __forceinline__ void issue(const Params& p, const Claimed& tile, int step) {
        const int row = tile.row + step * WARP_ROWS, rows = min(WARP_ROWS, p.Nk - row);
        if (tile.batch >= p.batches || rows <= 0) return;
        const unsigned n = issued++ % DEPTH, to = at + n * 2 * WARP_BYTES, barrier = barriers + n * 8, bytes = rows * D * 4;
        if (threadIdx.x % 32) return;
        mbarrier_expect(barrier, 2 * bytes);
        copy_bulk(to, row_of(p.k, tile.batch, row), bytes, barrier);
        copy_bulk(to + WARP_BYTES, row_of(p.v, tile.batch, row), bytes, barrier);
    }
    __device__ __forceinline__ unsigned wait() {
        const unsigned n = consumed % DEPTH;
        mbarrier_wait(barriers + n * 8, consumed++ / DEPTH % 2);
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
// Converts tiles, as long as this warp can claim one of the batches from `first` on.
template <unsigned ROOM> __device__ __forceinline__ void convert_later(const Params& p, int first, Arriving<ROOM> arriving) {
    constexpr int DEPTH = Arriving<ROOM>::DEPTH;
    const int mine = threadIdx.x % 32 / CHUNKS, c = threadIdx.x % CHUNKS;
    Largest of_k;
    unsigned top_v = 0;
    Claimed tile(p, first);
    for (int step = 0; step < DEPTH; step++) arriving.issue(p, tile, step);
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
            if (later < STEPS_OF_TILE) arriving.issue(p, tile, later);
            else arriving.issue(p, next, later - STEPS_OF_TILE);
        }
        if (threadIdx.x % 32 == 0) semaphore_add(count_of(p, tile.batch), 1);
        tile = next;
    }
    WarpAbsmax found;
    found.add(K_TOP, of_k), found.add(V_TOP, top_v);
    found.record(p.absmax, WarpAbsmax::recorded(p.absmax));
}
#endif  // CONVERTING
