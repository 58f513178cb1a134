"""`hw4 judge --race-check`, and `--device emulate`: CUDA programs executed on the CPU, told to their authors."""

import json

import pytest
from classes import board, correct, judge_class, submit
from needs import COMPILER, needs
from slow import slow

from hw4cli.errors import ShortageError
from hw4cli.judge import racecheck
from hw4cli.judge.submission import scan

pytestmark = needs(COMPILER)

# A program as a student writes it: a thread a row. BARRIER is what a race lacks.
PROGRAM = r"""
#include <cstdio>
#include <cmath>
#include <vector>
__global__ void attend(const float* q, const float* k, const float* v, float* o, int N, int d) {
    __shared__ float key[128], value[128];
    const long at = (long)blockIdx.y * N * d;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sums[128] = {}, l = 0, m = -INFINITY;
    for (int j = 0; j < N; j++) {
        BARRIER
        for (int c = threadIdx.x; c < d; c += blockDim.x) {
            key[c] = k[at + (long)j * d + c], value[c] = v[at + (long)j * d + c];
        }
        __syncthreads();
        if (row >= N) continue;
        float s = 0;
        for (int c = 0; c < d; c++) s += q[at + (long)row * d + c] * key[c];
        s /= sqrtf((float)d);
        const float top = fmaxf(m, s), old = expf(m - top), p = expf(s - top);
        for (int c = 0; c < d; c++) sums[c] = sums[c] * old + p * value[c];
        l = l * old + p, m = top;
    }
    if (row < N) for (int c = 0; c < d; c++) o[at + (long)row * d + c] = FACTOR * sums[c] / l;
}
int main(int argc, char** argv) {
    int n[3];
    FILE* file = fopen(argv[1], "rb");
    if (!file || fread(n, 4, 3, file) != 3) return 1;
    const size_t count = (size_t)n[0] * n[1] * n[2], bytes = count * 4;
    std::vector<float> all[3], o(count);
    for (auto& each : all) each.resize(count);
    const size_t part = (size_t)n[1] * n[2];
    for (int b = 0; b < n[0]; b++)
        for (auto& each : all)
            if (fread(each.data() + b * part, 4, part, file) != part) return 1;
    fclose(file);
    float *q, *k, *v, *out;
    cudaMalloc(&q, bytes), cudaMalloc(&k, bytes), cudaMalloc(&v, bytes), cudaMalloc(&out, bytes);
    cudaMemcpy(q, all[0].data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(k, all[1].data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(v, all[2].data(), bytes, cudaMemcpyHostToDevice);
    attend<<<dim3((n[1] + 63) / 64, n[0]), 64>>>(q, k, v, out, n[1], n[2]);
    if (cudaGetLastError() != cudaSuccess) return 1;
    cudaMemcpy(o.data(), out, bytes, cudaMemcpyDeviceToHost);
    cudaFree(q), cudaFree(k), cudaFree(v), cudaFree(out);
    file = fopen(argv[2], "wb");
    fwrite(o.data(), 4, count, file);
    fclose(file);
}
"""
RIGHT = PROGRAM.replace("BARRIER", "__syncthreads();").replace("FACTOR", "1")
RACY = PROGRAM.replace("BARRIER", "").replace("FACTOR", "1")
WRONG = PROGRAM.replace("BARRIER", "__syncthreads();").replace("FACTOR", "2")


@pytest.fixture
def class_of(tmp_path):
    """A class's folder with these programs, by student, and a folder of results."""

    def made(**programs):
        for user, text in programs.items():
            folder = tmp_path / "submissions" / user
            folder.mkdir(parents=True)
            (folder / "hw4.cu").write_text(text)
            (tmp_path / "results" / user).mkdir(parents=True)
        return {member.user: member for member in scan(tmp_path / "submissions")}, tmp_path / "results"

    return made


@slow
def test_a_report_says_what_is_found_in_the_students_own_lines_and_is_read_again(class_of):
    members, results = class_of(anna=RACY, ben=RIGHT)
    racy = racecheck.check(members["anna"], results / "anna", confined=False)
    right = racecheck.check(members["ben"], results / "ben", confined=False)
    line = RACY[: RACY.index("key[c] = k")].count("\n") + 1
    assert any("race: block 0, thread" in one and f"hw4.cu:{line}" in one for one in racy.findings), racy
    assert right.findings == () and all(": AC" in case for case in right.cases), right
    assert racecheck.read(results / "anna") == racy and racy.submission == members["anna"].sha256
    assert (results / "anna" / racecheck.NAME).stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_executed_is_said_in_a_sentence(class_of):
    members, results = class_of(carl="#include <nccl.h>\nint main() {}\n", dora="int main( {\n")
    assert "nccl.h" in racecheck.check(members["carl"], results / "carl", confined=False).problem
    broken = racecheck.check(members["dora"], results / "dora", confined=False)
    assert "hw4.cu:1" in broken.problem and broken.cases == ()
    (members["carl"].folder / "hw4.cu").unlink()
    [empty] = [one for one in scan(members["carl"].folder.parent) if one.user == "carl"]
    assert racecheck.check(empty, results / "carl", confined=False).problem == "there is no .cu file to execute"


