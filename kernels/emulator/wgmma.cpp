// Products of warp groups: asked for now, computed by the time that somebody waits for them.
//
// Until its wait a sum reads as NaN, and a touch of it is reported. A product is computed as late as it may be, at the
// first wait that covers it: what was written over its operands before then spoils it.
#include "counts.h"
#include "descriptor.h"
#include "fragments.h"
#include "internal.h"
#include "sums.h"
#include "tensor.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

namespace emu {
constexpr int GROUP = 128, MAX_GROUPS = 1024 / GROUP, MAX_BLOCKS = 32;
constexpr uint32_t POISON = 0x7fc0dead;  // a NaN
static const char WRITTEN[] = "a sum was written while a product that adds to it was still computed: wait first";

// Four registers of a sum: where the thread has them, and what the tensor cores know of them.
namespace {
struct Sum {
    uint32_t* at;
    uint32_t value[4];  // under way: the true value; else what was there at the last wgmma.fence, or at the wait
    bool known, under_way;
    unsigned group;
};
struct Lane {
    unsigned groups = 0, fences = 0;  // groups that are committed; fences since the last commit
    unsigned done = 0;                // groups that it has waited for
    unsigned asked = 0;               // products
    std::deque<Sum> sums;             // their addresses stay
    size_t next = 0;                  // which of them is probably asked for next: products come in the same order again
};
struct Product {
    Wgmma what;
    unsigned group;
    Agent agent;
    bool computed = false;
    uint32_t a[GROUP][4];
    Sum* c[GROUP][MAX_BLOCKS];
};
}
static Lane lane_of[1024];
static std::deque<std::unique_ptr<Product>> asked[MAX_GROUPS];

static Sum& sum_at(Lane& mine, void* at) {
    for (size_t n = mine.sums.size(), tried = 0; tried < n; tried++) {
        Sum& sum = mine.sums[mine.next++ % n];
        if (sum.at == at) return sum;
    }
    mine.sums.push_back({(uint32_t*)at, {}, false, false, 0});
    return mine.sums.back();
}
static bool poisoned(const Sum& sum) {
    for (int n = 0; n < 4; n++)
        if (sum.at[n] != POISON) return false;
    return true;
}

// ---- Asking

// The thread's registers become the tensor cores'.
static void take(Lane& mine, Sum& sum, bool add, uintptr_t pc) {
    if (sum.under_way) {
        if (!poisoned(sum)) report("wgmma", WRITTEN, pc);
    } else {
        const bool fenced = sum.known ? !memcmp(sum.at, sum.value, sizeof sum.value) : mine.fences > 0;
        if (add && !fenced)
            report("wgmma", "a sum is used that was written after the last wgmma.fence: fence between the two", pc);
        memcpy(sum.value, sum.at, sizeof sum.value);
        for (int n = 0; n < 4; n++) sum.at[n] = POISON;
        sum.under_way = sum.known = true;
        registers_busy(sum.at, sizeof sum.value, pc);
    }
    if (!add) memset(sum.value, 0, sizeof sum.value);
    sum.group = mine.groups;
}

namespace {
struct Asked {
    const Wgmma* what;
    Sum* const* c;
    unsigned thread, group;
    Agent agent;        // the first thread's
    const char* wrong;  // for the first thread to report
};
}
static void ask(void* const* lane, int) {
    Asked& first = *(Asked*)lane[0];
    const Wgmma& what = *first.what;
    auto product = std::make_unique<Product>();
    product->what = what, product->group = first.group, product->agent = first.agent;
    for (int l = 0; l < GROUP; l++) {
        Asked& mine = *(Asked*)lane[l];
        if (mine.what->b != what.b || (!what.a_registers && mine.what->a != what.a))
            first.wrong = "the threads of a warp group give different descriptors";
        if (mine.group != first.group)
            first.wrong = "the threads of a warp group have committed different numbers of groups";
        mine.agent = first.agent;
        if (what.a_registers) memcpy(product->a[l], mine.what->a_registers, sizeof product->a[l]);
        memcpy(product->c[l], mine.c, what.blocks * sizeof(Sum*));
    }
    asked[first.thread / GROUP].push_back(std::move(product));
}
static int depth(Format f) { return f == Format::SIGNED || f == Format::UNSIGNED ? 32 : 16; }

// Watches what the product reads of shared memory, with what one thread of each warp knows of others' writes.
static void watch_operands(const Wgmma& what, Agent agent, uintptr_t pc) {
    auto read = [&](uint32_t at) {
        if (check_shared(at, 16, 16, "wgmma's matrix", pc)) agent_shared(agent, at, 16, false, pc);
    };
    each_chunk(Descriptor(what.b), what.blocks * 8, depth(what.format), what.b_k_major, read);
    if (!what.a_registers) each_chunk(Descriptor(what.a), 64, depth(what.format), what.a_k_major, read);
}
static void check_descriptor(uint64_t bits, uintptr_t pc) {
    const Descriptor d(bits);
    if (d.base) report("wgmma", "a descriptor's base offset is not 0: that is not emulated", pc);
    if (d.swizzle && d.start % (8 * d.swizzle) >= d.swizzle)
        report("wgmma",
               "a swizzled matrix does not start in the first row of its pattern: its base offset must say so", pc);
}
#if defined(EMU_COUNTS)
static void count_product(Site site, const Wgmma& what) {
    const uint64_t columns = 8 * (uint64_t)what.blocks, K = depth(what.format), line = K * bits_of(what.format) / 8;
    count_products(site, name_of(what.format), 2 * 64 * columns * K, line * (columns + (what.a_registers ? 0 : 64)));
}
#endif
void wgmma(Site site, const Wgmma& what) {
    const uintptr_t pc = CALLER;
    Lane& mine = lane_of[thread()];
    const bool first = thread() % GROUP == 0;
    Sum* c[MAX_BLOCKS];
    for (int n = 0; n < what.blocks; n++) take(mine, *(c[n] = &sum_at(mine, what.c[n])), what.add, pc);
    Asked request{&what, c, thread(), mine.groups, first ? agent_start() : 0, nullptr};
    EMU_COUNT(first ? count_product(site, what) : (void)0);
    if (first) check_descriptor(what.b, pc);
    if (first && !what.a_registers) check_descriptor(what.a, pc);
    meet(site, WARPGROUP, ALIVE, &request, ask);
    if (request.wrong) report("divergence", request.wrong, pc);
    if (watching && lane() == (int)(mine.asked++ % 32)) watch_operands(what, request.agent, pc);
}
void wgmma_fence() {
    Lane& mine = lane_of[thread()];
    mine.fences++;
    for (Sum& sum : mine.sums)
        if (!sum.under_way) memcpy(sum.value, sum.at, sizeof sum.value);
}
void wgmma_commit() {
    Lane& mine = lane_of[thread()];
    mine.groups++, mine.fences = 0;
}

// ---- Computing

template <Format F> static float decode(const char* at) {
    uint32_t x = 0;
    memcpy(&x, at, bits_of(F) / 8);
    return element<F>(x, 0);
}
template <Format F, int K> static void gather_operands(const Product& p, float* a, float* b) {
    const Wgmma& w = p.what;
    gather_lines(b, shared, Descriptor(w.b), w.blocks * 8, K, w.b_k_major, decode<F>);
    if (!w.a_registers) return gather_lines(a, shared, Descriptor(w.a), 64, K, w.a_k_major, decode<F>);
    for (int warp = 0; warp < 4; warp++) gather_a<F, K>(a + warp * 16 * K, [&](int l) { return p.a[warp * 32 + l]; });
}
template <class Number> static void add_products(Product& p, const float* a, const float* b) {
    const int columns = p.what.blocks * 8, K = depth(p.what.format);
    const double normal = smallest_normal(p.what.format);
    std::vector<Number> c(64 * columns);
    auto each = [&](auto use) {
        for (int row = 0; row < 64; row++)
            for (int column = 0; column < columns; column++) {
                const Place place = place_c(row % 16, column % 8);
                use(c[row * columns + column], p.c[row / 16 * 32 + place.lane][column / 8]->value[place.reg]);
            }
    };
    each([](Number& here, uint32_t& there) { memcpy(&here, &there, 4); });
    if constexpr (std::is_same<Number, float>::value) multiply(c.data(), a, b, 64, columns, K, adder, normal);
    else multiply(c.data(), a, b, 64, columns, K);
    each([](Number& here, uint32_t& there) { memcpy(&there, &here, 4); });
}
static void compute(Product& p) {
    const Wgmma& w = p.what;
    const int K = depth(w.format);
    std::vector<float> a(64 * K), b(w.blocks * 8 * K);
    switch (w.format) {
    case Format::HALF: gather_operands<Format::HALF, 16>(p, a.data(), b.data()); break;
    case Format::BFLOAT: gather_operands<Format::BFLOAT, 16>(p, a.data(), b.data()); break;
    case Format::SIGNED: gather_operands<Format::SIGNED, 32>(p, a.data(), b.data()); break;
    default: gather_operands<Format::UNSIGNED, 32>(p, a.data(), b.data());
    }
    if (w.negate_a != w.negate_b)
        for (float& x : a) x = -x;
    if (w.integers) add_products<int32_t>(p, a.data(), b.data());
    else add_products<float>(p, a.data(), b.data());
}
void wgmma_wait(int left) {
    Lane& mine = lane_of[thread()];
    mine.done = std::max(mine.done, mine.groups > (unsigned)left ? mine.groups - left : 0);
    auto& queue = asked[thread() / GROUP];
    for (auto& product : queue) {
        if (product->group >= mine.done) continue;
        if (!product->computed) compute(*product);
        product->computed = true;
        agent_acquire(product->agent);
    }
    const Lane* group = lane_of + thread() / GROUP * GROUP;
    const auto earlier = [](auto& x, auto& y) { return x.done < y.done; };
    const unsigned least = std::min_element(group, group + GROUP, earlier)->done;
    while (!queue.empty() && queue.front()->group < least) queue.pop_front();
    for (Sum& sum : mine.sums) {
        if (!sum.under_way || sum.group >= mine.done) continue;
        if (!poisoned(sum)) report("wgmma", WRITTEN, CALLER);
        memcpy(sum.at, sum.value, sizeof sum.value);
        sum.under_way = false;
        registers_free(sum.at);
    }
}

// ---- A block

static void begin_wgmma() {
    for (Lane& lane : lane_of) lane = {};
    for (auto& queue : asked) queue.clear();
}
static void end_wgmma() {
    for (const Lane& lane : lane_of)
        for (const Sum& sum : lane.sums)
            if (sum.under_way)
                return report("wgmma", "the block ends while products are computed: commit them, and wait");
}
static AtBlockStart wgmma_at_start(begin_wgmma);
static AtBlockEnd wgmma_at_end(end_wgmma);

}  // namespace emu
