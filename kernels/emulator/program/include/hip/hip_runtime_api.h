// Stands in for HIP's header.
#pragma once
#include "hip_runtime.h"
