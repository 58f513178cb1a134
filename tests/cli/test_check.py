"""`hw4 check`: kernels compiled without a GPU; what is wrong with a file is one sentence that says where."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from helpers import ROOT, fails, fits, on_a_terminal
from slow import slow

from hw4cli.cli.check import _problems
from hw4cli.device import kernelcheck, nvrtc
from hw4cli.device.compilerlog import Usage
from hw4cli.device.hip.hiprtc import HipCompiler
from hw4cli.device.kernelcheck import CheckedLaunch
from hw4cli.errors import MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES

pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")

try:
    HIPRTC = HipCompiler(None, "gfx90a")
except MachineError:
    HIPRTC = None
NAIVE = (ROOT / "kernels/naive.cu").read_text()
LAUNCHES = ["naive_scores", "naive_softmax", "naive_values"]


@pytest.fixture
def mine(tmp_path):
    """A function that writes mine.cu: naive's code under its own name, with some text replaced by other text."""

    def write(*changes, name="mine", first="// Like: naive\n"):
        text = first + NAIVE.replace("naive_", f"{name}_")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / f"{name}.cu").write_text(text)
        return f"./{name}.cu"

    return write


def line_of(path, text):
    """Where a text begins in a file, as compilers write it: mine.cu:31."""
    before, _, _ = Path(path).read_text().partition(text)
    return f"{Path(path)}:{before.count(chr(10)) + 1}"


def rows_of(result):
    return json.loads(result.stdout)


@pytest.mark.skipif(not HIPRTC, reason="needs hiprtc")
def test_an_architecture_of_amds_is_compiled_for_by_hip(hw4_here, mine):
    result = hw4_here("check", mine(), "--gpu", "gfx90a", "--gpu", "9.0")
    assert result.returncode == 0
    titles, first, *_ = (re.split(r"  +", line.strip()) for line in result.stdout.splitlines())
    assert titles[:5] == ["launch", "on", "registers", "accumulation", "spilled"]
    assert first[0:2] == ["mine_scores", "9.0"]
    assert re.search(r"mine_softmax +gfx90a +\d+ +0 +0 +0.0 +256 +8 +100%", result.stdout)
    broken = mine(("float s = 0.0f;", "float s = nowhere;"))
    line = line_of(broken, "float s = nowhere;")
    fails(hw4_here("check", broken, "--gpu", "gfx90a"), 1, f"{line}: use of undeclared identifier 'nowhere'")
    fails(hw4_here("check", "split", "--gpu", "gfx90a"), 1, "split needs compute capability 8.0")


def test_a_row_for_each_launch_and_architecture_tells_what_it_uses(hw4_here):
    result = hw4_here("check", "naive", "--gpu", "9.0", "--gpu", "sm_75", "--json")
    assert result.returncode == 0
    rows = rows_of(result)
    assert [(row["compute_capability"], row["symbol"]) for row in rows] == [
        (cc, symbol) for cc in ("7.5", "9.0") for symbol in LAUNCHES
    ]
    for row in rows:
        assert 16 <= row["registers"] <= 64
        assert (row["spilled_bytes"], row["shared_bytes"], row["threads"]) == (0, 0, 256)
        assert row["blocks"] * 8 / (32 if row["compute_capability"] == "7.5" else 64) == row["occupancy"] <= 1
        assert "threads" in row["limited_by"]
        assert row["problem"] is None


def test_static_shared_memory_and_spills_are_counted(hw4_here, mine):
    array = "__shared__ float tile[2000]; tile[threadIdx.x] = p.scale; __syncthreads(); float s = tile[p.Nk % 2000];"
    path = mine(("float s = 0.0f;", array), ("__launch_bounds__(THREADS)\nmine_values", "__maxnreg__(24)\nmine_values"))
    rows = {row["symbol"]: row for row in rows_of(hw4_here("check", path, "--gpu", "90", "--json"))}
    assert rows["mine_scores"]["shared_bytes"] == 8000
    assert rows["mine_softmax"]["shared_bytes"] == 0
    assert rows["mine_values"]["registers"] == 24


def test_it_prints_csv_and_a_table_that_fits(hw4_here, mine, tmp_path):
    assert hw4_here("check", mine(), "--gpu", "9.0", "-o", tmp_path / "a.csv").returncode == 0
    text = (tmp_path / "a.csv").read_text()
    shown = [row["symbol"] for row in csv.DictReader(io.StringIO(text))]
    assert shown == ["mine_scores", "mine_softmax", "mine_values"]
    for width in (60, 200):
        code, table = on_a_terminal(width, "check", "naive", "--gpu", "9.0")
        assert code == 0
        assert fits(table, width)
        assert all(word in table for word in (*LAUNCHES, "registers", "limited by", "100%"))


