// The GPU's size and memory, for a program that `hw4 export` writes.

#pragma once
#include "files.h"
#include "gpu.h"

int attribute(cudaDeviceAttr which) {
    int value;
    check(cudaDeviceGetAttribute(&value, which, 0), "asking for the GPU's size");
    return value;
}

float* room_for(size_t floats) {
    float* memory;
    check(cudaMalloc(&memory, floats * sizeof(float)), "making room on the GPU");
    return memory;
}
