"""Whole CUDA programs on the CPU: the language and the runtime that they use, and mistakes in their own lines."""

import os
import re
import shutil
import subprocess
from concurrent.futures import CancelledError

import numpy as np
import pytest
from cases_of_programs import PROGRAMS, Program
from helpers import fails
from needs import needs
from slow import slow

from hw4cli.cli.terminal.programs import programs_of
from hw4cli.emulator.build import compiler_run, find_compiler
from hw4cli.emulator.library import LOCKSTEP, RANDOM, REVERSE, Schedule
from hw4cli.emulator.program.attention import CASES, check_attention, takes_a_case
from hw4cli.emulator.program.beside import run_beside
from hw4cli.emulator.program.build import Source, compile_program
from hw4cli.emulator.program.execute import ENDED, HANGS, TOO_SLOW, execute, has_sandbox, run_program
from hw4cli.emulator.program.launches import with_calls
from hw4cli.errors import InputError, MachineError
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.arrays import read_output, write_input
from hw4cli.problem.workload import Workload
from hw4cli.system.children import Children

pytestmark = needs("g++|clang++")
LANGUAGE, ATTENTION = PROGRAMS / "language.cu", PROGRAMS / "attention.cu"
MISTAKES = Program("mistakes")
ran, lines_of = MISTAKES.ran, MISTAKES.lines

FOUND = {  # the kind, and words of the sentence
    "shared-race": ("race", "__syncthreads() is missing"),
    "lockstep": ("race", "__syncwarp() is missing"),
    "block-race": ("race", "nothing orders blocks"),
    "copied": ("race", "__syncwarp() is missing"),
    "few-bytes": ("race", "__syncwarp() is missing"),
    "constant": ("constant memory", "which kernels may only read"),
    "divergence": ("divergence", "threads wait for others that never come"),
    "bounds": ("out of bounds", "from byte 1024 of p"),
    "below-bounds": ("out of bounds", ", 4 bytes before p (mistakes.cu:"),
    "shared-bounds": ("out of bounds", "byte 128 of the shared array row, which has 128"),
    "misaligned": ("misaligned", "no multiple of 8, but of 4"),
    "uninitialised": ("uninitialised", "row, which is shared"),
    "twice": ("freed memory", "a second time"),
    "device-pointer": ("host", "it must be copied"),
    "direction": ("cudaMemcpy", "its destination is a GPU's memory"),
    "too-much": ("out of bounds", "reads 1028 bytes"),
    "no-blocks": ("launch", "the grid has no blocks"),
    "unchecked": ("launch", "more than 1,024 threads"),
    "much-shared": ("launch", "without cudaFuncSetAttribute"),
    "crash": ("crash", "touches memory that is not there"),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_mistake_is_found_in_the_program_s_own_lines_and_its_right_twin_has_none(name):
    said, right = " ".join(MISTAKES.said(name, *FOUND[name])), ran(name, "right")
    assert all(line in said for line in lines_of(name))
    assert right.right and not right.findings, right


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("unwritten", "uninitialised", "reads in "),
        ("freed", "freed memory", "which is freed"),
        ("host-pointer", "host memory", "a GPU cannot"),
        ("other-gpu", "other GPU", "memory of GPU 1 (cudaDeviceEnablePeerAccess)"),
    ],
)
def test_a_kernel_that_reads_what_it_may_not_is_found_where_it_reads(name, kind, words):
    (finding,) = ran(name).findings
    assert finding.kind == kind
    assert words in finding.sentence
    assert f"{lines_of('reads')[0]}" in finding.sentence
    assert ran(name, "right").right


def test_a_kernel_that_writes_to_the_host_s_memory_is_ended_by_that_as_by_a_gpu_before_it_spoils_what_is_there():
    execution = ran("host-store")
    assert execution.end == ENDED
    (finding,) = execution.findings
    assert str(finding).startswith("host memory: block 0, thread 0 writes 4 bytes at ")
    assert ran("host-store", "right").right


@pytest.mark.parametrize(
    ("name", "kind"),
    [("same-value", "same value"), ("leak", "leak"), ("returned", "returned threads"), ("reads-input", "input")],
)
def test_what_changes_no_answer_is_a_note(name, kind):
    execution = ran(name)
    assert execution.right
    assert [note.kind for note in execution.notes] == [kind]
    assert ran(name, "right").notes == ()


def test_a_program_reads_a_file_as_its_standard_input(tmp_path):
    (tmp_path / "numbers").write_text("7\n")
    execution = ran("reads-input", stdin=tmp_path / "numbers")
    assert execution.right and not execution.notes and execution.output == ""


