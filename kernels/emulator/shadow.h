// Who touched each 4-byte word last: the shadow of shared memory, and of the arrays that a kernel writes.
//
// Of a word are known the last write, and reads since by up to three warps. Two touches of a word by different threads,
// one of them a write, are a race unless a barrier, __syncwarp (in a warp), an mbarrier or the end of a launch lies
// between. Shuffles order nothing. Of two blocks of a launch, what one has written comes before what a thread of a
// later one does that has read a volatile word of it.
#pragma once
#include "order.h"

#include <vector>

namespace emu {
struct Touch {
    uint32_t epoch = 0, time = 0, pc = 0;
    uint16_t who = 0;              // a thread; from MAX_THREADS on an agent
    uint8_t bytes = 0, flags = 0;  // which of the word
    uint32_t times = 0;            // of several lanes: where each one's time is kept
};
struct Word {
    Touch write, read[3];
    uint32_t copy = 0;    // where a copy was asked for that still writes this word
    uint32_t epoch = 0;   // of the last write, for `written`
    uint8_t written = 0;  // bytes
};
struct Area {  // some memory and its shadow
    const char* begin = nullptr;
    std::vector<Word> words;
};
struct Access {
    uint32_t bytes;
    bool write, strong;  // strong: atomic or volatile
    uintptr_t pc;
};

// A touch of a word by a thread, or by an agent that this thread starts; a race is reported.
void touch(Word&, uint8_t bytes, const Access&, bool global, const char* where, unsigned who);
// Whether a read by thread t tells nothing new: the last write is past, and its warp has read the word just so.
bool seen(Word&, uint8_t bytes, int t);
void forget_touches();  // of several lanes: no shadow is left that names them

// Calls each(word, which of its bytes) for all words of a piece of an area.
template <class Each> void each_word(Area& area, const char* at, uint32_t bytes, Each each) {
    const char* end = at + bytes;
    for (size_t i = (at - area.begin) / 4; area.begin + 4 * i < end; i++) {
        const char* word = area.begin + 4 * i;
        uint8_t touched = 0;
        for (int b = 0; b < 4; b++) touched |= (word + b >= at && word + b < end) << b;
        each(area.words[i], touched);
    }
}
}  // namespace emu
