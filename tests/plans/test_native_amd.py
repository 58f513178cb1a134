"""`make hw4-amd`, the native program for AMD's GPUs, as far as it goes without one."""

import os
import re
import subprocess

import pytest
from helpers import ROOT, fails, random_block, write_case
from needs import needs
from slow import quick_of_each, slow
from test_native import PLANNER, SOURCE, expected

from hw4cli.plans.columns import SYMBOLS
from hw4cli.plans.native import configurations, write
from hw4cli.plans.plan import AMD_DEVICES
from hw4cli.problem import suite

pytestmark = quick_of_each(2)

MI210 = AMD_DEVICES["gfx90a"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program for three architectures, and what the compiler said."""
    folder = tmp_path_factory.mktemp("native")
    write(folder, hip=True)
    flags = ["-O3", "-std=c++17", "-Wall", "-Wno-unused-function", "-Rpass-analysis=kernel-resource-usage"]
    flags += ["-fgpu-flush-denormals-to-zero", *(f"--offload-arch={gfx}" for gfx in AMD_DEVICES), f"-I{folder}"]
    command = ["hipcc", *flags, "-o", str(folder / "hw4-amd"), "-x", "hip", str(SOURCE)]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return folder / "hw4-amd", log


@slow
@needs("hipcc")
def test_it_compiles_for_three_architectures_without_a_warning_or_a_spill(program):
    _, log = program
    assert "warning" not in log
    found = re.findall(r"Function Name: (\w+).*?ScratchSize \[bytes/lane\]: (\d+)", log, re.DOTALL)
    codes = {entry.code for entry in configurations("gfx90a")}
    # flash and what puts its parts together, for each tile and head size; copies of rows
    assert len(found) == 3 * (2 * len(codes) + len(SYMBOLS))
    # gfx1030 has too few registers for rows of 128 columns.
    assert [name for name, spilled in found if spilled != "0"] == ["flash_128_1_rows"]


@slow
@needs("hipcc")
def test_what_it_refuses_is_one_sentence(program, tmp_path):
    path, _ = program

    def run(*arguments):
        return subprocess.run([path, *arguments], capture_output=True, text=True)

    fails(run(), 2, "INPUTFILE OUTPUTFILE")
    fails(run("--causal", "a", "b"), 2, "without a mask")
    fails(run(tmp_path / "none", tmp_path / "out"), 2, "No such file")
    if not os.path.exists("/dev/kfd"):  # noqa: PTH110
        source = write_case(tmp_path / "in", random_block(1, 8, 32))
        fails(run(source, tmp_path / "out"), 3, "failed: hipError")
        assert not (tmp_path / "out").exists()


@needs("g++")
def test_every_case_is_launched_as_the_python_program_launches_it(tmp_path):
    write(tmp_path, hip=True)
    flags = [f"-I{SOURCE.parent}", f"-I{tmp_path}", "-D__HIP__=1", "-O1", "-std=c++17", "-o", str(tmp_path / "planner")]
    subprocess.run(["g++", *flags, "-xc++", "-"], input=PLANNER, text=True, check=True)
    shapes = [case.shape for case in suite.cases().values()]
    lines = "\n".join(f"{kernel} {s.B} {s.N} {s.d} {MI210.sms}" for s in shapes for kernel in (0, 1))
    printed = subprocess.run([tmp_path / "planner"], input=lines, check=True, capture_output=True, text=True).stdout
    flash, split = printed.splitlines()[::2], printed.splitlines()[1::2]
    assert [[*map(int, line.split())] for line in flash] == [expected("flash", shape, MI210) for shape in shapes]
    assert set(split) == {"none"}
    assert {entry.kernel for entry in configurations("gfx90a", known=False)} == {"flash"}


@needs("make")
def test_make_builds_it_for_the_architectures_that_are_named():
    command = ["make", "-nB", "hw4-amd", "HIPCC=/opt/rocm/bin/hipcc", "HIP_ARCH=gfx90a gfx908"]
    make, build = subprocess.check_output(command, cwd=ROOT, text=True).strip().splitlines()
    assert make == "python3 -m hw4cli.plans.native build/amd hip"
    assert build == (
        "/opt/rocm/bin/hipcc -O3 -std=c++17 --offload-arch=gfx90a --offload-arch=gfx908 "
        "-fgpu-flush-denormals-to-zero -Ibuild/amd -o hw4-amd -x hip kernels/host/hw4.cu"
    )
