// backward_wgmma: dQ, dK and dV of fp16 or bf16 numbers on Hopper, the same bits every run: backward's two passes by warpgroups.
//
// Idea:     A producer warp issues copies of tiles; consumers, groups of four warps, own 64 rows each, of Q and dO (backward_dq) or of K and V
//           (backward_dkdv), and multiply (wgmma) what is streamed past them. A group has its scores with the owned rows down:
//           P and dS are at once the left operands of the sums, from registers, and never pass through shared memory. While one
//           consumer takes exponentials, the tensor cores compute for the others. Of more than 128 columns, registers do not hold
//           a group's sums of dK and of dV: two groups own the same 64 keys in backward_dkdv. One computes scores and P, and adds
//           up dV; the other one computes dP, gets P through shared memory, and adds up dK.
// Geometry: As many blocks as there are multiprocessors; each takes task after task of 64 owned rows a group, of more than 128
//           columns the next one that no block has taken. Causal: tiles behind the diagonal are not touched, the longest tasks
//           come first, and only tiles at the diagonal pay for a mask.
// Shared:   Owned rows, 4 p bytes each; buffers for tiles of two streamed matrices, p = d rounded up to a multiple of 64; P, twice,
//           where two groups own the same keys; barriers.
// Limits:   Compute capability 9.0 and no other. d a multiple of 8 up to 256; rows of 16-byte chunks. V may have fewer columns, DV.
// Source:   Dao et al., FlashAttention (2022), algorithm 4; Shah et al., FlashAttention-3 (2024): roles, scores with keys down.
// Before:   backward, whose two passes these are; half, whose copies, groups and products these are.

#include "backward_wgmma.cuh"

extern __shared__ __align__(1024) float4 shared[];

using QueriesOwned = Geometry<false, DQ_GROUPS, DQ_TILE, DQ_STAGES, DQ_AHEAD>;
using KeysOwned = Geometry<true, DKDV_GROUPS, DKDV_TILE, DKDV_STAGES, DKDV_AHEAD, 0, DKDV_TOGETHER>;

