#include "polling.h"
#include "publication.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace emu {
int log2_lanes = 5;
static uint32_t last_epoch = 1;  // of all blocks
uint32_t epoch = 1, launch_epoch, block_epoch, own[MEMBERS];
bool clocks;
static uint32_t synced[MAX_THREADS];                       // each thread's time when its warp last met
static std::vector<uint32_t> known;                        // MAX_THREADS rows of MEMBERS
static std::vector<uint32_t*> made;                        // clocks of this block
static std::vector<std::pair<uint32_t, unsigned>> blocks;  // of this launch: the first epoch, and the number

uint32_t* knows(int t) { return &known[(size_t)t * MEMBERS]; }
bool same_warp(unsigned a, unsigned b) { return a >> log2_lanes == b >> log2_lanes; }
void need_clocks() {
    if (clocks) return;
    clocks = true;
    known.assign((size_t)threads_of_block * MEMBERS, 0);
    for (unsigned t = 0; t < threads_of_block; t++)
        for (unsigned u = t / lanes * lanes; u < std::min(threads_of_block, (t / lanes + 1) * lanes); u++)
            knows(t)[u] = synced[u];
}
uint32_t* row(Clock& clock) {
    if (!clock.of) {
        clock.of = (uint32_t*)calloc(MEMBERS, sizeof(uint32_t));
        made.push_back(clock.of);
    }
    return clock.of;
}
// Most blocks have a few hundred threads: the places of others in a clock stay 0.
void merge(uint32_t* to, const uint32_t* from) {
    for (unsigned t = 0; t < threads_of_block; t++) to[t] = std::max(to[t], from[t]);
    for (unsigned a = MAX_THREADS; a < MEMBERS; a++) to[a] = std::max(to[a], from[a]);
}
static void release_of(int t, Clock& clock) {
    merge(row(clock), knows(t));
    row(clock)[t] = std::max(row(clock)[t], own[t]);
    own[t]++;
}
void release(Clock& clock) {
    need_clocks();
    release_of(current, clock);
}
void acquire(const Clock& clock) {
    need_clocks();
    if (clock.of) merge(knows(current), clock.of);
    has_heard(current);
}
void join(Clock& to, const Clock& from) {
    if (from.of) merge(row(to), from.of);
}
// A shadow has room for so many epochs; then all that was before is forgotten, and races with it.
constexpr uint32_t EPOCHS = (1u << 24) - 1;
static void next_epoch() {
    epoch = ++last_epoch;
    if (epoch >= EPOCHS) {
        forget_touches();
        epoch = last_epoch = 3, launch_epoch = 1, block_epoch = 2;
        blocks.assign(1, {block_epoch, block_of_grid});
    } else if (blocks.empty() || blocks.back().second != block_of_grid) {
        blocks.emplace_back(epoch, block_of_grid);
    }
    begin_rows();
}
void order_block() {
    next_epoch();
    all_have_met();
    if (!clocks) return;
    uint32_t agents[AGENTS] = {};  // threads are ordered by the epoch; agents that somebody waited for, by this
    for (unsigned t = 0; t < threads_of_block; t++)
        for (unsigned a = 0; a < AGENTS; a++) agents[a] = std::max(agents[a], knows(t)[MAX_THREADS + a]);
    for (unsigned t = 0; t < threads_of_block; t++) memcpy(knows(t) + MAX_THREADS, agents, sizeof agents);
}
void order_threads(const int* who, unsigned n, Clock& arrived) {
    need_clocks();
    for (unsigned i = 0; i < n; i++) release_of(who[i], arrived);
    for (unsigned i = 0; i < n; i++) merge(knows(who[i]), row(arrived)), has_heard(who[i]);
}
void order_warp(unsigned first, uint64_t group, bool all) {
    if (!all) need_clocks();
    int who[64];
    unsigned n = 0;
    for (int i = 0; i < lanes; i++)
        if (group >> i & 1) who[n++] = (int)first + i;
    if (clocks) {
        Clock clock;
        order_threads(who, n, clock);
    }
    for (unsigned i = 0; i < n && all; i++) synced[who[i]] = own[who[i]]++;
    for (unsigned i = 0; i < n; i++) has_heard(who[i]);
}
uint32_t time_of_warp(unsigned thread) { return synced[thread]; }
bool before(int who, uint32_t time, int t) {
    return who == t || (same_warp(who, t) && time <= synced[who]) || (clocks && knows(t)[who] >= time);
}
unsigned block_at(uint32_t at) {
    const auto after = std::upper_bound(blocks.begin(), blocks.end(), std::make_pair(at, ~0u));
    return after == blocks.begin() ? 0 : (after - 1)->second;
}

void launch_begins() {
    log2_lanes = lanes == 64 ? 6 : 5;
    next_epoch();
    launch_epoch = epoch;
    blocks.clear(), interleaved = false;
    forget_publications(true), forget_polling(true);
}
bool of_other_block(uint32_t at) {
    return at < block_epoch || (interleaved && at != epoch && block_at(at) != block_of_grid);
}
void order_grid() {
    next_epoch();
    launch_epoch = epoch;  // all that was touched before is past
    settle_freshness();
}

// ---- Blocks that take turns

namespace {
struct ClocksOfBlock {
    uint32_t epoch = 0, block_epoch = 0;
    bool clocks = false;
    std::vector<uint32_t> own, synced, known;
    std::vector<uint32_t*> made;
};
}
static Kept<ClocksOfBlock> kept_order;
static void exchange_order(unsigned n) {
    ClocksOfBlock& one = kept_order.at(n);
    std::swap(epoch, one.epoch), std::swap(block_epoch, one.block_epoch), std::swap(clocks, one.clocks);
    known.swap(one.known), made.swap(one.made);
    one.own.resize(MEMBERS), one.synced.resize(MAX_THREADS);
    std::swap_ranges(own, own + MEMBERS, one.own.begin()), std::swap_ranges(synced, synced + MAX_THREADS, one.synced.begin());
}
static AtSwitch order_at_switch(exchange_order);

void launch_ends() { end_of_touches(); }
void block_begins() {
    next_epoch();
    block_epoch = epoch;
    forget_publications(false), forget_polling(false), forget_flags();
    clocks = false;
    for (uint32_t* clock : made) free(clock);
    made.clear();
    std::fill(own, own + MEMBERS, 1u), std::fill(synced, synced + MAX_THREADS, 0u);
}
}  // namespace emu
