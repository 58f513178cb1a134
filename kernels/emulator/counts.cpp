// Requests of warps and what they take: sectors of global memory, wavefronts of shared memory; and how often each piece
// of straight code runs, for how many lanes at once. What the instructions of such a piece are, Python reads in the
// machine code (hw4cli/emulator/counts.py).
#include "counts.h"

#if defined(EMU_COUNTS)
#include "fibers.h"
#include "memory.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

// What Python sees: hw4cli/emulator/counts.py has the same structure.
extern "C" struct EmuCount {
    uint64_t pc;                 // an offset in the code, or 0 where file and line say it
    char what[32], file[128];
    uint32_t line, unused;
    // times: requests of warps, or executions by warps; lanes: by threads. bytes: what threads ask for; distinct: of
    // these in one request, each byte once; wavefronts: of shared memory, or lines of 128 bytes of global memory, and the
    // fewest that such a request takes; amount: operations; of atomics, the lanes of a request that share a word most.
    uint64_t times, lanes, bytes, distinct, sectors, wavefronts, least, amount;
};

namespace emu {
namespace {
constexpr unsigned SECTOR = 32, LINE = 128;   // bytes
constexpr unsigned BANKS = 32, WIDTH = 32;     // of 4 bytes; lanes of a request
constexpr unsigned AT_ONCE = 8;                // loads of a warp under way: of two arrays in a loop that is unrolled four times
constexpr unsigned NEAR_BLOCKS = 64;           // that begin one after the other, and so run at the same time
constexpr unsigned TIMES = 16;                 // from a request for a sector to the next one: 0, 1, 2 to 3, ... of TIMES kinds
constexpr unsigned MOST_WARPS = MAX_THREADS / 32;
struct Sums {
    uint64_t times, lanes, bytes, distinct, sectors, wavefronts, least, amount;
    void operator+=(const Sums& more) {
        times += more.times, lanes += more.lanes, bytes += more.bytes, distinct += more.distinct;
        sectors += more.sectors, wavefronts += more.wavefronts, least += more.least, amount += more.amount;
    }
};
struct Piecewise { uintptr_t at; unsigned size, when; };  // when: as many accesses of global memory its thread had made
struct Pending {  // of a warp, since its lanes last met
    std::vector<std::vector<Piecewise>> by_lane;
    bool listed = false;
};
struct Place {  // where threads load or store
    uintptr_t pc;
    Does does;
    bool shared;
    unsigned size, wide = 0;  // bytes of an access, as written; and of each, where they are made wide
    bool mixed = false;       // not all are
    Sums sums{}, narrow{};    // as wide accesses, and as written
    std::unique_ptr<Pending> pending[MOST_WARPS];
};
struct Piece {  // of straight code
    uintptr_t pc;
    uint64_t lanes = 0, warps = 0;
    std::vector<uint32_t> by_thread;  // since the warp last met
    bool listed[MOST_WARPS] = {};
};
struct Event { Site site; std::string type; Sums sums{}; };
// Of each 4 bytes of an array the last block that read or wrote it, from 1; of each sector the last block that asked for
// it, and when.
struct Touched { std::vector<uint32_t> read, written, asked, when; };
// Bytes: of words that the launch reads, but for what it has written itself, and that it writes, once each; and both of each
// block. Of the sectors that loads ask for: how many nobody has asked for before; only another block, one that began a
// short while ago or longer; the same block, by how many accesses the thread had made meanwhile. And how often warps
// wait for loads of global and of shared memory.
struct Totals {
    uint64_t first_read, written, block_read, block_written, first, near_block, far_block, again[TIMES], waits[2];
    void operator+=(const Totals& more) {
        const auto *from = (const uint64_t*)&more;
        for (auto* to = (uint64_t*)this; to < (uint64_t*)(this + 1);) *to++ += *from++;
    }
};
}
static std::vector<Place> places;
static std::vector<Piece> pieces;
static std::vector<uint32_t> piece_at;            // by offset in the code; 0: none yet, else its number from 1 on
static std::unordered_map<uint64_t, uint32_t> place_at;
static std::map<std::tuple<std::string, std::string, int, std::string>, Event> events_at;
static std::vector<uint32_t> pending_places[MOST_WARPS], run_pieces[MOST_WARPS];
static std::unordered_map<const char*, Touched> touched;  // by where an array begins
static Totals totals;
// A thread's latest loads of shared memory, since a barrier: what CUDA's compiler has in registers.
namespace {
struct Recent {
    static constexpr unsigned KEPT = 16;
    struct { Piecewise what; std::vector<Piecewise>* list; size_t index; } one[KEPT];  // no list: of a past request
    unsigned count;
};
}
static Recent recent[MAX_THREADS];
static unsigned accesses[MAX_THREADS];  // of global memory, that a thread of this block has made
static uint32_t serial;                 // of the block, from 1
static uint32_t blocks_begun;

// ---- What a request takes

static void distinct_units(const uintptr_t* at, unsigned n, unsigned bytes, unsigned unit, std::vector<uintptr_t>& to) {
    to.clear();
    for (unsigned i = 0; i < n; i++)
        for (uintptr_t u = at[i] / unit; u <= (at[i] + bytes - 1) / unit; u++) to.push_back(u);
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
}
// The accesses of some lanes that go together: as many as words lie in one bank.
static unsigned conflict(const std::vector<uintptr_t>& words) {
    unsigned in_bank[BANKS] = {}, most = 0;
    for (uintptr_t word : words) most = std::max(most, ++in_bank[word % BANKS]);
    return most;
}
// Whether every lane from the first on asks for the same as the one whose number differs in these bits.
static bool alike(const uintptr_t* at, unsigned first, unsigned count, unsigned bits) {
    for (unsigned l = first; l < first + count; l++)
        if (at[l] && at[l ^ bits] && at[l] != at[l ^ bits]) return false;
    return true;
}
// 8 bytes of each lane are fetched for half the lanes at a time, 16 for a quarter; for twice as many where neighbours,
// or next neighbours, ask for the same.
static void shared_request(Sums& sums, const uintptr_t* at, unsigned size) {
    static std::vector<uintptr_t> words;
    const unsigned together = size <= 4 ? 32 : size <= 8 ? 16 : 8;
    const unsigned widest = std::min(32u, 2 * together);
    for (unsigned first = 0; first < WIDTH; first += widest) {
        const bool merged = alike(at, first, widest, 1) || alike(at, first, widest, 2);
        const unsigned step = merged ? widest : together;
        for (unsigned l = first; l < first + widest; l += step) {
            uintptr_t some[WIDTH];
            unsigned n = 0;
            for (unsigned i = l; i < l + step; i++)
                if (at[i]) some[n++] = at[i];
            if (!n) continue;
            distinct_units(some, n, size, 4, words);
            sums.wavefronts += conflict(words), sums.least++;
        }
    }
}
// The most lanes of a request that share a word: where they change it, they come one after the other.
static unsigned most_alike(const uintptr_t* at, unsigned n) {
    unsigned most = 0;
    for (unsigned i = 0; i < n; i++) most = std::max(most, (unsigned)std::count(at, at + n, at[i]));
    return most;
}
static Touched* words_of(const char* at, size_t& offset) {
    const Array* array = array_at(at);
    if (!array || at >= array->of.begin + array->of.bytes) return nullptr;
    offset = at - array->of.begin;
    Touched& words = touched[array->of.begin];
    if (words.read.empty()) {
        const size_t n = array->of.bytes / 4 + 2, sectors = array->of.bytes / SECTOR + 2;
        words.read.resize(n), words.written.resize(n), words.asked.resize(sectors), words.when.resize(sectors);
    }
    return &words;
}
// A request's sector, which is there already where the same block, or another, asked for it before.
static void ask(uintptr_t sector, bool loads, unsigned when) {
    size_t offset;
    Touched* words = words_of((const char*)(sector * SECTOR), offset);
    if (!words) words = words_of((const char*)(sector * SECTOR + SECTOR - 1), offset);  // an array begins within it
    if (!words) return;
    uint32_t &by = words->asked[offset / SECTOR], &last = words->when[offset / SECTOR];
    if (loads) {
        const uint32_t since = when > last ? when - last : last - when;
        if (!by) totals.first++;
        else if (by == serial) totals.again[since ? std::min(TIMES - 1, 32u - __builtin_clz(since)) : 0]++;
        else (serial - by <= NEAR_BLOCKS ? totals.near_block : totals.far_block)++;
    }
    by = serial, last = when;
}
static void request(const Place& place, Sums& sums, const uintptr_t* at, unsigned size, unsigned when, bool asks) {
    static std::vector<uintptr_t> units;
    uintptr_t some[WIDTH];
    unsigned n = 0;
    for (unsigned l = 0; l < WIDTH; l++)
        if (at[l]) some[n++] = at[l];
    if (!n) return;
    if (place.does == UPDATES) sums.amount += most_alike(some, n);
    const unsigned unit = std::min(4u, size & -size);
    sums.times++, sums.lanes += n, sums.bytes += (uint64_t)n * size;
    distinct_units(some, n, size, unit, units);
    sums.distinct += units.size() * unit;
    if (place.shared) {
        const uint64_t before = sums.wavefronts;
        shared_request(sums, at, size);
        if (place.does == UPDATES) sums.wavefronts = before + std::max<uint64_t>(sums.wavefronts - before, most_alike(some, n));
        return;
    }
    distinct_units(some, n, size, LINE, units);
    sums.wavefronts += units.size(), sums.least += (n * size + LINE - 1) / LINE;
    distinct_units(some, n, size, SECTOR, units);
    sums.sectors += units.size();
    if (asks)
        for (uintptr_t sector : units) ask(sector, place.does == LOADS, when);
}
// The requests of a warp at a place: as wide loads, and, where some were made wide, as they were written, too, for the
// case that not all of the place can be: CUDA's compiler does not know then that they lie at such addresses.
static void requests(Place& place, std::vector<std::vector<Piecewise>>& by_lane) {
    const auto all = [&](Sums& sums, unsigned size, bool asks) {
        size_t most = 0;
        for (const auto& lane : by_lane) most = std::max(most, lane.size());
        for (size_t k = 0; k < most; k++)
            for (unsigned half = 0; half < (unsigned)lanes; half += WIDTH) {
                uintptr_t at[WIDTH] = {};
                unsigned when = 0;
                for (unsigned l = 0; l < WIDTH; l++)
                    if (k < by_lane[half + l].size()) at[l] = by_lane[half + l][k].at, when = by_lane[half + l][k].when;
                request(place, sums, at, size, when, asks);
            }
    };
    for (const auto& lane : by_lane)
        for (const Piecewise& one : lane) {
            if (!place.wide) place.wide = one.size;
            place.mixed |= one.size != place.wide;
        }
    if (!place.mixed) all(place.sums, place.wide, true);
    if (place.wide == place.size && !place.mixed) {
        place.narrow = place.sums;
        return;
    }
    for (auto& lane : by_lane) {
        std::vector<Piecewise> narrow;
        for (const Piecewise& one : lane)
            for (unsigned n = 0; n < one.size; n += place.size) narrow.push_back({one.at + n, place.size, one.when});
        lane.swap(narrow);
    }
    all(place.narrow, place.size, place.mixed);
}
void count_warp(unsigned first) {
    const unsigned warp = first / lanes;
    uint64_t loads[2] = {};
    for (uint32_t number : pending_places[warp]) {
        Place& place = places[number];
        auto& pending = place.pending[warp]->by_lane;
        const uint64_t before = place.sums.times;
        requests(place, pending);
        if (place.does == LOADS || place.does == UPDATES) loads[place.shared] += place.sums.times - before;
        size_t most = 0;
        for (const auto& lane : pending) most = std::max(most, lane.size());
        for (auto& lane : pending) lane.clear();
        place.pending[warp]->listed = false;
        if (most > 1 << 12) place.pending[warp].reset();  // gives memory back
    }
    pending_places[warp].clear();
    for (int level : {0, 1}) totals.waits[level] += (loads[level] + AT_ONCE - 1) / AT_ONCE;
    const unsigned end = std::min(threads_of_block, first + lanes);
    for (unsigned t = first; t < end; t++)
        for (auto& one : recent[t].one) one.list = nullptr;
    for (uint32_t number : run_pieces[warp]) {
        Piece& piece = pieces[number];
        uint32_t most = 0;
        for (unsigned t = first; t < end; t++) {
            most = std::max(most, piece.by_thread[t]);
            piece.lanes += piece.by_thread[t], piece.by_thread[t] = 0;
        }
        piece.warps += most, piece.listed[warp] = false;
    }
    run_pieces[warp].clear();
}

// ---- What is seen

static void touch_words(const char* at, unsigned bytes, bool write) {
    size_t offset;
    Touched* found = words_of(at, offset);
    if (!found) return;
    Touched& words = *found;
    for (size_t w = offset / 4; w <= (offset + bytes - 1) / 4 && w < words.read.size(); w++) {
        if (write) {
            totals.written += 4 * !words.written[w], totals.block_written += 4 * (words.written[w] != serial);
            words.written[w] = serial;
        } else {
            totals.first_read += 4 * (!words.read[w] && !words.written[w]);
            totals.block_read += 4 * (words.read[w] != serial);
            words.read[w] = serial;
        }
    }
}
static Place& place_of(uintptr_t pc, Does does, bool shared, unsigned size) {
    uint32_t& number = place_at[(pc - image) << 8 | does << 5 | (unsigned)shared << 4 | (size & 15)];
    if (!number) {
        places.push_back(Place{pc - image, does, shared, size, 0, false, {}, {}, {}});
        number = (uint32_t)places.size();
    }
    return places[number - 1];
}
// CUDA's compiler unrolls loops; it loads once what is loaded again, and makes one load, of up to 16 bytes, of those that
// lie side by side, where it knows that the first is at a multiple of all of them. So do the counts, with what a thread
// loaded a short while ago.
static bool is_known(uintptr_t at, unsigned size) {
    Recent& mine = recent[current];
    for (unsigned n = 1; n <= std::min(mine.count, Recent::KEPT); n++) {
        auto& earlier = mine.one[(mine.count - n) % Recent::KEPT];
        const uintptr_t begin = earlier.what.at, end = begin + earlier.what.size;
        if (begin <= at && at + size <= end) return true;
        const unsigned both = earlier.what.size + size;
        if (!earlier.list || end != at || both > 16 || begin % (both > 8 ? 16 : 8)) continue;
        earlier.what.size = (*earlier.list)[earlier.index].size = both;
        return true;
    }
    return false;
}
static void note(const char* at, unsigned bytes, Does does, bool shared, bool is_volatile, uintptr_t pc) {
    const bool kept = shared && does == LOADS && !is_volatile;
    if (kept && is_known((uintptr_t)at, bytes)) return;
    Place& place = place_of(pc, does, shared, bytes);
    const unsigned warp = (unsigned)current / lanes;
    auto& pending = place.pending[warp];
    if (!pending) pending.reset(new Pending{std::vector<std::vector<Piecewise>>(lanes)});
    if (!pending->listed) pending->listed = true, pending_places[warp].push_back((uint32_t)(&place - places.data()));
    auto& list = pending->by_lane[(unsigned)lane()];
    list.push_back({(uintptr_t)at, bytes, shared ? 0 : accesses[current]++});
    if (kept) recent[current].one[recent[current].count++ % Recent::KEPT] = {list.back(), &list, list.size() - 1};
}
void count_access(const void* p, unsigned bytes, Does does, uintptr_t pc, bool is_volatile) {
    if (current == NOBODY || !watching || !bytes) return;
    const char* at = (const char*)p;
    const bool shared = in_shared(at);
    if (!shared) {
        const Array* array = array_at(at);
        if (!array || at >= array->of.begin + array->of.bytes) return;  // a thread's own memory, or constants
        if (does == UPDATES) touch_words(at, bytes, false);
        touch_words(at, bytes, does == STORES || does == UPDATES || does == COPIES_OUT);
    }
    note(at, bytes, does, shared, is_volatile, pc);
}
void count_copy(const void* p, unsigned bytes, bool write, uintptr_t pc) {
    if (current == NOBODY || !watching) return;
    touch_words((const char*)p, bytes, write);
    for (uintptr_t sector = (uintptr_t)p / SECTOR; sector <= ((uintptr_t)p + bytes - 1) / SECTOR; sector++)
        ask(sector, !write, accesses[current]);
    Sums& sums = place_of(pc, write ? COPIES_OUT : COPIES_IN, false, 16).sums;
    sums.times++, sums.bytes += bytes, sums.distinct += bytes;
}
void count_matrices(const char* const* rows, int n, bool write, uintptr_t pc) {
    Place& place = place_of(pc, write ? STORES : LOADS, true, 16);
    static std::vector<uintptr_t> words;
    place.sums.times++, place.sums.lanes += lanes;
    for (int m = 0; m < n; m++) {
        uintptr_t at[8];
        for (int r = 0; r < 8; r++) at[r] = (uintptr_t)rows[8 * m + r];
        distinct_units(at, 8, 16, 4, words);
        place.sums.bytes += 128, place.sums.distinct += 4 * words.size();
        place.sums.wavefronts += conflict(words), place.sums.least++;
    }
}
static Event& event_of(Site site, const std::string& type) {
    const auto added = events_at.try_emplace({site.what, site.file, site.line, type}, Event{site, type, {}});
    return added.first->second;
}
void count_barrier() {
    for (unsigned t = 0; t < threads_of_block; t++) recent[t].count = 0;
}
void count_event(Site site, unsigned n) {
    Sums& sums = event_of(site, "").sums;
    sums.times++, sums.lanes += n;
}
void count_products(Site site, const char* type, uint64_t operations, uint64_t operand_bytes) {
    Sums& sums = event_of(site, type).sums;
    sums.times++, sums.amount += operations, sums.bytes += operand_bytes;
}

// ---- A launch

void count_launch() {
    places.clear(), pieces.clear(), piece_at.clear(), place_at.clear(), events_at.clear(), touched.clear();
    for (unsigned warp = 0; warp < MOST_WARPS; warp++) pending_places[warp].clear(), run_pieces[warp].clear();
    totals = {}, serial = blocks_begun = 0;
}
void count_block() {
    serial = ++blocks_begun;
    std::fill(accesses, accesses + threads_of_block, 0u);
}
static void end() {
    for (unsigned first = 0; first < threads_of_block; first += lanes) count_warp(first);
    count_barrier();
}
static AtBlockEnd at_end(end);
// Another block takes this one's place: what its warps have asked for so far is counted.
namespace {
struct Progress {
    uint32_t serial = 0;
    std::vector<unsigned> accesses;
};
}
static Kept<Progress> kept_progress;
static void exchange_progress(unsigned n) {
    end();
    std::swap(serial, kept_progress.at(n).serial);
    std::vector<unsigned>& kept = kept_progress.at(n).accesses;
    if (kept.size() < threads_of_block) kept.resize(threads_of_block);
    std::swap_ranges(kept.begin(), kept.begin() + threads_of_block, accesses);
}
static AtSwitch at_switch(exchange_progress);

// ---- What is passed on

// Calls to(pc, what, file, line, sums) for everything that the last launch did.
template <class To> static void each_count(To to) {
    const char* const does[] = {"load", "store", "atomic", "copy in", "copy out"};
    for (const Place& place : places)
        to(place.pc, std::string(does[place.does]) + (place.shared ? ", shared" : ", global"), "", 0,
           place.mixed ? place.narrow : place.sums);
    for (const Piece& piece : pieces) {
        Sums sums{};
        sums.times = piece.warps, sums.lanes = piece.lanes;
        to(piece.pc, std::string("code"), "", 0, sums);
    }
    for (const auto& [key, event] : events_at) {
        const char* slash = strrchr(event.site.file, '/');
        to((uintptr_t)0, event.type.empty() ? std::string(event.site.what) : "product, " + event.type,
           slash ? slash + 1 : event.site.file, event.site.line, event.sums);
    }
}
// A program's launches that are alike, all together.
namespace {
struct Alike {
    Totals totals{};
    std::map<std::tuple<uintptr_t, std::string, std::string, int>, Sums> sums;
};
}
static std::map<unsigned, Alike> kept_counts;
static void write(FILE* to) {
    for (const auto& [number, alike] : kept_counts) {
        fprintf(to, "totals\t%u", number);
        for (auto* x = (const uint64_t*)&alike.totals; x < (const uint64_t*)(&alike.totals + 1); x++)
            fprintf(to, "\t%llu", (unsigned long long)*x);
        fputc('\n', to);
        for (const auto& [key, s] : alike.sums) {
            const auto& [pc, what, file, line] = key;
            fprintf(to, "count\t%u\t%llx\t%s\t%s\t%d", number, (unsigned long long)pc, what.c_str(), file.c_str(), line);
            for (auto* x = (const uint64_t*)&s; x < (const uint64_t*)(&s + 1); x++) fprintf(to, "\t%llu", (unsigned long long)*x);
            fputc('\n', to);
        }
    }
}
void count_over(unsigned number) {
    write_counts = write;
    Alike& alike = kept_counts[number];
    alike.totals += totals;
    each_count([&](uintptr_t pc, const std::string& what, const char* file, int line, const Sums& sums) {
        alike.sums[{pc, what, file, line}] += sums;
    });
}
}  // namespace emu

