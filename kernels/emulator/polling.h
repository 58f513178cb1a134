// Volatile accesses without an order: right for a word that somebody polls, a race for data.
//
// A loop that reads a word by a volatile access until another thread has written it is right, whatever it reads first. So
// a volatile read that is ordered with no volatile write of the word is shown what was there before the write, as a GPU
// may do, too: a loop reads again, at the same place, and such a place polls. What reads just once has a race with the
// write.
#pragma once
#include "shadow.h"

namespace emu {
// Called before every volatile access.
void note_volatile(const char* at, uint32_t bytes, bool write, uintptr_t pc);
// The read that was noted last has no order with the last write of the word. False: both leave the word as it was, or the
// place polls. True: it is a race unless the place polls, which shows at the end of the launch.
bool reads_too_early();
bool polls(uintptr_t pc);
bool shows_former();    // what was there before the write is shown now
void restore_former();  // the word again as it is
void forget_polling(bool launch);
}  // namespace emu
