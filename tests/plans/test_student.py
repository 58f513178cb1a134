"""kernels/host/student.cu, a homework's first version: its kernel on the CPU, and the program as nvcc builds it."""

import re
import struct
import subprocess

import numpy as np
import pytest
from helpers import ROOT, random_block
from needs import needs, skip_without
from slow import quick_of_each

from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.plan import Launch, Plan, Scratch
from hw4cli.problem.oracle import exact_attention

SOURCE = ROOT / "kernels/host/student.cu"
# The emulator starts kernels that take Params: one such that does what the program's launch asks for, for one batch.
WRAPPER = """
extern "C" __global__ void student(const Params p) {
    attention<D_>(p.q.data, p.k.data, p.v.data, p.o.data, p.Nk);
}
"""


@quick_of_each(1)
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("d", [32, 64])
def test_its_kernel_computes_attention_without_a_race(tmp_path, d, pad):
    text = SOURCE.read_text()
    kernel = text[text.index("// kernel") : text.index("// program")].replace("__global__", "__device__")
    head = f'#include "params.cuh"\n#define PAD {pad}\nconstexpr int BR = 32, BC = 32;\n'
    path = tmp_path / f"student{d}{pad}.cu"
    path.write_text(head + kernel + WRAPPER.replace("D_", str(d)))
    block = random_block(1, 128, d)
    plan = Plan("student", {"D": d}, (Launch("student", 4, 1024, 0),), layout=Scratch(16))
    outcome = Library(shared_object(path, {}, 90, 32, RACE)).run(plan, block, watched=True)
    assert [str(finding) for finding in outcome.findings] == []
    assert np.abs(outcome.o - exact_attention(block)).max() < 1e-5


@needs("make")
@pytest.mark.parametrize(("name", "option"), [("student", ""), ("student-padded", "-DPAD=1 ")])
def test_make_builds_both(name, option):
    plan = subprocess.check_output(["make", "-nB", "students", "NVCC_ARCH=sm_61", "NVCC=nvcc"], cwd=ROOT, text=True)
    assert f"nvcc -O3 -std=c++17 -arch=sm_61 {option}-o {name} kernels/host/student.cu" in plan.splitlines()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    skip_without("nvcc")
    path = tmp_path_factory.mktemp("student") / "student"
    flags = ["-O3", "-std=c++17", "-arch=sm_75", "-Xcompiler", "-Wall", "-Xptxas", "-v", "-DPAD=1"]
    built = subprocess.run(["nvcc", *flags, "-o", path, SOURCE], capture_output=True, text=True)
    log = built.stdout + built.stderr
    assert (built.returncode, "warning" in log) == (0, False), log
    assert re.findall(r"(\d+) bytes spill stores", log) == ["0", "0"]
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"short", "cannot be read"),
        (struct.pack("<iii", 1, 100, 32), "N must be a multiple of 32"),
        (struct.pack("<iii", 2, 128, 64) + bytes(100), "is too short"),
    ],
)
def test_a_file_that_it_cannot_compute_is_one_sentence(program, tmp_path, content, words):
    (tmp_path / "in").write_bytes(content)
    result = subprocess.run([program, tmp_path / "in", tmp_path / "out"], capture_output=True, text=True)
    (line,) = result.stderr.splitlines()
    assert (result.returncode, words in line) == (2, True), line
    assert not (tmp_path / "out").exists()
