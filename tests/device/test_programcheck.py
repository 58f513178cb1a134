"""The kernels of a whole program, compiled without a GPU: what of its text is the device's, and what a launch says."""

import re
from pathlib import Path

import pytest
from helpers import fails
from needs import needs
from slow import slow

from hw4cli.device.programcheck import LaunchSize, check_program, devices_part, launch_sizes, plain_name
from hw4cli.errors import MachineError
from hw4cli.plans.plan import AMD_DEVICES, DEVICES

PROGRAM = """#include <cstdio>
#include <vector>
#define TILE 16
constexpr int ROWS = 32;
struct Pair { float x, y; };
static float table[4] = {1, 2, 3, 4};
__constant__ float scale;
__device__ float twice(float x) { return 2 * x; }
template <int D> __global__ void tiles(float* out)
{
    __shared__ float row[D];
    row[threadIdx.x] = INFINITY;
    out[threadIdx.x] = twice(row[0]) * scale;
}
__global__ void plain(Pair* out) { out[threadIdx.x].x = ROWS; }
std::vector<float> made(int n) { return std::vector<float>(n); }
void launch(float* x, Pair* y)
{
    dim3 grid(4), block(TILE, TILE);
    tiles<64><<<grid, block>>>(x);
    plain<<<1, ROWS * 2>>>(y);
}
int main() { launch(nullptr, nullptr); }
"""


def test_what_is_the_host_s_becomes_empty_lines():
    part = devices_part(PROGRAM)
    assert len(part.splitlines()) == len(PROGRAM.splitlines())
    for kept in (
        "#define TILE 16",
        "struct Pair",
        "__constant__ float scale;",
        "float twice",
        "void tiles",
        "void plain",
    ):
        assert kept in part
    for gone in ("#include", "std::vector", "launch", "int main"):
        assert gone not in part


def test_a_launch_says_how_many_threads_a_block_has_where_it_says_it_in_numbers():
    assert launch_sizes(PROGRAM) == {"tiles": LaunchSize(256, 0), "plain": LaunchSize(64, 0)}
    assert launch_sizes("void f(int n) { k<<<1, n>>>(); }") == {"k": LaunchSize(None, 0)}
    text = "const int N = 8; /* k<<<1, 1>>>() */ void f() { k<<<1, dim3(N, N / 2, 2)>>>(); }"
    assert launch_sizes(text) == {"k": LaunchSize(64, 0)}


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("k<<<g, 64, 4096>>>(x);", 4096),
        ("#define BR 64\nk<<<g, BR, 3 * BR * (32 + 1) * sizeof(float)>>>(x);", 25344),
        ("size_t bytes = (size_t)2 * sizeof(float4) * 64u; k<<<g, 64, bytes, stream>>>(x);", 2048),
        ("k<<<g, 64, n * sizeof(float)>>>(x);", None),
        ("int bytes = 4; if (wide) bytes = 8; k<<<g, 64, bytes>>>(x);", None),
        ("k<<<g, 64, 16>>>(x); k<<<g, 64, 48>>>(x);", 48),
        ("k<<<g, 64, 16>>>(x); k<<<g, 64, n>>>(x);", None),
        ("k<<<g, 64, WIDE * 4>>>(x);", 256),
    ],
)
def test_dynamic_shared_memory_is_what_a_launch_says_or_unknown(text, shared):
    assert launch_sizes(text, ["WIDE=64"]) == {"k": LaunchSize(64, shared)}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5plainP4Pair", "plain"),
        ("_ZN3one3two6kernelEPf", "kernel"),
        ("plain", "plain"),
        ("_Z5tilesILi64EEvPf", "tiles"),
    ],
)
def test_a_kernel_is_shown_by_its_own_name(symbol, name):
    assert plain_name(symbol) == name


def checked(path: Path, cc: int):
    try:
        return check_program([path], DEVICES[cc])
    except MachineError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("cc", [61, 80])
