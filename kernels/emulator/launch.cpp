// Launches of the project's own kernels, whose one argument is a struct.
#include "internal.h"

using namespace emu;

namespace {
using Attention = void (*)(EmuParams);  // by value: a kernel reads as many bytes as its own struct has

void call_attention(void* context) {
    const EmuLaunch& launch = *(const EmuLaunch*)context;
    ((Attention)launch.kernel)(launch.params);
}
}  // namespace

// Called by Python: runs a launch. Returns 0; or 1 if it was given up, because its threads wait for each other or a
// mistake leaves no way on; 2 if it was asked to stop; 3 if there is no memory for the stacks.
extern "C" int hw4_launch(const EmuLaunch* launch) {
    Grid grid{{launch->grid, 1, 1}, {launch->block, 1, 1}, launch->shared, launch->lanes, (Order)launch->order,
              launch->seed, call_attention, (void*)launch, sizeof *launch};
    grid.few = launch->few;
    return run_grid(grid);
}