@slow
def test_a_macro_may_have_a_name_of_the_standard_library(tmp_path):
    program = tmp_path / "names.cu"
    program.write_text('#include <cstdio>\nint main() { std::twosome<int, int> x(7, 8); printf("%d", x.first); }\n')
    assert compile_program(Source((LANGUAGE,))).executable.exists()  # so that the prelude is kept, parsed
    assert execute([program], define=["pair=twosome"]).output == "7"


@slow
def test_a_program_that_says_nothing_of_openmp_is_compiled_without_as_by_nvcc(tmp_path):
    """A header may have types of its own for compilers with OpenMP, which CUDA has already."""
    (tmp_path / "reference.h").write_text("#ifdef _OPENMP\ntypedef struct { float x, y; } float2;\n#endif\n")
    program = tmp_path / "points.cu"
    program.write_text('#include <cstdio>\n#include "reference.h"\nint main() { printf("%zu", sizeof(float2)); }\n')
    assert execute([program], watched=False).output == "8"


def test_a_launch_that_fails_and_that_nobody_asks_about_is_said_to_be_unchecked():
    assert "unchecked" in [finding.kind for finding in ran("unchecked").findings]
    assert "unchecked" not in [finding.kind for finding in ran("no-blocks").findings]


def test_a_program_that_relies_on_lockstep_is_named_so():
    assert ran("lockstep").lockstep
    assert not ran("lockstep", "right").lockstep
    assert not ran("shared-race").lockstep


def test_threads_that_wait_for_a_word_that_nobody_changes_hang_and_the_sentence_says_where():
    execution = ran("spins")
    (finding,) = execution.findings
    assert finding.kind == "hang"
    assert f"64 at a loop that reads a word again and again, {lines_of('spins')[0]}" in finding.sentence
    assert ran("spins", "right").right


@slow
def test_a_kernel_that_never_ends_hangs_and_one_that_is_large_is_too_slow():
    endless, slow = ran("endless", seconds=3), ran("slow", seconds=3)
    assert (endless.end, slow.end) == (HANGS, TOO_SLOW)
    assert f"thread 0 runs at {lines_of('endless')[0]}" in endless.why
    assert "has done" in slow.why
    assert "of its 64 blocks" in slow.why
    assert ran("endless", "right").right
    assert ran("slow", "right").right


@pytest.mark.skipif(not has_sandbox(), reason="needs bubblewrap")
def test_the_sandbox_holds_a_program_that_writes_outside_its_folder():
    assert ran("outside").output == "refused\n"
    assert ran("outside", "right").output == "written\n"


def test_a_program_that_starts_another_process_is_said_to(tmp_path):
    execution = ran("forks")
    assert [note.kind for note in execution.notes] == ["processes"]


def test_an_argument_may_be_a_device():
    done = ran("exit", "right", "/dev/null")
    assert done.right, done


@pytest.mark.parametrize(("more", "status"), [(["right"], 0), ([], 3)])
def test_a_program_may_end_without_what_is_done_at_its_exit(more, status):
    done = ran("quick-exit", *more)
    assert (done.end, done.status) == (ENDED, status)


def test_an_exit_status_is_the_program_s_own():
    assert ran("exit").status == 3
    assert ran("exit").end == ENDED


@slow
def test_a_program_that_runs_beside_this_process_has_the_same_end_and_output_and_is_ended_with_its_children():
    program, how = compile_program(Source((MISTAKES.path,))), {"sandbox": False}
    here, there = run_program(program, ["exit"], **how), run_beside(Children(), program, ["exit"], **how)
    assert (there.end, there.status, there.output) == (here.end, here.status, here.output) == (ENDED, 3, here.output)
    ended = Children()
    ended.kill()
    with pytest.raises(CancelledError):
        run_beside(ended, program, ["exit"], **how)