using namespace emu;

extern "C" {
// The compiler calls this at the begin of each piece of straight code (-fsanitize-coverage=trace-pc).
void __sanitizer_cov_trace_pc() {
    if (current == NOBODY || !watching) return;
    const uintptr_t at = CALLER - image;
    if (at >= piece_at.size()) {
        if (at >> 28) return;  // not of this file's code
        piece_at.resize(at + (1 << 16));
    }
    uint32_t& number = piece_at[at];
    if (!number) {
        pieces.emplace_back();
        pieces.back().pc = at, pieces.back().by_thread.resize(threads_of_block);
        number = (uint32_t)pieces.size();
    }
    Piece& piece = pieces[number - 1];
    const unsigned warp = (unsigned)current / lanes;
    if (!piece.listed[warp]) piece.listed[warp] = true, run_pieces[warp].push_back(number - 1);
    piece.by_thread[current]++;
}
// Called by Python: what the last launch did, so many entries of it at most; returns how many there are. of_launch: its
// Totals.
unsigned hw4_counts(EmuCount* to, unsigned most, uint64_t* of_launch) {
    unsigned n = 0;
    each_count([&](uintptr_t pc, const std::string& what, const char* file, int line, const Sums& s) {
        if (n++ >= most) return;
        EmuCount& count = to[n - 1] = EmuCount{pc, {}, {}, (uint32_t)line, 0, s.times, s.lanes, s.bytes, s.distinct,
                                              s.sectors, s.wavefronts, s.least, s.amount};
        snprintf(count.what, sizeof count.what, "%s", what.c_str());
        snprintf(count.file, sizeof count.file, "%s", file);
    });
    memcpy(of_launch, &totals, sizeof totals);
    return n;
}
}
#endif
