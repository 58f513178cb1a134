// What the parts of the runtime share: grid.cpp runs a launch, memory.cpp watches its memory.
#pragma once
#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

// ---- What Python sees, through ctypes: hw4cli/emulator/library.py has the same structures

extern "C" {
// A piece of global memory that a kernel may touch, with a name for reports. What lies between them, nobody may.
struct EmuArray {
    char* begin;
    uint64_t bytes;
    uint32_t writable, written;  // may be written; was, before the first launch
    char name[160];
};
// {0} and {1} in the text stand for the lines of pc[0] and pc[1], offsets in the shared object.
struct EmuFinding {
    char kind[32], text[480];
    char story[800];  // what happened, in lines; places as {0x...}, variables as {0x...:bytes of an element}
    uint64_t pc[2];
    uint32_t times, block;
};
struct Three { unsigned x, y, z; };  // threadIdx and so on
struct EmuParams { uint64_t words[256]; };  // as large as any struct that a kernel takes by value
struct EmuLaunch {
    void* kernel;
    uint32_t grid, block, shared;            // blocks, threads of one, bytes of dynamic shared memory
    uint32_t lanes, order, seed;             // of a warp; FORWARD, REVERSE or RANDOM
    uint32_t few;                            // of the grid only the first, the middle and the last block run
    EmuParams params;                        // its one argument, as kernels/params.cuh has it
};
}

// A whole program (program/) has threads of the system of its own; of what they launch, one grid runs at a time.
#if defined(EMU_PROGRAM)
#define EMU_OWN thread_local
#else
#define EMU_OWN
#endif

namespace emu {
// LOCKSTEP: the lanes of a warp take turns at every load and store of memory that they share.
enum Order { FORWARD, REVERSE, RANDOM, LOCKSTEP };
constexpr unsigned MAX_THREADS = 1024;
constexpr int NOBODY = -1;

struct Grid {
    Three grid, block;
    unsigned shared, lanes;  // bytes of dynamic shared memory; of a warp
    Order order;
    unsigned seed;
    void (*call)(void*);  // what each thread runs, with
    void* context;
    size_t context_bytes;  // which it may read
    int gpu = 0;
    bool cooperative = false;   // its blocks may wait for each other at grid_sync()
    unsigned resident = ~0u;    // as many blocks are there at once on the GPU, at most
    bool few = false;           // only the first, the middle and the last block run
    unsigned number = 0;        // launches of one number are counted together
};
enum Ended { TO_ITS_END, GIVEN_UP, ASKED_TO_STOP, NO_MEMORY };
Ended run_grid(const Grid&);

#define CALLER ((uintptr_t)__builtin_return_address(0))  // in a function that a kernel calls: where

// ---- The launch (grid.cpp), the thread that runs (fibers.cpp)

extern uint64_t* block_count;  // of this launch, the blocks that have ended: where others can see it
extern uint64_t events;        // counts what is progress: threads that end, and that meet
extern unsigned threads_of_block, dynamic_bytes, block_of_grid;
extern EMU_OWN int current;       // the thread that runs, or NOBODY
[[noreturn]] void stop_kernel();  // called by a thread: nothing more of this launch runs
// Lets others run until ready(context) is true; a report, with why(context) in it, and the end of the kernel, if that
// never happens.
void wait_until(Site site, bool (*ready)(void*), void* context, std::string (*why)(void*) = nullptr);

// Called by a thread at a volatile or atomic access: now and then others run, and it goes on later.
void spin(uintptr_t pc);
// Called at every access of shared or global memory: in lockstep, the other lanes come first.
void take_turns();

// ---- Several blocks under way: those of a whole program that wait for others (grid.cpp)

// What is a block's own lies in variables of the one that runs. When another takes its place, each module exchanges these with
// what it keeps at a number.
struct AtSwitch {
    void (*call)(unsigned kept_at);
    AtSwitch* next;
    explicit AtSwitch(void (*call)(unsigned));
};
// Values at numbers, made when they are first asked for.
template <class T> class Kept {
public:
    T& at(unsigned n) {
        while (all.size() <= n) all.emplace_back();
        return all[n];
    }
    // Exchanges the first `n` of an array, where T is a vector.
    template <class E> void exchange_array(unsigned kept_at, E* live, unsigned n) {
        T& kept = at(kept_at);
        if (kept.size() < n) kept.resize(n);
        std::swap_ranges(live, live + n, kept.begin());
    }

private:
    std::deque<T> all;
};
extern bool interleaved;  // whether blocks of this launch have taken turns

// ---- Orders (order.cpp)

void launch_begins();
void block_begins();
void order_grid();   // all blocks have met
void launch_ends();
void order_block();                                         // all threads have met
void order_warp(unsigned first, uint64_t lanes, bool all);  // these lanes have; all: all that live
void order_threads(const int* threads, unsigned n, Clock& arrived);  // these have, and those whose work is in the clock

// ---- Memory (memory.cpp, asynchronous.cpp)

extern const bool hooked;  // whether the compiler's hooks show loads and stores: the build "race" (hooks.cpp)
void locate_shared();      // finds the window of dynamic shared memory and the static one of this system's thread
void touch_stack(const char* at, unsigned bytes, bool write, uintptr_t pc);         // the same, of its own memory
// The own memory of the thread that runs, where most loads and stores are: nothing is to be said of them, unless a product still
// adds to its registers. Then, and while no thread runs, it has no bytes.
extern const char* quiet_stack;
extern size_t quiet_bytes;
bool product_adds(unsigned thread);  // whether one still adds to registers of this thread
void note_quiet_stack();             // called when that, or the thread that runs, has changed
// Reports an access near shared memory or arrays; false: it is elsewhere.
bool outside(const char* at, unsigned bytes, bool write, uintptr_t pc);
// In the build "asan": nobody may touch this memory, or all may again (sanitizers.cpp).
void forbid(const char* at, size_t bytes);
void allow(const char* at, size_t bytes);

// Writes what a program's launches did, as lines of the report; null where nothing is counted (counts.cpp).
extern void (*write_counts)(FILE*);

// ---- Findings (findings.cpp)

extern uintptr_t image;  // where the shared object lies: places are offsets from there
void add_finding(const char* kind, const char* text, uintptr_t pc0 = 0, uintptr_t pc1 = 0);
// The same with a text as printf has it; of one kind at the same places only the first.
void find(const char* kind, uintptr_t pc0, uintptr_t pc1, const char* format, ...);
void add_story(const char* kind, uintptr_t pc0, uintptr_t pc1, const std::string& lines);  // to a finding that has none
EmuFinding* known_finding(const char* kind, uintptr_t pc0, uintptr_t pc1);  // or null
void forget_finding(const EmuFinding*);
}  // namespace emu