def test_what_a_program_writes_is_put_where_the_arguments_name_it(tmp_path):
    write_input(tmp_path / "case", np.ones((1, 3, 32, 32), np.float32))
    done = execute([ATTENTION], ["case", "answer"], folder=tmp_path)
    assert done.right
    assert np.allclose(read_output(tmp_path / "answer", Workload.one_head(1, 32, 32)), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer", "case"]


@slow
@pytest.mark.parametrize("watched", [True, False])
def test_the_language_and_the_runtime_that_programs_use(watched):
    execution = execute([LANGUAGE], watched=watched, gpu=DEVICES[90], gpu_name="NVIDIA H100")
    assert execution.output == (
        "a kernel prints 7\nNVIDIA H100, compute capability 9.0, 132 multiprocessors\nall right\n"
    )
    assert execution.right and not execution.notes, execution


@pytest.mark.parametrize("order", [REVERSE, RANDOM, LOCKSTEP])
def test_a_right_program_is_right_in_every_order_of_threads(order):
    program = compile_program(Source((LANGUAGE,)))
    assert run_program(program, schedule=Schedule(order, 5)).right


def attention(tmp_path, *macros, shapes=CASES[:1]):
    return check_attention(Source((ATTENTION,), define=macros), shapes=shapes)


def test_a_right_solution_is_accepted_on_the_course_s_shapes_and_an_odd_one_is_marked(tmp_path):
    first, second = attention(tmp_path, shapes=(*CASES[:1], Workload.one_head(1, 131, 64)))
    assert (first.verdict, first.findings, first.odd) == ("AC", (), False)
    assert (second.verdict, second.odd) == ("NA", True)


@slow
@pytest.mark.parametrize(
    ("macro", "kind", "lines"), [("NO_BARRIER", "race", "37"), ("PAST_THE_END", "out of bounds", "54")]
)
def test_a_wrong_twin_of_the_solution_is_found_whatever_its_answer(tmp_path, macro, kind, lines):
    (case,) = attention(tmp_path, macro)
    assert kind in [finding.kind for finding in case.findings]


@slow
def test_a_solution_that_needs_lockstep_is_wrong_and_said_to_be_right_in_lockstep(tmp_path):
    (case,) = attention(tmp_path, "LOCKSTEP")
    assert case.verdict == "NA"
    assert case.in_lockstep
    assert "relies on warps in lockstep (AC in lockstep)" in str(case)


# ---- Launches


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k<<<1, 2>>>(x);", ".with(1, 2)([=](auto&... hw4_a) { k(hw4_a...); }, x);"),
        ("k<<<1, 2>>>();", ".with(1, 2)([=](auto&... hw4_a) { k(hw4_a...); });"),
        (
            "ns::k<float, 4> <<<dim3(a >> 1, 2), f(b, c), n * 4, s>>> (x, g(y));",
            "ns::k<float, 4>(hw4_a...); }, x, g(y));",
        ),
        ("(*table[i])<<<1, 1>>>(x);", "{ (*table[i])(hw4_a...); }, x);"),
    ],
)
def test_a_launch_becomes_a_call(text, wanted):
    made, count = with_calls(text, "a.cu")
    assert made.endswith(wanted)
    assert count == 1


def test_what_looks_like_a_launch_in_a_comment_or_a_string_stays():
    text = "// k<<<1, 2>>>(x)\nconst char* s = \"k<<<1>>>(x)\"; int y = 1 << 2 >> 1; /* <<< */ char c = '<';\n"
    assert with_calls(text, "a.cu") == (text, 0)


def test_lines_stay_where_they_were():
    text = "int a;\nk<<<1,\n    2>>>(\n    x,\n    y);\nint b;\n"
    made, _ = with_calls(text, "a.cu")
    assert made.splitlines().index("int b;") == text.splitlines().index("int b;")


# ---- Shared arrays of a class

OF_HALF = """
#include <cstdio>
#include <cuda_fp16.h>
__global__ void turn(const half* in, float* out) {
    __shared__ half tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = __half2float(tile[LAST - threadIdx.x]);
}
int main() {
    half in[64], *from;
    float out[64], *to;
    for (int i = 0; i < 64; i++) in[i] = __float2half(i);
    cudaMalloc(&from, sizeof in), cudaMalloc(&to, sizeof out);
    cudaMemcpy(from, in, sizeof in, cudaMemcpyHostToDevice);
    turn<<<1, 64>>>(from, to);
    cudaMemcpy(out, to, sizeof out, cudaMemcpyDeviceToHost);
    printf("%g", out[0]), cudaFree(from), cudaFree(to);
}
"""


def test_a_shared_array_of_half_is_an_array_and_what_lies_behind_it_is_not(tmp_path):
    path = tmp_path / "half.cu"
    for last in (63, 64):
        path.write_text(OF_HALF.replace("LAST", str(last)))
        done = run_program(compile_program(Source((path,))))
        if last == 63:
            assert (done.output, done.findings) == ("63", ())
        else:
            assert "out of bounds" in [finding.kind for finding in done.findings]


# ---- Inline PTX, and what Clang says of AMD's GPUs

