// halfwarp: the kernel of the course's best report, as the report describes it.
//
// Idea:     Half a warp owns two rows, and each of its lanes a slice of their columns: a float4 of Q and of O at d = 64. Each
//           lane adds up its part of a score, four shuffles the sum, and the softmax takes one key after the other: m, two
//           exponentials, l, and O times a factor for every key.
// Geometry: B * ceil(N/BR) blocks of 8*BR threads; BR = 128 up to d = 64, else 64; BC = 32. A warp owns four rows.
// Shared:   K and V, and nothing else: 8*BC*d bytes, 16 KB at d = 64.
// Limits:   A key costs a row 4 shuffles and 2 exponentials in every lane, where warp and float4 share them among lanes. 1024
//           threads leave one block to a multiprocessor (the report counts three by shared memory). Lanes idle where 16 does
//           not divide a row's float4s (float2s up to d = 32).
// Source:   The course's rank-1 report, sections 1.a to 1.e.
// Before:   warp. Lanes own columns where there they owned keys, Q leaves shared memory, and loads take 16 bytes.

#include "halfwarp.cuh"

static_assert(Q_COALESCED && IN_REGISTERS && !KEYS_IN_PARALLEL, "the other files turn a switch each");

extern "C" __global__ void __launch_bounds__(THREADS, 1) halfwarp(const Params p) { attend_by_half_warps(p); }
