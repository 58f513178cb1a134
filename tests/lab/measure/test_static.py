"""What is known of programs where counters are closed: by cuobjdump, whose answer was recorded, and by a real one."""

import json
import shutil
import subprocess

import pytest
from helpers import ROOT, fits, on_a_terminal
from needs import needs
from slow import slow

NVCC, CUOBJDUMP = shutil.which("nvcc"), shutil.which("cuobjdump")
# Of nvcc 13.0 and cuobjdump 13.1, for kernels/host/student.cu with -gencode for 7.5 and 9.0; headers are shortened.
RECORDED = """
Fatbin elf code:
================
arch = sm_75
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function _Z9attentionILi64EEvPKfS1_S1_Pfi:
  REG:64 STACK:0 SHARED:28672 LOCAL:0 CONSTANT[0]:388 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_90
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function _Z9attentionILi64EEvPKfS1_S1_Pfi:
  REG:32 STACK:8 SHARED:29696 LOCAL:0 CONSTANT[0]:564 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin ptx code:
================
arch = sm_90
"""


@pytest.fixture
def closed(tools, folder, tmp_path, monkeypatch):
    """A program on a GPU whose counters are closed; the options that profile it."""
    monkeypatch.chdir(tmp_path)

    def make(answer=RECORDED, **others):
        tools(ncu="ERR_NVGPUCTRPERM", status=1, **others)
        for name, text in {"mine": "", **({"cuobjdump": f"cat <<'END'\n{answer}END\n"} if answer else {})}.items():
            path = tmp_path / ("bin" if name != "mine" else ".") / name
            path.write_text(f"#!/bin/sh\n{text}")
            path.chmod(0o755)
        return ("--program", "./mine", "t01", "--dir", folder)

    return make


def test_of_a_program_registers_shared_memory_and_occupancy_are_shown_for_blocks_of_several_sizes(hw4, closed):
    result = hw4("profile", *closed(), "--json")
    assert result.returncode == 3
    assert "NVreg_RestrictProfilingToAdminUsers=0" in result.stderr
    rows = json.loads(result.stdout)
    assert [row["threads"] for row in rows] == [128, 256, 512, 1024]
    last = rows[-1]
    assert (last["program"], last["registers"], last["spilled_bytes"], last["grid"]) == ("./mine", 32, 8, None)
    assert last["shared_bytes"] == 28672, "without the KB that the driver takes of each block"
    assert (last["blocks"], last["occupancy"]) == (2, 1.0)
    assert (rows[0]["blocks"], rows[0]["limited_by"]) == (7, ["shared memory"])


def test_the_machine_code_is_that_for_the_gpu(hw4, closed):
    result = hw4("profile", *closed(gpu="Tesla T4, 7.5"), "--json")
    rows = json.loads(result.stdout)
    assert {row["registers"] for row in rows} == {64}
    result = hw4("profile", *closed(gpu="NVIDIA A100, 8.0"))
    assert result.stderr.endswith("hw4: ./mine has no machine code for compute capability 8.0\n")
    assert (result.returncode, result.stdout) == (3, "")


@slow
def test_kernels_and_a_program_are_shown_together(hw4, closed):
    options = ("flash", *closed())
    rows = json.loads(hw4("profile", *options, "--json").stdout)
    assert [(row["program"], row["launch"].partition("I")[0]) for row in rows[:2]] == [
        ("", "flash"),
        ("./mine", rows[1]["launch"].partition("I")[0]),
    ]
    code, shown = on_a_terminal(60, "profile", *options)
    assert code == 3
    assert fits(shown, 60), shown
    assert "limited by" in shown and "stack" in shown


def test_without_cuobjdump_it_is_named(hw4, closed):
    result = hw4("profile", *closed(answer=""))
    assert result.stderr.endswith("cuobjdump is not on PATH: it comes with the CUDA toolkit: module load cuda\n")
    assert result.returncode == 3


@needs("nvcc", "cuobjdump")
def test_a_real_program_is_read(hw4, closed, tmp_path):
    options = closed(answer="")
    (tmp_path / "bin/cuobjdump").symlink_to(CUOBJDUMP)
    subprocess.run([NVCC, "-arch=sm_90", "-o", tmp_path / "mine", ROOT / "kernels/host/student.cu"], check=True)
    rows = json.loads(hw4("profile", *options, "--json").stdout)
    assert len(rows) == 8
    assert {row["shared_bytes"] for row in rows} == {28672, 16384}
