// What is ordered before what: barriers of a block by a count of them, all else by clocks of threads.
#pragma once
#include "internal.h"

namespace emu {
constexpr unsigned AGENTS = 64, MEMBERS = MAX_THREADS + AGENTS;  // of a clock

extern int log2_lanes;
extern uint32_t epoch;                      // counts barriers of whole blocks, over all blocks and launches
extern uint32_t launch_epoch, block_epoch;  // the first of this launch, of this block
extern uint32_t own[MEMBERS];               // each thread's own time; an agent slot's last tick
extern bool clocks;                         // whether threads have clocks: only where more than barriers order them

uint32_t* knows(int t);     // the clock of a thread: a time of each member
uint32_t* row(Clock&);      // the same of a clock that was made
void merge(uint32_t* to, const uint32_t* from);  // of both clocks the later times
void need_clocks();
uint32_t time_of_warp(unsigned thread);  // its time when its warp last met
bool same_warp(unsigned a, unsigned b);
// Whether what thread `who` did at a time, in this epoch, comes before what thread t does now.
bool before(int who, uint32_t time, int t);
bool of_other_block(uint32_t epoch);  // whether another block ran then, of this launch or an earlier one
unsigned block_at(uint32_t epoch);  // the number of the block that ran then, in this launch
}  // namespace emu
