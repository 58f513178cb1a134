// Stands in for CUDA's header: __nv_bfloat16, __nv_bfloat162 and their functions.
#pragma once
#include "sixteen_bits.h"

EMU_16_NAMES(BFLOAT16_, __nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162, bfloat16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
