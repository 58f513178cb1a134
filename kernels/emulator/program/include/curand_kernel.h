// Stands in for cuRAND's header: XORWOW and Philox4x32-10 in kernels, bit by bit, and what is made of their bits. Other
// generators and distributions are refused by their names.
//
// XORWOW is Marsaglia's (Xorshift RNGs, 2003), each subsequence 2^67 further; Philox is Salmon's and others' (Parallel Random
// Numbers: As Easy as 1, 2, 3, 2011), with the seed as the key and the subsequence as the counter's upper half.
#pragma once
#include "curand.h"

namespace hw4 {
namespace random {
// The five words of XORWOW, as they are n * 2^by steps later.
void xorwow_skip(uint32_t* v, uint64_t n, int by);
inline void philox_round(uint32_t* c, uint32_t key, uint32_t other) {
    const uint64_t first = 0xD2511F53ull * c[0], second = 0xCD9E8D57ull * c[2];
    const uint32_t words[4] = {(uint32_t)(second >> 32) ^ c[1] ^ key, (uint32_t)second, (uint32_t)(first >> 32) ^ c[3] ^ other,
                               (uint32_t)first};
    for (int i = 0; i < 4; i++) c[i] = words[i];
}
inline uint4 philox(uint4 counter, uint2 key) {
    uint32_t c[4] = {counter.x, counter.y, counter.z, counter.w};
    for (int i = 0; i < 10; i++) {
        philox_round(c, key.x, key.y);
        key.x += 0x9E3779B9u, key.y += 0xBB67AE85u;
    }
    return {c[0], c[1], c[2], c[3]};
}
// In (0, 1]: each number of 32 bits, or of 53, in the middle of its step.
inline float unit(uint32_t x) { return (float)x * 0x1p-32f + 0x1p-33f; }
inline double unit_double(uint32_t x, uint32_t y) {
    return (double)((uint64_t)x ^ (uint64_t)y << 21) * 0x1p-53 + 0x1p-54;
}
// Two normal numbers of two uniform ones, by Box and Muller.
inline float2 normals(uint32_t x, uint32_t y) {
    const float radius = sqrtf(-2.0f * logf(unit(x))), angle = (float)y * (0x1p-31f * 3.14159265f) + 0x1p-32f * 3.14159265f;
    return {sinf(angle) * radius, cosf(angle) * radius};
}
inline double2 normals_double(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    const double radius = sqrt(-2.0 * log(unit_double(x, y))), angle = unit_double(z, w) * 2 * 3.1415926535897932;
    return {sin(angle) * radius, cos(angle) * radius};
}
}  // namespace random
}  // namespace hw4

struct curandStateXORWOW {
    uint32_t d, v[5];
    bool half_left = false, half_left_double = false;  // the second of a pair of normal numbers is still to be given
    float half;
    double half_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState;
typedef curandStateXORWOW curandState_t;
struct curandStatePhilox4_32_10 {
    uint4 ctr, output;
    uint2 key;
    unsigned STATE;  // how many of the four words are given
    bool half_left = false, half_left_double = false;
    float half;
    double half_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

// ---- XORWOW

inline void skipahead(unsigned long long n, curandStateXORWOW* state) {
    uint32_t v[5] = {state->v[0], state->v[1], state->v[2], state->v[3], state->v[4]};
    hw4::random::xorwow_skip(v, n, 0);
    for (int i = 0; i < 5; i++) state->v[i] = v[i];
    state->d += 362437u * (uint32_t)n;
}
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) {
    uint32_t v[5] = {state->v[0], state->v[1], state->v[2], state->v[3], state->v[4]};
    hw4::random::xorwow_skip(v, n, 67);
    for (int i = 0; i < 5; i++) state->v[i] = v[i];
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                        curandStateXORWOW* state) {
    const uint32_t low = 1099087573u * ((uint32_t)seed ^ 0xaad26b49u);
    const uint32_t high = 2591861531u * ((uint32_t)(seed >> 32) ^ 0xf7dcefddu);
    *state = {};
    state->d = 6615241u + high + low;
    state->v[0] = 123456789u + low, state->v[1] = 362436069u ^ low, state->v[2] = 521288629u + high;
    state->v[3] = 88675123u ^ high, state->v[4] = 5783321u + low;
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}
inline unsigned curand(curandStateXORWOW* state) {
    const uint32_t t = state->v[0] ^ state->v[0] >> 2;
    state->v[0] = state->v[1], state->v[1] = state->v[2], state->v[2] = state->v[3], state->v[3] = state->v[4];
    state->v[4] = state->v[4] ^ state->v[4] << 4 ^ t ^ t << 1;
    state->d += 362437u;
    return state->v[4] + state->d;
}

// ---- Philox

namespace hw4 {
namespace random {
inline void add(uint4& counter, uint64_t n) {
    const uint64_t low = ((uint64_t)counter.y << 32 | counter.x), sum = low + n;
    counter.x = (uint32_t)sum, counter.y = (uint32_t)(sum >> 32);
    if (sum < low && ++counter.z == 0) counter.w++;
}
inline void renew(curandStatePhilox4_32_10* state) { state->output = philox(state->ctr, state->key); }
inline unsigned word(const uint4& words, unsigned i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }
}  // namespace random
}  // namespace hw4
inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
    const unsigned at = state->STATE + (unsigned)(n & 3);
    state->STATE = at & 3;
    hw4::random::add(state->ctr, n / 4 + at / 4);
    hw4::random::renew(state);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
    const uint64_t high = ((uint64_t)state->ctr.w << 32 | state->ctr.z) + n;
    state->ctr.z = (uint32_t)high, state->ctr.w = (uint32_t)(high >> 32);
    hw4::random::renew(state);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                        curandStatePhilox4_32_10* state) {
    *state = {};
    state->key = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}
