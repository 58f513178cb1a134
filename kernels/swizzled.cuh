#pragma once
// Descriptors of matrices in shared memory, of rows of 128 bytes, swizzled, in groups of eight rows (PTX ISA, "Matrix-Descriptor
// Format"). What lies `beyond` bytes after the matrix are further columns. The upper half is a constant, the lower one a sum with
// constants.

__device__ __forceinline__ unsigned matrix_at(unsigned address, unsigned beyond) { return address >> 4 | beyond >> 4 << 16; }
__device__ __forceinline__ unsigned long long descriptor(unsigned low) { return 0x40000040ull << 32 | low; }
