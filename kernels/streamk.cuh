#pragma once
// The schedule of persistent blocks (split_wgmma.cuh): which work a block does, one unit after the other.
//
// A unit is a task (BR rows against all keys or a split of them) or a range of its tiles of keys. BALANCED (stream-K): tasks seldom
// fill whole waves of blocks. So the last tasks, more than one wave and less than two, are cut into equal shares of tiles, one a
// block: some tasks are computed in two ranges by two blocks. The block that computes the first range leaves its sums in O, and the
// block that computes the second one adds them to its own (fixup).

#include "fragments.cuh"

constexpr unsigned INFO_AT = STAGES * 16;    // in shared memory, behind the mbarriers of the ring
constexpr unsigned INFO_BYTES = 160;
constexpr unsigned SHORTEST_RANGE = 4;       // in tiles

// CONVERTING: the first `blocks` blocks are producers: they convert K and V of all but the `first` batches (producers.cuh), and
// compute after so many waves of the others; 0 blocks: there are none. hw4cli/plans/formulas.py has the same, and why.
struct ProducerBlocks { int blocks, first, rounds; };
__device__ __forceinline__ ProducerBlocks producer_blocks_of(const Params& p) {
#if CONVERTING  // with BR, BC and MOST_BLOCKS of the plan
    const long long tasks = ceil_div(p.Nq, BR), tiles = ceil_div(p.Nk, BC), task = 100 * (2 * tiles + (Q_AHEAD ? 3 : 7));
    const long long batch = 2 * CONVERTING * tiles + 100, first = ceil_div(MOST_BLOCKS * (task + batch), tasks * task);
    if (p.splits > 1 || tasks < 3 || p.batches < 4 * first) return {0, p.batches, 0};
    const long long blocks = ceil_div(6 * MOST_BLOCKS * batch, 5 * tasks * task + 6 * batch);
    return {int(blocks), int(first), int(ceil_div(ceil_div(p.batches - first, blocks) * batch, task))};
#else
    return {0, p.batches, 0};
#endif
}

// BALANCED: what blocks count and poll, reset by the launch before. No block has started, and no tile is claimed; l of each row is
// 0 until a block has left its sums of a range; behind the rows' stats, no tile of any batch is converted by producers.
__device__ __forceinline__ void reset_counters(const Params& p) {
    const long long step = (long long)gridDim.x * blockDim.x;
    const long long rows = (long long)p.batches * (p.Nq + (CONVERTING > 0));
    if (blockIdx.x == 0 && threadIdx.x < 2) p.absmax[STARTED + threadIdx.x] = 0;
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < rows; n += step) p.row_stats[n] = float2{0, 0};
}

// What a block holds in shared memory. Its number; BALANCED: in the order in which blocks start, so that a block waits only for
// blocks that have started. CONVERTING: its ProducerBlocks. Q_AHEAD: four units of work, eight words each.
enum BlockInfo { NUMBER, PRODUCER_BLOCKS, ROUNDS, FIRST, WORK = 8 };
__device__ __forceinline__ volatile unsigned* info_at(int n) { return (volatile unsigned*)((char*)shared + INFO_AT) + n; }
__device__ __forceinline__ unsigned block_info(int n) { return SHFL(*info_at(n), 0); }
__device__ __forceinline__ void begin_block_info(const Params& p) {
    if (BALANCED) *info_at(NUMBER) = atomicAdd(p.absmax + STARTED, 1);
    if (!CONVERTING) return;
    const ProducerBlocks found = producer_blocks_of(p);
    *info_at(PRODUCER_BLOCKS) = found.blocks, *info_at(ROUNDS) = found.rounds, *info_at(FIRST) = found.first;
}
__device__ __forceinline__ unsigned block_number() { return BALANCED ? block_info(NUMBER) : blockIdx.x; }

