// What is launched for a file on a GPU, from what hw4cli/plans/native.py made of the kernels' plans. Plain C++, so that a
// test needs no GPU.

#pragma once
#include "formulas.h"
#include "plans.h"

constexpr int COUNT = sizeof CONFIGURATIONS / sizeof *CONFIGURATIONS;

// The columns of rows for kernels: d, or more where no kernel is for just so many, the rest zeros; 0 if d is none.
inline int columns_for(int d) {
    long long least = 0;
    for (const Configuration& c : CONFIGURATIONS)
        if (d >= 1 && c.d >= d && (!least || c.d < least)) least = c.d;
    return (int)least;
}

// The number of the next configuration, from `n` on, that is for such rows; COUNT if there is none. The last one is flash's.
inline int next_for(int n, int N, int d) {
    const int columns = columns_for(d);
    auto fits = [=](const Configuration& c) { return c.d == columns && c.least <= N && N <= c.most; };
    while (n < COUNT && !fits(CONFIGURATIONS[n])) n++;
    return n;
}

struct Launches {
    long long splits, convert, rows, combine;      // blocks of each launch; 0: none
    long long tiles, row_stats, partial_o, bytes;  // of scratch: where its parts begin, and all of it
};

inline Launches launches(const Configuration& c, int B, int N, int sms) {
    const long long blocks = row_blocks(B, N, c.BR), in_tiles = key_tiles(B, N, c.BC);
    Launches l{};
    l.splits = split_count(blocks, N, c.BC, c.resident, sms, c.longest, c.cost);
    l.convert = c.tile_bytes ? convert_blocks(in_tiles, c.BC, c.d, c.convert_chunks, c.convert_threads) : 0;
    l.rows = blocks * l.splits;
    l.combine = l.splits > 1 ? combine_blocks(B, N, c.d, c.combine_threads) : 0;
    const long long rows = l.splits * B * N;
    l.tiles = c.absmax_bytes;
    l.row_stats = l.tiles + in_tiles * c.tile_bytes;
    l.partial_o = l.row_stats + row_stats_bytes(rows, c.stats_wanted || l.splits > 1);
    l.bytes = l.partial_o + partial_o_bytes(rows, c.d, l.splits);
    return l;
}