def test_an_architecture_that_a_kernel_is_not_for_is_told_and_is_no_fault(hw4_here):
    result = hw4_here("check", "smallbr", "split", "--gpu", "7.5")
    assert result.returncode == 0
    assert result.stderr == "hw4: split needs compute capability 8.0\n"
    fails(hw4_here("check", "split", "--gpu", "7.5"), 1, "split needs compute capability 8.0")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("float s = 0.0f;", "float s = foo;", 'identifier "foo" is undefined: `float s = foo;`'),
        ("BR * BC == THREADS", "BR * BC != THREADS", "a block must hold one thread for each score"),
        ('#include "schedule.cuh"', '#include "commn.cuh"', "there is no header commn.cuh beside the file"),
        ('#include "schedule.cuh"', "#include <cuda_fp16.h>", "there is no header cuda_fp16.h"),
    ],
)
def test_a_compile_error_is_the_first_in_plain_words_with_its_line(hw4_here, mine, old, new, words):
    path = mine((old, new))
    result = hw4_here("check", path, "--gpu", "9.0")
    fails(result, 1, f"./mine.cu does not compile: {line_of(path, new)}: {words}")


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("__shared__ float x[50000]; float s = x[p.Nk];", "mine_scores declares 200,000 bytes of __shared__ variables"),
        ("__device__ float extra(float); float s = extra(p.scale);", "the function extra is declared and called"),
    ],
)
def test_an_error_after_the_compiler_has_no_line_and_is_in_plain_words_too(hw4_here, mine, new, words):
    result = hw4_here("check", mine(("float s = 0.0f;", new)), "--gpu", "9.0")
    fails(result, 1, f"./mine.cu does not compile: {words}")


def test_an_error_in_a_header_beside_the_file_names_the_header(hw4_here, mine, tmp_path):
    (tmp_path / "own.cuh").write_text("\nconstexpr int THREE = ;\n")
    path = mine(('#include "schedule.cuh"', '#include "schedule.cuh"\n#include "own.cuh"'))
    fails(hw4_here("check", path, "--gpu", "9.0"), 1, "own.cuh:2: expected an expression")


def test_a_symbol_that_is_missing_is_named_with_those_that_are_there(hw4_here, mine):
    result = hw4_here("check", mine(("\nmine_softmax(", "\nmine_sotfmax(")), "--gpu", "9.0")
    fails(result, 1, "has no kernel mine_softmax: it has mine_scores, mine_sotfmax, mine_values")


def test_a_symbol_without_extern_c_is_told_as_that(hw4_here, mine):
    signature = "__global__ void __launch_bounds__(THREADS)\nmine_softmax"
    result = hw4_here("check", mine((f'extern "C" {signature}', signature)), "--gpu", "9.0")
    fails(result, 1, 'has mine_softmax under a C++ name only: write extern "C"')


def test_one_error_on_all_architectures_is_told_once(hw4_here, mine):
    result = hw4_here("check", mine(("float s = 0.0f;", "float s = foo;")), "--gpu", "8.0", "--gpu", "9.0")
    fails(result, 1, "./mine.cu does not compile: mine.cu:")


def test_a_wrong_kernel_keeps_none_of_the_others_from_being_checked(hw4_here, mine):
    result = hw4_here("check", mine(("float s = 0.0f;", "float s = foo;")), "naive", "--gpu", "9.0")
    assert result.returncode == 1
    assert all(symbol in result.stdout for symbol in LAUNCHES)
    assert "mine.cu does not compile" in result.stderr


def test_a_block_that_no_multiprocessor_holds_is_an_error(hw4_here, mine, monkeypatch):
    greedy = {name: Usage(registers=255, spilled=0, shared=0) for name in LAUNCHES}
    monkeypatch.setattr(kernelcheck, "usage", lambda log: greedy)
    result = hw4_here("check", "naive", "--gpu", "9.0")
    assert (result.returncode, result.stderr) == (0, "")
    monkeypatch.setattr(kernelcheck, "usage", lambda log: {**greedy, "naive_scores": Usage(40, 0, 300_000)})
    result = hw4_here("check", "naive", "--gpu", "9.0")
    assert result.returncode == 1
    assert "cannot start naive_scores: one block needs more shared memory than a" in result.stderr


