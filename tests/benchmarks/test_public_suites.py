"""Suites of programs with known mistakes: what their lists say, and the main that is made for a kernel alone."""

import pytest
from helpers import ROOT

from benchmarks.measure.suites import BUGGY, EXCLUDED, RIGHT, cost_of, expected_of, with_main

KERNEL = """//pass
//--blockDim=[8,8] --gridDim=4 -DWIDTH=256
__global__ void foo(float* A, int sz, int n)
{
    __requires(sz == blockDim.x);
    __requires(n == 7);
    A[threadIdx.x] = WIDTH;
}
"""


def test_a_list_names_files_options_and_an_input(tmp_path):
    for name in ("main.cu", "kernel.cu", "other.cu"):
        (tmp_path / name).write_text("")
    listed = tmp_path / "list.tsv"
    listed.write_text("# a suite\nmain.cu kernel.cu\tbuggy\t\tRACEY N=4 <numbers\nother.cu\texcluded\tit needs a GPU\n")
    first, second = expected_of(tmp_path, "", listed)
    assert first.files == (tmp_path / "main.cu", tmp_path / "kernel.cu") and first.what == BUGGY
    assert first.define == ("RACEY", "N=4") and first.stdin == tmp_path / "numbers"
    assert second.what == EXCLUDED and second.stdin is None
    listed.write_text("nobody.cu\tright\n")
    with pytest.raises(SystemExit, match=r"nobody\.cu"):
        expected_of(tmp_path, "", listed)


def test_the_main_for_a_kernel_has_the_sizes_macros_and_values_that_the_file_asks_for(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text(KERNEL)
    text = with_main(path, counted=True)
    assert "#define WIDTH 256" in text and "dim3(4), dim3(8,8)" in text
    assert "given[] = {1, 8, 7, 0}" in text and "&& true" in text
    path.write_text(KERNEL.replace("--gridDim=4", ""))
    with pytest.raises(ValueError, match="says no size"):
        with_main(path)


def test_the_list_of_gpuverify_gives_a_reason_for_each_program_that_is_left_out():
    rows = [line.split("\t") for line in (ROOT / "benchmarks/suites/gpuverify.tsv").read_text().splitlines()[1:]]
    assert len(rows) == len({row[0] for row in rows}) == 183
    assert all((row[1] == EXCLUDED) == (len(row) == 3 and bool(row[2])) for row in rows)
    assert [sum(row[1] == what for row in rows) for what in (BUGGY, RIGHT)] == [33, 82]


def test_what_watching_costs_is_said_in_times_of_the_unwatched_run():
    lines = [
        {"program": "a", "seconds": 3.0, "plain": 1.0, "bytes": 2e8, "plain_bytes": 1e8},
        {"program": "b", "seconds": 1.0, "plain": 1.0, "bytes": 1e8, "plain_bytes": 1e8},
    ]
    said = cost_of(lines)
    assert "4.0 s watched and 2.0 s unwatched: 2.0 times" in said and "at most 200 MB (a)" in said
