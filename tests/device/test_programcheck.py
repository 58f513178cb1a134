"""The kernels of a whole program, compiled without a GPU: what of its text is the device's, and what a launch says."""

from pathlib import Path

import pytest

from hw4cli.device.programcheck import block_sizes, check_program, devices_part, plain_name
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
    assert block_sizes(PROGRAM) == {"tiles": 256, "plain": 64}
    assert block_sizes("void f(int n) { k<<<1, n>>>(); }") == {}
    assert block_sizes("const int N = 8; /* k<<<1, 1>>>() */ void f() { k<<<1, dim3(N, N / 2, 2)>>>(); }") == {"k": 64}


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


def test_programs_are_not_compiled_for_amd(tmp_path):
    with pytest.raises(MachineError, match="gfx90a is AMD's"):
        check_program([tmp_path / "mine.cu"], AMD_DEVICES["gfx90a"])
