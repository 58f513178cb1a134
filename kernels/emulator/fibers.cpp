// Runs a grid on the CPU: a fiber for each thread of a block, one block after the other.
#include "internal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <sys/mman.h>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <ucontext.h>
#endif

extern "C" {
struct Three { unsigned x, y, z; };
Three hw4_threadIdx, hw4_blockIdx, hw4_blockDim, hw4_gridDim;  // cuda.h has them as threadIdx and so on
volatile int hw4_stop;                                          // set by another thread of the system: end soon
volatile uint64_t hw4_blocks_done;
}

namespace emu {
int lanes = 32, current = NOBODY;
unsigned threads_of_block, dynamic_bytes, block_of_grid;

// ---- Fibers

constexpr size_t STACK = 256 << 10, GUARD = 4096;
enum State { READY, AT_WARP, AT_GROUP, AT_BARRIER, WAITING, DONE };
struct Fiber {
#if defined(__x86_64__)
    void* sp;
#else
    ucontext_t context;
#endif
    char* stack;
    void* fake;  // AddressSanitizer's
    State state;
    Site site;
    uint64_t mask;
    void* registers;
    void (*compute)(void* const*, int);
    unsigned barrier, count;  // a named barrier, and how many threads it is for
    Votes votes;
    bool (*ready)(void*);
    void* context_of_ready;
    std::string (*why)(void*);
};
static Fiber fibers[MAX_THREADS], host;
static const EmuLaunch* job;
static bool stopped;
static char* stacks;

#if defined(__x86_64__)
extern "C" void hw4_swap(void** save, void* load);
asm(R"(
.text
.globl hw4_swap
.hidden hw4_swap
.type hw4_swap, @function
hw4_swap:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#endif

static void swap_to(Fiber& from, Fiber& to) {
#if defined(EMU_ASAN)
    __sanitizer_start_switch_fiber(&from.fake, to.stack, &to == &host ? 8 << 20 : STACK);
#endif
#if defined(__x86_64__)
    hw4_swap(&from.sp, to.sp);
#else
    swapcontext(&from.context, &to.context);
#endif
#if defined(EMU_ASAN)
    __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}
static void suspend(State state) {
    Fiber& mine = fibers[current];
    mine.state = state;
    swap_to(mine, host);  // and back, when the scheduler resumes this thread
}
using Attention = void (*)(EmuParams);  // by value: a kernel reads as many bytes as its own struct has
using Absmax = void (*)(const void* elements, unsigned* largest, long long part);
static void body() {
#if defined(EMU_ASAN)
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!host.stack) host.stack = (char*)bottom;
#endif
    for (;;) {
        const uint64_t* words = job->params.words;
        if (job->absmax)
            ((Absmax)job->kernel)((const void*)words[0], (unsigned*)words[1], (long long)words[2]);
        else
            ((Attention)job->kernel)(job->params);
        suspend(DONE);
    }
}
static void make_fiber(Fiber& fiber, char* stack) {
    fiber.stack = stack;
    fiber.state = DONE;
#if defined(EMU_ASAN)
    __asan_unpoison_memory_region(stack, STACK);
#endif
#if defined(__x86_64__)
    void** top = (void**)(stack + STACK) - 2;
    top[0] = (void*)body, top[1] = nullptr;
    fiber.sp = top - 6;
    memset(fiber.sp, 0, 6 * sizeof(void*));
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack, fiber.context.uc_stack.ss_size = STACK, fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, body, 0);
#endif
}
static bool make_fibers(unsigned n) {
    const size_t each = STACK + GUARD;
    stacks = (char*)mmap(nullptr, n * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return false;
    for (unsigned t = 0; t < n; t++) {
        mprotect(stacks + t * each, GUARD, PROT_NONE);
        make_fiber(fibers[t], stacks + t * each + GUARD);
    }
    return true;
}
static void resume(unsigned t) {
    current = (int)t;
    hw4_threadIdx.x = t;
    swap_to(host, fibers[t]);
    current = NOBODY;
}
void stop_kernel() {
    stopped = true;
    suspend(DONE);
    abort();  // never: a thread of a block that was given up is not resumed
}

unsigned thread() { return hw4_threadIdx.x; }
unsigned block() { return block_of_grid; }

// ---- Threads that meet

static std::string name(const Site& site) {
    const char* slash = strrchr(site.file, '/');
    return std::string(site.what) + " (" + (slash ? slash + 1 : site.file) + ":" + std::to_string(site.line) + ")";
}
void report_absent(const Site& site, int lane) {
    report("divergence", (name(site) + " asks lane " + std::to_string(lane) + ", which takes no part").c_str());
}
static bool same(const Site& a, const Site& b) {
    return a.line == b.line && (a.what == b.what || !strcmp(a.what, b.what)) && (a.file == b.file || !strcmp(a.file, b.file));
}
void meet(Site site, Scope scope, uint64_t mask, void* registers, void (*compute)(void* const*, int)) {
    Fiber& mine = fibers[current];
    mine.site = site, mine.mask = mask, mine.registers = registers, mine.compute = compute;
    suspend(scope == WARP ? AT_WARP : AT_GROUP);
}
static const char SYNC_WARP[] = "__syncwarp";
void sync_warp(Site site, uint64_t mask) {
    site.what = SYNC_WARP;
    meet(site, WARP, mask, nullptr, nullptr);
}
struct Named { unsigned arrived = 0, expected = 0; Clock clock; };
static Named barriers[16];
Votes barrier(Site site, unsigned id, unsigned count, bool predicate) {
    Fiber& mine = fibers[current];
    mine.site = site, mine.barrier = id % 16, mine.count = count, mine.votes = {predicate, 1};
    suspend(AT_BARRIER);
    return mine.votes;
}
void barrier_arrive(Site site, unsigned id, unsigned count) {
    Named& named = barriers[id % 16];
    fibers[current].site = site;
    release(named.clock);
    named.arrived++, named.expected = count;
}
void wait_until(Site site, bool (*ready)(void*), void* context, std::string (*why)(void*)) {
    Fiber& mine = fibers[current];
    if (ready(context)) return;
    mine.site = site, mine.ready = ready, mine.context_of_ready = context, mine.why = why;
    suspend(WAITING);
}

// The lanes of a warp that have come together somewhere go on. Returns whether any do.
static bool complete_warp(unsigned first, unsigned count) {
    uint64_t live = 0, left = 0;
    for (unsigned i = 0; i < count; i++) {
        const State state = fibers[first + i].state;
        live |= (uint64_t)(state != DONE) << i, left |= (uint64_t)(state == AT_WARP) << i;
    }
    bool any = false;
    while (left) {
        const Fiber& one = fibers[first + __builtin_ctzll(left)];
        uint64_t group = 0;
        for (uint64_t rest = left; rest; rest &= rest - 1) {
            const unsigned i = __builtin_ctzll(rest);
            if (same(fibers[first + i].site, one.site) && fibers[first + i].mask == one.mask) group |= 1ull << i;
        }
        left &= ~group;
        const uint64_t width = lanes == 64 ? ~0ull : (1ull << lanes) - 1, named = one.mask == ALIVE ? live : one.mask & width & live;
        if (group & ~named) {
            report("divergence", (name(one.site) + " is reached by a lane that its mask does not name").c_str());
            stopped = true;
            return false;
        }
        if ((group & named) != named) continue;
        if (one.compute) {
            void* registers[64] = {};
            for (unsigned i = 0; i < count; i++)
                if (group >> i & 1) registers[i] = fibers[first + i].registers;
            one.compute(registers, lanes);
        }
        if (one.site.what == SYNC_WARP) order_warp(first, group, group == live);
        for (unsigned i = 0; i < count; i++)
            if (group >> i & 1) fibers[first + i].state = READY;
        any = true;
    }
    return any;
}
static bool complete_groups() {
    bool any = false;
    for (unsigned first = 0; first < threads_of_block; first += 128) {
        const unsigned count = std::min(128u, threads_of_block - first);
        void* registers[128] = {};
        bool all = fibers[first].state == AT_GROUP;
        for (unsigned i = 0; i < count && all; i++) {
            all = fibers[first + i].state == AT_GROUP && same(fibers[first + i].site, fibers[first].site);
            registers[i] = fibers[first + i].registers;
        }
        if (!all) continue;
        if (count < 128) {
            report("divergence", (name(fibers[first].site) + " takes 128 threads: the block's last group has fewer").c_str());
            stopped = true;
            return false;
        }
        if (fibers[first].compute) fibers[first].compute(registers, 128);
        for (unsigned i = 0; i < count; i++) fibers[first + i].state = READY;
        any = true;
    }
    return any;
}
static bool complete_barriers() {
    bool any = false;
    for (unsigned id = 0; id < 16; id++) {
        static int at[MAX_THREADS];
        unsigned n = 0, live = 0;
        int yes = 0;
        bool alike = true;
        for (unsigned t = 0; t < threads_of_block; t++) {
            live += fibers[t].state != DONE;
            if (fibers[t].state != AT_BARRIER || fibers[t].barrier != id) continue;
            alike &= same(fibers[t].site, fibers[n ? at[0] : t].site);
            yes += fibers[t].votes.yes, at[n++] = (int)t;
        }
        if (!n) continue;
        Named& named = barriers[id];
        const unsigned count = fibers[at[0]].count, present = n + named.arrived;
        if (count == 0 ? n != live || !alike : present < count) continue;
        if (count && present > count) {
            report("divergence", (name(fibers[at[0]].site) + " is for " + std::to_string(count) + " threads, and " +
                                  std::to_string(present) + " have come").c_str());
            stopped = true;
            return false;
        }
        if (n == live && !named.arrived) order_block();
        else order_threads(at, n, named.clock);
        named.arrived = 0, named.clock = {};
        for (unsigned i = 0; i < n; i++) fibers[at[i]].votes = {yes, (int)n}, fibers[at[i]].state = READY;
        any = true;
    }
    return any;
}
static bool wake_waiting() {
    bool any = false;
    for (unsigned t = 0; t < threads_of_block; t++)
        if (fibers[t].state == WAITING && fibers[t].ready(fibers[t].context_of_ready)) fibers[t].state = READY, any = true;
    return any;
}
// Nobody can go on: says who waits where.
static void report_deadlock() {
    std::map<std::string, std::pair<int, int>> where;  // how many, and one of them
    int ended = 0;
    for (unsigned t = 0; t < threads_of_block; t++) {
        if (fibers[t].state == DONE) {
            ended++;
            continue;
        }
        auto& entry = where.emplace(name(fibers[t].site), std::make_pair(0, (int)t)).first->second;
        entry.first++;
    }
    std::string text = "threads wait for others that never come: ";
    bool first = true;
    for (auto& [site, who] : where) {
        text += (first ? "" : ", ") + std::to_string(who.first) + " at " + site + " such as thread " + std::to_string(who.second);
        const Fiber& one = fibers[who.second];
        if (one.state == WAITING && one.why) text += " (" + one.why(one.context_of_ready) + ")";
        first = false;
    }
    if (ended) text += ", and " + std::to_string(ended) + " have ended";
    report("divergence", text.c_str());
}

// ---- A block, a grid

static AtBlockStart* at_start;
static AtBlockEnd* at_end;
AtBlockStart::AtBlockStart(void (*call)()) : call(call), next(at_start) { at_start = this; }
AtBlockEnd::AtBlockEnd(void (*call)()) : call(call), next(at_end) { at_end = this; }

static void run_block(std::vector<unsigned>& warps, std::vector<unsigned>& order_of_lanes, std::mt19937* random) {
    for (unsigned t = 0; t < threads_of_block; t++) fibers[t].state = READY;
    for (Named& named : barriers) named = {};
    for (AtBlockStart* each = at_start; each; each = each->next) each->call();
    for (;;) {
        if (random) std::shuffle(warps.begin(), warps.end(), *random);
        bool progress = false;
        for (unsigned warp : warps) {
            const unsigned first = warp * lanes, count = std::min<unsigned>(lanes, threads_of_block - first);
            do {
                if (random) std::shuffle(order_of_lanes.begin(), order_of_lanes.end(), *random);
                for (unsigned i : order_of_lanes)
                    if (i < count && fibers[first + i].state == READY) {
                        progress = true;
                        resume(first + i);
                        if (stopped) return;
                    }
            } while (complete_warp(first, count));
            if (stopped) return;
        }
        progress |= complete_groups();
        if (!stopped) progress |= complete_barriers();
        if (!stopped) progress |= wake_waiting();
        if (stopped) return;
        if (progress) continue;
        for (unsigned t = 0; t < threads_of_block; t++)
            if (fibers[t].state != DONE) {
                report_deadlock();
                stopped = true;
                return;
            }
        for (AtBlockEnd* each = at_end; each; each = each->next) each->call();
        return;
    }
}
}  // namespace emu