struct TileRange { int task, first, last; };  // of a task, tiles `first` to `last`
// The n-th range of this block; false if there is none. A block computes its share from the end on: it begins with the range whose
// sums the next block needs last, so that hardly any block waits.
__device__ __forceinline__ bool tile_range_of(const Params& p, unsigned n, TileRange& range) {
    if (MOST_BLOCKS == 0) {  // a block for each task
        range = {int(blockIdx.x), 0, int(ceil_div(p.Nk, BC))};
        return n == 0;
    }
    const unsigned tiles = ceil_div(p.Nk, BC), block = block_number(), blocks = gridDim.x;
    unsigned all = ceil_div(p.Nq, BR) * p.splits * p.batches, from = 0;
    if (CONVERTING) {  // the first waves are of the blocks that do not convert
        const unsigned producers = block_info(PRODUCER_BLOCKS), others = blocks - producers, rounds = block_info(ROUNDS);
        if (block >= producers) {
            range = {int(block - producers + n * others), 0, int(tiles)};
            if (n < rounds) return true;
            n -= rounds;
        }
        from = rounds * others, all -= from;
    }
    const bool shares = BALANCED && p.splits == 1 && all > blocks && all % blocks;
    const unsigned rounds = shares ? all / blocks - 1 : ceil_div(all, blocks), whole = min(rounds * blocks, all);
    const unsigned task = block + n * blocks;
    range = {int(from + task), 0, int(tiles)};
    if (n < rounds || !shares) return task < whole;
    auto share = [&](unsigned number) {  // where that of a block begins
        const unsigned at = (all - whole) * number, over = at % blocks * tiles / blocks;
        return at / blocks * tiles + (over < SHORTEST_RANGE ? 0 : over > tiles - SHORTEST_RANGE ? tiles : over);
    };
    const int first = share(block), last = share(block + 1), at = ((last - 1) / tiles - (n - rounds)) * tiles;
    range = {int(from + whole + at / tiles), max(first - at, 0), min(last - at, int(tiles))};
    return at + int(tiles) > first;
}
// A unit of work; whether there is one, and whether another block computes the tiles before.
struct Work : Task { bool any, continued; };
__device__ __forceinline__ Work find_work(const Params& p, unsigned n) {
    TileRange range;
    if (!tile_range_of(p, n, range)) return {};
    Task t = task_of_split(range.task, p);
    if (BALANCED) t.first_key += range.first * BC, t.last_key = min(t.last_key, range.last * BC);
    return {t, true, range.first > 0};
}
// Q_AHEAD: one thread finds a unit and stores it for the others. There is room for four: while some threads still finish the unit
// before, others may have begun the next one.
__device__ __forceinline__ void store_work(unsigned n, const Work& t) {
    volatile unsigned* to = info_at(WORK + n % 4 * 8);
    to[0] = t.batch, to[1] = t.row0, to[2] = t.split, to[3] = t.first_key, to[4] = t.last_key, to[5] = t.any, to[6] = t.continued;
}
__device__ __forceinline__ Work work_at(const Params& p, unsigned n) {
    if (!Q_AHEAD) return find_work(p, n);
    auto of = [=](int i) { return int(block_info(WORK + n % 4 * 8 + i)); };
    return {{of(0), of(1), of(2), of(3), of(4)}, of(5) != 0, of(6) != 0};
}

// m - BIAS and l of a row, polled by all lanes of a warp together: a loop that lanes leave one by one would cost the compiler its
// uniform registers.
__device__ __forceinline__ float2 poll_stats(const float2* from, bool wanted) {
    RowStats stats;
    do stats.bits = wanted ? *(const volatile unsigned long long*)from : ~0ull; while (ANY(stats.bits >> 32 == 0));  // l
    __threadfence();
    return stats.of;
}
// Adds the sums that another block has left of these rows, in float32.
__device__ __forceinline__ void fixup(RowState& r, const Params& p, int row0, const float2* stats, const float* left) {
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = h * 8 + threadIdx.x % 32 / 4;
        const bool inside = row0 + row < p.Nq;
        const float2 old = poll_stats(stats + row, inside);
        const float base = fminf(r.base[0][h], -old.x), mine = exp2_fast(base - r.base[0][h]), its = exp2_fast(base + old.x);
        r.base[0][h] = base, r.l[0][2 * h] = fmaf(old.y, its, r.l[0][2 * h] * mine);
        UNROLL for (int n = 0; n < NO; n++) {
            const int c = n * 8 + threadIdx.x % 4 * 2;
            const float2 x = inside && c < D ? *(const float2*)(left + row * D + c) : float2{0, 0};
            r.O[0][n][2 * h] = fmaf(x.x, its, r.O[0][n][2 * h] * mine);
            r.O[0][n][2 * h + 1] = fmaf(x.y, its, r.O[0][n][2 * h + 1] * mine);
        }
    }
}
