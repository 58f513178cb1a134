// What threads hand to each other by a word of memory: data that is written before a fence, and seen behind one.
//
// Who hands over touches the word by a strong write (volatile, atomic), who takes it by a strong read. What lies before a
// __threadfence() in front of the write comes before what lies behind a fence, or the block's next barrier, behind the
// read; and before strong accesses at once, as those are not cached and not begun early, except where the word was taken
// by atomicCAS: who takes a lock needs a fence. A __threadfence_block() does so for threads of its block, and so do
// atomics of block scope. All else that threads share is a race.
#pragma once
#include "shadow.h"

namespace emu {
// Thread t writes a word by a strong access: it hands over what it, and others of its block before it, have fenced.
// `fresh`: nobody had written the word, not even before the launch.
void hand_over(const Word* word, int t, const Access&, bool global, bool fresh);
// Another block of the launch has written it, nothing says that this came before what thread t does, and what the word held
// until then nobody has written.
bool comes_early(const Word* word, int t);
// Thread t reads it by a strong access.
void look_at(const Word* word, int t, const Access&, bool global);
// Whether a touch by another block of this launch, or by another thread of the block in this epoch, comes before what
// thread t does now; `strong`: by a strong access.
bool heard_of(const Touch&, int t, bool strong);
bool heard_in_block(const Touch&, int t, bool strong);
// Whether it would with a fence behind what thread t has read.
bool seen_of(const Touch&, int t);

// Locks: what a thread touches between the atomicCAS that took one and a fence is as if it had not taken it.
extern bool any_lock;  // whether a thread of this launch has taken one
void note_locked(int t, uint16_t site);
// Thread t touches a word after what it conflicts with: by a lock which the other side held without a fence. The places
// of that atomicCAS; 0: no such lock.
uintptr_t unfenced_lock(const Touch&, int t, bool other_block);

// Orders within a block (order.cpp): all threads have met at a barrier; one has; thread t has learned what others knew.
void all_have_met();
void has_met(int t);
void has_heard(int t);
void settle_freshness();  // all words have been set, for what follows
void forget_publications(bool launch);  // a block, or a whole launch, begins
}  // namespace emu
