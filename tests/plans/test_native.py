"""`make hw4`, the plain native program, as far as it goes without a GPU: it builds, and it refuses what is wrong."""

import itertools
import os
import re
import struct
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers import ROOT, fails, folder_is_clean, random_block, write_case
from needs import needs
from slow import quick_of_each, slow, slow_of_each

from hw4cli.plans.bounds import SAFE, bound
from hw4cli.plans.columns import SYMBOLS
from hw4cli.plans.common import padded_d
from hw4cli.plans.dispatch import candidates
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.native import GEFORCE, KERNELS, WIDTHS, configurations, native_properties, plans_h
from hw4cli.plans.plan import DEVICES
from hw4cli.problem import suite
from hw4cli.problem.workload import Shape

SOURCE = ROOT / "kernels/host/hw4.cu"
# CUDA 13 no longer knows the GTX 1080's 61. The first and the last stand for all: with split, and with flash alone.
ARCHITECTURES = [90, 80, 86, 89, 100, 120, 75]


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The folder of what is made from the plans, by a Python without any package."""
    folder = tmp_path_factory.mktemp("generated")
    command = [sys.executable, "-I", "-S", "-c", GENERATE, str(ROOT), str(folder)]
    subprocess.run(command, check=True)
    return folder


GENERATE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from hw4cli.plans import native
native.write(Path(sys.argv[2]))
"""

PLANNER = """
#include <cstdio>
#include "launches.cuh"
int main() {
    for (int kernel, B, N, d, sms; std::scanf("%d%d%d%d%d", &kernel, &B, &N, &d, &sms) == 5;) {
        int n = next_for(0, N, d);
        while (n < COUNT && CONFIGURATIONS[n].kernel != kernel) n = next_for(n + 1, N, d);
        if (n == COUNT) { std::puts("none"); continue; }
        const Configuration& c = CONFIGURATIONS[n];
        const Launches l = launches(c, B, N, sms);
        for (long long x : {c.BR, c.BC, c.resident, c.threads, c.shared, l.splits, l.convert, l.rows, l.combine,
                            c.convert_threads, c.combine_threads, l.tiles, l.row_stats, l.partial_o, l.bytes})
            std::printf("%lld ", x);
        std::puts("");
    }
}
"""


def planner(cc, folder):
    """The program's choices and formulas for an architecture, as a program of their own."""
    path = folder / f"planner-{cc}"
    include = [f"-I{SOURCE.parent}", f"-I{folder}", f"-D__CUDA_ARCH_LIST__={cc}0"]
    command = ["g++", "-O3", "-std=c++17", "-Wall", "-Werror", *include, "-o", str(path), "-xc++", "-"]
    subprocess.run(command, input=PLANNER, text=True, check=True)
    return path


def expected(kernel, shape, props):
    """The same numbers, of the plan that the Python program makes."""
    plan = VARIANTS[kernel].plan(shape, props)
    macros, main, layout = plan.macros, plan.launches[plan.main], plan.layout
    steps = {launch.symbol.removeprefix(kernel): launch for launch in plan.launches}
    grids = [steps[step].grid if step in steps else 0 for step in ("_convert", "", "_combine")]
    converting = steps["_convert"].block if "_convert" in steps else 0
    combining = steps["_combine"].block if "_combine" in steps else macros["COMBINE_THREADS"]
    tile = [macros[name] for name in ("BR", "BC", "BLOCKS", "THREADS")]
    scratch = [layout.tiles, layout.row_stats, layout.partial_o, layout.size]
    return [*tile, main.shared, plan.splits, *grids, converting, combining, *scratch]


@quick_of_each(3)
@needs("g++")
@pytest.mark.parametrize("cc", DEVICES)
def test_every_case_is_launched_as_the_python_program_launches_it(generated, cc):
    """The program is what hw4 is measured against, so it must be as good: on all cases, other shapes, larger GPUs."""
    rng = np.random.default_rng(cc)
    shapes = [case.shape for case in suite.cases().values()]
    shapes += [Shape(3, N, d) for N in (1, 256, 257, 4095, 4096, 32768) for d in WIDTHS]
    shapes += [
        Shape(int(rng.integers(1, 600)), int(2 ** rng.uniform(0, 15.3)), d) for d in (32, 64) for _ in range(100)
    ]
    shapes += [Shape(5, int(2 ** rng.uniform(0, 15.3)), d) for d in range(1, 129)]
    devices = [native_properties(cc), *(replace(native_properties(cc), sms=sms) for sms in (13, 78, 114, 192))]
    found = configurations(cc)
    asked = [*itertools.product(shapes, KERNELS, devices)]
    lines = [f"{KERNELS.index(kernel)} {s.B} {s.N} {s.d} {props.sms}" for s, kernel, props in asked]
    command = [planner(cc, generated)]
    printed = subprocess.run(command, input="\n".join(lines), check=True, capture_output=True, text=True).stdout
    for (given, kernel, props), line in zip(asked, printed.splitlines(), strict=True):
        shape = replace(given, d=padded_d(given.d))  # with zero columns
        if any(e.kernel == kernel and e.d == shape.d and e.least <= shape.N <= e.most for e in found):
            assert [*map(int, line.split())] == expected(kernel, shape, props), (kernel, shape, props.sms)
        else:
            assert line == "none"


