// What the emulator's runtime offers to the headers that stand in for CUDA: language.h, and headers/*.cuh.
//
// A kernel runs on the CPU, one block after the other; each CUDA thread is a fiber of its own, all in one thread of the
// system. A fiber runs until it meets others: at a barrier, a shuffle, a product of a warp. So no two fibers ever run
// at once, plain C++ needs no locks, and what a real GPU would do in any order is checked, not tried.
//
// A file kernels/NAME.cuh is replaced by kernels/emulator/headers/NAME.cuh where there is one: the same functions, in
// C++. How to write an instruction that lanes execute together:
//
//     struct Registers { unsigned a[4], b[2]; float c[4]; };        // of one lane: what goes in, what comes out
//     static void multiply(void* const* lane, int lanes) {          // runs once, when all lanes are there
//         auto& mine = *(Registers*)lane[5];                        // lane[i] is null where lane i takes no part
//     }
//     inline void mma(float* c, const unsigned* a, const unsigned* b, EMU_HERE) {
//         Registers r{...};
//         emu::meet(EMU_SITE("mma"), emu::WARP, ~0ull, &r, multiply);
//         ... r holds the results
//     }
//
// Memory: shared memory is found by its offset from emu::shared (a 32-bit address, as in PTX). Plain loads and stores
// in a header, as in *(float4*)(emu::shared + at), are watched as the kernel's own are. What a copy engine or the
// tensor cores do on their own time is reported by emu::agent_... below.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace emu {

// ---- Where a thread is: the kernel's line, by default arguments of what the kernel calls

struct Site {
    const char* what;  // "__syncthreads", "shuffle": the same text at every use
    const char* file;
    int line;
};
#define EMU_HERE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_SITE(what) (emu::Site{what, emu_file, emu_line})

// ---- The thread that runs

extern int lanes;         // of a warp: 32 or 64
unsigned thread();        // its number in the block
unsigned block();         // its block's number in the grid
inline int lane() { return (int)(thread() % (unsigned)lanes); }

// ---- Threads that meet

enum Scope { WARP, WARPGROUP };  // 32 or 64 lanes; 128 threads, whose first is a multiple of 128

// Waits until all threads of the scope that `mask` names (a warp: by lane; ALIVE: those that have not ended) are at
// this site, then calls compute(registers, n) once: registers[i] is what lane i gave, or null. All may be read and
// written.
constexpr uint64_t ALIVE = 0;
// A mask in place of which the lanes are taken that come to the site before none of the warp can go on.
constexpr uint64_t PRESENT = 0xfffffffe00000001ull;
uint64_t present(Site);  // those lanes
void meet(Site site, Scope scope, uint64_t mask, void* registers, void (*compute)(void* const* registers, int n));

// Barrier 0 to 15 for `count` threads of the block (0: all that have not ended); `arrive` does not wait. Everything
// before it comes before everything after it. Returns how many of those threads gave a true predicate.
struct Votes { int yes, all; };
Votes barrier(Site site, unsigned id, unsigned count, bool predicate = false);
void barrier_arrive(Site site, unsigned id, unsigned count);

// __syncwarp: as meet, and orders memory accesses of those lanes.
void sync_warp(Site site, uint64_t mask);

// All threads of all blocks of a cooperative launch.
void sync_grid(Site site);

void give_way();                     // the other threads run first
[[noreturn]] void trap(void* where);  // the launch ends with an error

// ---- Memory

extern char* shared;                  // offset 0 of the block's shared memory
extern uint64_t memory_changes;       // counts stores, and atomics that change a word
extern bool watching;                 // whether accesses are checked (the builds "race" and "asan")
unsigned shared_bytes();              // how many bytes the block has, from offset 0
// Whether a range lies inside shared memory, or else inside an array of the launch (`write`: one that may be written),
// at a multiple of `alignment` bytes. Reports, and returns false, if not. `pc` is where: pass here().
bool check_shared(unsigned at, unsigned bytes, unsigned alignment, const char* what, uintptr_t pc);
bool check_global(const void* at, unsigned bytes, unsigned alignment, bool write, const char* what, uintptr_t pc);
enum Kind { GLOBAL, SHARED, LOCAL, CONSTANT };
bool memory_is(const void* at, Kind);
uintptr_t here();  // where it is called, which a report turns into a file and a line, inlined functions included