COPIES = """
#include <cstdio>
extern __shared__ float4 shared[];
template <int LANES> struct Copies {
    static __device__ void run(const float* from, float* to, int given) {
        const unsigned base = (unsigned)__cvta_generic_to_shared(shared), mine = base + threadIdx.x * 16;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\\n"  // copy
                     :: "r"(mine), "l"(from + threadIdx.x * 4), "r"(int(threadIdx.x) < given ? 16 : 0) : "memory");
        WAIT;
        float a, b, c, d, power;
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "r"(mine) : "memory");
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(a + b + c + d));
        __syncthreads();
        asm volatile("st.shared.f32 [%0+4], %1;" ::"r"(base + 8 * (LANES - 1 - threadIdx.x)), "f"(power) : "memory");
        __syncthreads();
        to[threadIdx.x] = ((const float*)shared)[2 * threadIdx.x + 1];
    }
};
template <class T> __global__ void copies(const float* from, float* to, int given) { T::run(from, to, given); }
int main() {
    float in[128], out[32], *from, *to;
    for (int i = 0; i < 128; i++) in[i] = i / 4 / 8.0f;
    cudaMalloc(&from, sizeof in);
    cudaMalloc(&to, sizeof out);
    cudaMemcpy(from, in, sizeof in, cudaMemcpyHostToDevice);
    copies<Copies<32>><<<1, 32, 512>>>(from, to, 30);
    cudaMemcpy(out, to, sizeof out, cudaMemcpyDeviceToHost);
    for (float x : out) printf("%g ", x);
    cudaFree(from), cudaFree(to);
}
"""


def copies_that(wait, tmp_path):
    """The program, run, and the line of its copy."""
    path = tmp_path / "copies.cu"
    path.write_text(COPIES.replace("WAIT", wait))
    line = next(n for n, line in enumerate(path.read_text().split("\n"), 1) if line.endswith("// copy"))
    return run_program(compile_program(Source((path,)))), line


def test_inline_ptx_copies_asynchronously_and_a_shared_array_may_be_called_shared(tmp_path):
    done, _ = copies_that('asm volatile("cp.async.wait_all;" ::: "memory")', tmp_path)
    expected = [2.0 ** (n / 2) if n < 30 else 1.0 for n in reversed(range(32))]
    assert [float(word) for word in done.output.split()] == pytest.approx(expected, rel=1e-5)
    assert not done.findings and not done.notes


@pytest.mark.parametrize("wait", ["", 'asm volatile("" ::: "memory")', 'asm volatile("cp.async.wait_group 1;" ::)'])
def test_a_copy_of_inline_ptx_that_nobody_waits_for_is_found_at_its_line(tmp_path, wait):
    done, line = copies_that(wait, tmp_path)
    assert any(f"the asynchronous copy at copies.cu:{line}," in f.sentence for f in done.findings)


@pytest.mark.parametrize(
    "statement",
    [
        'asm volatile("bra there;");',
        'asm volatile("{.reg .f32 t; ex2.approx.f32 t, %0;}" :: "f"(1.0f));',
        'asm volatile("ex2.approx.f32 %0, %1;" : "=f"(x) : "f"(1.0f)); asm volatile("trap;");',
    ],
)
def test_an_instruction_that_is_not_there_is_still_refused(tmp_path, statement):
    path = tmp_path / "mine.cu"
    path.write_text(f"__global__ void k() {{ float x = 0; {statement} }}\nint main() {{}}\n")
    with pytest.raises(InputError, match=r"mine\.cu:1: inline PTX"):
        compile_program(Source((path,)))


AMD_POINTERS = """
#include <hip/hip_runtime.h>
#include <cstdio>
typedef float Vector4 __attribute__((ext_vector_type(4)));
#define LDS __attribute__((address_space(3)))
__global__ void reversed(float* to) {
    extern __shared__ float4 shared[];
    const unsigned base = (unsigned)(size_t)(const LDS void*)shared;
    const float x = threadIdx.x;
    *(LDS Vector4*)(size_t)(base + threadIdx.x * 16) = Vector4{x, x, x, x};
    WAIT;
    const Vector4 other = *(const LDS Vector4*)(size_t)(base + (63 - threadIdx.x) * 16);
    to[threadIdx.x] = other[3];
}
int main() {
    float out[64], *to;
    hipMalloc(&to, sizeof out);
    reversed<<<1, 64, 1024>>>(to);
    hipMemcpy(out, to, sizeof out, hipMemcpyDeviceToHost);
    for (float x : out) printf("%g ", x);
    hipFree(to);
}
"""


