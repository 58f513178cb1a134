"""`make hw4`, the plain native program, as far as it goes without a GPU: it builds, and it refuses what is wrong."""

import itertools
import os
import re
import shutil
import struct
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from helpers import ROOT, fails, folder_is_clean, random_block, write_case

from hw4cli.compute.bounds import SAFE, bound
from hw4cli.compute.plan import CHIPS
from hw4cli.compute.variants import VARIANTS
from hw4cli.problem import suite
from hw4cli.problem.shape import Shape

SOURCE = ROOT / "kernels/host/hw4.cu"
ARCHITECTURES = [75, 80, 86, 89, 90, 100, 120]  # CUDA 13 no longer knows the GTX 1080's 61

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")


def compiled(cc):
    """The kernels that the program has for an architecture, by name: the tile (BR, BC, BLOCKS, LONGEST, COST), and d,
    THREADS, bytes, bytes a key."""
    command = ["cpp", "-P", "-x", "c++", f"-D__CUDA_ARCH_LIST__={cc}0", str(SOURCE)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"compiled\{[^,]+, (\w+)_rows, \w+, \{([^}]+)\},\s+([^}]+)\}", text)
    return {name: [[eval(x.strip()) for x in numbers.split(",")] for numbers in both] for name, *both in found}


def native_chip(cc, **changes):
    """A GPU as the program sees it: warp groups want an architecture of their own, sm_90a."""
    return replace(CHIPS[cc], warpgroups=False, **changes)


def expected(kernel, N, d, chip):
    plan = VARIANTS[kernel].plan(Shape(1000, N, d), chip)
    macros = plan.macros
    converted = 6 * d if kernel == "split" and not macros["INBLOCK"] else 0
    tile = [macros[name] for name in ("BR", "BC", "BLOCKS")]
    return [tile, [d, macros["THREADS"], plan.launches[plan.main].shared, converted]]


@pytest.mark.skipif(not shutil.which("cpp"), reason="there is no C preprocessor")
@pytest.mark.parametrize("cc", CHIPS)
def test_the_tiles_are_those_of_the_variants(cc):
    chip = native_chip(cc)
    plans = {f"flash_{d}": expected("flash", 4096, d, chip) for d in (32, 64)}
    if cc in (90, 100):
        plans |= {f"split_{d}": expected("split", 4095, d, chip) for d in (32, 64)}
        plans["split_64_many"] = expected("split", 4096, 64, chip)
        plans |= {f"split_{d}_few": expected("split", 256, d, chip) for d in (32, 64)}
    assert {name: [tile[:3], rest] for name, (tile, rest) in compiled(cc).items()} == plans


def chosen(kernel, shape, kernels):
    """The name of the compiled kernel that the program takes for a shape; None where it has none."""
    text = SOURCE.read_text()
    few, many = (int(re.search(rf"{name}_KEYS = (\d+)", text).group(1)) for name in ("FEW", "MANY"))
    name = f"{kernel}_{shape.d}"
    if kernel == "split" and few >= shape.N:
        name += "_few"
    elif name == "split_64" and many <= shape.N:
        name += "_many"
    return name if name in kernels else None


