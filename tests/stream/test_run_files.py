"""Files that `hw4 INPUTFILE OUTPUTFILE` cannot read or write: one sentence each, and nothing is lost."""

import os
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers import fails, folder_is_clean, random_block, run_hw4, write_case
from needs import needs


@pytest.fixture
def case(tmp_path):
    return write_case(tmp_path / "case", random_block(3, 130, 32))


def damaged(change):
    def write(path):
        write_case(path, random_block(2, 6, 8))
        path.write_bytes(change(path.read_bytes()))
        return path

    return write


def header(*numbers):
    return damaged(lambda data: struct.pack("<iii", *numbers) + data[12:])


def with_nan(path):
    block = random_block(2, 6, 8)
    block[1, 2, 3, 4] = np.nan
    return write_case(path, block)


BAD_INPUTS = {
    "missing": (lambda path: path, "does not exist"),
    "directory": (lambda path: path.mkdir() or path, "is a directory"),
    "pipe": (lambda path: os.mkfifo(path) or path, "not a regular file"),
    "empty": (damaged(lambda data: b""), "0 bytes"),
    "11 bytes": (damaged(lambda data: data[:11]), "11 bytes"),
    "header only": (damaged(lambda data: data[:12]), "too short"),
    "one byte short": (damaged(lambda data: data[:-1]), "1 byte too short"),
    "one byte long": (damaged(lambda data: data + b"."), "1 byte too long"),
    "B zero": (header(0, 6, 8), "B is 0"),
    "N negative": (header(2, -6, 8), "N is -6"),
    "d zero": (header(2, 6, 0), "d is 0"),
    "d too large": (header(2, 6, 256), "d is 256"),
    "overflow": (header(2**31 - 1, 2**31 - 1, 128), "too short"),
    "NaN inside": (with_nan, "V of batch 1, row 3, column 4"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_a_bad_input_is_one_sentence_and_the_old_output_is_untouched(hw4, tmp_path, name):
    make, words = BAD_INPUTS[name]
    source = make(tmp_path / "input")
    (tmp_path / "out").write_bytes(b"yesterday's answer")
    fails(hw4("--device", "cpu", source, tmp_path / "out"), 2, str(source), words)
    assert (tmp_path / "out").read_bytes() == b"yesterday's answer"
    assert not list(tmp_path.glob(".*"))


# Root may read and write everything; without its capabilities it is held to a file's permissions like anybody else.
COMMON_USER = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


@needs("setpriv")
def test_an_unreadable_input_is_one_sentence(case, tmp_path):
    case.chmod(0)
    result = run_hw4("--device", "cpu", case, tmp_path / "out", prefix=COMMON_USER)
    fails(result, 2, f"cannot read {case}", "Permission denied")


@needs("setpriv")
def test_a_read_only_folder_is_one_sentence_and_keeps_the_old_output(case, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").write_bytes(b"old")
    folder.chmod(0o555)
    result = run_hw4("--device", "cpu", case, folder / "out", prefix=COMMON_USER)
    fails(result, 3, "cannot write into", "Permission denied")
    assert (folder / "out").read_bytes() == b"old"


def test_the_output_may_not_be_the_input(hw4, case, tmp_path):
    before = case.read_bytes()
    (tmp_path / "link").symlink_to(case)
    os.link(case, tmp_path / "hard")
    for output in (case, tmp_path / "link", tmp_path / "hard"):
        fails(hw4("--device", "cpu", case, output), 2, "input file itself")
    assert case.read_bytes() == before


def test_an_output_without_a_folder_is_one_sentence(hw4, case, tmp_path):
    fails(hw4("--device", "cpu", case, tmp_path / "none" / "out"), 2, "folder", "does not exist")


def test_a_directory_is_no_output(hw4, case, tmp_path):
    (tmp_path / "dir").mkdir()
    fails(hw4("--device", "cpu", case, tmp_path / "dir"), 2, "is a directory")


def test_a_full_disk_is_one_sentence_and_leaves_the_old_output(case, tmp_path):
    output = tmp_path / "out"
    output.write_bytes(b"old")

    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    result = run_hw4("--device", "cpu", case, output, preexec_fn=small_files_only)
    fails(result, 3, f"cannot write {output}", "File too large")
    assert output.read_bytes() == b"old"
    folder_is_clean(tmp_path, "case", "out")


def test_the_answer_may_be_thrown_away(hw4, case):
    result = hw4("--device", "cpu", case, "/dev/null")
    assert (result.returncode, result.stderr) == (0, "")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["/dev/stdout", "link", "pipe", "/dev/full"])
def test_an_output_that_is_no_file_is_one_sentence(hw4, case, tmp_path, name):
    (tmp_path / "link").symlink_to("/dev/stdout")
    os.mkfifo(tmp_path / "pipe")
    fails(hw4("--device", "cpu", case, tmp_path / name), 2, name, "name a regular one" if name != "pipe" else "a pipe")
