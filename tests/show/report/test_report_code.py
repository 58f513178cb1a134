"""The code in a report: the author's own kernel part by part, and what each step changed."""

import re

import pytest
from records import row, written
from student import student

from hw4cli.resources import data_path

HEADER = "// mine: my own\n//\n// Like: naive\n// Idea: Two rows a thread.\n\n"
OWN = """\
// Not of interest: a helper.
__device__ float twice(float x) { return 2 * x; }

// Each thread takes a row.
// It reads K once.
extern "C" __global__ void mine(float* o)
{
    int row = threadIdx.x;

    o[row] = twice(1);
}
"""
HOSTILE = 'extern "C" __global__ void mine()\n{\n~~~~\n<script>alert(1)</script>\n<!-- hw4: end -->\n\t\x1b[31m\n}\n'


def measured(folder):
    machine = {"gpu": "NVIDIA H200", "compute_capability": "9.0"}
    written(folder / "mine.json", row("./mine.cu", (4, 16384, 64), 7.5, case="t28"), machine=machine, date="2026-11-22")


@pytest.fixture
def folder(tmp_path):
    return student(tmp_path / "mine", "h200-ladder")


def block(text, name):
    return re.search(rf"<!-- hw4: {re.escape(name)} \w+ -->\n(.*?)\n?<!-- hw4: end -->", text, re.DOTALL)[1]


def test_the_authors_kernels_are_shown_with_the_comments_above_them(hw4_here, folder):
    (folder / "mine.cu").write_text(HEADER + OWN)
    measured(folder)
    assert hw4_here("report", folder, "mine.cu", "t28").returncode == 0
    shown = block((folder / "report.md").read_text(), "listing")
    assert shown.startswith('Each thread takes a row. It reads K once:\n\n~~~~cpp\nextern "C" __global__')
    assert "    o[row] = twice(1);\n}\n~~~~" in shown and "a helper" not in shown
    assert "language-cpp" in (folder / "report.html").read_text()


def test_of_hw4s_kernels_no_code_passes_for_the_authors(hw4_here, folder):
    assert hw4_here("report", folder, "flash", "t28").returncode == 0
    assert block((folder / "report.md").read_text(), "listing") == ""


def test_a_step_shows_the_lines_that_changed(hw4_here, folder):
    text = data_path("kernels/flash.cu").read_text()
    assert text.count("r.l[i] = 0, r.m[i]") == 1
    (folder / "mine.cu").write_text(text.replace("r.l[i] = 0, r.m[i]", "r.l[i] = 1, r.m[i]"))
    measured(folder)
    assert hw4_here("report", folder, "--form", "worklog").returncode == 0
    log = (folder / "worklog.md").read_text()
    change = block(log, "code:./mine.cu")
    assert change.startswith("Against `flash`, 1 line is new and 1 gone:\n\n~~~~diff\n@@")
    assert [line[0] + line[1:].strip() for line in change.splitlines() if re.match(r"[+-] ", line)] == [
        "-r.l[i] = 0, r.m[i] = SAFE ? BELOW_ALL_SCORES : 0;",
        "+r.l[i] = 1, r.m[i] = SAFE ? BELOW_ALL_SCORES : 0;",
    ]
    long = block(log, "code:flash")
    assert re.match(r"Against `\w+`, \d+ lines are new and \d+ gone \(the first 60 of \d+ lines\):", long)


def test_a_file_can_neither_end_its_block_nor_write_into_the_page(hw4_here, folder):
    (folder / "mine.cu").write_text(HEADER + HOSTILE)
    measured(folder)
    for _ in range(2):  # the second run finds no damaged marks
        result = hw4_here("report", folder, "mine.cu", "t28")
        assert result.returncode == 0, result.stderr
    page = (folder / "report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page
