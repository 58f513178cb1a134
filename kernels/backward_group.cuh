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
// sum += P streamed.
template <int BC> __device__ __forceinline__ void ask_sums(Sums& sum, const Weights<BC>& P, unsigned tile_at) {
    group_begin();
    const unsigned b = matrix_at(tile_at, BC * 128);
    UNROLL for (int n = 0; n < BC / 16; n++) wgmma_rows(sum, P[n], descriptor(b + n * 128));
    group_end();
}
template <int N> __device__ __forceinline__ void round_weights(const float (&S)[N][4], unsigned (&P)[N / 2][4]) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int h = 0; h < 2; h++)
        P[n / 2][n % 2 * 2 + h] = pack(S[n][2 * h], S[n][2 * h + 1]);
}
// `otherwise` where the mask is: from column `edge` on where columns are keys, below it where they are queries; of the row eight
// below, `edge_below`. Columns are counted from this thread's first.
template <bool KEYS, int N> __device__ __forceinline__ void mask(float (&S)[N][4], int edge, int edge_below, float otherwise) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) {
        const int column = n * 8 + e % 2, limit = e / 2 ? edge_below : edge;
        if (KEYS ? column < limit : column >= limit) S[n][e] = otherwise;
    }
}

// What a group computes of a tile: scores and dP, from them P and dS, and what these add to the sums.
template <class G> struct Group {
    static constexpr int BC = G::BC;
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
    // From scores that have come and dP that is under way: what the tile adds to the sums is asked for.
    __device__ __forceinline__ void finish(const BackwardParams& p, const G& memory, unsigned n, bool masked, int edge,
                                           int edge_below) {
        const unsigned stats_at = memory.stats(n);
        if (masked) mask<G::KEYS>(S, edge, edge_below, MINUS_INFINITY);
        UNROLL for (int i = 0; i < BC / 8; i++) UNROLL for (int h = 0; h < 2; h++) {
            const float4 stats = stats_of(stats_at, i, h);
            S[i][2 * h] = exp2_fast(fmaf(S[i][2 * h], p.log2_scale, stats.x));
            S[i][2 * h + 1] = exp2_fast(fmaf(S[i][2 * h + 1], p.log2_scale, stats.z));
        }
        if (G::KEYS) {
            round_weights(S, P);
            ask_sums<BC>(second, P, memory.tile(n, 1));
            group_wait<1>();
        } else {
            group_wait<0>();
        }
        keep(dP);
        UNROLL for (int i = 0; i < BC / 8; i++) UNROLL for (int h = 0; h < 2; h++) {
            const float4 stats = stats_of(stats_at, i, h);
            const bool rounded = G::KEYS && i >= G::PRECISE;
            const float2 weights = rounded ? unpack(P[i / 2][i % 2 * 2 + h]) : make_float2(S[i][2 * h], S[i][2 * h + 1]);
            dP[i][2 * h] = weights.x * (dP[i][2 * h] - stats.y);
            dP[i][2 * h + 1] = weights.y * (dP[i][2 * h + 1] - stats.w);
        }
        if (masked) mask<G::KEYS>(dP, edge, edge_below, 0);
        round_weights(dP, dS);
        ask_sums<BC>(first, dS, memory.tile(n, 0));
    }
    __device__ __forceinline__ void end() {
        group_wait<0>();
        keep_sums();
    }
};