inline unsigned curand(curandStatePhilox4_32_10* state) {
    const unsigned x = hw4::random::word(state->output, state->STATE);
    if (++state->STATE == 4) {
        state->STATE = 0;
        hw4::random::add(state->ctr, 1);
        hw4::random::renew(state);
    }
    return x;
}
inline uint4 curand4(curandStatePhilox4_32_10* state) {
    const uint4 old = state->output;
    const unsigned given = state->STATE;
    hw4::random::add(state->ctr, 1);
    hw4::random::renew(state);
    auto word = [&](unsigned i) { return hw4::random::word(given + i < 4 ? old : state->output, (given + i) % 4); };
    return {word(0), word(1), word(2), word(3)};
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    return {hw4::random::unit(x.x), hw4::random::unit(x.y), hw4::random::unit(x.z), hw4::random::unit(x.w)};
}
inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    const float2 a = hw4::random::normals(x.x, x.y), b = hw4::random::normals(x.z, x.w);
    return {a.x, a.y, b.x, b.y};
}
inline float4 curand_log_normal4(curandStatePhilox4_32_10* state, float mean, float deviation) {
    const float4 x = curand_normal4(state);
    auto at = [=](float y) { return expf(mean + deviation * y); };
    return {at(x.x), at(x.y), at(x.z), at(x.w)};
}
inline double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    return {hw4::random::unit_double(x.x, x.y), hw4::random::unit_double(x.z, x.w)};
}

// ---- Of either

template <class S> inline float curand_uniform(S* state) { return hw4::random::unit(curand(state)); }
template <class S> inline double curand_uniform_double(S* state) {
    const unsigned x = curand(state), y = curand(state);
    return hw4::random::unit_double(x, y);
}
template <class S> inline float2 curand_normal2(S* state) {
    const unsigned x = curand(state), y = curand(state);
    return hw4::random::normals(x, y);
}
template <class S> inline double2 curand_normal2_double(S* state) {
    const unsigned x = curand(state), y = curand(state), z = curand(state), w = curand(state);
    return hw4::random::normals_double(x, y, z, w);
}
template <class S> inline float curand_normal(S* state) {
    if (state->half_left) return state->half_left = false, state->half;
    const float2 both = curand_normal2(state);
    state->half_left = true, state->half = both.y;
    return both.x;
}
template <class S> inline double curand_normal_double(S* state) {
    if (state->half_left_double) return state->half_left_double = false, state->half_double;
    const double2 both = curand_normal2_double(state);
    state->half_left_double = true, state->half_double = both.y;
    return both.x;
}
template <class S> inline float curand_log_normal(S* state, float mean, float deviation) {
    return expf(mean + deviation * curand_normal(state));
}
template <class S> inline double curand_log_normal_double(S* state, double mean, double deviation) {
    return exp(mean + deviation * curand_normal_double(state));
}
