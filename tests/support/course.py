"""A made-up class of 40 as a learning platform exports it, with cases made elsewhere: what each hands in, and which
verdicts, scores and notes were decided beforehand.

Most hand in the program that the course gave to all, which computes right, on the host or on a GPU; three wrote
another."""

import csv
import io
import json
import os
import tarfile
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from helpers import OPEN, random_block, run_hw4, write_case
from solutions import MATRICES, STREAMED, renamed

from hw4cli.problem.oracle import exact_attention

DUE, LATE = "2026-05-01T18:00+00:00", 1777745000  # 2026-05-02, 18:03:20
EARLY = 1777600000
HOLE = "data.bin"  # what one student hands in with the program: 3 GB without a byte on the disk
CASES = {"small.in": (2, 24, 8), "中-2": (1, 40, 16), "last": (3, 8, 4)}
LIMITS = {"small.in": 120, "中-2": 120, "last": 15}  # seconds: of the last, one student takes one more

HOST = """\
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
{extra}
// O = softmax(Q K^T / sqrt(d)) V of each batch, a row at a time.
int main(int argc, char **argv) {{
    FILE *in = fopen(argv[1], "rb");
    int size[3];
    if (argc < 3 || !in || fread(size, 4, 3, in) != 3) return 1;
    int B = size[0], N = size[1], d = size[2];
    std::vector<float> {q}(N * d), {k}(N * d), {v}(N * d), {o}(N * d), score(N);
    FILE *out = fopen(argv[2], "wb");
    for (int b = 0; b < B; ++b) {{
        for (auto *part : {{&{q}, &{k}, &{v}}})
            if (fread(part->data(), 4, N * d, in) != size_t(N * d)) return 2;
        for (int row = 0; row < N; ++row) {{
            float largest = -1e30f, sum = 0;
            for (int key = 0; key < N; ++key) {{
                float dot = 0;
                for (int c = 0; c < d; ++c) dot += {q}[row * d + c] * {k}[key * d + c];
                score[key] = dot {scale};
                largest = std::fmax(largest, score[key]);
            }}
            for (int c = 0; c < d; ++c) {o}[row * d + c] = 0;
            for (int key = 0; key < N; ++key) {{
                float p = std::exp(score[key] - largest);
                sum += p;
                for (int c = 0; c < d; ++c) {o}[row * d + c] += p * {v}[key * d + c];
            }}
            for (int c = 0; c < d; ++c) {o}[row * d + c] /= sum;
        }}
        fwrite({o}.data(), 4, N * d, out);
    }}
    fclose(out);
    return 0;
}}
"""
CUDA = """\
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
{extra}
// O = softmax(Q K^T / sqrt(d)) V of a batch, a thread for each row, which computes each score twice.
__global__ void attention(const float *{q}, const float *{k}, const float *{v}, float *{o}, int N, int d) {{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    float largest = -1e30f, sum = 0;
    for (int pass = 0; pass < 2; ++pass)
        for (int key = 0; key < N; ++key) {{
            float dot = 0;
            for (int c = 0; c < d; ++c) dot += {q}[row * d + c] * {k}[key * d + c];
            float score = dot {scale};
            if (pass == 0) {{
                largest = fmaxf(largest, score);
                continue;
            }}
            float p = expf(score - largest);
            sum += p;
            for (int c = 0; c < d; ++c) {o}[row * d + c] += p * {v}[key * d + c];
        }}
    for (int c = 0; c < d; ++c) {o}[row * d + c] /= sum;
}}

int main(int argc, char **argv) {{
    FILE *in = fopen(argv[1], "rb");
    int size[3];
    if (argc < 3 || !in || fread(size, 4, 3, in) != 3) return 1;
    int B = size[0], N = size[1], d = size[2];
    size_t bytes = size_t(N) * d * 4;
    std::vector<float> part(N * d);
    float *on_gpu[4];
    for (float *&one : on_gpu)
        if (cudaMalloc(&one, bytes) != cudaSuccess) return 3;
    FILE *out = fopen(argv[2], "wb");
    for (int b = 0; b < B; ++b) {{
        for (int which = 0; which < 3; ++which) {{
            if (fread(part.data(), 4, N * d, in) != size_t(N * d)) return 2;
            cudaMemcpy(on_gpu[which], part.data(), bytes, cudaMemcpyHostToDevice);
        }}
        cudaMemset(on_gpu[3], 0, bytes);
        attention<<<(N + 127) / 128, 128>>>(on_gpu[0], on_gpu[1], on_gpu[2], on_gpu[3], N, d);
        if (cudaMemcpy(part.data(), on_gpu[3], bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return 4;
        fwrite(part.data(), 4, N * d, out);
    }}
    fclose(out);
    return 0;
}}
"""
DIVIDED = "/ std::sqrt(float(d))"


