// cuRAND: how far XORWOW goes in many steps, and the host's interface (include/curand.h).
#include "../session.h"
#include "../include/curand.h"
#include "../include/curand_kernel.h"

#include <array>
#include <vector>

namespace hw4 {
namespace random {
// A step is linear in the five words' 160 bits: the matrices for 2^n steps, by the bit that goes in.
typedef std::array<uint32_t, 5> Words;
typedef std::vector<Words> Matrix;
static Words times(const Matrix& m, const Words& v) {
    Words sum{};
    for (size_t bit = 0; bit < 160; bit++)
        if (v[bit / 32] >> bit % 32 & 1)
            for (size_t i = 0; i < 5; i++) sum[i] ^= m[bit][i];
    return sum;
}
static const Matrix& power(size_t n) {
    static auto& known = *new std::deque<Matrix>;
    while (known.size() <= n) {
        Matrix next(160);
        for (size_t bit = 0; bit < 160; bit++) {
            Words v{};
            v[bit / 32] = 1u << bit % 32;
            if (known.empty()) {
                const uint32_t t = v[0] ^ v[0] >> 2;
                next[bit] = {v[1], v[2], v[3], v[4], v[4] ^ v[4] << 4 ^ t ^ t << 1};
            } else {
                next[bit] = times(known.back(), times(known.back(), v));
            }
        }
        known.push_back(std::move(next));
    }
    return known[n];
}
void xorwow_skip(uint32_t* v, uint64_t n, int by) {
    static auto& one_at_a_time = *new std::mutex;
    const std::lock_guard<std::mutex> alone(one_at_a_time);
    Words words;
    std::copy(v, v + 5, words.begin());
    for (size_t bit = 0; n >> bit && bit < 64; bit++)
        if (n >> bit & 1) words = times(power((size_t)by + bit), words);
    std::copy(words.begin(), words.end(), v);
}
}  // namespace random
}  // namespace hw4

// ---- The host's interface

struct curandGenerator_st {
    curandRngType_t type;
    bool on_host;
    unsigned long long seed = 0, offset = 0;
    unsigned long long given = 0;  // numbers of 32 bits, since the seed or the offset was set
    std::vector<curandStateXORWOW> xorwow;
};
namespace hw4 {
namespace random {
constexpr size_t XORWOW_SEQUENCES = 4096, PHILOX_SEQUENCES = 65536;  // as the library's guide says
curandStatus_t create(curandGenerator_t* g, curandRngType_t type, bool on_host, Place from) {
    if (type == CURAND_RNG_PSEUDO_DEFAULT) type = CURAND_RNG_PSEUDO_XORWOW;
    if (type != CURAND_RNG_PSEUDO_XORWOW && type != CURAND_RNG_PSEUDO_PHILOX4_32_10) {
        say("library", "curandCreateGenerator at %s asks for generator %d: XORWOW and Philox4x32-10 are there on the CPU",
            text_of(from).c_str(), (int)type);
        return CURAND_STATUS_TYPE_ERROR;
    }
    *g = new curandGenerator_st{type, on_host};
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t destroy(curandGenerator_t g) { return delete g, CURAND_STATUS_SUCCESS; }
curandStatus_t set(curandGenerator_t g, Option what, unsigned long long value) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    (what == SEED ? g->seed : g->offset) = value;
    g->given = 0, g->xorwow.clear();
    return CURAND_STATUS_SUCCESS;
}
// The next 32 bits. XORWOW's sequences give one number each, in turn, Philox's four each.
static uint32_t next(curandGenerator_st& g) {
    const unsigned long long n = g.given++ + (g.type == CURAND_RNG_PSEUDO_XORWOW ? 0 : g.offset);
    if (g.type == CURAND_RNG_PSEUDO_XORWOW) {
        if (g.xorwow.empty()) {
            g.xorwow.resize(XORWOW_SEQUENCES);
            curand_init(g.seed, 0, 0, &g.xorwow[0]);
            for (size_t i = 1; i < XORWOW_SEQUENCES; i++) g.xorwow[i] = g.xorwow[i - 1], skipahead_sequence(1, &g.xorwow[i]);
            for (size_t i = 0; i < XORWOW_SEQUENCES; i++)  // those that come before the offset are left out
                skipahead(g.offset / XORWOW_SEQUENCES + (i < g.offset % XORWOW_SEQUENCES), &g.xorwow[i]);
        }
        return curand(&g.xorwow[(n + g.offset) % XORWOW_SEQUENCES]);
    }
    const unsigned long long four = n / 4, sequence = four % PHILOX_SEQUENCES, turn = four / PHILOX_SEQUENCES;
    const uint4 words = philox({(uint32_t)turn, (uint32_t)(turn >> 32), (uint32_t)sequence, 0},
                               {(uint32_t)g.seed, (uint32_t)(g.seed >> 32)});
    return word(words, n % 4);
}
curandStatus_t generate(curandGenerator_t g, Kind kind, void* to, size_t n, double mean, double deviation, const char* what,
                        Place from) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    const bool is_double = kind == UNIFORM_DOUBLE || kind == NORMAL_DOUBLE || kind == LOG_NORMAL_DOUBLE;
    if (kind >= NORMAL && n % 2) {
        say("library", "%s at %s is for %zu numbers: pairs of normal ones are made, their number must be even", what,
            text_of(from).c_str(), n);
        return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    }
    if (!g->on_host && !touched_by_library(to, n * (is_double ? 8 : 4), true, std::string(what) + " at " + text_of(from)))
        return CURAND_STATUS_LAUNCH_FAILURE;
    auto bits = [&] { return next(*g); };
    auto log = [&](double x) { return kind == LOG_NORMAL || kind == LOG_NORMAL_DOUBLE ? std::exp(x) : x; };
    for (size_t i = 0; i < n; i += kind >= NORMAL ? 2 : 1) {
        switch (kind) {
        case BITS: ((unsigned*)to)[i] = bits(); break;
        case UNIFORM: ((float*)to)[i] = unit(bits()); break;
        case UNIFORM_DOUBLE: {
            const uint32_t x = bits(), y = bits();
            ((double*)to)[i] = unit_double(x, y);
            break;
        }
        case NORMAL: case LOG_NORMAL: {
            const uint32_t x = bits(), y = bits();
            const float2 both = normals(x, y);
            ((float*)to)[i] = (float)log(mean + deviation * both.x), ((float*)to)[i + 1] = (float)log(mean + deviation * both.y);
            break;
        }
        default: {
            const uint32_t x = bits(), y = bits(), z = bits(), w = bits();
            const double2 both = normals_double(x, y, z, w);
            ((double*)to)[i] = log(mean + deviation * both.x), ((double*)to)[i + 1] = log(mean + deviation * both.y);
        }
        }
    }
    return CURAND_STATUS_SUCCESS;
}
}  // namespace random
}  // namespace hw4
