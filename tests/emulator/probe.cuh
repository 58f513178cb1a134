#pragma once
// A kernel that gets some of its parameters by name.
#include "bulk.h"
#include "tensor.h"

#include "params.cuh"

#define ARGUMENTS const float *q, const float *k, const float *v, float *o, void *scratch, int B, int N, int splits
#define KERNEL(name)                                                                                                   \
    static void name##_of(ARGUMENTS);                                                                                  \
    extern "C" __global__ void name(const Params p) {                                                                  \
        name##_of(p.q.data, p.k.data, p.v.data, p.o.data, p.scratch, p.batches, p.Nq, p.splits);                       \
    }                                                                                                                  \
    static void name##_of(ARGUMENTS)
