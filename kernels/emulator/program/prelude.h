// What is read before a whole program: the host's C++, then CUDA's language, library and runtime. launches.py has turned
// each k<<<grid, block, shared, stream>>>(x, y) into a call of hw4::Kernel.
#pragma once
// The host's headers first: what follows defines macros.
#include <algorithm>
#include <assert.h>
#include <cfloat>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// CUDA's min and max are no templates: with `using namespace std`, min(a, b) is theirs.
#define min emu_min
#define max emu_max
#include "../language.h"
#undef min
#undef max
#undef __constant__
#define __constant__ HW4_CONSTANT  // build.py has a section for it
#define __managed__
#define __inline_hint__
#define __restrict __restrict__
// GPUs' compilers begin an array at a multiple of 16 where its size and that of those before it are such.
// A compiler for the CPU would leave out what is written and never read.
#undef __shared__
#define __shared__ thread_local __attribute__((aligned(16), used))
#undef warpSize  // also a member of cudaDeviceProp
#ifdef __HIP__
static constexpr int warpSize = 64;
#else
static constexpr int warpSize = 32;
#endif
#define __align__(n) __attribute__((aligned(n)))
#define __CUDACC__ 1
#define __NVCC__ 1
#define CUDART_VERSION 12080
#define CUDA_VERSION 12080
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8

// What copies and sets memory is watched as loads and stores are: GCC makes moves of it that its hooks do not see.
#if defined(__SANITIZE_THREAD__)
extern "C" void* __tsan_memcpy(void* to, const void* from, size_t bytes);
extern "C" void* __tsan_memmove(void* to, const void* from, size_t bytes);
extern "C" void* __tsan_memset(void* to, int value, size_t bytes);
#define HW4_HERE inline __attribute__((always_inline))
HW4_HERE void* hw4_memcpy(void* to, const void* from, size_t bytes) { return __tsan_memcpy(to, from, bytes); }
HW4_HERE void* hw4_memmove(void* to, const void* from, size_t bytes) { return __tsan_memmove(to, from, bytes); }
HW4_HERE void* hw4_memset(void* to, int value, size_t bytes) { return __tsan_memset(to, value, bytes); }
namespace std {
using ::hw4_memcpy, ::hw4_memmove, ::hw4_memset;
}
#endif

#include "vectors.h"
#include "intrinsics.h"
#include "api.h"
#include "ptx.h"

#if defined(__SANITIZE_THREAD__)  // in the program's own text
#define memcpy hw4_memcpy
#define memmove hw4_memmove
#define memset hw4_memset
#define __builtin_memcpy hw4_memcpy
#define __builtin_memmove hw4_memmove
#define __builtin_memset hw4_memset
#endif