@slow
def test_clangs_pointers_into_amds_shared_memory_are_watched(tmp_path):
    for wait, right in (("__builtin_amdgcn_wave_barrier()", True), ("", False)):
        path = tmp_path / "reversed.hip"
        path.write_text(AMD_POINTERS.replace("WAIT", wait))
        done = run_program(compile_program(Source((path,)), lanes=64))
        assert ("race" in {finding.kind for finding in done.findings}) is not right
        if right:
            assert not done.findings
            assert [float(word) for word in done.output.split()] == [*range(63, -1, -1)]


@pytest.mark.parametrize(
    ("main", "takes"),
    [
        ("int main(int count, char** words) { open(words[2]); }", True),
        ("int main(int argc, const char *argv[]) { return argv [2][0]; }", True),
        ("int main(int n, char* a[]) { return a[1][0]; } // a[2]", False),
        ("int main() {}", False),
    ],
)
def test_a_program_takes_a_case_that_uses_its_second_argument_whatever_its_name(tmp_path, main, takes):
    path = tmp_path / "hw4.cu"
    path.write_text(main)
    assert takes_a_case(Source((path,))) is takes


# ---- What is refused, in a sentence


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#include <cusparse_v2.h>", "mine.cu:2: cuSPARSE (cusparse_v2.h): the CPU does not execute that"),
        ("#include <cudnn.h>", "mine.cu:2: cuDNN (cudnn.h): the CPU does not execute that"),
        ("cublasHandle_t handle;", "mine.cu:2: cublasHandle_t of cuBLAS: the CPU does not execute that"),
        ("texture<float, 1> t;", "mine.cu:2: textures: the CPU does not execute that"),
        ("cudaTextureObject_t t;", "mine.cu:2: textures: the CPU does not execute that"),
        ("void f() { this_multi_grid(); }", "mine.cu:2: groups of several GPUs: the CPU does not execute that"),
        (
            '__global__ void k() { asm volatile("mov.u32 %0, %smid;" : "=r"(x)); }',
            "mine.cu:2: inline PTX (`mov.u32 %0, %smid;`)",
        ),
        ('#include "no_such.h"', "mine.cu:2: no_such.h is not found: name its folder with --include"),
        (
            "__global__ void k(); void f() { k<<<1; }",
            "mine.cu:2: this launch is not understood: no >>> belongs to the <<<",
        ),
        ("int f() { return nowhere; }", "mine.cu does not compile for the CPU: mine.cu:2:"),
        ("void elsewhere(); void f() { elsewhere(); }", "it calls elsewhere(), which no file has"),
    ],
)
def test_what_is_not_there_is_refused_with_its_name_and_line(tmp_path, line, words):
    path = tmp_path / "mine.cu"
    path.write_text(f"#include <cstdio>\n{line}\nint main() {{}}\n")
    with pytest.raises(InputError) as raised:
        compile_program(Source((path,)))
    assert words in str(raised.value)


# ---- Names of files and folders

READS_TOO_FAR = """#include <cuda_runtime.h>
__global__ void shift(float* p) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = p[threadIdx.x + 1];
}
struct Of { float* device; } a_name_of_several_words[1];
int main() {
    cudaMalloc(&a_name_of_several_words[0].device, 128);
    cudaMemset(a_name_of_several_words[0].device, 0, 128);
    shift<<<1, 32, 128>>>(a_name_of_several_words[0].device);
    cudaFree(a_name_of_several_words[0].device);
}
"""