PLANNER = """
#include <cstdio>
#include "launches.cuh"
int main() {
    Tile tile;
    for (int converted, threads, B, N, d, sms; std::scanf("%d%d%d%d%d%d%d%d%d%d%d", &tile.br, &tile.bc, &tile.blocks,
                                                          &tile.longest, &tile.cost, &converted, &threads, &B, &N, &d,
                                                          &sms) == 11;) {
        const int splits = parts(tile, B, N, sms);
        std::printf("%d %lld %lld %lld %lld\\n", splits, scratch_bytes(tile, B, N, d, splits, converted),
                    convert_blocks(tile, B, N, d, threads), row_blocks(tile, B, N), combine_blocks(B, N, d, threads));
    }
}
"""


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    """The formulas of kernels/host/launches.cuh as a program: a line of numbers in, parts, scratch and blocks out."""
    folder = tmp_path_factory.mktemp("planner")
    (folder / "planner.cpp").write_text(PLANNER)
    command = ["g++", "-O3", "-std=c++17", "-Wall", "-Werror", f"-I{SOURCE.parent}", "-o", "planner", "planner.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "planner"


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler")
@pytest.mark.parametrize("cc", CHIPS)
def test_every_case_is_launched_as_the_python_program_launches_it(planner, cc):
    """The program is what hw4 is measured against, so it must be as good: on all cases, other shapes, larger GPUs."""
    rng = np.random.default_rng(cc)
    shapes = [case.shape for case in suite.cases().values()]
    shapes += [
        Shape(int(rng.integers(1, 600)), int(2 ** rng.uniform(0, 15.3)), d) for d in (32, 64) for _ in range(100)
    ]
    chips = [native_chip(cc), *(native_chip(cc, sms=sms) for sms in (13, 78, 114, 192))]
    kernels, questions, answers = compiled(cc), "", []
    for shape, kernel, chip in itertools.product(shapes, ("flash", "split"), chips):
        if name := chosen(kernel, shape, kernels):
            tile, (d, threads, _, converted) = kernels[name]
            others = 256 if kernel == "split" else threads  # threads of the launches before and after
            questions += f"{' '.join(map(str, tile))} {converted} {others} {shape.B} {shape.N} {d} {chip.sms}\n"
            answers.append((kernel, shape, chip.sms, VARIANTS[kernel].plan(shape, chip)))
    told = subprocess.run([planner], input=questions, check=True, capture_output=True, text=True).stdout.splitlines()
    for (kernel, shape, sms, plan), line in zip(answers, told, strict=True):
        splits, scratch, convert, rows, combine = map(int, line.split())
        blocks = {"convert": convert, kernel: rows * splits, "combine": combine}
        launched = {launch.symbol.split("_")[-1]: launch.grid for launch in plan.launches}
        assert (splits, {step: blocks[step] for step in launched}) == (plan.splits, launched), (kernel, shape, sms)
        assert ("combine" in launched) == (splits > 1)
        assert scratch == plan.scratch if kernel == "split" else scratch >= plan.scratch


@pytest.mark.skipif(not shutil.which("cpp"), reason="there is no C preprocessor")
@pytest.mark.parametrize("cc", CHIPS)
def test_where_split_computes_its_error_is_proven(cc):
    most_keys = int(re.search(r"MOST_KEYS = (\d+)", SOURCE.read_text()).group(1))
    for name, (_, (d, *_)) in compiled(cc).items():
        if name.startswith("split"):
            assert bound("split", (3, 3, 3), d, 256 if name.endswith("few") else most_keys, native_chip(cc)) <= SAFE


@needs_nvcc
@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_it_compiles_without_a_warning_and_hardly_a_spill(cc, tmp_path):
    flags = ["-O3", "-std=c++17", f"-arch=sm_{cc}", "-Xcompiler", "-Wall", "-Xptxas", "-v"]
    command = ["nvcc", *flags, "-c", "-o", str(tmp_path / "hw4.o"), str(SOURCE)]
    result = subprocess.run(command, capture_output=True, text=True)
    log = result.stdout + result.stderr
    assert result.returncode == 0, log
    assert "warning" not in log, log
    spills = [int(stores) for stores in re.findall(r" (\d+) bytes spill stores, \d+ bytes spill loads", log)]
    assert len(spills) == (19 if cc in (90, 100) else 4)  # two of flash, three of split, for each head size and tile
    # On sm_90 nvcc needs a few registers more than NVRTC for split's 128x64, which already takes all 255.
    assert max(spills) <= (16 if cc == 90 else 0), log


def test_make_builds_it_as_the_assignment_does():
    command = ["make", "-nB", "hw4", "NVCC_ARCH=sm_61", "NVCC=/opt/cuda/bin/nvcc"]
    plan = subprocess.check_output(command, cwd=ROOT, text=True)
    assert plan.strip() == "/opt/cuda/bin/nvcc -O3 -std=c++17 -arch=sm_61 -o hw4 kernels/host/hw4.cu"
    assert "rm -f hw4\n" in subprocess.check_output(["make", "-n", "clean"], cwd=ROOT, text=True)


@pytest.mark.parametrize(("answer", "native"), [("echo 'GPU 0: Some GPU'", True), ("exit 9", False)])
def test_make_asks_for_the_architecture_only_where_there_is_no_gpu(tmp_path, answer, native):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["make", "-nB", "hw4"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (result.returncode == 0) == native
    assert ("-arch=native" in result.stdout) == native
    assert ("make hw4 NVCC_ARCH=sm_61" in result.stderr) != native


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("native") / "hw4"
    subprocess.run(["nvcc", "-O3", "-std=c++17", "-arch=sm_90", "-o", str(path), str(SOURCE)], check=True)
    return path


def run(program, *arguments):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.run([program, *arguments], env=env, capture_output=True, text=True)


def header(B, N, d):
    return struct.pack("<iii", B, N, d)


@needs_nvcc
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "too short"),
        (header(2, 128, 32)[:11], "too short"),
        (header(1, 5, 32) + bytes(12 * 5 * 32 - 1), "has 1931 bytes"),
        (header(1, 5, 32) + bytes(12 * 5 * 32 + 1), "asks for 12 + 12*B*N*d"),
        (header(2**31 - 1, 2**31 - 1, 64) + bytes(100), "asks for 12 + 12*B*N*d"),
        (header(0, 5, 32), "must be positive"),
        (header(3, -5, 32), "must be positive"),
        (header(1, 5, 36) + bytes(12 * 5 * 36), "only d = 32 and 64"),
        (header(1, 5, -64), "only d = 32 and 64"),
    ],
)
def test_a_bad_file_is_one_sentence_and_leaves_nothing_behind(program, tmp_path, content, words):
    (tmp_path / "in").write_bytes(content)
    fails(run(program, tmp_path / "in", tmp_path / "out"), 2, words, str(tmp_path / "in"))
    folder_is_clean(tmp_path, "in")


@needs_nvcc
def test_wrong_usage_is_one_sentence(program, tmp_path):
    fails(run(program), 2, "INPUTFILE OUTPUTFILE")
    fails(run(program, "a", "b", "c"), 2, "INPUTFILE OUTPUTFILE")
    fails(run(program, tmp_path / "none", tmp_path / "out"), 2, "No such file")
    fails(run(program, tmp_path, tmp_path / "out"), 2, "Is a directory")


@needs_nvcc
def test_no_gpu_is_one_sentence_and_leaves_the_old_output(program, tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 8, 32))
    (tmp_path / "out").write_bytes(b"old")
    fails(run(program, source, tmp_path / "out"), 3, "failed: ")
    assert (tmp_path / "out").read_bytes() == b"old"
