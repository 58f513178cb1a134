// Words for stories: who does what where, one line after the other.
#pragma once
#include "shadow.h"

#include <string>

namespace emu {
std::string place_text(uintptr_t pc);                     // which a report turns into a line
std::string thread_text(unsigned block, unsigned thread);  // "block 1, thread 32"
// What lies there: "data[3]", as long as elements have so many bytes; a variable as a report finds its name.
std::string element_at(const char* at, unsigned bytes);
}  // namespace emu
