"""`hw4 export`: a kernel as a program of one file, which compilers take and which computes right on the CPU."""

import re
import subprocess
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest
from helpers import fails, hw4_env, random_block, run_hw4
from needs import COMPILER, needs
from slow import few, quick_of_each, slow, slow_of_each

from hw4cli.device.nvrtc import Compiler, find
from hw4cli.device.ownkernel import kernel_named
from hw4cli.emulator.program.attention import ACCEPTED, check_attention
from hw4cli.emulator.program.build import Source, compile_program
from hw4cli.emulator.program.execute import run_program
from hw4cli.lab.handin.program import CLASS, HIP, LONG, NVCC, program_text, refusal
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.native import AMD, WIDTHS
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.arrays import compare, read_output, write_input
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Workload

# Those with launches of their own first.
ALONE = [
    "flash",
    "naive",
    "paper",
    *(n for n in VARIANTS if VARIANTS[n].alone == "rows" and not refusal(VARIANTS[n], NVCC)),
]
ENDINGS = {NVCC: ".cu", HIP: ".hip"}
# Every number of columns that a program has, odd N, more keys than a tile.
SHAPES = (Workload.one_head(3, 37, 5), Workload.one_head(1, 131, 59), Workload.one_head(1, 65, 100))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The file of an exported kernel."""
    folder = tmp_path_factory.mktemp("exported")

    @cache
    def write(kernel, target=NVCC):
        path = folder / f"{Path(kernel).stem}{ENDINGS[target]}"
        path.write_text(program_text(str(kernel), target, path.name))
        return path

    return write


def test_the_ladder_but_tensor_cores_and_float64_can_be_exported():
    refused = {name for name, entry in VARIANTS.items() if refusal(entry, NVCC)}
    assert refused == {"fp16qk", "split", "split8", "exact", "float64"}


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("split", "`make hw4` builds a program of it"),
        ("fp16qk", "flash is the fastest that can"),
        ("float64", "compiled for one head size"),
        ("nothing", "flash"),
        ("./nothing.cu", "there is no file ./nothing.cu"),
    ],
)
def test_what_cannot_stand_alone_is_refused_in_a_sentence(hw4_here, tmp_path, kernel, words):
    fails(hw4_here("export", kernel, "-o", tmp_path / "hw4.cu"), 2, words)
    assert not (tmp_path / "hw4.cu").exists()


def test_the_same_text_is_written_by_another_process_and_for_the_compiler_of_the_ending(hw4_here, tmp_path):
    assert hw4_here("export", "naive", "-o", tmp_path / "hw4.cu").returncode == 0
    again = run_hw4("export", "naive", env={"PYTHONHASHSEED": "7"})
    assert (tmp_path / "hw4.cu").read_text() == again.stdout
    hw4_here("export", "naive", "-o", tmp_path / "hw4.hip")
    amd = (tmp_path / "hw4.hip").read_text()
    assert "#include <hip/hip_runtime.h>" in amd
    assert not re.search(r"\bcuda", amd)
    assert amd == hw4_here("export", "naive", "--for", "hip").stdout


@quick_of_each(8)
@pytest.mark.parametrize("kernel", ALONE)
@pytest.mark.parametrize("target", [NVCC, HIP])
def test_a_program_says_what_it_is_and_needs_no_other_file(exported, kernel, target):
    text = exported(kernel, target).read_text()
    head = text[: text.index("\n\n")]
    assert "MIT licence" in head and "Copyright" in head and "-std=c++14" in head
    assert not re.search(r'#include "', text)
    assert not re.search(r"\b(?:STAMPS|BEGINS|ENDS|CAUSAL|SCALED|SCORED|HOLES)\b", text)
    assert max(map(len, text.split("\n"))) <= 140
    assert VARIANTS[kernel].name in head


@slow_of_each(8)
@needs(COMPILER)
@slow
@pytest.mark.parametrize("target", [NVCC, HIP])
@pytest.mark.parametrize("kernel", ALONE)
def test_it_computes_right_on_the_cpu_and_nothing_is_found(exported, kernel, target):
    for case in check_attention(Source((exported(kernel, target),)), shapes=SHAPES):
        assert case.verdict == ACCEPTED, case
        assert not case.findings
        assert not [note for note in case.notes if note.kind == "leak"]


# Of those that get as many columns the first ones, by which rows lie at other multiples of 16 bytes, and the last two.
EDGES = sorted({d for a, b in pairwise((0, *WIDTHS)) for d in (a + 1, a + 2, a + 4, b - 1, b) if a < d <= b})


@needs(COMPILER)
@slow
@pytest.mark.parametrize(
    "sizes", [EDGES, pytest.param(range(1, 129), marks=pytest.mark.exhaustive)], ids=["edges", "all"]
)
def test_any_head_size_from_1_to_128_is_right(exported, tmp_path, sizes):
    program = compile_program(Source((exported("flash"),)), watched=False)
    for d in sizes:
        inputs = random_block(2, 33, d, seed=d)
        write_input(tmp_path / "in", inputs)
        done = run_program(program, ["in", "out"], folder=tmp_path)
        assert done.status == 0, (d, done)
        shape = Workload.one_head(2, 33, d)
        assert compare(read_output(tmp_path / "out", shape), exact_attention(inputs)).right, d


@slow_of_each(4)
@needs(COMPILER)
@slow
@pytest.mark.parametrize("kernel", ["flash", "naive", "paper", "float4"])
@pytest.mark.parametrize("cc", [61, 75, 86, 90])
def test_a_program_launches_what_the_plan_says_with_the_tile_of_long_rows(exported, tmp_path, kernel, cc):
    """On each GPU: blocks, threads, shared memory, and how often keys are split."""
    props = replace(DEVICES[cc], warpgroups=False)
    program = compile_program(Source((exported(kernel),)), watched=False)
    for given in (Workload.one_head(2, 600, 4), Workload.one_head(1, 70, 40), Workload.one_head(1, 300, 128)):
        shape = replace(given, d=next(width for width in WIDTHS if width >= given.d))
        long = VARIANTS[kernel].plan(Workload.one_head(1, LONG, shape.d), props).macros
        tile = {name: value for name, value in long.items() if name != "D"}
        plan = VARIANTS[kernel].plan(shape, props, tile)
        write_input(tmp_path / "in", random_block(given.B, given.N, given.d))
        done = run_program(program, ["in", "out"], folder=tmp_path, gpu=props)
        launched = {
            (re.sub(r"<.*", "", one.kernel), one.grid[0], one.block[0], one.shared): one.times for one in done.launches
        }
        assert launched == {(step.symbol, step.grid, step.block, step.shared): 1 for step in plan.launches}, given


# Of each generation that nvcc still knows but one, which is between two others; and of AMD's GPUs. Of the grids each
# kernel and each architecture is compiled once.
ARCHITECTURES = (75, 86, 90, 120)
GFX = ("gfx906", "gfx908", "gfx90a", "gfx1030")


@slow_of_each(4)
@needs("nvcc")
@slow
@pytest.mark.parametrize(("kernel", "cc"), [*product(["naive", "shared", "flash", "halfwarp_local"], ARCHITECTURES)])
def test_nvcc_compiles_it_for_old_and_new_architectures_without_a_warning(exported, tmp_path, kernel, cc):
    command = ["nvcc", "-O3", "-std=c++14", f"-arch=sm_{cc}", "-o", str(tmp_path / "hw4"), str(exported(kernel))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


@slow_of_each(3)
@needs("hipcc")
@slow
@pytest.mark.parametrize(("kernel", "gfx"), [*product(["naive", "flash", "float4"], GFX)])
def test_hipcc_compiles_it_for_amds_gpus(exported, tmp_path, kernel, gfx):
    output, source = str(tmp_path / "hw4"), str(exported(kernel, HIP))
    command = ["hipcc", "-O3", "-std=c++14", f"--offload-arch={gfx}", "-o", output, source]
    done = subprocess.run(command, capture_output=True, text=True, env=hw4_env(HIP_PLATFORM="amd"))
    assert done.returncode == 0, done.stderr


@slow
@pytest.mark.parametrize("kernel", few(["flash", "rowthread"]))
def test_the_kernel_compiles_for_the_gtx_1080(exported, kernel):
    """By NVRTC 12: nvcc 13 does not know compute capability 6.1."""
    pytest.importorskip("nvidia.cuda_nvrtc", reason="needs NVRTC 12 (pip install 'hw4cli[dev]')")
    text = exported(kernel).read_text()
    own = text[text.index("// ---- What") : text.index("// ---- The program")]
    tiles = sorted(set(re.findall(rf"{CLASS}<[\d, ]+>", text)), key=lambda tile: [*map(int, re.findall(r"\d+", tile))])
    ends = tiles[0], tiles[-1]  # of fewest and of most columns: nvcc compiles all, and test_old_gpus the kernel's own
    wanted = "\n".join(f"template __global__ void {kernel}<{tile}>(const Params);" for tile in ends)
    compiler = Compiler(find(12000, 61), 12000, 61)
    assert compiler.compile(f"{own}\n{wanted}\n", "hw4.cu", ("--std=c++14",), 61)


# ---- A kernel of one's own


@pytest.fixture
def mine(hw4_here, tmp_path):
    """./mine.cu, as `hw4 new-kernel` begins it, with a change; returns the function that changes it."""
    assert hw4_here("new-kernel", "mine", "--from", "shared").returncode == 0
    path = tmp_path / "mine.cu"

    def changed(old, new):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return path

    return changed


LIKE = "// Like:     shared\n"
BODY = 'extern "C" __global__ void LAUNCH_BOUNDS\nmine(const Params p)\n{\n'


@needs(COMPILER)
@slow
def test_a_kernel_of_ones_own_is_exported_with_its_own_tile(hw4_here, mine, tmp_path):
    mine(LIKE, LIKE + "// Tile:     BR=16 BC=16 THREADS=64\n")
    assert hw4_here("export", "./mine.cu", "-o", tmp_path / "hw4.cu").returncode == 0
    assert f"launch<{CLASS}<32>>" in (tmp_path / "hw4.cu").read_text().replace(", 16, 16, 64", "")
    for case in check_attention(Source((tmp_path / "hw4.cu",)), shapes=SHAPES[:2]):
        assert case.verdict == ACCEPTED and not case.findings, case


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            BODY,
            "__constant__ float table[D];\n" + BODY.replace("{\n", "{\n    if (table[0]) return;\n"),
            "depends on the tile",
        ),
        (BODY, BODY.replace("mine(const Params p)", "mine(const Params p, int n)"), "something else than one Params"),
        (
            BODY,
            "#if BR > 32\n#define MORE 1\n#else\n#define MORE 0\n#endif\n" + BODY + "    if (MORE) return;\n",
            "asks for",
        ),
        (BODY, "__device__ int compute(int n) { return n; }\n" + BODY + "    compute(1);\n", "give it another name"),
        (BODY, BODY.replace("mine(", "other("), "no kernel mine"),
    ],
)
def test_what_is_not_understood_of_it_is_refused_in_a_sentence(hw4_here, mine, tmp_path, old, new, words):
    mine(old, new)
    fails(hw4_here("export", "./mine.cu", "-o", tmp_path / "hw4.cu"), 2, words)
    assert not (tmp_path / "hw4.cu").exists()


@pytest.mark.parametrize("kernel", ALONE)
def test_the_first_tile_that_fits_a_gpu_is_the_plans(kernel):
    """For each number of columns, on each GPU that is known."""
    text = program_text(kernel, NVCC, "hw4.cu")
    names = (
        re.search(rf"template <([^>]*)>\nstruct {CLASS}", text)[1]
        .replace("int ", "")
        .replace("_,", ",")[:-1]
        .split(", ")
    )
    lines = re.findall(rf"^    (?:if \((.*)\) return )?launch<{CLASS}<([\d, ]+)>>\(p, (\d+)\);", text, re.M)
    for props in DEVICES.values():
        for d in WIDTHS:
            plan = kernel_named(kernel).plan(Workload.one_head(1, LONG, d), replace(props, warpgroups=False))
            condition = {"columns": d, "room": props.shared_limit}
            chosen = next(one for one in lines if not one[0] or eval(one[0].replace("&&", "and"), {}, condition))
            macros = dict(zip(names, map(int, chosen[1].split(", ")), strict=True))
            assert macros == {name: plan.macros[name] for name in names}
            assert int(chosen[2]) == plan.launches[plan.main].shared


def test_amds_programs_have_the_plans_of_the_mi210():
    text = program_text("flash", HIP, "hw4.hip")
    for d in WIDTHS:
        plan = VARIANTS["flash"].plan(Workload.one_head(1, LONG, d), AMD_DEVICES[AMD])
        assert f"launch<{CLASS}<{d}, {plan.macros['BR']}, {plan.macros['BC']}," in text
