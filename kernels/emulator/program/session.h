// What the parts of a program's runtime share: settings, findings, how it ends.
#pragma once
#include "../fibers.h"
#include "../memory.h"
#include "prelude.h"

#include <mutex>

namespace hw4 {
struct Settings {
    bool watch = true;
    emu::Order order = emu::FORWARD;
    unsigned seed = 0, lanes = 32;
    int gpus = 1, cc = 80, multiprocessors = 108;
    size_t shared_limit = 163 << 10, shared_multiprocessor = 164 << 10, memory = 8ull << 30;
    double seconds = 30;  // of the processor's time; 0: as many as it takes
    std::string name, architecture, report, status, output, input, record;
};
extern Settings settings;
void begin();  // at the first call of the runtime
std::recursive_mutex& one_at_a_time();  // of host threads: who launches, copies, or finds something

std::string text_of(Place);  // "hw4.cu:88"
void say(const char* kind, const char* format, ...) __attribute__((format(printf, 2, 3)));

// What runs, for reports.
struct Running {
    const char* kernel = nullptr;
    Place from{};
    int gpu = 0;
    uint64_t blocks = 0, launches = 0;
};
extern Running running;
// The number of launches that are alike, of which this is one more.
unsigned count_launch(const char* name, Place, dim3 grid, dim3 block, size_t shared);
enum class End { ENDED, TOO_SLOW, HANGS, CRASHED };
// A function of a library, `what` in words, is to read or write a GPU's memory: false, and a finding, if it may not.
bool touched_by_library(const void* p, size_t bytes, bool write, const std::string& what);
[[noreturn]] void out_of_time();  // between two turns of threads, when the time is up
void at_end_of_program();         // what is found only then: memory that nobody freed
extern bool error_unasked;        // a launch has failed, and nobody has asked for the error
extern bool assertion_failed;     // of a kernel
}  // namespace hw4
