// Stands in for HIP's header.
#pragma once
#include "../cuda_fp16.h"