def test_kernels_are_compiled_with_registers_shared_memory_and_occupancy(tmp_path, cc):
    path = tmp_path / "mine.cu"
    path.write_text(PROGRAM.replace("#include", "#include <cmath>\n#include", 1))
    rows = {row.symbol: row for row in checked(path, cc)}
    assert {*rows} == {"tiles", "plain"}
    assert rows["tiles"].shared_bytes == 256
    assert (rows["tiles"].threads, rows["plain"].threads) == (256, 64)
    assert all(row.registers and row.occupancy and not row.wrong for row in rows.values())


def test_a_kernel_that_does_not_compile_is_a_problem_with_its_line(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text("__global__ void k(float* x) { x[0] = nowhere; }\nint main() {}\n")
    (row,) = checked(path, 80)
    assert row.wrong
    assert "mine.cu:1" in row.problem
    assert "nowhere" in row.problem


def test_cuda_programs_are_not_compiled_for_amd(tmp_path):
    (tmp_path / "mine.cu").write_text("int main() {}\n")
    with pytest.raises(MachineError, match=r"mine\.cu is a CUDA program, and gfx90a is AMD's"):
        check_program([tmp_path / "mine.cu"], AMD_DEVICES["gfx90a"])


@slow
def test_occupancy_counts_dynamic_shared_memory_and_is_not_told_where_its_size_is_unknown(tmp_path):
    def row(bytes_):
        path = tmp_path / "mine.cu"
        path.write_text(
            "__global__ void k(float* x) { extern __shared__ float s[]; s[threadIdx.x] = 1; __syncthreads();\n"
            "    x[threadIdx.x] = s[0]; }\n"
            f"void f(float* x, int n) {{ k<<<1, 64, {bytes_}>>>(x); }}\n"
        )
        return checked(path, 80)[0]

    none, half, all_, too_much, unknown = map(row, ("0", "80 * 1024", "160 << 10", "200 << 10", "n"))
    assert (half.blocks, half.shared_bytes, half.limited_by) == (2, 80 << 10, ("shared memory",))
    assert none.blocks > half.blocks > all_.blocks == 1
    assert too_much.wrong and "one block needs more shared memory" in too_much.problem
    assert (unknown.blocks, unknown.occupancy, unknown.threads) == (None, None, 64)


HIP = """#include <hip/hip_runtime.h>
__global__ void sums(int* out) { __shared__ int row[64]; row[threadIdx.x] = 1; __syncthreads(); out[0] = row[5]; }
int main() {
    int* d;
    hipMalloc(&d, 4);
    hipLaunchKernelGGL(sums, dim3(1), dim3(64), 1024, 0, d);
}
"""


@slow
@needs("hipcc")
def test_a_hip_program_is_compiled_by_hipcc_for_amds_gpus(tmp_path, hw4_here):
    (tmp_path / "sums.hip").write_text(HIP)
    done = hw4_here("check", "sums.hip", "--gpu", "gfx90a")
    assert done.returncode == 0, done.stderr
    assert re.search(r"sums +gfx90a +\d+ +0 +0 +1\.2 +64 +\d+ +100%", done.stdout)
    (tmp_path / "wrong.hip").write_text(HIP.replace("= 1;", "= nowhere;"))
    fails(hw4_here("check", "wrong.hip", "--gpu", "gfx90a"), 1, "wrong.hip:2: use of undeclared identifier 'nowhere'")
    fails(hw4_here("check", "sums.hip", "--gpu", "8.0"), 3, "is a HIP program, and compute capability 8.0 is NVIDIA's")


@slow
@needs("g++|clang++")
def test_without_hipcc_a_hip_program_is_compiled_for_the_cpu_alone(tmp_path, hw4_here, monkeypatch):
    monkeypatch.setattr("hw4cli.device.programcheck.has_hipcc", lambda: False)
    (tmp_path / "sums.hip").write_text(HIP)
    done = hw4_here("check", "sums.hip")
    assert (done.returncode, done.stdout) == (0, "")
    assert "sums.hip is C++ for a CPU's compiler; hipcc, which says more, is not installed" in done.stderr
    (tmp_path / "wrong.hip").write_text(HIP.replace("= 1;", "= nowhere;"))
    fails(hw4_here("check", "wrong.hip"), 1, "wrong.hip does not compile for the CPU: wrong.hip:2: ", "nowhere")
