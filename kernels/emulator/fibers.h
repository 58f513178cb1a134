// A fiber for each CUDA thread of a block, and where each one waits.
#pragma once
#include "internal.h"

#include <string>

namespace emu {
// SPUN: it has read a word by volatile or atomic accesses often, and lets the others run before it goes on.
enum State { READY, SPUN, AT_WARP, AT_GROUP, AT_BARRIER, WAITING, DONE };
struct Fiber {
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
    uintptr_t spins_at;  // where it has SPUN
    const char* spins_on;  // at which word, and how many bytes of it
    uint32_t spins_bytes;
};
extern Fiber fibers[MAX_THREADS];
extern bool stopped;  // nothing more of this launch runs
extern const Grid* job;  // the launch that runs
extern Order order;

// ---- fibers.cpp

bool make_fibers(const Grid&);  // false: there is no memory for their stacks
bool make_stacks();             // the same for one more block
void release_stacks();
int owner_of_stack(const char*);  // the thread whose stack this is in, or NOBODY
void resume(unsigned thread);  // returns when the thread waits, or has ended
void suspend(State);           // called by a thread; returns when it is resumed

// ---- meetings.cpp: threads that wait for each other go on where all have come; returns whether any do

bool complete_warp(unsigned first, unsigned count);
bool complete_groups();
bool complete_barriers();
bool wake_waiting();
bool wake_spun();
std::string where_threads_wait();
std::string story_of_waiting();  // at which words, and who has stored them last: lines
void report_deadlock();  // nobody can go on: says who waits where
void report_spinning();  // those that go on wait for a word that nobody changes
}  // namespace emu