def test_a_machine_without_nvrtc_is_told_what_to_install(hw4_here, monkeypatch):
    monkeypatch.setattr(kernelcheck, "find", lambda driver, cc: None)
    monkeypatch.setattr(nvrtc, "_majors", lambda driver, cc: [99])
    monkeypatch.setattr(nvrtc, "_by_pathfinder", lambda: None)
    said = "for compute capability 6.1: pip install nvidia-cuda-nvrtc-cu12"
    fails(hw4_here("check", "naive"), 3, "there is no NVRTC", said)


def test_what_the_newest_nvrtc_no_longer_knows_is_told_and_the_rest_is_compiled(hw4_here, monkeypatch):
    known = nvrtc._majors
    monkeypatch.setattr(nvrtc, "_majors", lambda driver, cc: known(driver, cc) if cc >= nvrtc.CUDA13_CC else [99])
    monkeypatch.setattr(nvrtc, "_by_pathfinder", lambda: None)
    result = hw4_here("check", "naive", "--gpu", "6.1", "--gpu", "9.0")
    assert result.returncode == 0
    assert "naive_values" in result.stdout
    assert "nothing was compiled for 6.1" in result.stderr
    assert "nvidia-cuda-nvrtc-cu12" in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "Missing argument"),
        (["nave"], "'nave' is no KERNEL, PROGRAM.cu, CASE or B,N,d. Did you mean 'naive'?"),
        (["./mine"], "'./mine' is no KERNEL"),
        (["./none.cu"], "there is no file ./none.cu"),
        (["naive", "--gpu", "5.0"], "there is no GPU '5.0' in the list"),
        (["naive", "1,8,129"], "1,8,129: d is 129"),
        (["naive", "-o", "table.jsn"], "table.jsn does not say in which format: let it end in .json or .csv"),
    ],
)
def test_a_wrong_use_is_one_sentence(hw4_here, args, words):
    fails(hw4_here("check", *args), 2, words)


@slow
def test_it_compiles_for_every_architecture_that_an_nvrtc_here_knows(hw4_here, mine):
    rows = rows_of(hw4_here("check", mine(), "--json"))
    newer = {f"{cc / 10:.1f}" for cc in DEVICES if cc >= nvrtc.CUDA13_CC}
    assert newer <= {row["compute_capability"] for row in rows} <= {f"{cc / 10:.1f}" for cc in DEVICES}
    assert {row["symbol"] for row in rows} == {"mine_scores", "mine_softmax", "mine_values"}


def test_an_nvrtc_that_is_older_than_the_gpu_finds_errors_and_says_that_it_knows_no_more(hw4_here, mine, monkeypatch):
    monkeypatch.setattr(nvrtc.Compiler, "known", lambda self: [75, 80])  # then it makes PTX
    result = hw4_here("check", mine(), "--gpu", "9.0")
    assert result.returncode == 0
    assert result.stdout.splitlines()[1].split() == ["mine_scores", "9.0", "-", "-", "-", "256", "-", "-"]
    assert result.stderr.startswith("hw4: ./mine.cu compiles, but NVRTC 1")
    result = hw4_here("check", mine(("\nmine_softmax(", "\nmine_sotfmax(")), "--gpu", "9.0")
    fails(result, 1, "has no kernel mine_softmax: it has mine_scores, mine_sotfmax, mine_values")


def test_all_is_every_kernel_of_the_ladder(hw4_here, monkeypatch):
    asked = []
    monkeypatch.setattr(
        kernelcheck,
        "check",
        lambda variant, *_: asked.append(variant.name) or [kernelcheck.CheckedLaunch(variant.name, "9.0", "f")],
    )
    assert hw4_here("check", "all", "--gpu", "9.0").returncode == 0
    assert asked == list(VARIANTS)


def test_a_problem_that_is_on_all_architectures_names_none_of_several_programs():
    rows = [CheckedLaunch(name, cc, problem="is odd") for name in ("a.cu", "b.cu") for cc in ("8.0", "9.0")]
    rows += [CheckedLaunch("c.cu", "8.0", problem="is odd"), CheckedLaunch("c.cu", "9.0")]
    assert _problems(rows) == ["a.cu is odd", "b.cu is odd", "for 8.0: c.cu is odd"]