@slow
@pytest.mark.parametrize("name", ['a b\'s "q"\\/my program.cu', "作業四/平行程式.cu", f"{'long-' * 49}.cu"])
def test_a_mistake_is_named_with_its_line_whatever_the_file_and_its_folder_are_called(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(READS_TOO_FAR)
    (finding,) = execute([path]).findings
    array = f"a_name_of_several_words[0].device ({path.name[:60]}"
    assert f"reads 4 bytes at {path.name}:4, from byte 128 of {array}" in str(finding)


@slow
def test_a_compiler_s_error_is_quoted_whatever_bytes_stand_in_its_line_and_in_the_file_s_name(tmp_path):
    path = tmp_path / "my program.cu"
    path.write_bytes("int main() { return nowhere; /* 註解 */ }\n".encode("big5"))
    with pytest.raises(InputError) as raised:
        compile_program(Source((path,)))
    assert "my program.cu:1: " in str(raised.value)
    assert "nowhere" in str(raised.value)


# ---- Several files, headers, HIP


def test_a_program_of_several_files_with_headers_and_macros(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/twice.cuh").write_text(
        "#pragma once\nvoid twice(int* x, int n);\n#define RUN(k, n, ...) k<<<1, n>>>(__VA_ARGS__)\n"
    )
    (tmp_path / "twice.cu").write_text(
        '#include "twice.cuh"\n__global__ void kernel(int* x) { x[threadIdx.x] *= FACTOR; }\n'
        "void twice(int* x, int n) { RUN(kernel, n, x); }\n"
    )
    (tmp_path / "main.cu").write_text(
        '#include "twice.cuh"\n#include <cstdio>\nint main() { int h[4] = {1, 2, 3, 4}, *d; cudaMalloc(&d, 16);\n'
        "cudaMemcpy(d, h, 16, cudaMemcpyHostToDevice); twice(d, 4); cudaMemcpy(h, d, 16, cudaMemcpyDeviceToHost);\n"
        'printf("%d\\n", h[3]); cudaFree(d); }\n'
    )
    done = execute([tmp_path / "main.cu", tmp_path / "twice.cu"], include=[tmp_path / "more"], define=["FACTOR=5"])
    assert done.output == "20\n"
    assert done.right


HIP = """#include <hip/hip_runtime.h>
#include <cstdio>
__global__ void sums(int* out)
{
    int x = threadIdx.x;
    for (int by = warpSize / 2; by > 0; by /= 2) x += __shfl_down(x, by);
    if (threadIdx.x == 0) out[0] = x;
}
int main()
{
    int *d, h;
    hipMalloc(&d, 4);
    hipLaunchKernelGGL(sums, dim3(1), dim3(64), 0, 0, d);
    hipMemcpy(&h, d, 4, hipMemcpyDeviceToHost);
    hipDeviceProp_t p;
    hipGetDeviceProperties(&p, 0);
    printf("%d %d\\n", h, p.warpSize);
    hipFree(d);
}
"""


@slow
def test_a_hip_program_has_64_lanes(tmp_path):
    (tmp_path / "sums.hip").write_text(HIP)
    done = execute([tmp_path / "sums.hip"], gpu=AMD_DEVICES["gfx90a"])
    assert done.output == "2016 64\n"
    assert done.right


# ---- The command


def hw4_check(hw4, *words, cwd=None):
    return hw4("check", *words, cwd=cwd)


def test_the_command_prints_the_verdict_and_what_was_found(hw4, tmp_path):
    done = hw4_check(hw4, ATTENTION, "--run", "2,128,32")
    assert done.returncode == 0, done.stderr
    assert "on (2, 128, 32): AC" in done.stdout
    assert "no mistake found" in done.stdout


@slow
def test_the_command_says_of_a_wrong_answer_without_a_finding_that_there_is_no_finding_and_not_no_mistake(
    hw4, tmp_path
):
    program = tmp_path / "unscaled.cu"
    program.write_text(ATTENTION.read_text().replace("score *= scale;", ""))
    done = hw4_check(hw4, program, "--run", "1,128,32")
    assert done.returncode == 1
    assert "on (1, 128, 32): NA" in done.stdout
    assert "no mistake" not in done.stdout
    assert done.stdout.endswith("no race and no wrong access found\n")


@slow
def test_the_command_says_of_a_program_that_is_too_slow_how_it_gets_more_time(hw4):
    done = hw4_check(hw4, MISTAKES.path, "--run", "--seconds", "2", "--", "slow")
    assert done.returncode == 1
    assert "mistakes.cu: too slow for the CPU: after" in done.stdout
    assert "--seconds gives it more of the processor's time" in done.stdout
    assert "no mistake" not in done.stdout


def test_the_command_hands_arguments_on(hw4):
    done = hw4_check(hw4, MISTAKES.path, "--run", "--json", "--", "shared-race")
    assert done.returncode == 1
    assert '"kind": "race"' in done.stdout
    assert hw4_check(hw4, MISTAKES.path, "--run", "--", "shared-race", "right").returncode == 0


@pytest.mark.parametrize(
    ("library", "define", "programs"),
    [
        ("#ifdef TEST\nint main() {}\n#endif\n", (), 1),
        ("#ifdef TEST\n#if 1\nint main() {}\n#endif\n#endif\n", (), 1),
        ("#ifdef TEST\nint main() {}\n#endif\n", ("TEST=1",), 2),
        ("#ifndef TEST\nint main() {}\n#endif\n", (), 2),
        ("#ifdef __CUDACC__\nint main() {}\n#endif\n", (), 2),
        ("#ifdef TEST\nvoid test();\n#else\nint main() {}\n#endif\n", (), 2),
        ("#endif\nint main() {}\n", (), 2),
    ],
)
def test_a_file_whose_main_is_a_test_that_is_left_out_is_part_of_the_other_program(tmp_path, library, define, programs):
    (tmp_path / "hw4.cu").write_text("int main() {}\n")
    (tmp_path / "library.cu").write_text(library)
    assert len(programs_of([str(tmp_path / "hw4.cu"), str(tmp_path / "library.cu")], define)) == programs


@slow
def test_a_program_of_other_arguments_than_the_assignment_s_says_what_it_said_and_how_it_was_started(hw4, tmp_path):
    program = tmp_path / "other.cu"
    program.write_text("#include <string>\nint main(int, char** argv) { return std::stoi(argv[1]) + *argv[2]; }\n")
    done = hw4_check(hw4, program, "--run", "1,128,32")
    assert done.returncode == 1
    assert "RE, crash: the host's code is aborted: what():  stoi" in done.stdout
    assert "no kernel ran, started as PROGRAM INPUT OUTPUT: other arguments stand behind --" in done.stdout


@slow
def test_what_a_program_writes_in_another_order_of_threads_is_compared(hw4, tmp_path):
    wrong = hw4_check(hw4, MISTAKES.path, "--run", "--", "turns", cwd=tmp_path)
    assert wrong.returncode == 1
    assert "order: what the program writes depends on the order" in wrong.stdout
    assert hw4_check(hw4, MISTAKES.path, "--run", "--", "turns", "right", cwd=tmp_path).returncode == 0


@slow
def test_what_is_something_else_each_time_is_not_said_to_depend_on_the_order_of_threads(hw4, tmp_path):
    varies = hw4_check(hw4, MISTAKES.path, "--run", "--", "random", cwd=tmp_path)
    assert varies.returncode == 0
    assert "order: " not in varies.stdout
    assert "note: run to run: what the program writes is something else each time" in varies.stdout
    assert "run to run" not in hw4_check(hw4, MISTAKES.path, "--run", "--", "random", "right", cwd=tmp_path).stdout


@slow
def test_without_run_the_kernels_are_compiled(hw4):
    done = hw4_check(hw4, ATTENTION, "--gpu", "8.0")
    assert done.returncode in (0, 3), done.stderr
    if done.returncode == 0:
        assert re.search(r"^attention +8\.0 +\d+", done.stdout, re.M)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--", "1"], "what stands behind -- goes with --run"),
        (["--causal"], "--causal is for kernels"),
        (["flash", "--run"], "flash is a kernel: check it by itself"),
        (["--run", "--gpu", "8.0", "--gpu", "9.0"], "give --gpu once"),
    ],
)
def test_words_that_do_not_go_together(hw4, words, sentence):
    fails(hw4_check(hw4, MISTAKES.path, *words), 2, sentence)