def source(program=HOST, scale=DIVIDED, extra=""):
    """The course's program, or a variant of it."""
    return program.format(scale=scale, extra=extra, q="q", k="k", v="v", o="o")


SIZES = "int B = size[0], N = size[1], d = size[2];\n"
SLEEP = f"    if (d == 4) sleep({LIMITS['last'] + 1});\n"
MAKE = "hw4: hw4.cu\n\tnvcc -O3 $< -o $@\n"


@dataclass
class Student:
    """What a student hands in, as the class's folder holds it, and what was decided beforehand."""

    files: dict[str, Any]  # by path in the class's folder
    score: str = "60"
    reasons: str = ""
    notes: tuple[str, ...] = ()
    late: bool = False
    packed: str = ""  # the archive that holds the files
    size: int = 0  # of a hole that is handed in, too
    verdicts: str = "AC AC AC"


def the_class(program=HOST):
    """The 40 by name, most of whom hand in the course's program: on the host, or on a GPU."""
    right = source(program)
    found = {}
    for number in range(11):  # an hw4.cu alone, as a platform names it
        found[f"王{number}_10{number:02}"] = Student({f"王{number}_10{number:02}_hw4.cu": right})
    for number in range(4):
        found[f"lin_20{number:02}"] = Student(
            {f"lin_20{number:02}_77{number}_hw4.cu": right, f"lin_20{number:02}_77{number}_report.pdf": ""},
            late=number == 3,
        )
    for number in range(4):  # a folder of Moodle's
        user = f"Mei Lee_30{number:02}"
        found[user] = Student(
            {f"{user}_assignsubmission_file_/hw4.cu": right, f"{user}_assignsubmission_file_/Makefile": MAKE},
            late=number == 2,
        )
    for number in range(4):  # nested, in a zip or a tar
        archive = f"s40{number}.{'zip' if number % 2 else 'tar.gz'}"
        found[f"s40{number}"] = Student(
            {"s40/hw4/hw4.cu": right, "s40/hw4/report.pdf": ""}, packed=archive, notes=("its files lie in s40/hw4/",)
        )
    found["copy-a"] = Student({"copy-a/hw4.cu": MATRICES})
    found["copy-b"] = Student({"copy-b/hw4.cu": renamed(MATRICES)})
    found["crlf"] = Student(
        {"crlf/hw4.cu": right.replace("\n", "\r\n"), "crlf/Makefile": MAKE.replace("\n", "\r\n")},
        notes=("line ends of Windows in Makefile, hw4.cu",),
    )
    found["nested"] = Student(
        {"nested/a/b/Makefile": MAKE, "nested/a/b/hw4.cu": right}, notes=("its files lie in a/b/",)
    )
    found["Ünal Şen"] = Student({"Ünal Şen/hw4.cu": STREAMED}, late=True)
    found["own-name"] = Student({"own-name/my kernel.cu": right})
    found["noscale"] = Student({"noscale/hw4.cu": source(program, scale="")}, "51", "3 NA: ", verdicts="NA NA NA")
    found["crash"] = Student({"crash/hw4.cu": "int main() { return 3; }\n"}, "51", "exit code 3", verdicts="NA NA NA")
    found["only-d8"] = Student(
        {"only-d8/hw4.cu": right.replace("int B = ", "if (size[2] != 8) return 5;\n    int B = ")},
        "54",
        "2 NA: exit code 5",
        verdicts="NA AC NA",  # of last, small.in and 中-2
    )
    found["slow"] = Student(
        {"slow/hw4.cu": source(program, extra="#include <unistd.h>").replace(SIZES, f"{SIZES}{SLEEP}")},
        "57",
        "1 TLE",
        verdicts="TLE AC AC",
    )
    broken: dict[str, Any] = {"verdicts": "", "score": "0"}
    found["typo"] = Student({"typo/hw4.cu": "int main( { }\n"}, reasons="broken build: nvcc hw4.cu failed", **broken)
    found["pascal"] = Student(
        {"pascal/hw4.cu": right, "pascal/Makefile": "hw4: hw4.cu\n\tnvcc -arch=sm_61 $< -o $@\n"},
        reasons="broken build: make hw4 failed",
        **broken,
    )
    found["empty"] = Student({"empty/": ""}, reasons="the folder is empty", **broken)
    found["huge"] = Student({"huge/hw4.cu": right}, reasons="it is larger than 1,024 MB", size=3 << 30, **broken)
    found["cut"] = Student({"cut.zip": "PK\3\4 not all of it"}, reasons="hw4.zip is damaged", **broken)
    found["two"] = Student({"two/x/hw4.cu": right, "two/y/hw4.cu": right}, reasons="which one is meant?", **broken)
    found["rar"] = Student({"rar.rar": "Rar!"}, "", "not judged: handed in as a file", verdicts="")
    return found