@pytest.mark.parametrize("cc", DEVICES)
def test_a_configurations_macros_are_those_of_every_length_that_it_is_for(cc):
    rng = np.random.default_rng(1)
    for entry in configurations(cc):
        lengths = {entry.least, min(entry.most, 1 << 20), *map(int, 2 ** rng.uniform(0, 20, 50))}
        for N in lengths:
            if entry.least <= N <= entry.most:
                plan = VARIANTS[entry.kernel].plan(Shape(1, N, entry.d), native_properties(cc))
                assert plan.macros == entry.plan.macros


@pytest.mark.parametrize(
    ("cc", "gpu"), [*((cc, "") for cc in DEVICES), *((cc, "GeForce") for cc in (61, 75, 86, 89, 120))]
)
@pytest.mark.parametrize("d", WIDTHS)
def test_what_is_proven_is_tried_in_the_order_of_auto(cc, gpu, d):
    props = native_properties(cc)
    proven = {name for name in KERNELS if bound(name, (3, 3, 3), d, 32768, props) <= SAFE}
    proven -= {"split"} if cc in GEFORCE else set()  # on a GeForce it is no gain, and the program is for all
    found = [entry for entry in configurations(cc) if entry.d == d]
    for N in (1, 256, 257, 1199, 1200, 4096, 32768, 32769):
        able = proven if N <= 32768 else {"flash"}
        tried = [entry.kernel for entry in found if entry.least <= N <= entry.most]
        assert tried == [name for name in candidates("auto", props, gpu, d, N)[0] if name in able], N


@pytest.mark.parametrize("cc", DEVICES)
def test_where_tensor_cores_compute_the_error_is_proven(cc):
    found = configurations(cc)
    from_fast_to_slow = [(entry.d, -KERNELS.index(entry.kernel), entry.least) for entry in found]
    assert from_fast_to_slow == sorted(from_fast_to_slow)
    lengths = {name: {e.d: e.least for e in reversed(found) if e.kernel == name} for name in ("split", "split8")}
    assert lengths["split"] == ({32: 1, 64: 1, 128: 1} if cc in (90, 100) else {128: 1} if cc == 80 else {})
    assert lengths["split8"] == ({} if cc in (61, 75, 100) else {64: 1200} if cc == 90 else {32: 257, 64: 257})
    for entry in (entry for entry in found if entry.kernel == "split8"):
        assert entry.squares == 0 and entry.most <= 32768  # by elements alone: integers end at LARGEST and a little
        assert bound("split8", (3, 3, 3), entry.d, entry.most, native_properties(cc)) <= SAFE
    for entry in (entry for entry in found if entry.kernel == "split"):
        assert entry.most <= 32768
        assert bound("split", (3, 3, 3), entry.d, entry.most, native_properties(cc)) <= SAFE
        assert entry.squares > 192**2  # about that of the assignment's data at d = 64
        product = entry.squares**0.5
        for q_norm in np.geomspace(product / 2**8, 2**8, 50):
            for element in (0.5, 1, 3, 1e9):
                norms = q_norm, product / q_norm
                found = *(min(element, norm) for norm in norms), 3, *norms
                assert bound("split", found, entry.d, entry.most, native_properties(cc)) <= SAFE


@pytest.mark.parametrize("cc", DEVICES)
def test_what_is_proven_for_a_width_is_proven_for_all_head_sizes_that_get_zero_columns_up_to_it(cc):
    """By elements as they are; by norms, which count for more where scores are divided by less, as the program asks."""
    props, done = native_properties(cc), 0
    for entry in configurations(cc):
        for d in (d for d in range(1, 129) if padded_d(d) == entry.d and entry.kernel != "flash"):
            done += 1
            assert bound(entry.kernel, (3, 3, 3), d, entry.most, props) <= SAFE
            product = (entry.squares * d / entry.d) ** 0.5
            for q_norm in np.geomspace(product / 2**8, 2**8, 9) if product else ():
                norms = q_norm, product / q_norm
                found = *(min(1e9, norm) for norm in norms), 3, *norms
                assert bound(entry.kernel, found, d, entry.most, props) <= SAFE
    assert done or all(entry.kernel == "flash" for entry in configurations(cc))


def test_an_architecture_that_is_not_known_has_no_split():
    text = plans_h()
    (nearest,) = re.findall(r"#elif __CUDA_ARCH_LIST__ >= 900\n(.*?)#elif", text, re.DOTALL)
    assert "flash_64" in nearest
    assert "split" not in nearest