def test_a_pipe_that_only_one_run_could_read_is_no_standard_input(hw4, tmp_path):
    os.mkfifo(tmp_path / "numbers")
    done = hw4_check(hw4, MISTAKES.path, "--run", "--stdin", "numbers", cwd=tmp_path)
    fails(done, 2, "numbers is a pipe: --stdin needs a file")


def test_without_a_compiler_the_sentence_says_what_to_install(hw4, tmp_path):
    done = hw4("check", MISTAKES.path, "--run", env={"CXX": "no-such-compiler"})
    fails(done, 3, "kernels run on the CPU only where there is a C++ compiler")


def compiler_says(words):
    """A compiler that fails with these words, in English where that is asked for."""

    def run(command, *, env, **_):
        assert env["LC_ALL"].startswith("C")
        return subprocess.CompletedProcess(command, 1, "", words)

    return run


@pytest.mark.parametrize(
    "words",
    [
        "<built-in>: fatal error: when writing output to a.o: No space left on device\ncompilation terminated.\n",
        "/usr/bin/ld: final link failed: Disk quota exceeded\ncollect2: error: ld returned 1 exit status\n",
        "g++: fatal error: Killed signal terminated program cc1plus\n",
        "\ncc1plus: out of memory allocating 65536 bytes after a total of 1 bytes\n",
    ],
)
def test_a_compiler_that_has_no_room_says_nothing_about_the_program(words, tmp_path):
    with pytest.raises(MachineError, match="could not be compiled for the CPU"):
        compiler_run(["g++"], "mine.cu", str(tmp_path), compiler_says(words))


