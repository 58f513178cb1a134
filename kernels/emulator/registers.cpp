// setmaxnreg: warp groups of a block give registers to each other.
//
// All that a multiprocessor has are the block's, as __launch_bounds__(THREADS, 1) has it, the same number for each
// thread. A group that wants more waits until others have given enough.
#include "internal.h"
#include "tensor.h"

#include <algorithm>

namespace emu {
constexpr unsigned GROUP = 128, REGISTERS = 65536, LEAST = 24, MOST = 256;
static unsigned pool, has[MAX_THREADS / GROUP];  // registers that no group has; of each thread of a group

namespace {
struct Change { unsigned group, count; };
}
static bool take_registers(void* context) {
    const Change& change = *(Change*)context;
    unsigned& mine = has[change.group];
    if (change.count > mine && (change.count - mine) * GROUP > pool) return false;
    pool -= (change.count - mine) * GROUP;  // or gives back: wraps around
    mine = change.count;
    return true;
}
static std::string what_is_missing(void* context) {
    const Change& change = *(Change*)context;
    return "for " + std::to_string((change.count - has[change.group]) * GROUP) + " registers; the block has " +
           std::to_string(pool) + " left";
}
static void nothing(void* const*, int) {}
void set_registers(Site site, unsigned count, bool more) {
    const uintptr_t pc = CALLER;
    Change change{thread() / GROUP, count};
    if (count % 8 || count < LEAST || count > MOST)
        return report("registers", "setmaxnreg takes a multiple of 8 from 24 to 256", pc);
    if (more ? count < has[change.group] : count > has[change.group])
        report("registers", more ? "setmaxnreg.inc asks for fewer registers than the threads have"
                                 : "setmaxnreg.dec asks for more registers than the threads have", pc);
    meet(site, WARPGROUP, ALIVE, &change, nothing);
    wait_until(site, take_registers, &change, what_is_missing);
}

static void begin_registers() {
    for (unsigned& count : has) count = std::min(REGISTERS / std::max(threads_of_block, 1u) / 8 * 8, MOST);
    pool = 0;
}
static AtBlockStart registers_at_start(begin_registers);

}  // namespace emu
