"""Decoding beside the memory's speed: few rows and many keys, torch's attention, a kernel that only reads, a copy.

    python -m benchmarks.measure.decoding --output benchmarks/h200-decode.json

The record is one of `hw4 bench` on workloads; `memory` has for each workload the bytes of K and V, and the medians, in
milliseconds, of a kernel that only reads so many bytes (`read`) and of the driver's copy that moves so many, half of
them read and half written (`copy`), each after the L2 cache was overwritten.
"""

import argparse
import statistics
from typing import Any

from benchmarks.measure.scripts import end_with, new_file, write_record
from hw4cli.lab.arrays.named import NamedWorkload, workload

GROUPED = "H=32 KVH=8 N=1 d=128 dtype=bf16"
WORKLOADS = (
    *(f"B={batch} Nk={keys} {GROUPED}" for batch, keys in ((1, 8192), (1, 16384), (1, 32768), (2, 32768), (4, 32768))),
    "decode",
    "B=1 H=32 KVH=1 N=1 Nk=131072 d=128 dtype=bf16",
    "B=8 H=32 N=1 Nk=4096 d=64 dtype=fp16",
    "B=4 H=32 KVH=8 N=8 Nk=16384 d=128 dtype=bf16 causal",
)
SAMPLES, WARM_UP = 15, 3
BLOCKS = 4  # of a multiprocessor
READ = r"""
extern "C" __global__ void __launch_bounds__(256) read(const uint4* a, long long n, unsigned* out) {
    unsigned sum = 0;
    for (long long i = blockIdx.x * 2048ll + threadIdx.x; i < n; i += gridDim.x * 2048ll) {
        uint4 x[8];
        #pragma unroll
        for (int k = 0; k < 8; k++) x[k] = i + k * 256 < n ? __ldcs(a + i + k * 256) : uint4{0, 0, 0, 0};
        #pragma unroll
        for (int k = 0; k < 8; k++) sum ^= x[k].x ^ x[k].y ^ x[k].z ^ x[k].w;
    }
    if (sum == 12345) *out = sum;
}
"""


def key_bytes(case: NamedWorkload) -> int:
    """Bytes of K and V."""
    work = case.work
    return 2 * work.batch * work.kv_heads * work.Nk * work.d * 2


def memory(timer: Any, sizes: list[int]) -> list[dict[str, float]]:
    """What reading and copying take, for numbers of bytes."""
    cupy = timer.gpu.cupy
    read = cupy.RawModule(code=READ).get_function("read")
    blocks = BLOCKS * timer.gpu.props.sms
    source, target = (cupy.zeros(max(sizes) // part, cupy.uint8) for part in (1, 2))
    out = cupy.zeros(1, cupy.uint32)
    found = []
    for size in sizes:
        ways = {
            "read": lambda size=size: read((blocks,), (256,), (source, cupy.int64(size // 16), out)),
            "copy": lambda size=size: target.data.copy_from_device_async(source.data, size // 2, cupy.cuda.Stream.null),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(WARM_UP + SAMPLES):
            for name, way in ways.items():
                times[name].append(timer.milliseconds(way, cold=True))
        found.append({"bytes": size, **{name: statistics.median(x[WARM_UP:]) for name, x in times.items()}})
    return found


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file, required=True)
    options = parser.parse_args()
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.cases import ArrayCase
    from hw4cli.lab.sampling import Sampling
    from hw4cli.lab.session import ArraySession

    session = ArraySession(peers=("cudnn", "fa2"), sampling=Sampling(30))
    cases = [workload(text) for text in WORKLOADS]
    session.compile(map(ArrayCase, cases))
    for case in cases:
        for row in session.measure(ArrayCase(case)):
            told = f"{row.median:.4f} ms" if row.median else row.reason
            print(f"{case.name}: {row.kernel} {told}", flush=True)
    found = memory(GpuTimer(session.gpu), [key_bytes(case) for case in cases])
    record = {**session.record(), "memory": dict(zip([case.name for case in cases], found, strict=True))}
    write_record(options.output, record)


if __name__ == "__main__":
    end_with(main)
