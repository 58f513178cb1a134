"""Libraries of kernels in whole programs on the CPU: cooperative groups, CUB, Thrust, cuBLAS and cuRAND."""

import pytest
from cases_of_programs import PROGRAMS, Program
from needs import needs
from slow import slow

from hw4cli.emulator.library import REVERSE, Schedule
from hw4cli.emulator.program.build import Source, compile_program
from hw4cli.emulator.program.execute import execute, run_program
from hw4cli.emulator.program.thrust import installed, toolkits
from hw4cli.errors import InputError

pytestmark = needs("g++|clang++")
BLAS = Program("blas")
has_thrust = pytest.mark.skipif(installed(toolkits()) is None, reason="Thrust's headers are not installed")


def is_right(name, *, define=(), **how):
    """What a program of checks of its own printed; it must have come to its end, with nothing found."""
    done = execute([PROGRAMS / f"{name}.cu"], define=define, **how)
    assert done.right and "not so" not in done.output, (done.output[:400], done)
    return done.output


def found_in(name, macro):
    """What is found in a program with a mistake, in a line."""
    return " ".join(map(str, execute([PROGRAMS / f"{name}.cu"], define=[macro]).findings))


def line_of(name, text):
    """The line of a program that has this text, as findings name it."""
    lines = (PROGRAMS / f"{name}.cu").read_text().splitlines()
    return f"{name}.cu:{next(number for number, line in enumerate(lines, 1) if text in line)}"


def test_groups_of_all_sizes_add_scan_shuffle_and_copy():
    is_right("groups")
    is_right("groups", schedule=Schedule(REVERSE))


@slow
def test_a_group_s_copy_that_is_used_before_its_wait_is_found_where_it_is_used():
    assert line_of("groups", "first[63 - threadIdx.x]") in found_in("groups", "TOO_EARLY")


@slow
def test_cub_s_warps_blocks_and_whole_gpu_have_the_answers_of_plain_loops():
    is_right("cub_primitives")
    is_right("cub_primitives", schedule=Schedule(REVERSE))


@slow
def test_storage_of_cub_that_is_used_again_without_a_barrier_is_a_race_in_the_program_s_lines():
    found = found_in("cub_primitives", "REUSED")
    assert "race" in found and "__syncthreads() is missing" in found
    assert line_of("cub_primitives", "Reduce(s.reduce).Sum(t)") in found
    assert line_of("cub_primitives", "cub::Max(), 80)") in found


@slow
def test_products_of_cublas_are_exact_on_small_integers():
    done = run_program(compile_program(Source((BLAS.path,))))
    assert done.right and "not so" not in done.output, (done.output[:400], done)


@slow
@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("unwritten", "uninitialised", "that nobody has written"),
        ("short", "out of bounds", "reads 20 bytes from byte 140 of"),
        ("host", "library", "the host's memory, and it takes a GPU's"),
        ("leading", "library", "A has 5 rows, and its leading dimension is 4"),
    ],
)
def test_what_cublas_is_given_is_checked(case, kind, words):
    assert BLAS.lines(case)[0] in " ".join(BLAS.said(case, kind, words))


@slow
def test_curand_s_numbers_are_those_that_are_published():
    printed = dict(line.split(" ", 1) for line in is_right("random_numbers").splitlines())
    # A V100's first double of XORWOW with seed 0, as an issue of CuArrays.jl (589) shows it.
    assert printed["double"] == "0.4384508447184235"
    # Random123's known answers (kat_vectors, philox4x32 10): for zeros, and for a counter and a key of pi's digits.
    assert printed["philox"] == "6627e8d5 e169c58d bc57ac4c 9b00dbd8"
    assert printed["pi"] == "d16cfe09 94fdcceb 5001e420 24126ea1"


@slow
@has_thrust
def test_thrust_works_on_the_gpu_s_memory_which_kernels_share():
    is_right("vectors_of_thrust")
    assert "from byte 400 of vector (Thrust), which has 400" in found_in("vectors_of_thrust", "OVER")


