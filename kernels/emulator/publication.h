// What blocks of one launch know of each other: data that is written before a fence, and seen behind one.
//
// A block hands data to another by a word that both touch by strong accesses (volatile, atomic). What it wrote before a
// __threadfence() is handed over by the strong write behind it: the other block's thread that has read the word by a
// strong access knows of it from its own next fence, or the block's next barrier, on. All else that blocks of one
// launch share is a race: they run one after the other here, and in any order on a GPU.
#pragma once
#include "shadow.h"

namespace emu {
void acquire_now();  // what the thread has just read by a strong access, it knows, as behind a fence: ld.acquire
// Thread t writes a word of global memory by a strong access: it hands over what it, and others of its block before it,
// have fenced. `adds`: an atomic, which hands on what was there. `fresh`: nobody had written the word, not even before
// the launch.
void hand_over(const Word* word, int t, bool adds, bool fresh);
// Thread t reads it by a strong access. True: another block of the launch has written it, nothing says that this came
// before, and what the word held until then nobody has written.
bool look_at(const Word* word, int t);
// Whether a touch by another block of this launch comes before what thread t does now.
bool heard_of(const Touch&, int t);
// Orders within a block (order.cpp): all threads have met at a barrier; one has; thread t has learned what others knew.
void all_have_met();
void has_met(int t);
void has_heard(int t);
void forget_publications(bool launch);  // a block, or a whole launch, begins
}  // namespace emu
