#pragma once
// What a group of four warps computes of a tile that is streamed past its 64 owned rows (backward_wgmma, backward_once).

#include "backward_wgmma.cuh"

template <int BC> using Scores = float[BC / 8][4];
template <int BC> using Weights = unsigned[BC / 16][4];

// S = own streamed^T, for 64 owned rows.
template <int BC> __device__ __forceinline__ void ask_scores(Scores<BC>& S, unsigned own_at, unsigned tile_at) {
    const unsigned a = matrix_at(own_at, 16), b = matrix_at(tile_at, 16);
    UNROLL for (int n = 0; n < STEPS; n++)
        wgmma(S, descriptor(a + (n / 4 * 64 * 128 + n % 4 * 32) / 16),
              descriptor(b + (n / 4 * BC * 128 + n % 4 * 32) / 16), n > 0);
    group_end();
}
// Below, the blocks [FROM, TO) of a tile are meant, of 8 streamed rows.
// sum += P streamed.
template <int BC, int FROM, int TO> __device__ __forceinline__ void ask_sums(Sums& sum, const Weights<BC>& P, unsigned tile_at) {
    static_assert(FROM % 2 == 0 && TO % 2 == 0, "products of 16 rows");
    if (FROM == TO) return;
    group_begin();
    const unsigned b = matrix_at(tile_at, BC * 128);
    UNROLL for (int n = FROM / 2; n < TO / 2; n++) wgmma_rows(sum, P[n], descriptor(b + n * 128));
    group_end();
}
template <int FROM, int TO, int N>
__device__ __forceinline__ void round_weights(const float (&S)[N][4], unsigned (&P)[N / 2][4]) {
    UNROLL for (int n = FROM; n < TO; n++) UNROLL for (int h = 0; h < 2; h++)
        P[n / 2][n % 2 * 2 + h] = pack(S[n][2 * h], S[n][2 * h + 1]);
}
// `otherwise` where the mask is: from column `edge` on where columns are keys, below it where they are queries; of the row eight
// below, `edge_below`. Columns are counted from this thread's first.
template <bool KEYS, int FROM, int TO, int N>
__device__ __forceinline__ void mask(float (&S)[N][4], int edge, int edge_below, float otherwise) {
    UNROLL for (int n = FROM; n < TO; n++) UNROLL for (int e = 0; e < 4; e++) {
        const int column = n * 8 + e % 2, limit = e / 2 ? edge_below : edge;
        if (KEYS ? column < limit : column >= limit) S[n][e] = otherwise;
    }
}

// What a group computes of a tile: scores and dP, from them P and dS, and what these add to the sums.
template <class G> struct Group {
    static constexpr int BC = G::BC, ALL = BC / 8, EARLY = G::EARLY;
    Sums first, second;  // dQ; or dK and dV
    Scores<BC> S, dP;
    Weights<BC> P, dS;
    float2 row_stats[2];  // of the owned rows, unless they are keys

    __device__ __forceinline__ void keep_sums() {
        keep(first);
        if (G::KEYS) keep(second);
    }
    __device__ __forceinline__ float4 stats_of(unsigned stats_at, int n, int h) const {
        if (G::KEYS) {
            const Four x = load_shared(stats_at + n * 64 + threadIdx.x % 4 * 16);
            return {x.v[0], x.v[1], x.v[2], x.v[3]};
        }
        return {row_stats[h].x, row_stats[h].y, row_stats[h].x, row_stats[h].y};
    }
    // Asks for a tile's scores and dP, waits for the sums of the tile before, and for the scores.
    __device__ __forceinline__ void begin(const G& memory, int group, unsigned n) {
        group_begin();
        ask_scores<BC>(S, memory.own(group, 0), memory.tile(n, 0));
        ask_scores<BC>(dP, memory.own(group, 1), memory.tile(n, 1));
        group_wait<1>();
        keep(S), keep_sums();
    }
    // What blocks of a tile add to dV.
    template <int FROM, int TO> __device__ __forceinline__ void add_weights(const G& memory, unsigned n) {
        round_weights<FROM, TO>(S, P);
        ask_sums<BC, FROM, TO>(second, P, memory.tile(n, 1));
    }
    // dS, from weights before they are rounded.
    template <int FROM, int TO>
    __device__ __forceinline__ void make_dS(unsigned stats_at, bool masked, int edge, int edge_below) {
        UNROLL for (int i = FROM; i < TO; i++) UNROLL for (int h = 0; h < 2; h++) {
            const float4 stats = stats_of(stats_at, i, h);
            dP[i][2 * h] = S[i][2 * h] * (dP[i][2 * h] - stats.y);
            dP[i][2 * h + 1] = S[i][2 * h + 1] * (dP[i][2 * h + 1] - stats.w);
        }
        if (masked) mask<G::KEYS, FROM, TO>(dP, edge, edge_below, 0);
        round_weights<FROM, TO>(dP, dS);
    }
    // From scores that have come and dP that is under way: what the tile adds to the sums is asked for.
    __device__ __forceinline__ void finish(const BackwardParams& p, const G& memory, unsigned n, bool masked, int edge,
                                           int edge_below) {
        const unsigned stats_at = memory.stats(n);
        if (masked) mask<G::KEYS, 0, ALL>(S, edge, edge_below, MINUS_INFINITY);
        UNROLL for (int i = 0; i < ALL; i++) UNROLL for (int h = 0; h < 2; h++) {
            const float4 stats = stats_of(stats_at, i, h);
            S[i][2 * h] = exp2_fast(fmaf(S[i][2 * h], p.log2_scale, stats.x));
            S[i][2 * h + 1] = exp2_fast(fmaf(S[i][2 * h + 1], p.log2_scale, stats.z));
        }
        if (G::KEYS) add_weights<0, EARLY>(memory, n);
        group_wait<(G::KEYS && EARLY > 0)>();
        keep(dP);
        make_dS<EARLY, ALL>(stats_at, masked, edge, edge_below);
        if (G::KEYS) add_weights<EARLY, ALL>(memory, n);
        make_dS<0, EARLY>(stats_at, masked, edge, edge_below);
        ask_sums<BC, 0, ALL>(first, dS, memory.tile(n, 0));
    }
    __device__ __forceinline__ void end() {
        group_wait<0>();
        keep_sums();
    }
};
