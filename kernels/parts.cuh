#pragma once
// Which part of which tasks a block takes, where blocks stay for task after task (turns.cuh).
//
// BALANCED: tasks seldom fill whole rounds of blocks. So the last ones, more than one round and less than two, are shared out
// equally, in tiles of keys: some tasks in two parts, which one block leaves in O, and the next one adds to its own.

#include "convert.cuh"
#include "fragments.cuh"

#if GROUPS
constexpr unsigned NUMBER_AT = STAGES * 16;            // in shared memory, behind the barriers of the ring
constexpr unsigned KEPT_BYTES = 160;                   // what stands there
constexpr unsigned SHORTEST_PART = 4;                  // in tiles

// What a block keeps in shared memory. Its number; BALANCED: in the order in which blocks start, so that whom it waits for has
// started before. CONVERTING: of `converters_of`. Q_AHEAD: four parts, one after the other (keep_part).
enum Kept { NUMBER, CONVERTERS, ROUNDS, FIRST, PARTS = 8 };
__device__ __forceinline__ volatile unsigned* place_of(int n) { return (volatile unsigned*)((char*)shared + NUMBER_AT) + n; }
__device__ __forceinline__ unsigned kept(int n) { return SHFL(*place_of(n), 0); }
__device__ __forceinline__ void take_number(const Params& p) {
    if (BALANCED) *place_of(NUMBER) = atomicAdd(p.absmax + STARTED, 1);
    if (!CONVERTING) return;
    const Converters found = converters_of(p);
    *place_of(CONVERTERS) = found.blocks, *place_of(ROUNDS) = found.rounds, *place_of(FIRST) = found.first;
}
__device__ __forceinline__ unsigned block_number() { return BALANCED ? kept(NUMBER) : blockIdx.x; }

struct Part { int task, first, last; };  // of a task, tiles `first` to `last`
// Part n of this block; false if there is none. A block takes its share from the end on: it begins with what the next block
// ends with, so that nobody waits long.
__device__ __forceinline__ bool part_of(const Params& p, unsigned n, Part& part) {
    if (MOST_BLOCKS == 0) {  // a block for each task
        part = {int(blockIdx.x), 0, int(ceil_div(p.Nk, BC))};
        return n == 0;
    }
    const unsigned tiles = ceil_div(p.Nk, BC), block = block_number(), blocks = gridDim.x;
    unsigned all = ceil_div(p.Nq, BR) * p.splits * p.batches, from = 0;
    if (CONVERTING) {  // the first rounds are of those that do not convert
        const unsigned converters = kept(CONVERTERS), others = blocks - converters, rounds = kept(ROUNDS);
        if (block >= converters) {
            part = {int(block - converters + n * others), 0, int(tiles)};
            if (n < rounds) return true;
            n -= rounds;
        }
        from = rounds * others, all -= from;
    }
    const bool shares = BALANCED && p.splits == 1 && all > blocks && all % blocks;
    const unsigned rounds = shares ? all / blocks - 1 : ceil_div(all, blocks), whole = min(rounds * blocks, all);
    const unsigned task = block + n * blocks;
    part = {int(from + task), 0, int(tiles)};
    if (n < rounds || !shares) return task < whole;
    auto share = [&](unsigned number) {  // where that of a block begins
        const unsigned at = (all - whole) * number, over = at % blocks * tiles / blocks;
        return at / blocks * tiles + (over < SHORTEST_PART ? 0 : over > tiles - SHORTEST_PART ? tiles : over);
    };
    const int first = share(block), last = share(block + 1), at = ((last - 1) / tiles - (n - rounds)) * tiles;
    part = {int(from + whole + at / tiles), max(first - at, 0), min(last - at, int(tiles))};
    return at + int(tiles) > first;
}
// The same as a task; whether there is such a part, and whether the tiles before are in another block's share.
struct TaskPart : Task { bool any, continued; };
__device__ __forceinline__ TaskPart find_part(const Params& p, unsigned n) {
    Part part;
    if (!part_of(p, n, part)) return {};
    Task t = task_of_split(part.task, p);
    if (BALANCED) t.first_key += part.first * BC, t.last_key = min(t.last_key, part.last * BC);
    return {t, true, part.first > 0};
}
// Who has found it keeps it for the others: while some still end the part before, some may have begun the next one.
__device__ __forceinline__ void keep_part(unsigned n, const TaskPart& t) {
    volatile unsigned* to = place_of(PARTS + n % 4 * 8);
    to[0] = t.batch, to[1] = t.row0, to[2] = t.split, to[3] = t.first_key, to[4] = t.last_key, to[5] = t.any, to[6] = t.continued;
}
__device__ __forceinline__ TaskPart part_at(const Params& p, unsigned n) {
    if (!Q_AHEAD) return find_part(p, n);
    auto of = [=](int i) { return int(kept(PARTS + n % 4 * 8 + i)); };
    return {{of(0), of(1), of(2), of(3), of(4)}, of(5) != 0, of(6) != 0};
}

// m - BIAS and l of a row, which a warp waits for together: a loop that lanes leave one by one would cost the compiler its
// uniform registers.
__device__ __forceinline__ float2 await_stats(const float2* from, bool wanted) {
    RowStats stats;
    do stats.bits = wanted ? *(const volatile unsigned long long*)from : ~0ull; while (ANY(stats.bits >> 32 == 0));  // l
    __threadfence();
    return stats.of;
}
// Adds what the block before leaves of these rows, in float32.
__device__ __forceinline__ void add_part(RowState& r, const Params& p, int row0, const float2* stats, const float* left) {
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = h * 8 + threadIdx.x % 32 / 4;
        const bool inside = row0 + row < p.Nq;
        const float2 old = await_stats(stats + row, inside);
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
#endif  // GROUPS
