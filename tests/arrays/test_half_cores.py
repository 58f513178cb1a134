"""half_cores, executed on the CPU against float64: 16-bit attention on GPUs without tensor cores for it."""

import re

import pytest
from halves import assert_right, random_words
from slow import quick_of_each, slow

from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.plans.halfmma import CORES, cores_plan
from hw4cli.plans.plan import DEVICES, SHARED_DEFAULT
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)

# The compute capability; rows, keys, the head size, the type; the offset, if it is causal.
WAYS = {
    "GTX 1080": (61, 70, 100, 64, FLOAT16, None),
    "T4, bf16, causal": (75, 70, 90, 40, BFLOAT16, 20),
    "rows without a key": (61, 70, 50, 24, FLOAT16, -30),
    "a large head": (61, 40, 50, 128, BFLOAT16, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_half_cores_is_right_and_free_of_races(way):
    cc, rows, keys, d, dtype, offset = WAYS[way]
    work = Workload(dtype, 1, 4, 2, rows, keys, d, offset is not None, offset or 0)
    outcome = assert_right(work, *random_words(work, factor=2), kernel=CORES, cc=cc)
    if offset is not None and offset < 0:
        assert not outcome.o[:, :, :-offset].any()


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_it_is_right_with_wavefronts_of_64_lanes(dtype):
    work = Workload(dtype, 1, 2, 1, 70, 50, 40, causal=True, offset=-5)
    assert_right(work, *random_words(work), kernel=CORES, cc=61, lanes=64)


@slow
@pytest.mark.parametrize("cc", [61, 75])
def test_no_register_spills_and_any_gpu_has_the_shared_memory(cc):
    compiler = Compiler(find(13000, cc), 13000, cc)
    for d in (64, 128):
        planned = cores_plan(Workload.square(BFLOAT16, 1, 2, 1024, d, causal=True), DEVICES[cc])
        assert planned.launches[0].shared <= SHARED_DEFAULT
        _, log = compiler.build(kernel_source(CORES), "x.cu", (*OPTIONS, *planned.options, "--ptxas-options=-v"), cc)
        assert re.findall(r"(\d+) bytes spill", log) == ["0", "0"], log
