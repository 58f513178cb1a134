"""`make seq`: the sequential programs that parallel ones are compared with, built, run and given wrong files."""

import struct
import subprocess

import numpy as np
import pytest
from helpers import ROOT, definition, folder_is_clean, random_block, read_output, write_case
from needs import needs

from hw4cli.problem.workload import Shape

NAMES = ("seq-attention", "seq-flashattention")
pytestmark = needs("cc", "make")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Both, built as `make seq` builds them, with every warning an error."""
    folder = tmp_path_factory.mktemp("sequential")
    (folder / "kernels").symlink_to(ROOT / "kernels")
    command = ["make", "-f", ROOT / "Makefile", "seq", "CC=cc -Wall -Wextra -Werror"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def fails(result, name, code, *words):
    """One sentence on stderr that begins with the program's name, this exit status, nothing on stdout."""
    assert (result.returncode, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{name}: ")
    assert [word for word in words if word not in line] == []


def run(programs, name, *arguments):
    return subprocess.run([programs / name, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [Shape(3, 77, 20), Shape(1, 1, 4), Shape(1, 256, 64)], ids=str)
def test_the_answer_is_that_of_the_definition(programs, tmp_path, name, shape):
    block = random_block(shape.B, shape.N, shape.d)
    source = write_case(tmp_path / "in", block)
    result = run(programs, name, source, tmp_path / "out")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"(B, N, d): {shape}\nTime: ")
    assert np.abs(read_output(tmp_path / "out", shape) - definition(block)).max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "too short"),
        (struct.pack("<iii", 1, 5, 32) + bytes(12 * 5 * 32 - 1), "has 1931 bytes"),
        (struct.pack("<iii", 2**31 - 1, 2**31 - 1, 2**31 - 1) + bytes(100), "asks for 12 + 12*B*N*d"),
        (struct.pack("<iii", 3, -5, 32), "must be positive"),
    ],
)
def test_a_bad_file_is_one_sentence_and_leaves_nothing_behind(programs, tmp_path, name, content, words):
    (tmp_path / "in").write_bytes(content)
    fails(run(programs, name, tmp_path / "in", tmp_path / "out"), name, 2, words, str(tmp_path / "in"))
    folder_is_clean(tmp_path, "in")


@pytest.mark.parametrize("name", NAMES)
def test_wrong_usage_is_one_sentence_and_the_input_is_spared(programs, tmp_path, name):
    fails(run(programs, name), name, 2, f"{name} INPUTFILE OUTPUTFILE")
    fails(run(programs, name, tmp_path / "none", tmp_path / "out"), name, 2, "No such file")
    source = write_case(tmp_path / "in", random_block(1, 8, 32))
    before = (tmp_path / "in").read_bytes()
    (tmp_path / "same").symlink_to("in")
    fails(run(programs, name, source, tmp_path / "same"), name, 2, "is the input")
    fails(run(programs, name, source, tmp_path / "none" / "out"), name, 3, "cannot write")
    assert (tmp_path / "in").read_bytes() == before
