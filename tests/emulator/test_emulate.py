"""`hw4cli.emulate`: any kernel on NumPy arrays, without a GPU; and the pytest fixture of the same name."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, hw4_env
from slow import slow

from hw4cli import InputError, emulate

SOURCE = Path(__file__).with_name("kernels_of_others.cu")


def test_a_kernel_changes_arrays_as_on_a_gpu():
    x = np.arange(256, dtype=np.float32)
    done = emulate(SOURCE, "reverse", 1, 256, [x])
    assert (done.right, done.findings, str(done)) == (True, [], "no mistake found")
    np.testing.assert_array_equal(x, np.arange(256)[::-1])


def test_a_mistake_is_told_in_the_files_own_lines():
    done = emulate(SOURCE, "racy", 1, 64, [np.zeros(64, np.float32)])
    races = [finding.sentence for finding in done.findings if finding.kind == "race"]
    assert not done.right
    assert any("kernels_of_others.cu:13" in one and "kernels_of_others.cu:12" in one for one in races)
    assert any("__syncthreads() is missing" in one for one in races)


@slow
def test_templates_numbers_and_arrays_that_hold_nothing_yet():
    x, y = np.arange(100.0), np.full(100, -1.0)
    assert emulate(SOURCE, "scale<double, 2>", 2, 64, [y, x, 1.5, 100], unwritten=[0]).right
    np.testing.assert_array_equal(y, 3 * x)
    done = emulate(SOURCE, "scale<double, 2>", 2, 64, [y, x, 1.5, 100], unwritten=[0, 1])
    assert {finding.kind for finding in done.findings} == {"uninitialised"}


@slow
def test_structs_by_value_and_grids_of_two_dimensions():
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    y = np.zeros((7, 5), np.float32)
    assert emulate(SOURCE, "transpose", (2, 2), (4, 4), [y, x, struct.pack("iif", 7, 5, 2.0)]).right
    np.testing.assert_array_equal(y, 2 * x.T)


@slow
def test_shared_memory_null_pointers_and_what_printf_wrote():
    total, x = np.zeros(1, np.uint32), np.arange(64, dtype=np.int16)
    done = emulate(SOURCE, "sums", 1, 64, [total, x, 50, None], shared=256)
    assert done.right and total[0] == x[:50].sum() and done.output == f"{total[0]}\n"
    found = emulate(SOURCE, "sums", 1, 64, [total, x, 50, x.astype(np.float32)], shared=128).findings
    assert total[0] != 0 and any(finding.kind == "out of bounds" for finding in found)


def test_what_lies_outside_is_found_and_other_arrays_stay_as_they_were():
    x, beside = np.zeros(32, np.float32), np.ones(32, np.float32)
    [finding] = emulate(SOURCE, "beyond", 1, 4, [x, 32]).findings
    assert finding.kind == "out of bounds" and finding.times == 4
    assert not x.any() and beside.all()


def test_a_read_only_array_stays_as_it_is():
    x = np.arange(256, dtype=np.float32)
    x.flags.writeable = False
    assert emulate(SOURCE, "reverse", 1, 256, [x]).right
    assert x[0] == 0


@slow
def test_a_kernel_that_never_ends_ends_after_its_seconds():
    done = emulate(SOURCE, "forever", 1, 1, [np.zeros(1, np.int32)], seconds=2)
    assert not done.right and done.end in ("hangs", "too slow") and done.why in str(done)


@slow
def test_threads_may_each_own_a_byte_of_a_word():
    x = np.arange(256, dtype=np.uint8)
    done = emulate(SOURCE, "next_letter", 1, 256, [x])
    assert done.right and not done.notes, done
    np.testing.assert_array_equal(x, (np.arange(256) + 1) % 256)
    assert {one.kind for one in emulate(SOURCE, "next_letter", 2, 256, [x]).findings} == {"race"}


X = np.zeros(4)
WRONG = {
    "scale<double, 2> has 4 arguments: 3 are given": ("scale<double, 2>", [X, X, 1.0]),
    "argument 2 of scale<double, 2> points to numbers of 8 bytes: the array's have 4": (
        "scale<double, 2>",
        [X, np.zeros(4, np.float32), 1.0, 4],
    ),
    "argument 1 of scale<double, 2> points to floating-point numbers": (
        "scale<double, 2>",
        [np.zeros(4, np.int64), X, 1.0, 4],
    ),
    "argument 4 of scale<double, 2> is an integer: a floating": ("scale<double, 2>", [X, X, 1.0, 4.5]),
    "argument 1 of scale<double, 2> is a pointer: give an array": ("scale<double, 2>", [1, X, 1.0, 4]),
    "argument 3 of transpose has 12 bytes: 8 are given": (
        "transpose",
        [np.zeros(4, "f4"), np.zeros(4, "f4"), bytes(8)],
    ),
    "argument 3 of sums is too small for 4294967296: it has 32 bits": (
        "sums",
        [np.zeros(1, "u4"), np.zeros(4, "i2"), 2**32, None],
    ),
    "argument 1 is not contiguous": ("reverse", [np.zeros((4, 4), np.float32)[:, 0]]),
    "argument 1 is a str: give an array, a number, bytes of a struct, or None": ("reverse", ["x"]),
    "'reverse()': give a function's name": ("reverse()", []),
    "‘missing’ was not declared|'missing' was not declared|undeclared identifier 'missing'": ("missing", []),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_does_not_fit_is_one_sentence(sentence):
    kernel, arguments = WRONG[sentence]
    with pytest.raises(
        InputError, match=sentence.replace("(", r"\(").replace(")", r"\)") if "(" in sentence else sentence
    ) as error:
        emulate(SOURCE, kernel, 1, 4, arguments)
    assert "\n" not in str(error.value)


def test_sizes_files_and_gpus_that_are_none_are_one_sentence():
    for options, sentence in (
        ({"grid": (1, 2, 3, 4)}, "grid has 4 numbers"),
        ({"block": -1}, "block is -1"),
        ({"gpu": "7.1"}, "gpu is '7.1': choose from"),
        ({"order": "sorted"}, "order is 'sorted'"),
        ({"unwritten": [1]}, "unwritten has 1"),
        ({"source": "nowhere.cu"}, "there is no file nowhere.cu"),
    ):
        given = {"source": SOURCE, "kernel": "reverse", "grid": 1, "block": 4, "arguments": [np.zeros(4, np.float32)]}
        with pytest.raises(InputError, match=sentence):
            emulate(**{**given, **options})


TESTS = f"""
import numpy as np