using namespace emu;

// Runs a launch. Returns 0; or 1 if it was given up, because its threads wait for each other or a mistake leaves no way on;
// 2 if it was asked to stop; 3 if there is no memory for the stacks.
extern "C" int hw4_launch(const EmuLaunch* launch) {
    job = launch;
    lanes = (int)launch->lanes, threads_of_block = launch->block, dynamic_bytes = launch->shared;
    hw4_blockDim = {launch->block, 1, 1}, hw4_gridDim = {launch->grid, 1, 1};
    stopped = false, host.stack = nullptr;
    if (launch->block > MAX_THREADS || !make_fibers(launch->block)) return 3;
    locate_shared();
    launch_begins();
    std::vector<unsigned> warps((launch->block + lanes - 1) / lanes), order(lanes);
    std::iota(warps.begin(), warps.end(), 0u), std::iota(order.begin(), order.end(), 0u);
    if (launch->order == REVERSE) std::reverse(warps.begin(), warps.end()), std::reverse(order.begin(), order.end());
    std::mt19937 random(launch->seed);
#if defined(__x86_64__)
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(modes | 0x8040);  // subnormal numbers are zeros, as -ftz=true has it
#endif
    for (unsigned i = 0; i < launch->grid && !stopped && !hw4_stop; i++) {
        block_of_grid = launch->order == REVERSE ? launch->grid - 1 - i : i;
        hw4_blockIdx = {block_of_grid, 0, 0};
        block_begins();
        run_block(warps, order, launch->order == RANDOM ? &random : nullptr);
        if (!stopped) block_ends();
        hw4_blocks_done = hw4_blocks_done + 1;
    }
#if defined(__x86_64__)
    _mm_setcsr(modes);
#endif
    munmap(stacks, launch->block * (STACK + GUARD));
    return stopped ? 1 : hw4_stop ? 2 : 0;
}
