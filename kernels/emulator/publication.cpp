#include "publication.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace emu {
namespace {
// What a strong write has handed over. Of its block: all before its thread's last fence, in earlier epochs, and of each
// member of a clock what it did up to a time. Of other blocks: what its thread knew, as publications.
struct Publication {
    unsigned block;
    uint32_t epoch;                // of that fence; 0: there was none
    std::vector<uint32_t> until;   // of each thread, then of each agent
    std::vector<uint32_t> others;  // numbers of publications, from 1 on
};
struct Shared {
    uint32_t published = 0;  // by the last strong write; atomics hand on what was there
    unsigned first = 0;      // the block that has written it first, if it was fresh
    bool fresh = false;
};
struct Thread {
    std::vector<uint32_t> known, seen;  // publications: for sure; and from the next fence on
    size_t mark;                        // it knows what the block knows, up to here
    uint32_t fenced_epoch, fenced_time;  // its last fence
    uint32_t published, published_then;  // its last publication, and how many fences there were
};
}
constexpr size_t MOST = 1 << 22, MOST_NUMBERS = 64 << 20;  // publications of a launch, and numbers in them
static std::vector<Publication> publications;
static size_t numbers;
static bool too_many;  // more than there is room for: blocks are taken to know of each other
static std::unordered_map<const Word*, Shared> words;
static std::vector<uint32_t> of_block;  // what any thread of this block knows
static size_t met;                      // up to here all threads know it
static uint32_t fences, learned;        // of this block so far
static Thread threads[MAX_THREADS];

static void learn(std::vector<uint32_t>& to, uint32_t one) {
    if (one && std::find(to.rbegin(), to.rend(), one) == to.rend()) to.push_back(one), learned++;
}
static void take_in(int t) {
    for (uint32_t each : threads[t].seen) learn(threads[t].known, each), learn(of_block, each);
    threads[t].seen.clear();
}
void acquire_now() {
    if (current != NOBODY) take_in(current);
}
void fence() {
    if (current == NOBODY || !watching) return;
    take_in(current);
    threads[current].fenced_epoch = epoch, threads[current].fenced_time = own[current]++;
    fences++;
}
static uint32_t add(Publication&& made) {
    numbers += made.until.size() + made.others.size();
    if (publications.size() == MOST || numbers > MOST_NUMBERS) {
        too_many = true;
        return 0;
    }
    publications.push_back(std::move(made));
    return (uint32_t)publications.size();
}
static std::vector<uint32_t> known_to(int t) {
    std::vector<uint32_t> all(of_block.begin(), of_block.begin() + (ptrdiff_t)std::max(met, threads[t].mark));
    all.insert(all.end(), threads[t].known.begin(), threads[t].known.end());
    return all;
}
// What thread t hands over by a strong write now; 0: nothing.
static uint32_t publication_of(int t) {
    Thread& mine = threads[t];
    if (!fences && of_block.empty()) return 0;
    const uint32_t then = fences + learned;
    if (mine.published && mine.published_then == then) return mine.published;
    Publication made{block_of_grid, mine.fenced_epoch, std::vector<uint32_t>(threads_of_block + AGENTS), known_to(t)};
    for (unsigned w = 0; w < threads_of_block; w++) {
        uint32_t& until = made.until[w];
        if (mine.fenced_epoch && clocks) until = knows(t)[w];
        if (mine.fenced_epoch && same_warp(w, (unsigned)t)) until = std::max(until, time_of_warp(w));
        const Thread& one = threads[w];  // its own fence is as good, where a barrier lies behind it
        const bool ordered = one.fenced_epoch && (one.fenced_epoch < epoch || before((int)w, one.fenced_time, t));
        if (ordered) until = std::max(until, one.fenced_time);
    }
    for (unsigned a = 0; a < AGENTS && mine.fenced_epoch && clocks; a++)
        made.until[threads_of_block + a] = knows(t)[MAX_THREADS + a];
    mine.published_then = then;
    return mine.published = add(std::move(made));
}
void hand_over(const Word* word, int t, bool adds, bool fresh) {
    const uint32_t mine = publication_of(t);
    auto at = words.find(word);
    if (at == words.end()) {
        if (mine || fresh) words[word] = {mine, block_of_grid, fresh};
        return;
    }
    uint32_t& published = at->second.published;
    if (!adds || !published) published = mine;
    else if (mine && mine != published) published = add({~0u, 0, {}, {published, mine}});
}
static bool covered(const Touch& touch, const Publication& by) {
    if (touch.who >= MAX_THREADS) return by.until[threads_of_block + touch.who - MAX_THREADS] >= touch.time;
    if (touch.epoch < by.epoch) return true;
    return until_covers(touch, by.until.data());
}
// The publications of a block that thread t knows of.
static const std::vector<const Publication*>& known_of(unsigned block, int t) {
    static std::unordered_map<unsigned, std::vector<const Publication*>> found;
    static const std::vector<const Publication*> none;
    static uint32_t found_epoch, found_learned;
    static size_t found_mark;
    static int found_by = NOBODY;
    const size_t mark = std::max(met, threads[t].mark);
    if (found_by != t || found_epoch != block_epoch || found_learned != learned || found_mark != mark) {
        found_by = t, found_epoch = block_epoch, found_learned = learned, found_mark = mark;
        found.clear();
        std::vector<bool> reached(publications.size() + 1);
        std::vector<uint32_t> left = known_to(t);
        while (!left.empty()) {
            const uint32_t each = left.back();
            left.pop_back();
            if (reached[each]) continue;
            reached[each] = true;
            const Publication& one = publications[each - 1];
            if (!one.until.empty()) found[one.block].push_back(&one);
            left.insert(left.end(), one.others.begin(), one.others.end());
        }
    }
    const auto at = found.find(block);
    return at == found.end() ? none : at->second;
}
bool heard_of(const Touch& touch, int t) {
    if (too_many) return true;
    if (publications.empty()) return false;
    for (const Publication* each : known_of(block_at(touch.epoch), t))
        if (covered(touch, *each)) return true;
    return false;
}
bool look_at(const Word* word, int t) {
    const auto at = words.find(word);
    if (at == words.end()) return false;
    const Shared& shared = at->second;
    if (shared.published) {
        Thread& mine = threads[t];
        if (std::find(mine.seen.begin(), mine.seen.end(), shared.published) == mine.seen.end())
            mine.seen.push_back(shared.published);
    }
    return shared.fresh && shared.first != block_of_grid && !too_many && known_of(shared.first, t).empty();
}

// ---- Orders within a block

void all_have_met() {
    if (words.empty()) return;
    for (unsigned t = 0; t < threads_of_block; t++) take_in((int)t);
    met = of_block.size();
}
void has_met(int t) {
    if (!words.empty()) take_in(t);
}
void has_heard(int t) { threads[t].mark = of_block.size(); }
void forget_publications(bool launch) {
    if (launch) publications.clear(), words.clear(), numbers = 0, too_many = false;
    of_block.clear(), met = 0, fences = learned = 0;
    for (Thread& each : threads) {
        each.known.clear(), each.seen.clear();
        each.mark = 0, each.fenced_epoch = each.fenced_time = each.published = each.published_then = 0;
    }
}
}  // namespace emu
