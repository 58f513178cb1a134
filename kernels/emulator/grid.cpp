// Runs a grid on the CPU: one block after the other, of each block warp after warp, in one of three orders.
#include "fibers.h"

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

static AtBlockStart* at_start;
static AtBlockEnd* at_end;
AtBlockStart::AtBlockStart(void (*call)()) : call(call), next(at_start) { at_start = this; }
AtBlockEnd::AtBlockEnd(void (*call)()) : call(call), next(at_end) { at_end = this; }

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
    for (unsigned warp : turns.warps) {
        const unsigned first = warp * lanes, count = std::min<unsigned>(lanes, threads_of_block - first);
        bool ready;  // in lockstep, lanes that have given up their turn
        do {
            ready = false;
            turns.shuffle(turns.lane);
            for (unsigned i : turns.lane) {
                if (i >= count || fibers[first + i].state != READY) continue;
                any = true;
                resume(first + i);
                if (stopped) return true;
                ready |= fibers[first + i].state == READY;
            }
        } while ((ready || complete_warp(first, count)) && !stopped);
        if (stopped) return true;
    }
    return any;
}
static void run_block(Turns& turns) {
    for (unsigned t = 0; t < threads_of_block; t++) fibers[t].state = READY, fibers[t].spins_at = 0;
    for (AtBlockStart* each = at_start; each; each = each->next) each->call();
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
        if (vain == VAIN_ROUNDS) {
            report_spinning();
            stopped = true;
        }
        progress |= met || spun;
    }
    if (stopped || hw4_stop) return;
    const auto ended = [](const Fiber& fiber) { return fiber.state == DONE; };
    if (!std::all_of(fibers, fibers + threads_of_block, ended)) {
        report_deadlock();
        stopped = true;
        return;
    }
    for (AtBlockEnd* each = at_end; each; each = each->next) each->call();
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
    launch_begins();
    Turns turns(grid.seed);
#if defined(__x86_64__)
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(modes | 0x8040);  // subnormal numbers are zeros, as -ftz=true has it
#endif
    const uint64_t blocks = (uint64_t)g.x * g.y * g.z;
    for (uint64_t i = 0; i < blocks && !stopped && !hw4_stop; i++) {
        block_of_grid = (unsigned)(order == REVERSE ? blocks - 1 - i : i);
        hw4_blockIdx = {block_of_grid % g.x, block_of_grid / g.x % g.y, block_of_grid / g.x / g.y};
        block_begins();
        run_block(turns);
        *block_count = i + 1;
    }
    launch_ends();
#if defined(__x86_64__)
    _mm_setcsr(modes);
#endif
    job = nullptr;
    return stopped ? GIVEN_UP : hw4_stop ? ASKED_TO_STOP : TO_ITS_END;
}
}  // namespace emu