@pytest.fixture(scope="module")
def compiled_for(tmp_path_factory, generated):
    """The program for an architecture, or on most of them its kernels alone: the file, and what nvcc says."""
    folder = tmp_path_factory.mktemp("native")

    @cache
    def compile_for(cc):
        # The host's code depends only on whether there is split; 90 is linked, as other tests run it.
        kind, path = {75: ["-c"], 90: []}.get(cc, ["-cubin"]), folder / f"hw4-{cc}"
        flags = ["-O3", "-std=c++17", f"-arch=sm_{cc}", f"-I{generated}", "-Xcompiler", "-Wall", "-Xptxas", "-v"]
        result = subprocess.run(["nvcc", *flags, *kind, "-o", path, SOURCE], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return path, result.stdout + result.stderr

    return compile_for


@slow_of_each(2)
@slow
@needs("nvcc")
@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_it_compiles_without_a_warning_and_hardly_a_spill(cc, compiled_for):
    log = compiled_for(cc)[1]
    assert "warning" not in log, log
    spills = [int(stores) for stores in re.findall(r" (\d+) bytes spill stores, \d+ bytes spill loads", log)]
    copies = len(SYMBOLS)  # of rows that get zero columns
    codes = {entry.code: entry for entry in configurations(cc)}
    # A block that converts its keys itself needs no other launch; flash converts nothing.
    launches = (1 if one.plan.macros.get("INBLOCK") else 2 if code[0] == "flash" else 3 for code, one in codes.items())
    assert len(spills) == copies + sum(launches)
    # On sm_90 nvcc needs a few registers more than NVRTC for split's 128x64, which already takes all 255.
    assert max(spills) <= (16 if cc == 90 else 0), log


@needs("make")
def test_make_builds_it_as_the_assignment_does():
    command = ["make", "-nB", "hw4", "NVCC_ARCH=sm_61", "NVCC=/opt/cuda/bin/nvcc"]
    plan = subprocess.check_output(command, cwd=ROOT, text=True)
    make, build = plan.strip().splitlines()
    assert make == "python3 -m hw4cli.plans.native build/native"
    assert build == "/opt/cuda/bin/nvcc -O3 -std=c++17 -arch=sm_61 -Ibuild/native -o hw4 kernels/host/hw4.cu"
    assert "rm -f hw4 hw4-amd " in subprocess.check_output(["make", "-n", "clean"], cwd=ROOT, text=True)


@needs("make")
@pytest.mark.parametrize("target", ["hw4", "student-padded"])
@pytest.mark.parametrize(("answer", "native"), [("echo 'GPU 0: Some GPU'", True), ("exit 9", False)])
def test_make_asks_for_the_architecture_only_where_there_is_no_gpu(tmp_path, answer, native, target):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["make", "-nB", target], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (result.returncode == 0) == native
    assert ("-arch=native" in result.stdout) == native
    assert (f"make {target} NVCC_ARCH=sm_61" in result.stderr) != native


@pytest.fixture(scope="module")
def program(compiled_for):
    return compiled_for(90)[0]


def run(program, *arguments):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.run([program, *arguments], env=env, capture_output=True, text=True)


def header(B, N, d):
    return struct.pack("<iii", B, N, d)


@slow
@needs("nvcc")
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
        (header(1, 5, 129) + bytes(12 * 5 * 129), "d is 129, but must be between 1 and 128"),
        (header(1, 5, 0), "d is 0, but must be between 1 and 128"),
        (header(1, 5, -64), "d is -64, but must be between 1 and 128"),
        (header(1, 5, 59) + bytes(12 * 5 * 59 - 1), "has 3551 bytes"),
    ],
)
def test_a_bad_file_is_one_sentence_and_leaves_nothing_behind(program, tmp_path, content, words):
    (tmp_path / "in").write_bytes(content)
    fails(run(program, tmp_path / "in", tmp_path / "out"), 2, words, str(tmp_path / "in"))
    folder_is_clean(tmp_path, "in")


@slow
@needs("nvcc")
def test_wrong_usage_is_one_sentence(program, tmp_path):
    fails(run(program), 2, "INPUTFILE OUTPUTFILE")
    fails(run(program, "a", "b", "c"), 2, "INPUTFILE OUTPUTFILE")
    fails(run(program, tmp_path / "none", tmp_path / "out"), 2, "No such file")
    fails(run(program, tmp_path, tmp_path / "out"), 2, "Is a directory")


@slow
@needs("nvcc")
def test_no_gpu_is_one_sentence_and_leaves_the_old_output(program, tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 8, 32))
    (tmp_path / "out").write_bytes(b"old")
    fails(run(program, source, tmp_path / "out"), 3, "failed: ")
    assert (tmp_path / "out").read_bytes() == b"old"
