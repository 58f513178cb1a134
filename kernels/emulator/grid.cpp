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

static AtBlockStart* at_start;
static AtBlockEnd* at_end;
AtBlockStart::AtBlockStart(void (*call)()) : call(call), next(at_start) { at_start = this; }
AtBlockEnd::AtBlockEnd(void (*call)()) : call(call), next(at_end) { at_end = this; }

namespace {
struct Turns {  // the order in which warps, and lanes of one, run
    std::vector<unsigned> warps, lane;
    std::mt19937 random;
    bool shuffled;

    Turns(const EmuLaunch& launch)
        : warps((launch.block + lanes - 1) / lanes), lane(lanes), random(launch.seed),
          shuffled(launch.order == RANDOM) {
        std::iota(warps.begin(), warps.end(), 0u), std::iota(lane.begin(), lane.end(), 0u);
        if (launch.order == REVERSE) std::reverse(warps.begin(), warps.end()), std::reverse(lane.begin(), lane.end());
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
        do {
            turns.shuffle(turns.lane);
            for (unsigned i : turns.lane) {
                if (i >= count || fibers[first + i].state != READY) continue;
                any = true;
                resume(first + i);
                if (stopped) return true;
            }
        } while (complete_warp(first, count) && !stopped);
        if (stopped) return true;
    }
    return any;
}
static void run_block(Turns& turns) {
    for (unsigned t = 0; t < threads_of_block; t++) fibers[t].state = READY;
    for (AtBlockStart* each = at_start; each; each = each->next) each->call();
    bool progress = true;
    while (progress && !stopped) {
        progress = run_warps(turns);
        if (!stopped) progress |= complete_groups();
        if (!stopped) progress |= complete_barriers();
        if (!stopped) progress |= wake_waiting();
    }
    if (stopped) return;
    const auto ended = [](const Fiber& fiber) { return fiber.state == DONE; };
    if (!std::all_of(fibers, fibers + threads_of_block, ended)) {
        report_deadlock();
        stopped = true;
        return;
    }
    for (AtBlockEnd* each = at_end; each; each = each->next) each->call();
}
}  // namespace emu

using namespace emu;

// Called by Python: runs a launch. Returns 0; or 1 if it was given up, because its threads wait for each other or a
// mistake leaves no way on; 2 if it was asked to stop; 3 if there is no memory for the stacks.
extern "C" int hw4_launch(const EmuLaunch* launch) {
    lanes = (int)launch->lanes, threads_of_block = launch->block, dynamic_bytes = launch->shared;
    hw4_blockDim = {launch->block, 1, 1}, hw4_gridDim = {launch->grid, 1, 1};
    if (launch->block > MAX_THREADS || !make_fibers(launch)) return 3;
    locate_shared();
    launch_begins();
    Turns turns(*launch);
#if defined(__x86_64__)
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(modes | 0x8040);  // subnormal numbers are zeros, as -ftz=true has it
#endif
    for (unsigned i = 0; i < launch->grid && !stopped && !hw4_stop; i++) {
        block_of_grid = launch->order == REVERSE ? launch->grid - 1 - i : i;
        hw4_blockIdx = {block_of_grid, 0, 0};
        block_begins();
        run_block(turns);
    }
#if defined(__x86_64__)
    _mm_setcsr(modes);
#endif
    free_fibers();
    return stopped ? 1 : hw4_stop ? 2 : 0;
}
