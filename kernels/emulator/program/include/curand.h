// Stands in for cuRAND's host interface: XORWOW and Philox4x32-10 into the GPU's memory, or the host's.
#pragma once

enum curandStatus_t {
    CURAND_STATUS_SUCCESS = 0, CURAND_STATUS_VERSION_MISMATCH = 100, CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102, CURAND_STATUS_TYPE_ERROR = 103, CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105, CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201, CURAND_STATUS_PREEXISTING_FAILURE = 202, CURAND_STATUS_INITIALIZATION_FAILED = 203,
    CURAND_STATUS_ARCH_MISMATCH = 204, CURAND_STATUS_INTERNAL_ERROR = 999
};
enum curandRngType_t {
    CURAND_RNG_PSEUDO_DEFAULT = 100, CURAND_RNG_PSEUDO_XORWOW = 101, CURAND_RNG_PSEUDO_MRG32K3A = 121,
    CURAND_RNG_PSEUDO_MTGP32 = 141, CURAND_RNG_PSEUDO_MT19937 = 142, CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
    CURAND_RNG_QUASI_DEFAULT = 200, CURAND_RNG_QUASI_SOBOL32 = 201
};
typedef curandRngType_t curandRngType;
typedef curandStatus_t curandStatus;
enum curandOrdering_t {
    CURAND_ORDERING_PSEUDO_BEST = 100, CURAND_ORDERING_PSEUDO_DEFAULT = 101, CURAND_ORDERING_PSEUDO_SEEDED = 102,
    CURAND_ORDERING_PSEUDO_LEGACY = 103, CURAND_ORDERING_PSEUDO_DYNAMIC = 104, CURAND_ORDERING_QUASI_DEFAULT = 201
};
typedef struct curandGenerator_st* curandGenerator_t;

namespace hw4 {
namespace random {
curandStatus_t create(curandGenerator_t*, curandRngType_t, bool on_host, Place);
curandStatus_t destroy(curandGenerator_t);
enum Option { SEED, OFFSET };
curandStatus_t set(curandGenerator_t, Option, unsigned long long);
enum Kind { BITS, UNIFORM, UNIFORM_DOUBLE, NORMAL, NORMAL_DOUBLE, LOG_NORMAL, LOG_NORMAL_DOUBLE };
curandStatus_t generate(curandGenerator_t, Kind, void* to, size_t n, double mean, double deviation, const char* what, Place);
}  // namespace random
}  // namespace hw4

inline curandStatus_t curandCreateGenerator(curandGenerator_t* g, curandRngType_t type, HW4_FROM) {
    return hw4::random::create(g, type, false, from);
}
inline curandStatus_t curandCreateGeneratorHost(curandGenerator_t* g, curandRngType_t type, HW4_FROM) {
    return hw4::random::create(g, type, true, from);
}
inline curandStatus_t curandDestroyGenerator(curandGenerator_t g) { return hw4::random::destroy(g); }
inline curandStatus_t curandGetVersion(int* n) { return *n = 10300, CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t order) {
    return order == CURAND_ORDERING_PSEUDO_SEEDED || order >= CURAND_ORDERING_QUASI_DEFAULT ? CURAND_STATUS_OUT_OF_RANGE
                                                                                           : CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandGenerateSeeds(curandGenerator_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t g, unsigned long long seed) {
    return hw4::random::set(g, hw4::random::SEED, seed);
}
inline curandStatus_t curandSetGeneratorOffset(curandGenerator_t g, unsigned long long offset) {
    return hw4::random::set(g, hw4::random::OFFSET, offset);
}
inline curandStatus_t curandGenerate(curandGenerator_t g, unsigned* to, size_t n, HW4_FROM) {
    return hw4::random::generate(g, hw4::random::BITS, to, n, 0, 0, "curandGenerate", from);
}
inline curandStatus_t curandGenerateUniform(curandGenerator_t g, float* to, size_t n, HW4_FROM) {
    return hw4::random::generate(g, hw4::random::UNIFORM, to, n, 0, 0, "curandGenerateUniform", from);
}
inline curandStatus_t curandGenerateUniformDouble(curandGenerator_t g, double* to, size_t n, HW4_FROM) {
    return hw4::random::generate(g, hw4::random::UNIFORM_DOUBLE, to, n, 0, 0, "curandGenerateUniformDouble", from);
}
inline curandStatus_t curandGenerateNormal(curandGenerator_t g, float* to, size_t n, float mean, float deviation, HW4_FROM) {
    return hw4::random::generate(g, hw4::random::NORMAL, to, n, mean, deviation, "curandGenerateNormal", from);
}
inline curandStatus_t curandGenerateNormalDouble(curandGenerator_t g, double* to, size_t n, double mean, double deviation,
                                                 HW4_FROM) {
    return hw4::random::generate(g, hw4::random::NORMAL_DOUBLE, to, n, mean, deviation, "curandGenerateNormalDouble", from);
}
inline curandStatus_t curandGenerateLogNormal(curandGenerator_t g, float* to, size_t n, float mean, float deviation, HW4_FROM) {
    return hw4::random::generate(g, hw4::random::LOG_NORMAL, to, n, mean, deviation, "curandGenerateLogNormal", from);
}
inline curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t g, double* to, size_t n, double mean, double deviation,
                                                    HW4_FROM) {
    return hw4::random::generate(g, hw4::random::LOG_NORMAL_DOUBLE, to, n, mean, deviation, "curandGenerateLogNormalDouble",
                                 from);
}
