"""`hw4 check KERNELS --run`: what a student without a GPU sees of a kernel's mistakes."""

import json

import numpy as np
import pytest
from helpers import HANGS, random_block, start_hw4, wait_until, write_case
from needs import needs
from slow import slow

from hw4cli.problem.oracle import exact_attention

SMALL = ("1,65,36",)


@pytest.fixture
def mine(hw4, tmp_path):
    """A kernel of your own, ./mine.cu, as `hw4 new-kernel` begins it; `spoil` puts a mistake into it."""
    assert hw4("new-kernel", "mine", "--from", "float4", cwd=tmp_path).returncode == 0
    path = tmp_path / "mine.cu"

    def spoil(old, new):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return spoil


def test_a_right_kernel_has_no_mistake(hw4, mine, tmp_path):
    done = hw4("check", "./mine.cu", "--run", *SMALL, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "./mine.cu: no mistake found\n"), done.stderr


def test_a_missing_barrier_is_told_with_both_lines_and_what_is_missing(hw4, mine, tmp_path):
    mine("        __syncthreads();  // all threads", "        // all threads")
    done = hw4("check", "./mine.cu", "--run", *SMALL, "--json", cwd=tmp_path)
    assert done.returncode == 1
    (order,) = [record for record in json.loads(done.stdout) if record["kind"] == "order"]
    assert "enough for it" in order["story"][0] and "goes before warp" in order["story"][1]
    assert "mine.cu:" in order["story"][-1] and "only now" in order["story"][-1]
    races = [record for record in json.loads(done.stdout) if record["kind"] == "race"]
    assert any(record["sentence"].count("mine.cu:") == 2 for record in races)
    assert any("__syncthreads() is missing between them" in record["sentence"] for record in races)


def test_a_kernel_that_does_not_compile_is_one_sentence_with_its_line(hw4, mine, tmp_path):
    mine("const int lane", "const itn lane")
    done = hw4("check", "./mine.cu", "--run", *SMALL, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "mine.cu:" in done.stderr
    assert "itn" in done.stderr


def test_without_a_compiler_it_says_what_to_install(hw4, tmp_path):
    done = hw4("check", "naive", "--run", *SMALL, env={"CXX": "no-such-compiler"})
    assert done.returncode == 3
    assert "no-such-compiler" in done.stderr


def test_a_kernel_of_ones_own_answers_a_file_on_the_emulated_gpu(hw4, mine, tmp_path):
    block = random_block(2, 40, 36)
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", "./mine.cu", source, "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    o = np.fromfile(tmp_path / "out", np.float32).reshape(2, 40, 36)
    assert np.abs(o - exact_attention(block)).max() < 2e-5


@needs("clang++")
@slow  # it compiles the runtime, too
def test_clang_compiles_kernels_too(hw4, tmp_path):
    done = hw4("check", "flash", "split", "--run", *SMALL, env={"CXX": "clang++"})
    assert (done.returncode, done.stdout) == (0, "flash: no mistake found\nsplit: no mistake found\n"), done.stderr


SLEEPING_COMPILER = """#!/bin/sh
case $1 in
--version) echo g++ ;;
-print-file-name=*) echo /lib/libasan.so ;;
*) touch "$TMPDIR/own" "$(dirname "$0")/compiling"; sleep 600 ;;
esac
"""


def test_sigterm_ends_the_compilers_that_its_threads_wait_for(tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text(SLEEPING_COMPILER)
    compiler.chmod(0o755)
    places = {"CUPY_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    process = start_hw4("check", "naive", "--run", *SMALL, env={"CXX": str(compiler), **places})
    wait_until((tmp_path / "compiling").exists, process)
    process.terminate()
    assert (process.wait(HANGS), process.stderr.read().split()) == (130, ["hw4:", "interrupted"])
    assert not [*tmp_path.glob("hw4-*"), *tmp_path.glob("own")]  # its folders, with what the compiler writes there


def test_a_main_in_a_header_beside_the_file_makes_it_a_program(hw4, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "mine.cu").write_text('// #include "gone.h"\n#include "parts/run.h"\n#include "missing.h"\n')
    (tmp_path / "parts/run.h").write_text('#pragma once\n#include "../mine.cu"\n#include "last.h"\n')
    (tmp_path / "parts/last.h").write_text("int main(int, char** words) { return words[2] == nullptr; }\n")
    done = hw4("check", "./mine.cu", "--run", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done
    assert "missing.h" in done.stderr, "as a program, of which the compiler finds no such header"
    (tmp_path / "parts/last.h").write_text("// int main() {}\n")
    assert "does not state how it is launched" in hw4("check", "./mine.cu", "--run", cwd=tmp_path).stderr
