#pragma once
// Q_AHEAD: Q of the next task of a block whose groups take turns (turns.cuh). While the groups attend to this task, three warps
// beside the one that copies tiles find out which one comes next, and bring its Q to shared memory in the pieces that products
// take: hi, and lo or, for INT8, integers. So between two tasks no group divides, loads or converts.

#include "hopper.cuh"
#include "parts.cuh"

#if GROUPS
// Integers are read until a task ends, so there is room for those of two tasks; the other pieces go to registers when it begins.
constexpr int SECONDS = INT8 + Q_AHEAD;
constexpr unsigned Q_PIECE = BR * ROW, Q_BYTES = (SECONDS + Q_AHEAD) * Q_PIECE;
constexpr int BRINGING = 96;  // threads that bring

// At `at` lo or integers, then hi. Two barriers: the next task's pieces have come; all threads have taken those of this one, and
// the one that copies tiles knows which it is: so nobody is two parts behind, for whom a barrier's phase would be ambiguous.
struct Queries {
    unsigned at, come;
    __device__ __forceinline__ unsigned hi() const { return at + SECONDS * Q_PIECE; }
    __device__ __forceinline__ unsigned second(unsigned n) const { return at + (SECONDS > 1 ? n % SECONDS * Q_PIECE : 0); }
    __device__ __forceinline__ unsigned taken() const { return come + 8; }
    __device__ __forceinline__ void prepare() const { barrier_init<BRINGING>(come), barrier_init<WORKERS + 1>(taken()); }

    // Part n of a block, as soon as it is known, and its Q is there.
    __device__ __forceinline__ TaskPart wait_for_part(const Params& p, unsigned n) const {
        if (Q_AHEAD && n > 0) barrier_wait(come, n % 2 ^ 1);
        return part_at(p, n);
    }
    // Each thread for itself, as each has read: Q, and what was kept of the part.
    __device__ __forceinline__ void release() const {
        if (Q_AHEAD) barrier_arrive(taken());
    }
#if Q_AHEAD
    // A warp's fragments of what goes to registers.
    __device__ __forceinline__ void take(RowState& r, unsigned n) const {
        const int row = warp_row() + threadIdx.x % 16, c = threadIdx.x % 32 / 16;
        UNROLL for (int step = 0; step < STEPS; step++) {
            load_matrices(r.Q[0][0][step], hi() + swizzle(row, step * 2 + c));
            if (!INT8) load_matrices(r.Q[1][0][step], second(n) + swizzle(row, step * 2 + c));
        }
    }
    // Columns c to c + 3 of row `row` of part n.
    __device__ __forceinline__ void store(const Params& p, float4 x, unsigned n, int row, int c) const {
        const unsigned to = swizzle(row, c / 8) + c % 8 * 2;
#if INT8
        const HiIntegers a = split_integers(x.x, x.y), b = split_integers(x.z, x.w);
        store_shared(second(n) + swizzle_integer(row, c, false), __byte_perm(a.lo, b.lo, 0x5410));
        store_shared(second(n) + swizzle_integer(row, c, true), __byte_perm(a.whole, b.whole, 0x5410));
#else
        const float to_log2 = p.scale * LOG2E;
        const HiLo a = split_hi_lo(x.x * to_log2, x.y * to_log2), b = split_hi_lo(x.z * to_log2, x.w * to_log2);
        store_shared(second(n) + to, uint2{a.lo, b.lo});
#endif
        store_shared(hi() + to, uint2{a.hi, b.hi});
    }
    // Brings row `row` of part n, and each row BRINGING further; so many rows begin at `q`. A thread asks for four columns before
    // it stores the four before; not so for INT8, whose tasks are longer, and which has no register to spare.
    __device__ __forceinline__ void bring(const Params& p, const float* q, int rows, unsigned n, int row, Largest& found) const {
        auto load = [&](bool inside) { return inside ? *(const float4*)q : float4{0, 0, 0, 0}; };
        q += row * D;
        float4 next;
        if (!INT8) next = load(row < rows);
#pragma unroll 1
        for (; row < BR; row += BRINGING) {
            float sum = SQUARES_FROM;
#pragma unroll 1
            for (int c = 0; c < D; c += 4) {
                const float4 x = INT8 ? load(row < rows) : next;
                const bool last = c + 4 == D;
                q += last ? (BRINGING - 1) * D + 4 : 4;
                if (!INT8) next = load((last ? row + BRINGING : row) < rows);
                found.top = max(found.top, max(max(abs_bits(x.x), abs_bits(x.y)), max(abs_bits(x.z), abs_bits(x.w))));
                sum = add_square(add_square(add_square(add_square(sum, x.x), x.y), x.z), x.w);
                store(p, x, n, row, c);
            }
            found.squares = max(found.squares, __float_as_uint(sum - SQUARES_FROM));
        }
    }
    // Columns past D are zeros: as the first part's integers have them already, it is enough to say so for the second part.
    __device__ __forceinline__ void pad(const Params& p, int row) const {
#pragma unroll 1
        for (; row < BR && D < WIDTH; row += BRINGING)
            for (int c = D; c < WIDTH; c += 4) store(p, float4{0, 0, 0, 0}, 1, row, c);
    }
    // What the three warps do.
    __device__ __forceinline__ void bring_all(const Params& p) const {
        const int thread = threadIdx.x - WORKERS - 32;
        WarpAbsmax all;
        pad(p, thread);
        for (unsigned n = 1;; n++) {
            const TaskPart t = find_part(p, n);
            const float* q = row_of(p.q, t.batch, t.row0);
            if (t.any && thread == 0) prefetch_bulk(q, min(BR, p.Nq - t.row0) * D * 4);
            barrier_wait(taken(), n % 2 ^ 1);
            if (thread == 0) keep_part(n, t);
            if (t.any) {
                Largest found;
                bring(p, q, p.Nq - t.row0, n, thread, found);
                all.add(Q_TOP, found);
            }
            fence_async();
            barrier_arrive(come);
            if (!t.any) break;
        }
        all.note(p.absmax, WarpAbsmax::before(p.absmax));
    }
#endif  // Q_AHEAD
};
#endif  // GROUPS
