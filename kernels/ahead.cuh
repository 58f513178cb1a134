#pragma once
// Conversion beside attention (turns.cuh): while groups attend to the first batches, three warps that have nothing else to do
// convert K and V of the others, for the next launch. What the tensor cores leave of the memory's time is enough.
//
// Each thread has DEPTH chunks of K and V on their way, in shared memory: that takes few registers (cp.async).

#include "convert.cuh"

#if GROUPS
constexpr int HELPERS = 96, DEPTH = 4;
constexpr unsigned HELPERS_BYTES = DEPTH * 4 * HELPERS * 16;

// Batches `from` and later, by thread `me` of the helpers of all blocks of this launch.
__device__ __forceinline__ void convert_behind(const Params& p, int from, unsigned at, unsigned me) {
    const unsigned rows = ceil_div(p.Nk, BC) * BC, end = p.batches * rows * CHUNKS;
    constexpr unsigned step = MOST_BLOCKS * HELPERS;  // as many blocks as this launch has
    // Parts 0 and 1 are the halves of a chunk of K, 2 and 3 of V.
    auto place = [&](unsigned slot, int part) { return at + ((slot % DEPTH * 4 + part) * HELPERS + me) * 16; };
    auto ask = [&](unsigned e, unsigned slot) {
        const unsigned all = e / CHUNKS, batch = all / rows, row = all - batch * rows;
        UNROLL for (int part = 0; part < 4; part++) {
            const unsigned column = e % CHUNKS * 8 + part % 2 * 4;
            const float* matrix = part < 2 ? row_of(p.k, batch, row) : row_of(p.v, batch, row);
            copy16_async(place(slot, part), matrix + column, e < end && row < p.Nk && column < D);
        }
        group_copies();
    };
    unsigned e = from * rows * CHUNKS + blockIdx.x * HELPERS + me;  // a warp's lanes pass the end together
    WarpAbsmax found;
#pragma unroll 1
    for (int n = 0; n < DEPTH - 1; n++) ask(e + n * step, n);
#pragma unroll 1
    for (unsigned slot = 0; e < end; e += step, slot++) {
        ask(e + (DEPTH - 1) * step, slot + DEPTH - 1);
        copies_arrived_but<DEPTH - 1>();
        const unsigned all = e / CHUNKS;
        char* to = p.tiles + all / BC * (long long)STAGE + swizzle(all % BC, e % CHUNKS);
        float sum = SQUARES_FROM;
        unsigned top = 0;
        UNROLL for (int part = 0; part < 4; part++) {
            const Four x = load_shared(place(slot, part));
            const float factor = part < 2 ? 1 : V_FACTOR;
            const HiLo a = split_hi_lo(x.v[0] * factor, x.v[1] * factor), b = split_hi_lo(x.v[2] * factor, x.v[3] * factor);
            char* half = to + part % 2 * 8 + part / 2 * 2 * PIECE;
            *(uint2*)half = uint2{a.hi, b.hi};
            if (part < 2) *(uint2*)(half + PIECE) = uint2{a.lo, b.lo};
            UNROLL for (int e = 0; e < 4; e++) {
                top = max(top, abs_bits(x.v[e]));
                if (part < 2) sum = add_square(sum, x.v[e]);
            }
            asm volatile("" ::: "memory");
            if (part == 1) found.add(K_SQUARES, row_squares<CHUNKS>(sum)), found.add(K_TOP, top), top = 0;
            if (part == 3) found.add(V_TOP, top);
        }
    }
    copies_arrived();
    __syncwarp();
    found.note(p.absmax, WarpAbsmax::before(p.absmax));
}
#endif  // GROUPS
