"""How a kernel's text is put together: its headers, and theirs, each once, and messages that name the right line."""

import re
import subprocess

import pytest
from helpers import ROOT
from needs import needs

from hw4cli.plans.ladder import VARIANTS
from hw4cli.resources import kernel_source, spliced


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kernel.cu").write_text('// a kernel\n#include "a.cuh"\n#include "b.cuh"\n\nint last = b;\n#error\n')
    (tmp_path / "a.cuh").write_text("#pragma once\nconst int a = 1;\n")
    (tmp_path / "b.cuh").write_text('#pragma once\n\n#include "a.cuh"\n#include "c.cuh"\nconst int b = a + c;\n')
    (tmp_path / "c.cuh").write_text('#pragma once\n#include "a.cuh"\n#include <climits>\nconst int c = a;\n#warning\n')
    return tmp_path


def test_headers_of_headers_are_spliced_in_each_once(folder):
    text = spliced(folder / "kernel.cu", (folder,))
    assert not re.search(r'#include "|#pragma once', text)
    assert "#include <climits>" in text
    assert [text.count(f"const int {name} =") for name in "abc"] == [1, 1, 1]


@needs("g++")
def test_a_compilers_message_names_the_file_and_the_line_that_it_is_about(folder):
    text = spliced(folder / "kernel.cu", (folder,))
    result = subprocess.run(["g++", "-fsyntax-only", "-xc++", "-"], input=text, capture_output=True, text=True)
    assert re.findall(r"^(\S+:\d+):\d+: (?:error|warning)", result.stderr, re.MULTILINE) == ["c.cuh:5", "kernel.cu:6"]


def test_a_header_is_taken_from_the_first_folder_that_has_it(folder):
    first = folder / "first"
    first.mkdir()
    (first / "a.cuh").write_text("const int a = 7;\n")
    text = spliced(folder / "kernel.cu", (first, folder))
    assert "const int a = 7;" in text
    assert "const int a = 1;" not in text
    assert "const int c = a;" in text


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.cu*")), ids=lambda path: path.name)
def test_no_kernel_includes_under_a_condition(path):
    """What is spliced in once must not be where the compiler may skip it."""
    depth = 0
    for line in path.read_text().splitlines():
        depth += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
        assert not (line.startswith('#include "') and depth), line


@pytest.mark.parametrize("name", VARIANTS)
def test_every_header_that_a_kernel_names_is_there(name):
    assert '#include "' not in kernel_source(name)
