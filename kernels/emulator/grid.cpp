// Runs a grid on the CPU: one block after the other, of each block warp after warp, in one of three orders.
//
// A block of a whole program that waits for others (its threads look at words that nobody changes, or are at sync_grid)
// is put aside, and others take turns with it: those that have not begun first, as far as the GPU has room for more.
#include "counts.h"
#include "fibers.h"
#include "schedule.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern "C" {
Three hw4_blockIdx, hw4_blockDim, hw4_gridDim;
volatile int hw4_stop;  // set by another thread of the system: end soon
}

namespace emu {
int lanes = 32;
unsigned threads_of_block, dynamic_bytes, block_of_grid;
unsigned block() { return block_of_grid; }

uint64_t memory_changes, events;
static uint64_t counts[8];
uint64_t* block_count = counts;
constexpr unsigned VAIN_ROUNDS = 2000;
constexpr unsigned PATIENCE = 3, VAIN_TURNS = 600;  // rounds in vain of a block; turns in vain of all, and ten more of each
#if defined(EMU_PROGRAM)
constexpr bool CAN_WAIT = true;
#else
constexpr bool CAN_WAIT = false;
#endif
bool interleaved;

static AtBlockStart* at_start;
static AtBlockEnd* at_end;
AtBlockStart::AtBlockStart(void (*call)()) : call(call), next(at_start) { at_start = this; }
AtBlockEnd::AtBlockEnd(void (*call)()) : call(call), next(at_end) { at_end = this; }

static AtSwitch* at_switch;
AtSwitch::AtSwitch(void (*call)(unsigned)) : call(call), next(at_switch) { at_switch = this; }
static void exchange_block(unsigned kept_at) {
    for (AtSwitch* each = at_switch; each; each = each->next) each->call(kept_at);
}

// ---- All blocks meet

static unsigned grid_arrived, grid_met;                  // blocks that have come; how often all have met
static unsigned block_came, thread_came[MAX_THREADS];    // how often this block, its threads have come
static Kept<std::vector<unsigned>> kept_came;
static void exchange_came(unsigned n) {
    kept_came.exchange_array(n, thread_came, threads_of_block);
    std::vector<unsigned>& kept = kept_came.at(n);
    kept.resize(threads_of_block + 1);
    std::swap(block_came, kept[threads_of_block]);
}
static AtSwitch came_at_switch(exchange_came);
static void begin_came() { block_came = 0, std::fill(thread_came, thread_came + MAX_THREADS, 0u); }
static AtBlockStart came_at_start(begin_came);
static bool all_blocks_met(void* count) { return grid_met >= *(unsigned*)count; }
static uint64_t blocks_of_grid() { return (uint64_t)job->grid.x * job->grid.y * job->grid.z; }
void sync_grid(Site site) {
    if (!job->cooperative) {
        report("grid", "this_grid().sync() works in a launch by cudaLaunchCooperativeKernel alone", CALLER);
        stop_kernel();
    }
    barrier(site, 0, 0);
    unsigned mine = ++thread_came[current];
    if (block_came < mine) {
        block_came = mine;
        if (++grid_arrived == blocks_of_grid()) {
            grid_arrived = 0, grid_met++, memory_changes++, events++;
            if (watching) order_grid(), order_block();
        }
    }
    wait_until(site, all_blocks_met, &mine);
}

namespace {
struct Turns {  // the order in which warps, and lanes of one, run
    std::vector<unsigned> warps, lane;
    std::mt19937 random;
    bool shuffled;

