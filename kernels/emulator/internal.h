// What the two halves of the runtime share: fibers.cpp runs a grid, memory.cpp watches its memory.
#pragma once
#include "runtime.h"

#if defined(__has_feature)
#define EMU_FEATURE(x) __has_feature(x)
#else
#define EMU_FEATURE(x) 0
#endif
#if defined(EMU_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// ---- What Python sees, through ctypes: hw4cli/emulator/library.py has the same structures

extern "C" {
// A piece of global memory that a kernel may touch, with a name for reports. What lies between them, nobody may.
struct EmuArray {
    char* begin;
    uint64_t bytes;
    uint32_t writable, written;  // may be written; was, before the first launch
    char name[48];
};
// {0} and {1} in the text stand for the lines of pc[0] and pc[1], offsets in the shared object.
struct EmuFinding {
    char kind[32], text[480];
    uint64_t pc[2];
    uint32_t times, block;
};
struct EmuParams { uint64_t words[64]; };  // as large as any struct that a kernel takes by value
struct EmuLaunch {
    void* kernel;
    uint32_t grid, block, shared;            // blocks, threads of one, bytes of dynamic shared memory
    uint32_t lanes, order, seed;             // of a warp; FORWARD, REVERSE or RANDOM
    uint32_t absmax;                         // the kernel is `absmax`, which takes other arguments
    EmuParams params;                        // its one argument, as kernels/params.cuh has it; of absmax, three
};
}

namespace emu {
enum Order { FORWARD, REVERSE, RANDOM };
constexpr unsigned MAX_THREADS = 1024;
constexpr int NOBODY = -1;

#define CALLER ((uintptr_t)__builtin_return_address(0))  // in a function that a kernel calls: where

// ---- fibers.cpp

extern int current;             // the thread that runs, or NOBODY
extern unsigned threads_of_block, dynamic_bytes, block_of_grid;
[[noreturn]] void stop_kernel();  // called by a thread: nothing more of this launch runs

// ---- memory.cpp

void locate_shared();          // finds the window of dynamic shared memory and the static one of this system's thread
void launch_begins();
void block_begins();
void block_ends();
void order_block();                                    // all threads have met
void order_warp(unsigned first, uint64_t lanes, bool all);  // these lanes have; all: all that live
void order_threads(const int* threads, unsigned n, Clock& arrived);  // these have, and those whose work is in the clock
bool outside(const char* at, unsigned bytes, bool write, uintptr_t pc);  // reports it, if this is near shared memory or arrays
void add_finding(const char* kind, const char* text, uintptr_t pc0 = 0, uintptr_t pc1 = 0);
}  // namespace emu
