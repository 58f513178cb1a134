"""half_mma, executed on the CPU against float64 as the GPUs of each compute capability would run it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from halves import assert_right, numbers, random_words, rounded
from slow import quick_of_each, slow, slow_of_each

from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.errors import MachineError
from hw4cli.plans.halfmma import CORES, MMA, MmaTiling, mma_plan, mma_tiling
from hw4cli.plans.kernels16 import ENTRIES16, kernel16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)

# The tiling, where it is not what the GPU would take; the compute capability; the head size; the type; rows and keys.
# Each in two: causal and not.
WAYS = {
    "H100, d=128": (None, 90, 128, BFLOAT16, 150, 170),
    "A100, d=64": (None, 80, 64, FLOAT16, 140, 200),
    "RTX 4090, d=80, padded": (None, 89, 80, BFLOAT16, 140, 100),
    "B200, d=24, padded": (None, 100, 24, FLOAT16, 97, 210),
    "T4, d=40, without copies beside the work": (None, 75, 40, FLOAT16, 100, 150),
    "two rounds a tile": (MmaTiling(4, 2, 128, 64, q_registers=False, blocks=2), 90, 64, FLOAT16, 70, 260),
}


@slow_of_each(5)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_half_mma_is_right_and_free_of_races(way, causal):
    how, cc, d, dtype, rows, keys = WAYS[way]
    work = Workload(dtype, 1, 2, 1, rows, keys, d, causal, keys - rows)
    assert_right(work, *random_words(work), how, kernel=MMA, cc=cc)


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_scores_that_grow_along_the_keys_are_rescaled(dtype):
    work = Workload(dtype, 1, 1, 1, 140, 600, 64)
    q, k, v = random_words(work, factor=4)
    k = rounded(numbers(k, dtype) * np.linspace(0.05, 5, 600)[:, None], dtype)
    assert_right(work, q, k, v, cc=80)
    below = rounded(-np.abs(numbers(k, dtype)), dtype)  # all scores are negative, and fall
    assert_right(work, rounded(np.abs(numbers(q, dtype)), dtype), below[:, :, ::-1], v, cc=80)


@slow
@pytest.mark.parametrize("cc", [75, 80, 86, 90, 100, 120])
def test_no_register_spills_on_any_gpu(cc):
    compiler = Compiler(find(13000, cc), 13000, cc)
    for d in (64, 128):
        work = Workload.square(FLOAT16, 4, 16, 4096, d, causal=True)
        options = (*OPTIONS, *mma_plan(work, DEVICES[cc]).options, "--ptxas-options=-v")
        _, log = compiler.build(kernel_source(MMA), "half_mma.cu", options, cc)
        assert re.findall(r"(\d+) bytes spill", log) == ["0", "0"], log


def test_each_gpu_gets_the_fastest_kernel_that_it_runs():
    work = Workload.square(FLOAT16, 1, 32, 1024, 64)
    assert [kernel16(work, DEVICES[cc]) for cc in (61, 75, 80, 90, 120)] == [CORES, MMA, MMA, "half", MMA]
    assert kernel16(replace(work, dtype=BFLOAT16), DEVICES[75]) == CORES
    assert kernel16(work, DEVICES[90], MMA) == MMA


def test_blocks_of_all_gpus_fit_into_their_shared_memory():
    for cc, props in DEVICES.items():
        for d in (8, 32, 64, 96, 128):
            work = Workload.square(FLOAT16, 1, 1, 128, d)
            if cc >= 75:
                (step,) = mma_plan(work, props).launches
                blocks = mma_tiling(work, props).blocks
                assert blocks * (step.shared + props.shared_reserved) <= props.shared_sm


def test_a_gpu_whose_tensor_cores_know_no_bf16_is_refused_in_a_sentence():
    with pytest.raises(MachineError, match=r"half_mma needs compute capability 8\.0 for bfloat16, this GPU has 7\.5"):
        mma_plan(Workload.square(BFLOAT16, 1, 1, 128, 64), DEVICES[75])


def test_tiles_that_are_tried_hold_whole_numbers_of_keys_that_are_weighed_together():
    space = ENTRIES16[MMA].space
    assert all(one.keys % one.sub == 0 for one in space)
    assert len({*space}) == len(space) == 32
