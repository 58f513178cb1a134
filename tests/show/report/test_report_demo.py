"""Questions for a demonstration, made of what a folder holds."""

import re

import pytest
from helpers import ROOT, fails
from student import student


@pytest.fixture
def folder(tmp_path):
    return student(tmp_path / "mine")


def asked(folder):
    """The questions by their sections, and what is known of each."""
    text = (folder / "demo.md").read_text()
    return re.findall(r"^\d+\. \*\*(.*?)\*\* (.*)\n\n   \*What is known:\* (.*)$", text, re.M)


def test_each_question_is_about_a_figure_of_the_folder_or_a_line_of_the_kernel(hw4, folder):
    result = hw4("report", folder, "flash", "--form", "demo")
    assert result.returncode == 0, result.stderr
    found = asked(folder)
    sections = [section for section, *_ in found]
    assert {"1.b", "1.c, 1.e", "1.d", "2", "3.a", "3.b", "3.c"} <= {*sections}
    words = "\n".join(f"{question} {known}" for _, question, known in found)
    assert "`flash` starts 2,048 blocks of 128 threads on t28" in words
    assert "K 8,192, V 8,192, Q 32,768, P 16,384 bytes" in words
    assert "achieved_occupancy is 0.1725." in words
    assert "t12 is TLE." in words
    lines = (ROOT / "kernels/flash.cu").read_text().splitlines()
    (named,) = re.findall(r"waits at lines ([\d, ]+)", words)
    assert all("__syncthreads" in lines[int(number) - 1] for number in named.split(","))


def test_other_records_make_other_questions_and_none_a_sentence(hw4, tmp_path, folder):
    assert hw4("report", folder, "naive", "--form", "demo").returncode == 0
    words = (folder / "demo.md").read_text()
    assert "`naive_scores` starts" in words
    assert "shared memory with tiles" not in words, "it has none"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert hw4("report", empty, "--form", "demo").returncode == 0
    assert "MISSING: no kernel is known" in (empty / "demo.md").read_text()


def test_notes_of_a_demonstration_outlive_new_records(hw4, folder):
    hw4("report", folder, "flash", "--form", "demo")
    path = folder / "demo.md"
    path.write_text(re.sub(r"> FILL IN: The questions.*", "Question 5: two points.", path.read_text()))
    (folder / "ncu.csv").unlink()
    assert hw4("report", folder, "flash", "--form", "demo").returncode == 0
    assert "Question 5: two points." in path.read_text()
    assert "achieved_occupancy" not in path.read_text()


@pytest.mark.parametrize("form", ["assignment", "demo"])
def test_a_report_about_a_kernel_that_is_nowhere_is_a_sentence_and_writes_nothing(hw4, tmp_path, form):
    fails(hw4("report", tmp_path, "none.cu", "--form", form), 2, "none.cu: there is no such file, and no record in")
    assert [*tmp_path.iterdir()] == []
