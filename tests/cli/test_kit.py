"""`hw4 kit`: a folder to begin the homework in, whose program builds, reads and writes the format."""

import shutil
import subprocess

import pytest
from helpers import fails, run_here
from needs import needs
from slow import slow

# What the starter takes of CUDA, on the host.
RUNTIME = """\
#include <cstdlib>
#include <cstring>
#define __global__
typedef int cudaError_t;
enum { cudaSuccess, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
struct dim3 { dim3(int, int = 1) {} };
inline const char *cudaGetErrorString(int) { return ""; }
inline int cudaGetLastError() { return 0; }
template <class T> int cudaMalloc(T **place, size_t size) { *place = (T *)malloc(size); return 0; }
inline int cudaMemset(void *place, int value, size_t size) { memset(place, value, size); return 0; }
inline int cudaMemcpy(void *to, const void *from, size_t size, int) { memcpy(to, from, size); return 0; }
inline int cudaFree(void *place) { free(place); return 0; }
"""


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kit") / "mine"
    result = run_here("kit", folder)
    assert result.returncode == 0, result.stderr
    return folder


def test_it_holds_what_one_begins_with_and_no_kernel_of_ours(kit):
    assert {path.name for path in kit.iterdir()} == {"hw4.cu", "Makefile", "judge.slurm", "README.md", "testcases"}
    assert (kit / "testcases" / "t01.out").stat().st_size == 320 * 128 * 32 * 4
    text = (kit / "hw4.cu").read_text()
    assert "__global__ void attention" in text and "__shared__" not in text and "expf" not in text


@needs("g++")
def test_its_program_reads_and_writes_the_format_and_the_judge_says_that_the_kernel_is_missing(kit, tmp_path):
    (tmp_path / "cuda_runtime.h").write_text(RUNTIME)
    (tmp_path / "hw4.cpp").write_text((kit / "hw4.cu").read_text().replace("<<<blocks, threads>>>", ""))
    subprocess.run(["g++", "-I.", "hw4.cpp", "-o", "hw4"], cwd=tmp_path, check=True, capture_output=True)
    args = ("t01", "--dir", kit / "testcases", "--program", tmp_path / "hw4", "--limit", "t01=120")
    result = run_here("judge", *map(str, args))
    assert result.returncode == 1 and "the whole output is zeros" in " ".join(result.stdout.split()), result.stdout


@slow
@needs("nvcc", "make")
def test_its_makefile_builds_it(kit, tmp_path):
    for name in ("hw4.cu", "Makefile"):
        shutil.copy(kit / name, tmp_path)
    built = subprocess.run(["make", "hw4", "ARCH=sm_80"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0 and (tmp_path / "hw4").exists(), built.stderr


def test_what_is_there_is_kept_and_a_folder_that_has_all_is_refused(kit, tmp_path):
    (tmp_path / "hw4.cu").write_text("my work")
    result = run_here("kit", tmp_path)
    assert result.returncode == 0 and f"kept {tmp_path}/hw4.cu" in result.stdout
    assert (tmp_path / "hw4.cu").read_text() == "my work" and (tmp_path / "Makefile").exists()
    fails(run_here("kit", kit), 2, "take another folder")
    fails(run_here("kit", tmp_path / "b", "t99"), 2, "no case 't99'")
    assert not (tmp_path / "b").exists()