    explicit Turns(unsigned seed)
        : warps((threads_of_block + lanes - 1) / lanes), lane(lanes), random(seed), shuffled(order == RANDOM) {
        std::iota(warps.begin(), warps.end(), 0u), std::iota(lane.begin(), lane.end(), 0u);
        if (order == REVERSE) std::reverse(warps.begin(), warps.end()), std::reverse(lane.begin(), lane.end());
    }
    void shuffle(std::vector<unsigned>& which) {
        if (shuffled) std::shuffle(which.begin(), which.end(), random);
    }
};
}
// Each warp runs until all its threads wait for others or have ended. Returns whether any thread ran.
static bool run_warps(Turns& turns) {
    bool any = false;
    turns.shuffle(turns.warps);
    const Turn of_warps{Turn::WARPS, block_of_grid, next_round(block_of_grid), 0, 0};
    if (scheduled) arrange(of_warps, turns.warps);
    for (unsigned warp : turns.warps) {
        bool ran = false;
        Turn of_lanes{Turn::LANES, block_of_grid, of_warps.round, warp, 0};
        if (scheduled) turn_begins(of_warps, warp);
        const unsigned first = warp * lanes, count = std::min<unsigned>(lanes, threads_of_block - first);
        bool ready;  // in lockstep, lanes that have given up their turn
        do {
            ready = false;
            turns.shuffle(turns.lane);
            if (scheduled) arrange(of_lanes, turns.lane);
            for (unsigned i : turns.lane) {
                if (i >= count || fibers[first + i].state != READY) continue;
                any = ran = true;
                if (scheduled) turn_begins(of_lanes, i);
                resume(first + i);
                if (scheduled) turn_ends(of_lanes, true);
                if (stopped) return true;
                ready |= fibers[first + i].state == READY;
            }
            if (scheduled) turns_over(of_lanes), of_lanes.pass++;
        } while ((ready || complete_warp(first, count)) && !stopped);
        if (scheduled) turn_ends(of_warps, ran);
        if (stopped) return true;
    }
    if (scheduled) turns_over(of_warps);
    return any;
}
static bool waits_for_blocks() {
    return std::any_of(fibers, fibers + threads_of_block,
                       [](const Fiber& fiber) { return fiber.state == WAITING && fiber.ready == all_blocks_met; });
}
static void begin_block() {
    for (unsigned t = 0; t < threads_of_block; t++) fibers[t].state = READY, fibers[t].spins_at = 0;
    for (AtBlockStart* each = at_start; each; each = each->next) each->call();
}
// Returns whether the block is over; else it waits for others.
static bool run_block(Turns& turns, bool has_others) {
    bool progress = true;
    uint64_t changes = memory_changes;
    unsigned vain = 0;  // rounds in which threads did nothing but look at words that nobody has changed
    while (progress && !stopped && !hw4_stop) {
        progress = run_warps(turns);
        if (stopped) break;
        bool met = complete_groups();
        if (!stopped) met |= complete_barriers();
        if (!stopped) met |= wake_waiting();
        const bool spun = !stopped && wake_spun();
        vain = spun && !met && memory_changes == changes ? vain + 1 : 0;
        changes = memory_changes;
        if (vain == PATIENCE && CAN_WAIT && has_others) return false;
        if (vain == VAIN_ROUNDS) {
            report_spinning();
            stopped = true;
        }
        progress |= met || spun;
    }
    if (stopped || hw4_stop) return true;
    const auto ended = [](const Fiber& fiber) { return fiber.state == DONE; };
    if (!std::all_of(fibers, fibers + threads_of_block, ended)) {
        if (waits_for_blocks() && has_others) return false;
        report_deadlock();
        stopped = true;
        return true;
    }
    for (AtBlockEnd* each = at_end; each; each = each->next) each->call();
    return true;
}

// ---- A launch

namespace {
struct Aside {  // a block that waits for others
    unsigned block, kept_at, met;
};
}
static void choose_block(unsigned block) {
    const Three& g = job->grid;
    block_of_grid = block;
    hw4_blockIdx = {block % g.x, block / g.x % g.y, block / g.x / g.y};
}
// Where the blocks wait that have begun: this one, and some of those aside.
static void report_waiting_blocks(const std::deque<Aside>& aside, uint64_t begun, uint64_t ended) {
    std::string text = "block " + std::to_string(block_of_grid) + ": " + where_threads_wait();
    std::string story = story_of_waiting();
    const unsigned mine = block_of_grid;
    constexpr size_t SHOWN = 2;
    for (size_t i = 0; i < std::min(aside.size(), SHOWN); i++) {
        exchange_block(aside[i].kept_at);  // what is exchanged comes back below
        choose_block(aside[i].block);
        text += "; block " + std::to_string(aside[i].block) + ": " + where_threads_wait();
        story += story_of_waiting();
        exchange_block(aside[i].kept_at);
    }
    choose_block(mine);
    if (aside.size() > SHOWN) text += "; and " + std::to_string(aside.size() - SHOWN) + " blocks more";
    if (ended) text += "; " + std::to_string(ended) + " have ended";
    if (const uint64_t left = blocks_of_grid() - begun)
        text += "; " + std::to_string(left) + " have not begun, as no more fit on the GPU at once";
    report("hang", ("the launch never ends, as its blocks wait for what none of them does: " + text).c_str());
    add_story("hang", 0, 0, story);
    stopped = true;
}
// Of the blocks that run, the number of one.
static unsigned number_of(uint64_t one) {
    const uint64_t all = blocks_of_grid(), three[] = {0, all / 2, all - 1};
    return (unsigned)(job->few && all > 3 ? three[one] : one);
}
static std::vector<unsigned> order_of_blocks(const Turn& turn, uint64_t blocks) {
    std::vector<unsigned> all(blocks);
    std::iota(all.begin(), all.end(), 0u);
    if (order == REVERSE) std::reverse(all.begin(), all.end());
    arrange(turn, all);
    return all;
}
static bool run_blocks(Turns& turns) {
    const uint64_t blocks = job->few ? std::min<uint64_t>(blocks_of_grid(), 3) : blocks_of_grid();
    std::deque<Aside> aside;
    std::vector<unsigned> free_places;
    uint64_t begun = 0, ended = 0, vain = 0, changes = memory_changes;
    const Turn of_blocks{Turn::BLOCKS, 0, 0, 0, 0};
    std::vector<unsigned> begin;  // in which order they do, if it is not the usual one
    if (scheduled) begin = order_of_blocks(of_blocks, blocks);
    while (ended < blocks && !stopped && !hw4_stop) {
        const bool begins = begun < blocks && aside.size() < job->resident;
        Aside mine{};
        if (begins) {
            mine.block = number_of(scheduled ? begin[begun] : order == REVERSE ? blocks - 1 - begun : begun);
            choose_block(mine.block);
            if (interleaved && !make_stacks()) return false;
            block_begins();
            EMU_COUNT(count_block());
            begin_block();
            begun++;
        } else {
            mine = aside.front();
            aside.pop_front();
            choose_block(mine.block);
            exchange_block(mine.kept_at);
            free_places.push_back(mine.kept_at);
            if (mine.met != grid_met && watching) order_block();
        }
        if (scheduled) turn_begins(of_blocks, mine.block, begins);
        const bool over = run_block(turns, blocks > 1);
        if (scheduled) turn_ends(of_blocks, begins);
        if (over) {
            *block_count = ++ended, vain = 0;
            continue;
        }
        vain = memory_changes == changes ? vain + 1 : 0;
        changes = memory_changes;
        const bool more = begun < blocks && aside.size() + 1 < job->resident;
        if (!more && vain > VAIN_TURNS + 10 * aside.size()) {
            report_waiting_blocks(aside, begun, ended);
            break;
        }
        if (free_places.empty()) free_places.push_back((unsigned)aside.size());
        mine.kept_at = free_places.back(), mine.met = grid_met;
        free_places.pop_back();
        exchange_block(mine.kept_at);
        aside.push_back(mine), interleaved = true;
    }
    if (scheduled) turns_over(of_blocks);
    return true;
}

Ended run_grid(const Grid& grid) {
    const Three &g = grid.grid, &b = grid.block;
    lanes = (int)grid.lanes, order = grid.order, dynamic_bytes = grid.shared;
    threads_of_block = b.x * b.y * b.z;
    hw4_blockDim = b, hw4_gridDim = g;
    if (threads_of_block > MAX_THREADS || !make_fibers(grid)) {
        job = nullptr;
        return NO_MEMORY;
    }
    locate_shared();
    launch_begins(), next_launch();
    EMU_COUNT(count_launch());
    Turns turns(grid.seed);
#if defined(__x86_64__)
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(modes | 0x8040);  // subnormal numbers are zeros, as -ftz=true has it
#endif
    grid_arrived = grid_met = 0;
    const bool has_memory = run_blocks(turns);
#if defined(EMU_PROGRAM)
    EMU_COUNT(count_over(grid.number));
#endif
    launch_ends();
#if defined(__x86_64__)
    _mm_setcsr(modes);
#endif
#if !defined(EMU_PROGRAM)
    // Each thread's stack is two mappings, of which a process has some 65,000 at most: no thread of Python's would begin any
    // more where 32 kernels had left theirs. A program has one runtime, whose launches may take the same.
    release_stacks();
#endif
    job = nullptr;
    if (!has_memory) return NO_MEMORY;
    return stopped ? GIVEN_UP : hw4_stop ? ASKED_TO_STOP : TO_ITS_END;
}
}  // namespace emu