@pytest.mark.parametrize(
    "words",
    [
        'mine.cu:2:1: error: expected ;\n    2 | puts("no memory")  // as perror: Cannot allocate memory\n',
        "mine.cu:1:2: error: #error g++: No space left on device\n",
    ],
)
def test_what_the_program_has_a_compiler_say_says_nothing_about_the_machine(words, tmp_path):
    assert compiler_run(["g++"], "mine.cu", str(tmp_path), compiler_says(words)).stderr == words


@slow
def test_the_shadow_of_memory_takes_eight_times_its_bytes(tmp_path):
    """Measured as the peak of a program's memory with 32 MB on the GPU, watched and not."""
    source = tmp_path / "large.cu"
    source.write_text(
        "#include <cstdio>\n#include <sys/resource.h>\n"
        "__global__ void touch(float* x, size_t n) {\n"
        "    for (size_t i = blockIdx.x * 1024ull + threadIdx.x; i < n; i += gridDim.x * 1024ull) x[i] = i;\n}\n"
        "int main() { const size_t n = 8 << 20; float* x; cudaMalloc(&x, n * 4);\n"
        "touch<<<4, 1024>>>(x, n); cudaFree(x);\n"
        'rusage u; getrusage(RUSAGE_SELF, &u); printf("%ld\\n", u.ru_maxrss); }\n'
    )
    watched, plain = (int(execute([source], watched=watched, seconds=0).output) for watched in (True, False))
    assert watched - plain < 1.15 * 8 * (32 << 10)


@slow
def test_what_is_compiled_is_kept_and_the_oldest_goes(tmp_path, monkeypatch):
    monkeypatch.setattr("hw4cli.emulator.program.build.MOST_EXECUTABLES", 2)
    monkeypatch.setattr("hw4cli.emulator.build.cache_folder", lambda: tmp_path)
    monkeypatch.setattr("hw4cli.emulator.program.build._runtime", lambda *_: [])  # a program of the host's alone
    made = []
    for number in range(3):
        path = tmp_path / f"p{number}.cu"
        path.write_text(f"#include <cmath>\nint main() {{ return {number}; }}\n")
        made.append(compile_program(Source((path,)), watched=False).executable)
    assert [path.exists() for path in made] == [False, True, True]
    # Its header came out of the text of the prelude, and now comes out of what is kept of it, parsed.
    assert compile_program(Source((tmp_path / "p1.cu",)), watched=False).executable == made[1]
    assert compile_program(Source((path,)), watched=False).executable.stat().st_mtime == made[2].stat().st_mtime


def test_no_process_is_left(tmp_path):
    before = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout.count(
        "/.hw4/mistakes"
    )
    ran("forks")
    after = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout.count(
        "/.hw4/mistakes"
    )
    assert after <= before


# ---- What compilers and machines lack


def test_a_program_that_asks_for_more_memory_than_there_is_gets_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("hw4cli.emulator.program.execute.free_memory", lambda: 16 << 30)
    source = tmp_path / "large.cu"
    source.write_text(
        "#include <cstdio>\n#include <cuda_runtime.h>\n"
        'int main() { float* x; if (cudaMalloc(&x, 20ull << 30) != cudaSuccess) puts("no memory"); }\n'
    )
    done = execute([source])
    assert (done.output, done.end, [*done.findings]) == ("no memory\n", ENDED, [])
    assert [str(note) for note in done.notes] == [
        "memory: x does not get 21474836480 bytes at large.cu:3: the CPU has 4294967296 for it"
    ]


@slow
def test_clang_needs_openmps_library_only_for_programs_that_use_it(tmp_path, monkeypatch):
    clang = next(filter(None, map(shutil.which, ("clang++", "clang++-15", "clang++-14"))), None)
    if not clang:
        pytest.skip("clang++ is not installed")
    monkeypatch.setenv("CXX", clang)
    compiler = find_compiler.__wrapped__()
    monkeypatch.setattr("hw4cli.emulator.program.build.find_compiler", lambda: compiler)
    loop = "#pragma omp parallel for reduction(+:n)\nfor (int i = 0; i < 9; i++) n++;\n"
    text = f"int main() {{ int n = 0;\n{loop}return n - 9; }}\n"
    for name, own in (("without", text.replace("#pragma", "//")), ("with", text)):
        source = tmp_path / f"{name}.cu"
        source.write_text(own)
        try:
            assert execute([source], watched=False).status == 0
        except InputError as error:
            assert name == "with"
            assert "uses OpenMP, whose library clang++ lacks here: install libomp-dev, or set CXX=g++" in str(error)