def test_a_program_that_takes_all_room_to_compile_ends_its_own_check_and_not_the_class_s(class_of, monkeypatch):
    def full(*_, **__):
        raise ShortageError("hw4.cu could not be compiled for the CPU: No space left on device")

    monkeypatch.setattr("hw4cli.emulator.program.build.compile_program", full)
    members, results = class_of(fay=RIGHT)
    report = racecheck.check(members["fay"], results / "fay", confined=False)
    assert report.problem == "hw4.cu could not be compiled for the CPU: No space left on device"


@slow
def test_a_student_who_is_slow_takes_the_seconds_of_one_student_and_no_more(class_of, monkeypatch):
    slow = RIGHT.replace("int main(", "#include <unistd.h>\nint main(").replace(
        "file = fopen(argv[2]", "sleep(3);\n    file = fopen(argv[2]"
    )
    members, results = class_of(erik=slow)
    racecheck.check(members["erik"], results / "erik", confined=False)  # what is compiled is kept
    monkeypatch.setattr(racecheck, "SECONDS", 2.0)
    report = racecheck.check(members["erik"], results / "erik", confined=False)
    assert len(report.cases) == 2, report
    assert report.cases[-1] == "no more was executed, as 2 s had passed"


@slow
def test_a_class_learns_of_races_in_its_handouts_and_no_score_changes(workdir, folder):
    submit(workdir, "anna", hw4="#!/bin/sh\nexit 3\n", hw4_cu=RACY)
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"), hw4_cu=RACY)
    before = judge_class(folder)
    assert before.returncode == 0, before.stderr
    scores = {user: (one.passed, one.score) for user, one in board(workdir).items()}
    done = judge_class(folder, "--resume", "--race-check", "failing")
    assert done.returncode == 0, done.stderr
    told = (workdir / "out/anna/handout.md").read_text()
    assert "## Executed on the CPU" in told and "race: block 0, thread" in told and "This decides nothing" in told
    assert "<h2>Executed on the CPU</h2>" in (workdir / "out/anna/handout.html").read_text()
    assert "Executed on the CPU" not in (workdir / "out/ben/handout.md").read_text()
    assert {user: (one.passed, one.score) for user, one in board(workdir).items()} == scores


def test_a_damaged_report_is_none(tmp_path):
    assert racecheck.read(tmp_path) is None
    for text in ("", "[]", '{"submission": 1}', '{"submission": "x", "sources": 3}'):
        (tmp_path / racecheck.NAME).write_text(text)
        assert racecheck.read(tmp_path) is None


@needs("bwrap")
def test_the_compiler_sees_no_file_of_others_in_the_sandbox(class_of, tmp_path):
    secret = tmp_path / "secret.h"
    secret.write_text("#error the answer is forty-two\n")
    members, results = class_of(eve=f'#include "{secret}"\n' + RIGHT)
    told = racecheck.check(members["eve"], results / "eve", confined=True)
    assert told.problem and "forty-two" not in told.problem


def test_a_program_is_judged_on_small_cases_without_a_gpu(hw4, tmp_path):
    (tmp_path / "hw4.cu").write_text(WRONG)
    done = hw4("judge", "t01", "t03", "--device", "emulate", "--program", "./hw4.cu", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "(2, 128, 32): NA" in done.stdout
    assert "0 of 2 small cases AC, executed on the CPU: no times, and no score" in " ".join(done.stdout.split())
    (tmp_path / "hw4.cu").write_text(RIGHT)
    done = hw4("judge", "t01", "--device", "emulate", "--program", "./hw4.cu", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert (done.returncode, document["right"], document["of"], document["device"]) == (0, 1, 1, "emulate")
    assert document["cases"][0]["findings"] == []


def test_what_does_not_go_with_it_is_said(hw4, tmp_path):
    for words, said in (
        (["--device", "emulate"], "--device needs --program"),
        (["--device", "emulate", "--program", "./hw4"], "needs a CUDA program's source"),
        (["--race-check", "all"], "--race-check needs --class"),
    ):
        done = hw4("judge", *words, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr
