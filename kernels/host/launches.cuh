// How many blocks a kernel is launched with, into how many parts the keys are cut, and how much scratch that takes.
// hw4cli/compute/variants.py has the same formulas; a test compares both on all cases. Plain C++, so that the test needs no GPU.

#pragma once
#include <algorithm>

struct Tile {
    int br, bc, blocks;  // rows and keys of a tile; blocks that a multiprocessor holds at once
    int longest, cost;   // keys of a part at most, if that takes no more than MOST_PARTS; what a part costs, in keys
};

constexpr int MOST_PARTS = 8;
constexpr long long RANGE_BYTES = 128;  // of scratch, where split leaves the largest |Q|, |K| and |V|

inline long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

// Blocks of rows in all batches.
inline long long row_blocks(const Tile& tile, int B, int N) { return B * ceil_div(N, tile.br); }

// The keys of all batches, as whole tiles.
inline long long tiled_keys(const Tile& tile, int B, int N) { return B * ceil_div(N, tile.bc) * tile.bc; }

// Of the launch that makes the keys' terms, eight elements a thread four times.
inline long long convert_blocks(const Tile& tile, int B, int N, int d, int threads) {
    return ceil_div(tiled_keys(tile, B, N) * d / 8, 4 * threads);
}

// Of the launch that adds up the parts, four elements of O a thread.
inline long long combine_blocks(int B, int N, int d, int threads) {
    return ceil_div((long long)B * N * d / 4, threads);
}

// So many parts that none is too long, as long sums lose digits, and that no multiprocessor idles: the share of the time
// in which they all work, where r blocks alone on a multiprocessor run at a rate of 1 - 0.17/r², less what parts cost.
inline int parts(const Tile& tile, int B, int N, int sms) {
    const long long blocks = row_blocks(tile, B, N);
    const int most = (int)std::clamp(ceil_div(N, tile.bc) / 8, 1ll, (long long)MOST_PARTS);
    const int least = (int)std::min((long long)most, ceil_div(N, tile.longest));
    const auto efficiency = [&](int parts) {
        const long long waves = ceil_div(blocks * parts, sms), rest = waves % tile.blocks;
        const double alone = rest ? rest / (1 - 0.17 / (rest * rest)) : 0;
        return (double)(blocks * parts) / sms / (waves - rest + alone) / (1 + (double)(tile.cost * parts) / N);
    };
    double best = 0;
    for (int parts = least; parts <= most; ++parts) best = std::max(best, efficiency(parts));
    int fewest = least;
    while (efficiency(fewest) < 0.98 * best) ++fewest;
    return fewest;
}

// Bytes of scratch: the range, the keys' terms (`converted` bytes a key), for each row and part two numbers, as whole 16
// bytes, and O if there are parts.
inline long long scratch_bytes(const Tile& tile, int B, int N, int d, int parts, int converted) {
    const long long rows = (long long)parts * B * N, stats = ceil_div(rows * 8, 16) * 16;
    return RANGE_BYTES + tiled_keys(tile, B, N) * converted + stats + (parts > 1 ? rows * d * 4 : 0);
}
