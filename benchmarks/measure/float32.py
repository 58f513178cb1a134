"""Attention of float32 numbers by whatever there is: its error against float64 beside its speed.

    python -m benchmarks.measure.float32 --output benchmarks/errors/GPU-float32.json

`exact` and `flash`, whose error is float32's, beside torch's memory-efficient attention, FlexAttention and Triton's
tf32x3; `split` and `split8` beside TF32 and beside 16 bits. Each answer is compared with float64 as `hw4 bench` does,
but only what is wrong is refused, not what is rounded: ROUNDED of the answer's norm is allowed to a peer, whose error
is what the record is about. `make results` makes the table and the picture.
"""

import argparse
from dataclasses import dataclass

from benchmarks.measure.scripts import end_with, new_file, say, write_record
from hw4cli.device.gpu import Gpu
from hw4cli.lab.arrays import expected
from hw4cli.lab.arrays.expected import Errors
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.cases import ArrayCase, ForwardData
from hw4cli.lab.sampling import Sampling
from hw4cli.lab.session import ArraySession
from hw4cli.plans.plan import Plan

# The assignment's long cases, of its numbers, and a layer of a language model.
WORKLOADS = (
    "B=4 N=16384 d=64 dtype=fp32 dist=uniform",
    "B=4 N=32768 d=32 dtype=fp32 dist=uniform",
    "B=2 H=16 N=8192 d=128 dtype=fp32",
)
KERNELS = ("exact", "flash", "split", "split8")
TRITON, ROUNDING = "benchmarks/measure/triton_attention.py", "benchmarks/measure/rounded_attention.py"
PEERS: tuple[str, ...] = ("efficient", "flex?", f"{TRITON}:tf32x3?", "flex-tf32?", f"{TRITON}:tf32?")
PEERS += (f"{ROUNDING}:fp16", f"{ROUNDING}:bf16")
ROUNDED = 0.02  # of the answer's norm: four times what bf16 is off by, a fifth of what a mistake is


@dataclass(frozen=True)
class RoundedCase(ArrayCase):
    """A workload whose peers may round."""

    def opened(self, gpu: Gpu, plan: Plan | None = None) -> ForwardData:
        """The case's arrays on a GPU."""
        return RoundedData(gpu, self)


class RoundedData(ForwardData):
    """Its arrays, and what O should be, roughly."""

    def problem(self, found: Errors) -> str | None:
        """Why a result with these errors is wrong, or None."""
        return expected.problem(found, ROUNDED, "the answer")


def main() -> int:
    """The record, and a line for each kernel and peer as it comes; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file, required=True)
    given = parser.parse_args()
    session = ArraySession(KERNELS, PEERS, Sampling(10, pause=0.03))
    cases = [RoundedCase(workload(text)) for text in WORKLOADS]
    session.compile(cases)
    for case in cases:
        for row in session.measure(case):
            found = f"{row.median:.4g} ms, {row.tflops:.0f} TFLOP/s, off by {row.max_error:.1e}" if row.median else ""
            say(f"{case.name}, {row.kernel}: {found or row.reason}")
    record = session.record()
    method = {**record["method"], "checked": f"float64; peers may be off by {ROUNDED:g} of the answer's norm"}
    write_record(given.output, {**record, "method": method})
    return int(session.failed)


if __name__ == "__main__":
    end_with(main)
