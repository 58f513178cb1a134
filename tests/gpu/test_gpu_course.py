"""A class's own CUDA programs, built by the real nvcc and judged on the GPU: the class of 40, and programs that use the
machine as students' do, in the sandbox where there is one."""

import json

import pytest
from course import CUDA, check, command, make_course, source
from helpers import OPEN
from needs import needs

pytestmark = [needs("nvcc"), pytest.mark.usefixtures("gpu")]

# Threads by OpenMP that each launch, after a child that is a program of its own and has a context of the GPU, too.
THREADS = """\
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>
#define main compute
{program}
#undef main

__global__ void add(int *sum, int number) {{ atomicAdd(sum, number); }}

int launched() {{
    int *sum, found = 0, threads = 0;
    if (cudaMalloc(&sum, sizeof *sum) != cudaSuccess) return 6;
    cudaMemset(sum, 0, sizeof *sum);
#pragma omp parallel reduction(+ : threads)
    {{
        add<<<1, 32>>>(sum, omp_get_thread_num() + 1);
        threads += 1;
    }}
    if (cudaMemcpy(&found, sum, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess) return 7;
    return found == 16 * threads * (threads + 1) && threads > 1 ? 0 : 8;
}}

int main(int argc, char **argv) {{
    if (argc > 3) return launched();
    if (fork() == 0) {{
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "child", (char *)nullptr);
        _exit(9);
    }}
    int status = 1;
    wait(&status);
    if (status != 0) return WEXITSTATUS(status);
    if (int wrong = launched()) return wrong;
    return compute(argc, argv);
}}
"""
MAKEFILE = "hw4: hw4.cu\n\tnvcc -O3 -arch=native -Xcompiler -fopenmp $< -o $@\n"


@pytest.mark.alone  # as below: a program took 15.6 of its 15 s beside 35 other processes
def test_the_class_of_40_is_built_by_nvcc_and_judged_on_the_gpu(hw4, tmp_path):
    students = make_course(tmp_path, CUDA)
    output = tmp_path / "results"
    result = hw4(*command(tmp_path, output), env={"XDG_CACHE_HOME": str(tmp_path / "cache")}, timeout=1500)
    assert result.returncode == 3, "one archive is of a kind that is not unpacked" + result.stderr
    check(tmp_path, students, output, {})
    board = {one["user"]: one for one in json.loads((output / "results.json").read_text())["standings"]}
    assert "nvcc fatal" in board["pascal"]["note"] and "sm_61" in board["pascal"]["note"]


@pytest.mark.alone  # each process of a first CUDA context beside sixteen others takes longer than t01's limit
@pytest.mark.parametrize("sandbox", ["none", pytest.param("bwrap", marks=needs("bwrap"))])
def test_a_program_with_threads_a_child_and_the_gpu_runs_with_a_sandbox_as_without(hw4, tmp_path, sandbox):
    folder = tmp_path / "class" / "threads"
    folder.mkdir(parents=True)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "hw4.cu").write_text(THREADS.format(program=source(CUDA)))
    assert hw4("gen", "t01", "--dir", tmp_path).returncode == 0
    options = OPEN if sandbox == "none" else ("--sandbox", sandbox)
    output = tmp_path / "results"
    result = hw4("judge", "t01", "--dir", tmp_path, "--class", tmp_path / "class", "-o", output, *options, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    (row,) = json.loads((output / "results.json").read_text())["standings"]
    assert [one["verdict"] for one in row["results"]] == ["AC"], row
