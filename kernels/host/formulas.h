// How many blocks and splits a launch has, and where scratch memory is parted: hw4cli/plans/formulas.py in C++, function
// by function. tests/plans/test_native.py compares both on all cases, hundreds of other shapes, and several GPUs.

#pragma once
#include <algorithm>

constexpr long long FLOAT = 4;  // bytes
constexpr long long MOST_SPLITS = 8;
constexpr long long ENOUGH_BLOCKS = 256;

inline long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

inline long long row_blocks(long long B, long long N, long long BR) { return B * ceil_div(N, BR); }

inline long long key_tiles(long long B, long long N, long long BC) { return B * ceil_div(N, BC); }

inline long long convert_blocks(long long tiles, long long BC, long long width, long long chunks, long long threads) {
    const long long once = ceil_div(tiles * BC * width / 8, threads);
    return std::max(ceil_div(once, chunks), std::min(once, ENOUGH_BLOCKS));
}

inline long long combine_blocks(long long B, long long N, long long d, long long threads) {
    return ceil_div(B * N * d / 4, threads);
}

inline double efficiency(long long splits, long long blocks, long long N, long long resident, long long sms, long long cost) {
    const long long waves = ceil_div(blocks * splits, sms), rest = waves % resident;
    const double alone = rest ? rest / (1 - 0.17 / (rest * rest)) : 0.0;
    return (double)(blocks * splits) / sms / (waves - rest + alone) / (1 + (double)(cost * splits) / N);
}

inline long long split_count(long long blocks, long long N, long long BC, long long resident, long long sms, long long longest,
                             long long cost) {
    const long long most = std::max(1ll, std::min(MOST_SPLITS, ceil_div(N, BC) / 8));
    const long long least = std::min(most, ceil_div(N, longest));
    double best = 0;
    for (long long splits = least; splits <= most; splits++)
        best = std::max(best, efficiency(splits, blocks, N, resident, sms, cost));
    long long fewest = least;
    while (efficiency(fewest, blocks, N, resident, sms, cost) < 0.98 * best) fewest++;
    return fewest;
}

inline long long row_stats_bytes(long long rows, long long wanted) { return wanted ? ceil_div(2 * FLOAT * rows, 16ll) * 16 : 0; }

inline long long partial_o_bytes(long long rows, long long d, long long splits) { return splits > 1 ? FLOAT * rows * d : 0; }
