"""What an L2 cache holds, counted by Nsight Compute: bytes from DRAM for a buffer that is read twice, or written once.

python -m benchmarks.measure.cache --output benchmarks/h200-cache.csv
"""

import argparse
import sys
from collections.abc import Iterable

import numpy as np

from benchmarks.measure.scripts import end_with, new_file, write_lines

SAME, OTHER, WRITTEN = "same blocks", "other blocks", "written"  # who reads a part the second time
ALL = "all blocks"  # each reads all of it, both times
READ = (12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 60, 72)  # MiB
WROTE = (8, 16, 24, 32, 48, 64)
SHIFT = 61  # blocks further, the second time
SOURCE = r"""
extern "C" __global__ void twice(const uint4* a, long long n, int shift, int all, unsigned* arrived, unsigned* out) {
    unsigned sum = 0;
    const long long per = (n + gridDim.x - 1) / gridDim.x;
    for (int pass = 0; pass < 2; pass++) {
        const long long first = (blockIdx.x + pass * shift) % gridDim.x * per;
        const long long from = all ? 0 : first, to = all ? n : min(n, first + per);
        for (long long i = from + threadIdx.x; i < to; i += blockDim.x) {
            uint4 x;
            asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(a + i));
            sum ^= x.x ^ x.y ^ x.z ^ x.w;
        }
        __syncthreads();
        if (threadIdx.x == 0) {  // all blocks are there at once: one on each multiprocessor
            __threadfence();
            atomicAdd(arrived, 1u);
            while (atomicAdd(arrived, 0u) < gridDim.x * (pass + 1u)) {}
        }
        __syncthreads();
    }
    if (sum == 12345) *out = sum;
}
extern "C" __global__ void written(uint4* a, long long n) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x)
        a[i] = make_uint4(i, i, i, i);
}
"""


def target() -> None:
    """The process that is profiled."""
    import cupy

    module, runtime = cupy.RawModule(code=SOURCE), cupy.cuda.runtime
    twice, write = module.get_function("twice"), module.get_function("written")
    sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
    buffer, size = cupy.ndarray(READ[-1] << 20, np.uint8), 1 << 24
    noise = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    for start in range(0, buffer.size, size):
        part = buffer[start : start + size]
        part.set(noise[: part.size])
    arrived, out = cupy.ndarray(1, np.uint32), cupy.ndarray(1, np.uint32)
    jobs = [(who, mib) for who in (SAME, OTHER, ALL) for mib in READ] + [(WRITTEN, mib) for mib in WROTE]
    for who, mib in jobs:
        arrived.data.memset(0, 4)
        runtime.deviceSynchronize()
        print(f"counted|{who}|{mib}", flush=True)
        words = np.int64((mib << 20) // 16)
        runtime.profilerStart()
        if who == WRITTEN:
            write((4 * sms,), (256,), (buffer, words))
        else:
            how = np.int32(SHIFT * (who == OTHER)), np.int32(who == ALL)
            twice((sms,), (1024,), (buffer, words, *how, arrived, out))
        runtime.deviceSynchronize()
        runtime.profilerStop()


def main() -> None:
    """Count, and write the lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file, required="--target" not in sys.argv)
    parser.add_argument("--target", action="store_true")
    options = parser.parse_args()
    if options.target:
        return target()
    from hw4cli.lab.measure.counters import read_launches
    from hw4cli.lab.measure.metrics import DRAM_READ, DRAM_WRITTEN, NCU, value_of
    from hw4cli.lab.measure.profilers import Profiler, find_tool, profile_text

    metrics = DRAM_READ, DRAM_WRITTEN
    counters = [name for metric in metrics for name in metric.ncu]
    command = [sys.executable, "-m", "benchmarks.measure.cache", "--target"]
    text, _ = profile_text(Profiler(NCU, find_tool(NCU)), counters, command, from_start=False)
    marks = [line.split("|")[1:] for line in text.splitlines() if line.startswith("counted|")]
    lines: list[Iterable[object]] = [("pass", "mib", "dram_read", "dram_written")]
    for words, one in zip(marks, read_launches(text)[1], strict=True):
        values = (value_of(metric, NCU, one.values) for metric in metrics)
        lines.append([*words, *(f"{value or 0:.2f}" for value in values)])
    write_lines(options.output, lines)
    return None


if __name__ == "__main__":
    end_with(main)