// `group`: of those that own different rows.
template <class Work, class G> __device__ __forceinline__ void multiply_tiles(const TiledParams& p, const G& memory, int group) {
    constexpr int BC = G::BC;
    const int thread_row = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    unsigned consumed = 0, tasks = 0;
    [[maybe_unused]] unsigned met = 0;
    each_task_of_group(p, memory, group, [&](const Task& t) {
        const int row = t.row0 + thread_row, group_row = t.row0 + group * 64;
        const auto& w = work_of(p, t);
        Work work;
        if (Work::FIRST) clear(work.first);
        if (Work::SECOND) clear(work.second);
        if (!G::KEYS) UNROLL for (int h = 0; h < 2; h++) {
#if SEQUENCES
            const float2* stats = p.stats + (long long)t.own_head * p.stats_rows + t.span.query_tile * DKDV_TILE;
#else
            const float2* stats = p.stats + ((long long)t.batch * p.heads + t.own_head) * p.stats_rows;
#endif
            work.row_stats[h] = row + 8 * h < w.Nq ? stats[row + 8 * h] : make_float2(MINUS_INFINITY, 0);
        }
        // The tiles [begin, end) of each head are this group's; of these [full, full_end) need no mask.
        int begin = t.first, end = t.end, full, full_end;
        if (G::KEYS) {
            if (CAUSAL) begin = min(max(begin, (group_row - w.causal_offset) / BC), end - 1);
            if (WINDOW) end = min(end, max(begin + 1, ceil_div(end_row_of(w, group_row + 63), BC)));
            full = CAUSAL ? ceil_div(max(0, group_row + 63 - w.causal_offset), BC) : 0;
            full_end = WINDOW ? end_row_of(w, group_row) / BC : end;
        } else {
            if (CAUSAL) end = min(end, max(1, ceil_div(group_row + 64 + w.causal_offset, BC)));
            if (WINDOW) begin = min(max(begin, first_key_of(w, group_row) / BC), end - 1);
            full = ceil_div(first_key_of(w, group_row + 63), BC);
            full_end = (CAUSAL ? max(0, min(w.Nk, group_row + w.causal_offset + 1)) : w.Nk) / BC;
        }
        // SEQUENCES: what lies behind a sequence's last row or key may be infinite. All groups put zeros there; with V, 0 has no product.
        auto wait = [&](int j) {
            memory.wait(consumed);
#if SEQUENCES
            const int left = (G::KEYS ? w.Nq : w.Nk) - j * BC;
            if (left >= BC) return;
            clear_rows<BC, 128 * G::GROUPS>(memory.tile(consumed, 0), left);
            if (G::KEYS) clear_rows<BC, 128 * G::GROUPS, V_SUBTILES>(memory.tile(consumed, 1), left);
            meet(memory.cleared(), met);
#endif
        };
        if (!CLAIMS) mbarrier_wait(memory.own_full(group), tasks++ % 2);
        for (int head = 0; head < t.heads; head++) {
            if (CAUSAL && (WINDOW || G::KEYS) && !G::TOGETHER)
#pragma unroll 1
                for (int j = t.first; j < begin; j++, consumed++) wait(j), memory.release(consumed);
#pragma unroll 1
            for (int j = begin; j < end; j++, consumed++) {
                wait(j);
                work.begin(memory, group, consumed);
                if (G::AHEAD && j > begin) memory.release(consumed - 1);
                auto seen = [&](int row) -> Seen {
                    if (G::KEYS) return {row - w.causal_offset, WINDOW ? row - w.causal_offset + w.window : 0};
                    return {first_key_of(w, row), CAUSAL ? min(w.Nk - 1, row + w.causal_offset) + 1 : w.Nk};
                };
                const bool masked = (G::KEYS ? CAUSAL && j < full : j >= full_end) || (WINDOW && (j < full || j >= full_end));
                const int from = j * BC + column;
                const TilePlace at{t.batch, G::KEYS ? t.head + head : t.own_head, row, from};
                work.finish(w, memory, consumed, masked, seen(row).after(from), seen(row + 8).after(from), at);
                if (!G::AHEAD) work.end(), memory.release(consumed);
            }
            if (G::AHEAD) work.end(), memory.release(consumed - 1);
            if (CAUSAL && (WINDOW || !G::KEYS) && !G::TOGETHER)
#pragma unroll 1
                for (int j = end; j < t.end; j++, consumed++) wait(j), memory.release(consumed);
        }
        if (threadIdx.x % 32 == 0) mbarrier_arrive(memory.own_empty(group));
        if (G::KEYS) {
            if (Work::FIRST) store(work.first, w.dk, t.batch, t.own_head, row, w.Nk, p.scale);
            if (Work::SECOND) store<DV>(work.second, w.dv, t.batch, t.own_head, row, w.Nk, G::OVER_BIAS);
        } else {
            store(work.first, w.dq, t.batch, t.own_head, row, w.Nq, p.scale);
        }
    });
}

template <class G> __device__ __forceinline__ void pass(const TiledParams& p, const PassMaps& maps) {
    const G memory{shared_start(shared)};
    if (threadIdx.x == 0) memory.make_barriers();
    __syncthreads();
    const int group = warpgroup_index();
    if (group == 0) {
        dealloc_registers<G::COPY_REGISTERS>();
        if (threadIdx.x == 0) copy_tiles(p, maps, memory);
    } else {
        alloc_registers<G::REGISTERS>();
        if (!G::TOGETHER) multiply_tiles<Group<G>>(p, memory, group - 1);
        else if (group == 1) multiply_tiles<Group<G, false, true>>(p, memory, 0);
        else multiply_tiles<Group<G, true, false>>(p, memory, 0);
    }
}

extern "C" __global__ void __launch_bounds__(QueriesOwned::BLOCK, 1) backward_dq(const __grid_constant__ TiledParams p) {
    pass<QueriesOwned>(p, p.dq_maps);
}
extern "C" __global__ void __launch_bounds__(KeysOwned::BLOCK, 1) backward_dkdv(const __grid_constant__ TiledParams p) {
    pass<KeysOwned>(p, p.dkdv_maps);
}
extern "C" __global__ void LAUNCH_BOUNDS backward_stats(const __grid_constant__ TiledParams p) {
    if (CLAIMS && blockIdx.x == 0 && threadIdx.x < 2) p.counts[threadIdx.x] = 0;
    compute_stats<KeysOwned::BC>(p);
}