// A mistake that an instruction finds itself; `pc` 0 where a site in the text says more.
void report(const char* kind, const char* text, uintptr_t pc = 0);
void report_absent(const Site& site, int lane);  // a shuffle asks a lane that takes no part

// How far a fence or an atomic orders: for the threads of its block, or of the whole GPU.
enum Reach : uint8_t { OF_BLOCK, OF_DEVICE };
// __threadfence(): what this thread knows to be done comes before what it writes for others, and what it has seen of them
// before what it does (publication.h).
void fence(Reach = OF_DEVICE);
void acquire_now(Reach = OF_DEVICE);  // the second half of it alone: a load with acquire order
// What an atomic is besides: of block scope; one that looks for a value, as who takes a lock does; one whose old value is
// seldom used.
enum How : uint8_t { ANY_ATOMIC = 0, BLOCK_SCOPE = 1, COMPARES = 2, EXCHANGES = 4 };
// For the checks, before an atomic and behind it: it reads; it has written, if it has changed the word.
void atomic_begins(const void* p, unsigned bytes, unsigned how);
void atomic_ends(const void* p, unsigned bytes, unsigned how, bool changed);

// ---- Copies of a thread's own (cp.async): 16, 8 or 4 bytes, `given` of them read and the rest zeros

void copy_async(unsigned to, const void* from, unsigned bytes, unsigned given);
void copy_async_commit();
void copy_async_wait(unsigned groups_left);  // WAIT_ALL: also for copies that are in no group yet
constexpr unsigned WAIT_ALL = ~0u;

// ---- Orders of memory beyond barriers: what mbarriers need

// A clock is a set of events. release: what this thread has done so far joins the clock. acquire: what is in the clock
// comes before what this thread does from now on.
struct Clock { uint32_t* of = nullptr; };  // lives until the block ends
void release(Clock&);
void acquire(const Clock&);
void join(Clock& to, const Clock& from);

// An agent is a copy engine, or a tensor core that works on its own time: a thread that has no lanes. What it does is
// ordered after what the thread that started it had done before, and before nothing, until somebody releases it.
using Agent = unsigned;
Agent agent_start();  // one more piece of work, begun by this thread
void agent_shared(Agent, unsigned at, unsigned bytes, bool write, uintptr_t pc);  // it reads or writes shared memory
void agent_global(Agent, const void* at, unsigned bytes, bool write, uintptr_t pc);
void agent_release(Agent, Clock&);  // its work joins the clock: a copy has arrived
void agent_acquire(Agent);  // its work comes before what this thread does
// From its start to its end, nobody may touch what an agent writes: such bytes read as NaN, and a touch is reported.
void agent_busy(Agent, unsigned at, unsigned bytes, uintptr_t pc);
void agent_landed(Agent, unsigned at, unsigned bytes);

// The asynchronous proxy (wgmma, bulk copies) sees what this thread knows to be written: fence.proxy.async. What an
// agent reads of other writes is reported.
void publish();
// A touch of shared memory by this thread, where no load or store in the kernel's code is watched.
void touch_shared(unsigned at, unsigned bytes, bool write, uintptr_t pc);
// Registers of this thread that an agent uses: a touch of them is reported. `pc`: where it was asked to.
void registers_busy(const void* at, unsigned bytes, uintptr_t pc);
void registers_free(const void* at);

// Called when a block begins, for state of a header's own.
struct AtBlockStart {
    void (*call)();
    AtBlockStart* next;
    explicit AtBlockStart(void (*call)());
};
// Called when a block ends: for work that must not be under way then.
struct AtBlockEnd {
    void (*call)();
    AtBlockEnd* next;
    explicit AtBlockEnd(void (*call)());
};

}  // namespace emu
