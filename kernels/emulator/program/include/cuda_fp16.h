// Stands in for CUDA's header: half, half2 and their functions.
#pragma once
#include "sixteen_bits.h"

EMU_16_NAMES(HALF16, __half, __half2, half, half2, half)
typedef __half half;
typedef __half2 half2;
typedef __half __half_raw_value;
inline half2 __lowhigh2highlow(half2 x) { return {x.y, x.x}; }
inline half2 h2_swap(half2 x) { return {x.y, x.x}; }
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7C00U)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7FFFU)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3C00U)