@slow
def test_without_thrust_s_headers_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("hw4cli.emulator.program.thrust.toolkits", lambda: ())
    path = tmp_path / "mine.cu"
    path.write_text("#include <thrust/sort.h>\nint main() {}\n")
    with pytest.raises(InputError) as raised:
        compile_program(Source((path,)))
    assert str(raised.value).startswith("mine.cu:1: Thrust (thrust/sort.h): its headers are not installed here: ")


HALVES = """#include <cuda_fp16.h>
__global__ void twice(half* x) { x[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; }
__global__ void shift(half* x) { if (threadIdx.x < 63) x[threadIdx.x] = x[threadIdx.x + 1]; }
int main(int n, char**) {
    half *x, of_host[64];
    for (int i = 0; i < 64; i++) of_host[i] = half(1.0f + i);
    cudaMalloc(&x, sizeof of_host);
    cudaMemcpy(x, of_host, sizeof of_host, cudaMemcpyHostToDevice);
    if (n == 1) twice<<<1, 64>>>(x);
    else shift<<<1, 64>>>(x);
    cudaDeviceSynchronize(), cudaFree(x);
}
"""


def test_threads_that_change_halves_of_one_word_do_not_race_and_those_that_read_the_other_half_do(tmp_path):
    path = tmp_path / "halves.cu"
    path.write_text(HALVES)
    program = compile_program(Source((path,)))
    assert run_program(program).right
    assert any("race" in str(one) and "halves.cu:3" in str(one) for one in run_program(program, ["shift"]).findings)


@slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#include <cublas_v2.h>\nvoid f(cublasHandle_t h) { cublasSsyrkx(h); }", "mine.cu:2: cublasSsyrkx of cuBLAS"),
        (
            "#include <curand_kernel.h>\n__global__ void k() { curandStateMRG32k3a s; }",
            "mine.cu:2: curandStateMRG32k3a of cuRAND",
        ),
        ("#include <cub/cub.cuh>\nvoid f() { cub::DeviceFor::Bulk(3, 4); }", "mine.cu:2: DeviceFor of CUB"),
        (
            "#include <cooperative_groups.h>\nvoid f() { cooperative_groups::this_thing(); }",
            "this_thing of cooperative groups",
        ),
    ],
)
def test_what_a_library_does_not_have_here_is_refused_by_its_name_and_line(tmp_path, text, words):
    path = tmp_path / "mine.cu"
    path.write_text(text + "\nint main() {}\n")
    with pytest.raises(InputError) as raised:
        compile_program(Source((path,)))
    assert words in str(raised.value) and str(raised.value).endswith(": the CPU does not execute that")


UNWRITTEN = """#include <cublas_v2.h>
__global__ void reversed(int* out) {
    __shared__ int row[64];
    row[threadIdx.x] = (int)threadIdx.x;
    out[threadIdx.x] = row[63 - threadIdx.x];
}
int main() {
    cublasHandle_t handle;
    const float one = 1, zero = 0;
    float *a, *b, *c;
    cublasCreate(&handle);
    cudaMalloc(&a, 4), cudaMalloc(&b, 400 * 4), cudaMalloc(&c, 400 * 4), cudaMemset(a, 0, 4);
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 400, 1, &one, a, 1, b, 1, &zero, c, 1);
    reversed<<<1, 64>>>((int*)c);
    cudaDeviceSynchronize(), cudaFree(a), cudaFree(b), cudaFree(c), cublasDestroy(handle);
}
"""


@slow
def test_a_matrix_that_nobody_has_written_is_one_finding_and_hides_no_race(tmp_path):
    path = tmp_path / "unwritten.cu"
    path.write_text(UNWRITTEN)
    found = [(one.kind, "cublasSgemm" in one.sentence) for one in execute([path]).findings]
    assert found.count(("uninitialised", True)) == 1 and ("race", False) in found
