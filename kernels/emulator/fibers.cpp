// Switches between the threads of a block: by hand, since ucontext is seven times slower.
#include "fibers.h"
#include "memory.h"

#include <cstdlib>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(EMU_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" {
Three hw4_threadIdx;
}

namespace emu {
constexpr size_t STACK = 512 << 10, GUARD = 4096, EACH = STACK + GUARD;  // as much local memory as a GPU's thread has
Fiber fibers[MAX_THREADS];
EMU_OWN int current = NOBODY;
bool stopped;
const Grid* job;
Order order;
const char* quiet_stack;
size_t quiet_bytes;
static char* stacks;
static unsigned stacks_made;
static Three index_of[MAX_THREADS];

namespace {
struct Context {
#if defined(__x86_64__)
    void* sp;
#else
    ucontext_t context;
#endif
    char* stack;
    void* fake;  // AddressSanitizer's
};
}
static Context contexts[MAX_THREADS], host;

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


static void swap_to(Context& from, Context& to) {
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
void suspend(State state) {
    if (unsettled) settle_stores();
    const int mine = current;
    fibers[mine].state = state;
    swap_to(contexts[mine], host);  // and back, when the scheduler resumes this thread
}
void resume(unsigned t) {
    current = (int)t;
    hw4_threadIdx = index_of[t];
    note_quiet_stack();
    swap_to(host, contexts[t]);
    current = NOBODY, quiet_bytes = 0;
}
void spin(uintptr_t pc) {
    static unsigned spins;
    if (++spins % 64) return;
    fibers[current].spins_at = pc, fibers[current].spins_on = touched_at, fibers[current].spins_bytes = touched_bytes;
    suspend(SPUN);
}
void take_turns() {
    if (order == LOCKSTEP) suspend(READY);
}
void stop_kernel() {
    stopped = true;
    suspend(DONE);
    abort();  // never: a thread of a block that was given up is not resumed
}
unsigned thread() { return (unsigned)current; }

// ---- What a thread runs

static void body() {
#if defined(EMU_ASAN)
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!host.stack) host.stack = (char*)bottom;
#endif
    for (;;) {
        job->call(job->context);
        events++;
        suspend(DONE);
    }
}
static void make_fiber(Context& fiber, char* stack) {
    fiber.stack = stack;
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
bool make_stacks() {
    const unsigned threads = threads_of_block;
    if (threads > stacks_made) {
        if (stacks) munmap(stacks, stacks_made * EACH);
        stacks_made = 0;
        const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        stacks = (char*)mmap(nullptr, threads * EACH, PROT_READ | PROT_WRITE, kind, -1, 0);
        if (stacks == MAP_FAILED) {
            stacks = nullptr;
            return false;
        }
        for (unsigned t = 0; t < threads; t++) mprotect(stacks + t * EACH, GUARD, PROT_NONE);
        stacks_made = threads;
    }
    for (unsigned t = 0; t < threads; t++) make_fiber(contexts[t], stacks + t * EACH + GUARD);
    return true;
}
void release_stacks() {
    if (stacks) munmap(stacks, stacks_made * EACH);
    stacks = nullptr, stacks_made = 0;
}
bool make_fibers(const Grid& grid) {
    job = &grid, stopped = false, host.stack = nullptr;
    for (unsigned t = 0; t < threads_of_block; t++)
        index_of[t] = {t % grid.block.x, t / grid.block.x % grid.block.y, t / grid.block.x / grid.block.y};
    return make_stacks();
}
namespace {
struct Fibers {
    std::vector<Fiber> fibers;
    std::vector<Context> contexts;
    char* stacks = nullptr;
    unsigned made = 0;
};
}
static Kept<Fibers> kept_fibers;
static void exchange_fibers(unsigned n) {
    Fibers& one = kept_fibers.at(n);
    one.fibers.resize(threads_of_block), one.contexts.resize(threads_of_block);
    std::swap_ranges(fibers, fibers + threads_of_block, one.fibers.begin());
    std::swap_ranges(contexts, contexts + threads_of_block, one.contexts.begin());
    std::swap(stacks, one.stacks), std::swap(stacks_made, one.made);
}
static AtSwitch fibers_at_switch(exchange_fibers);
void note_quiet_stack() {
    quiet_stack = stacks + (size_t)current * EACH;
    quiet_bytes = product_adds((unsigned)current) ? 0 : EACH;
}
int owner_of_stack(const char* at) {
    return at >= stacks && at < stacks + stacks_made * EACH ? (int)((at - stacks) / EACH) : NOBODY;
}
}  // namespace emu
