"""GPUs that CUDA 13 no longer knows, the GTX 1080 (6.1) and the V100 (7.0): what NVRTC 12 makes of the kernels."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import ROOT
from slow import quick_of_each, slow, slow_of_each

from hw4cli.device.nvrtc import Compiler, find
from hw4cli.plans.bounds import PROVEN
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import ABSMAX_CHUNK
from hw4cli.plans.native import configurations, write
from hw4cli.plans.plan import DEVICES, DeviceProperties
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_source

LIBRARY = find(12000, 61)
pytestmark = [
    quick_of_each(2),
    pytest.mark.skipif(LIBRARY is None, reason="needs NVRTC 12 (pip install 'hw4cli[dev]')"),
]

GPUS = {"6.1": DEVICES[61], "7.0": DeviceProperties(70, 80, 96 << 10, 96 << 10)}
FLOAT32 = [name for name, variant in VARIANTS.items() if variant.least_cc < 75]
# Every width that flash's rows are padded to, with padding and without.
HEAD_SIZES = (4, 32, 36, 64, 68, 100, 128)
FEWER_SIZES = (32, 64, 128)  # of kernels without a proven bound, on the V100
FIGURES = re.compile(
    r"Function properties for (\w+)\n[^\n]* (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


def compiled(name, cc, macros):
    """Of each kernel in a file: registers, and bytes spilled."""
    options = ("-std=c++17", "-ftz=true", "--ptxas-options=-v", *macros)
    code, log = Compiler(LIBRARY, 12000, cc).build(kernel_source(name), f"{name}.cu", options, cc)
    assert code[:4] == b"\x7fELF"
    return {symbol: (int(used), int(out) + int(back)) for symbol, out, back, used in FIGURES.findall(log)}


@slow_of_each(12)
@quick_of_each(1)
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("name", FLOAT32)
def test_a_kernel_compiles_without_spills_and_its_blocks_fit(name, gpu):
    props = GPUS[gpu]
    for d in HEAD_SIZES if name in PROVEN or gpu == "6.1" else FEWER_SIZES:
        plan = VARIANTS[name].plan(Shape(1, 32768, d), props)
        assert max(launch.shared for launch in plan.launches) <= props.shared_limit
        kernels = compiled(name, props.cc, plan.options)
        for launch in plan.launches:
            registers, spilled = kernels[launch.symbol]
            assert spilled == 0, f"{launch.symbol} spills {spilled} bytes at d={d}"
            assert registers * launch.block <= 65536


@pytest.mark.parametrize("gpu", GPUS)
def test_the_range_check_compiles_without_spills(gpu):
    assert compiled("absmax", GPUS[gpu].cc, [f"-DABSMAX_CHUNK={ABSMAX_CHUNK}"])["absmax"][1] == 0


def test_a_gtx_1080_needs_no_more_shared_memory_than_any_block_may_have():
    assert DEVICES[61].shared_limit == 48 << 10
    shapes = [Shape(B, N, d) for B, N in ((1, 1), (3, 129), (2, 32768)) for d in range(4, 129, 4)]
    for name in FLOAT32:
        plans = [VARIANTS[name].plan(shape, DEVICES[61]) for shape in shapes]
        assert max(launch.shared for plan in plans for launch in plan.launches) <= 48 << 10


@pytest.fixture(scope="module")
def nvcc12():
    """The nvcc of a CUDA 12: NVCC12 names it, or it is on PATH or where CUDA's installer puts it."""
    places = [os.environ.get("NVCC12"), shutil.which("nvcc"), *map(str, Path("/usr/local").glob("cuda-12*/bin/nvcc"))]
    for place in filter(None, places):
        version = subprocess.run([place, "--version"], capture_output=True, text=True, check=False).stdout
        if re.search(r"release 12\.", version):
            return place
    pytest.skip("needs the nvcc of a CUDA 12 (NVCC12=...): no Python package has it, and CUDA 13 has no 6.1")


def test_make_hw4_builds_for_a_gtx_1080(nvcc12, tmp_path):
    shutil.copytree(ROOT, tmp_path / "tree", ignore=shutil.ignore_patterns(".*", "build", "testcases", "benchmarks"))
    command = ["make", "hw4", "NVCC_ARCH=sm_61", f"NVCC={nvcc12}"]
    result = subprocess.run(command, cwd=tmp_path / "tree", capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert subprocess.run([tmp_path / "tree/hw4"], capture_output=True, check=False).returncode == 2


@slow
def test_the_native_programs_kernels_compile_for_a_gtx_1080_without_spills(tmp_path):
    """What of `make hw4 NVCC_ARCH=sm_61` runs on the GPU, by NVRTC 12, where no nvcc of CUDA 12 can be had."""
    write(tmp_path)
    for header in ("params.cuh", "score.cuh"):
        shutil.copy(ROOT / "kernels" / header, tmp_path)
    kernels = re.sub(
        r"const Kernels KERNELS\[\] = \{.*?\};", "", (tmp_path / "kernels.cuh").read_text(), flags=re.DOTALL
    )
    source = '#include "params.cuh"\n' + kernels
    options = ("-std=c++17", "--ptxas-options=-v", "-D__CUDA_ARCH_LIST__=610", f"-I{tmp_path}")
    _, log = Compiler(LIBRARY, 12000, 61).build(source, "kernels.cu", options, 61)
    spills = [(int(out), int(back)) for _, out, back, _ in FIGURES.findall(log)]
    codes = {entry.code for entry in configurations(61)}
    assert spills == [(0, 0)] * 2 * len(codes)  # flash and what puts its parts together, for each tile and head size
