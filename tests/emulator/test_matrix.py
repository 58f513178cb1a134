"""The kernel for AMD's matrix cores, executed on the CPU with wavefronts of 64 lanes; and what its machine code has."""

import re
import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest
from needs import skip_without
from slow import slow

from hw4cli.device.hip import hiprtc
from hw4cli.device.kernelcheck import check, compiler_for
from hw4cli.device.ownkernel import kernel_named
from hw4cli.emulator.build import PLAIN, RACE, find_compiler, shared_object
from hw4cli.emulator.check import EQUAL, HUGE, RANDOM_DATA, check_kernel, make_data
from hw4cli.emulator.library import Library
from hw4cli.errors import MachineError
from hw4cli.plans.plan import AMD_DEVICES
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path, kernel_source

PATH = data_path("kernels/hip/matrix.cu")
NAME, MI210 = str(PATH), AMD_DEVICES["gfx90a"]
SHAPES = [Shape(1, 131, 64), Shape(3, 65, 32), Shape(1, 67, 40), Shape(1, 1, 8), Shape(2, 131, 32, causal=True)]


def mistakes_of(path, **how):
    return check_kernel(kernel_named(NAME), path, props=MI210, lanes=[MI210.lanes], **how)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape}{' causal' * shape.causal}")
def test_it_is_right_and_free_of_mistakes(shape):
    data = [RANDOM_DATA] if shape.d == 64 else [RANDOM_DATA, HUGE] if shape.B == 3 else [RANDOM_DATA, EQUAL]
    assert [str(mistake) for mistake in mistakes_of(PATH, shapes=[shape], data=data, builds=[RACE])] == []


@slow
def test_its_products_are_those_of_float32():
    """No operand is rounded to fewer bits, as other kernels for matrix cores do."""
    shape = Shape(1, 300, 64)
    plan, block = kernel_named(NAME).plan(shape, MI210), make_data(RANDOM_DATA, shape)
    outcome = Library(shared_object(PATH, plan.macros, 0, 64, PLAIN)).run(plan, block, 64, watched=False)
    assert np.abs(outcome.o - exact_attention(block)).max() < 5e-6


MISTAKES = {
    "no barrier after the next tile is stored": ("        __syncthreads();\n    }", "    }", "race"),
    "the lanes of a row hold each other's keys": ("4 * half + n % 4", "4 * (1 - half) + n % 4", "wrong answer"),
    "chunks are swizzled where they are stored alone": (
        "K[chunk_of(lane % SIDE, half * (HALF / 4) + n)]",
        "K[lane % SIDE * CHUNKS + half * (HALF / 4) + n]",
        "wrong answer",
    ),
    "a row's sum is that of half its lanes": ("l + __shfl_xor(l, SIDE, LANES)", "2 * l", "wrong answer"),
    "lanes by 32": ("lane = threadIdx.x % LANES", "lane = threadIdx.x % 32", "wrong answer"),
    "one stage for both tiles": ("(stage ^ 1) * 2", "stage * 2", "race"),
}


@slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name, tmp_path):
    old, new, kind = MISTAKES[name]
    assert PATH.read_text().count(old) == 1
    path = tmp_path / "matrix.cu"
    path.write_text(PATH.read_text().replace(old, new))
    shutil.copy(PATH.parent / "matrix.cuh", tmp_path)
    found = mistakes_of(path, shapes=[Shape(1, 131, 64)], data=[RANDOM_DATA], builds=[RACE])
    assert kind in {mistake.kind for mistake in found}


ADDRESSES = """
#include <cstdio>
constexpr int D = 64, CHUNKS = D / 4;
#define SWIZZLED {swizzled}
#define __device__
#define __forceinline__ inline
{lines}
int main() {{ for (int lane = 0; lane < 32; lane++) std::printf("%d\\n", chunk_of(lane, 3)); }}
"""


@slow
@pytest.mark.parametrize(("swizzled", "times"), [(0, 8), (1, 1)])
def test_eight_lanes_that_load_k_together_meet_in_no_bank_where_it_is_swizzled(swizzled, times, tmp_path):
    lines = re.search(r"constexpr int TWOS.*?\n}\n", PATH.read_text(), re.DOTALL)[0]
    source = ADDRESSES.format(swizzled=swizzled, lines=lines)
    command = [find_compiler().path, "-xc++", "-std=c++17", "-", "-o", str(tmp_path / "addresses")]
    subprocess.run(command, input=source, text=True, check=True)
    printed = subprocess.run([tmp_path / "addresses"], capture_output=True, text=True, check=True).stdout
    quarters = [int(chunk) % 8 for chunk in printed.split()]  # 32 banks of 4 bytes: eight times 16 bytes
    assert {max(Counter(quarters[n : n + 8]).values()) for n in range(0, 32, 8)} == {times}


def compiler(gfx):
    try:
        return compiler_for(AMD_DEVICES[gfx])
    except MachineError as reason:
        pytest.skip(f"needs hiprtc: {reason}")


@pytest.mark.parametrize("gfx", ["gfx90a", "gfx908"])
@pytest.mark.parametrize("d", [64, 104])
def test_it_compiles_without_spills_and_all_four_simds_of_a_unit_have_work(gfx, d):
    (row,) = check(kernel_named(NAME), AMD_DEVICES[gfx], Shape(1, 32768, d), compiler(gfx))
    assert (row.problem, row.spilled_bytes) == (None, 0)
    assert row.blocks * row.threads // 64 >= 4


@slow
@pytest.mark.parametrize("swizzled", [0, 1])
def test_the_loop_has_a_matrix_instruction_for_each_product_and_loads_k_by_16_bytes(swizzled, tmp_path):
    skip_without("llvm-objdump")
    plan = kernel_named(NAME).plan(Shape(1, 4096, 64), MI210)
    options = (*hiprtc.OPTIONS, *plan.options, f"-DSWIZZLED={swizzled}")
    (tmp_path / "code").write_bytes(compiler("gfx90a").compile(kernel_source(NAME, hip=True), "matrix.cu", options))
    command = ["llvm-objdump", "-d", "--mcpu=gfx90a", str(tmp_path / "code")]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count = Counter(re.findall(r"^\s+((?:v|ds)_\w+)", listing.partition("<matrix>:")[2], re.MULTILINE))
    assert count["v_mfma_f32_32x32x2f32"] == 64 // 2 + 2 * 32 // 2  # K Q' by pairs of columns, V' P' by pairs of keys
    assert count["ds_read_b128"] == 64 // 2 // 4


@slow
def test_hipcc_compiles_it_for_the_next_generation_too(tmp_path):
    skip_without("hipcc")
    plan = kernel_named(NAME).plan(Shape(1, 4096, 64), MI210)
    (tmp_path / "matrix.hip").write_text(kernel_source(NAME, hip=True))
    own = ["--genco", "--offload-arch=gfx940", "-include", "hip/hip_runtime.h", "-Rpass-analysis=kernel-resource-usage"]
    command = ["hipcc", *own, *hiprtc.OPTIONS, *plan.options, "matrix.hip", "-o", "code"]
    log = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert re.findall(r"ScratchSize \[bytes/lane\]: (\d+)", log) == ["0"]