def export(folder, students):
    """Write what they hand in, with the times of the platform."""
    for one in students.values():
        paths = []
        if one.packed:
            path = folder / one.packed
            if path.suffix == ".zip":
                with zipfile.ZipFile(path, "w") as archive:
                    for name, text in one.files.items():
                        archive.writestr(name, text)
            else:
                with tarfile.open(path, "w:gz") as archive:
                    for name, text in one.files.items():
                        info = tarfile.TarInfo(name)
                        info.size = len(text.encode())
                        archive.addfile(info, io.BytesIO(text.encode()))
            paths.append(path)
        for name, text in {} if one.packed else one.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir()
                continue
            path.write_bytes(text.encode())
            paths.append(path)
        if one.size:
            paths.append(folder / "huge" / HOLE)
            with paths[-1].open("wb") as file:
                file.truncate(one.size)
        for path in paths:
            os.utime(path, (LATE if one.late else EARLY,) * 2)


def make_course(base, program=HOST):
    """Write the class's folder and the course's cases into a folder; the students."""
    students = the_class(program)
    assert len(students) == 40
    (base / "export").mkdir()
    export(base / "export", students)
    theirs = base / "theirs"
    theirs.mkdir()
    for number, (name, shape) in enumerate(CASES.items()):
        block = random_block(*shape, seed=number)
        write_case(theirs / name, block)
        if name != "last":  # whose answer the oracle computes
            answer = "small.out" if name == "small.in" else f"{name}.ans"
            np.asarray(exact_attention(block, lambda _: None), "<f4").tofile(theirs / answer)
    return students


def command(base, output):
    limits = [word for name, limit in LIMITS.items() for word in ("--limit", f"{name}={limit}")]
    theirs, classes = ("--suite", base / "theirs"), ("--class", base / "export")
    return ["judge", *map(str, (*theirs, *classes, "-o", output, "--due", DUE)), *limits, *OPEN]


def check(base, students, output, env):
    """Every verdict, score, note and time is the one that was decided beforehand."""
    book = output.with_suffix(".csv")
    printed = run_hw4("grades", output, "--late-policy", "10%/day", "-o", book, env=env)
    assert printed.returncode == 0, printed.stderr
    rows = {row["user"]: row for row in csv.DictReader(io.StringIO(book.read_text()))}
    assert rows.keys() == students.keys()
    for user, one in students.items():
        row = rows[user]
        assert (row["score"], one.reasons in row["reasons"]) == (one.score, True), (user, row)
        assert (float(row["late_hours"]) > 0) == one.late, user
        expected = "" if one.score == "" else f"{float(one.score) * (0.8 if one.late else 1):g}"
        assert row["total"] == expected, (user, row)
        assert set(one.notes) <= set(row["notes"].split("; ")), (user, row["notes"])
    assert [rows[user]["id"] for user in ("王3_1003", "lin_2001", "Mei Lee_3002", "copy-a")] == [
        *("1003", "2001", "3002", "copy-a")
    ]
    standings = json.loads((output / "results.json").read_text())["standings"]
    verdicts = {one["user"]: " ".join(row["verdict"] for row in one["results"]) for one in standings}
    assert verdicts == {user: one.verdicts for user, one in students.items()}