SOURCE = {str(SOURCE)!r}

def test_right(emulate):
    emulate(SOURCE, "reverse", 1, 256, [np.zeros(256, np.float32)])

def test_racy(emulate):
    emulate(SOURCE, "racy", 1, 64, [np.zeros(64, np.float32)])

def test_racy_as_expected(emulate):
    assert emulate(SOURCE, "racy", 1, 64, [np.zeros(64, np.float32)], finds="race").findings

def test_right_though_a_race_is_expected(emulate):
    emulate(SOURCE, "reverse", 1, 256, [np.zeros(256, np.float32)], finds="race")
"""


@slow
def test_the_fixture_fails_a_test_of_another_project_with_the_mistakes_sentences(tmp_path):
    (tmp_path / "test_kernels.py").write_text(TESTS)
    # The plugin is named, as this package need not be installed; where it is, pytest must not find it a second time.
    words = ["-q", "-p", "hw4cli.pytestplugin", "-p", "no:cacheprovider", "test_kernels.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=hw4_env(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    assert "the kernel has mistakes:" in done.stdout and "race: block 0, thread" in done.stdout
    assert "a mistake of the kind 'race' was expected, and there is none:\nno mistake found" in done.stdout
    assert str(ROOT / "hw4cli") not in done.stdout.split("short test summary")[0].replace(str(SOURCE), "")


def test_the_package_offers_the_fixture():
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nhw4cli = "hw4cli.pytestplugin"' in text
