// Who touched each 4-byte word last: the shadow of shared memory, and of the arrays that a kernel writes.
//
// Of a word are known the last write, and reads since by up to two warps. Two touches of a word by different threads,
// one of them a write, are a race unless a barrier, __syncwarp (in a warp), an mbarrier or the end of a launch lies
// between, or a word that one hands over and the other takes (publication.h). Shuffles order nothing. Atomics do not race
// with each other where their scope has both threads; what volatile accesses may do without an order, polling.h says. A
// shadow takes eight times the memory that it is of, as far as that is touched.
#pragma once
#include "order.h"

namespace emu {
enum Strength : uint8_t { PLAIN, VOLATILE, ATOMIC, BLOCK_ATOMIC };
enum Part : uint8_t { WHOLE, FIRST_HALF, SECOND_HALF };  // an atomic: it reads, and then has written or not
struct __attribute__((packed, aligned(2))) Touch {
    // bytes: which of the word; several: lanes of a warp; silent: a store of the value that was there
    uint32_t epoch : 24, bytes : 4, strength : 2, several : 1, silent : 1;
    uint32_t time : 21, who : 11;  // of a thread, from MAX_THREADS on an agent; of several lanes, a row of their times
    uint16_t site;                 // where, as a number that stands for a place in the code
};
struct Word {
    Touch write, read[2];
    uint16_t written : 4, copy : 12;  // bytes; the place where a copy was asked for that still writes this word, or 0
};
static_assert(sizeof(Word) == 32, "eight bytes of shadow for one of data");

// Some memory and its shadow, which is zeros at first.
class Area {
public:
    const char* begin = nullptr;
    Area() = default;
    Area(const char* begin, size_t bytes);  // empty if there is no memory for it
    Area(Area&& other) noexcept { *this = static_cast<Area&&>(other); }
    Area& operator=(Area&& other) noexcept;
    ~Area();
    bool empty() const { return !words; }
    Word& word_at(size_t i) { return words[i]; }
    size_t size() const { return count; }

private:
    Word* words = nullptr;
    size_t count = 0;
};
struct Access {
    uint32_t bytes;
    bool write;
    Strength strength;
    uintptr_t pc;
    const char* at = nullptr;  // where, if the store itself comes right behind
    Part part = WHOLE;
    uint8_t how = 0;  // of an atomic (How)
};

// A touch of a word by a thread, or by an agent that this thread starts; a race is reported. `fresh`: if it is written, nobody
// has done that before. Whether it may still be so (look_at in publication.h).
bool touch(Word&, uint8_t bytes, const Access&, bool global, const char* where, unsigned who,
           bool fresh = false);
void forget_flags();    // of a block
void begin_rows();      // an epoch begins
void end_of_touches();  // of a launch: what could only be decided now is reported
// A store without an order is a race only if it changes the word: decided when it is done, before anything else is.
void settle_stores();
extern bool unsettled;
// Whether the store that is under way may still be done behind a load of these bytes: where a struct is copied, GCC says what is
// written before it says what is read.
bool store_may_follow(const char* at, unsigned bytes);
// Whether a read by thread t tells nothing new: the last write is past, and its warp has read the word just so.
bool seen(Word&, uint8_t bytes, int t);
// Whether a touch of an earlier block lies within these times of its threads.
bool until_covers(const Touch&, const uint32_t* until);
uintptr_t place_of(unsigned site);     // an address in the code, as findings have it
uint16_t site_of(uintptr_t pc);
uint16_t copying_at(uint32_t place);   // a number for Word::copy; of offset 0, which is none, 0
uintptr_t place_of_copy(unsigned);
// All that was touched so far is past. Epochs are counted anew.
void forget_touches();

// Calls each(word, which of its bytes) for all words of a piece of an area.
template <class Each> void each_word(Area& area, const char* at, size_t bytes, Each each) {
    const char* end = at + bytes;
    for (size_t i = (size_t)(at - area.begin) / 4; area.begin + 4 * i < end; i++) {
        const char* word = area.begin + 4 * i;
        uint8_t touched = 0;
        for (int b = 0; b < 4; b++) touched |= (word + b >= at && word + b < end) << b;
        each(area.word_at(i), touched);
    }
}
}  // namespace emu
