"""A command never writes its output over what it was made from."""

import shutil

import pytest
from boards import RIGHT, write
from helpers import ROOT, run_here
from leaderboards import entry
from slow import few, slow
from student import student

from hw4cli.show.leaderboard.entries import append

RECORD = ROOT / "benchmarks" / "h200-split.json"
PROFILE = ROOT / "benchmarks" / "h200-ncu.csv"


def assert_refused_and_kept(path, *args):
    before = path.read_bytes()
    result = run_here(*args)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert str(path) in result.stderr
    assert any(words in result.stderr for words in ("choose another name", "does not say in which format"))
    assert path.read_bytes() == before


def test_a_page_of_records_does_not_replace_a_record(tmp_path):
    path = shutil.copy(RECORD, tmp_path / "record.json")
    assert_refused_and_kept(path, "plot", RECORD, path, "-o", path)


@pytest.mark.parametrize("kind", [("rate",), ("traffic", "1,32768,32")])
def test_a_picture_does_not_replace_what_it_was_drawn_from(tmp_path, kind):
    path = shutil.copy(PROFILE if "traffic" in kind else RECORD, tmp_path / "record.svg")
    assert_refused_and_kept(path, "plot", *kind, path, "-o", path)


def test_the_page_of_a_leaderboard_does_not_replace_its_submissions(tmp_path):
    append(tmp_path, entry())
    path = tmp_path / "leaderboard.jsonl"
    assert_refused_and_kept(path, "leaderboard", "--board", tmp_path, "-o", path)


def test_a_link_to_the_input_is_the_input(tmp_path):
    append(tmp_path, entry())
    link = tmp_path / "page.html"
    link.symlink_to("leaderboard.jsonl")
    assert_refused_and_kept(link, "leaderboard", "--board", tmp_path, "-o", link)


def test_the_page_of_a_scoreboard_does_not_replace_a_journal(tmp_path):
    write(tmp_path / "ann", RIGHT, user="ann")
    path = tmp_path / "ann" / "journal.jsonl"
    assert_refused_and_kept(path, "scoreboard", tmp_path, "-o", path)


def test_the_page_of_a_scoreboard_does_not_replace_the_names_behind_its_pseudonyms(tmp_path):
    write(tmp_path / "ann", RIGHT, user="ann")
    assert run_here("scoreboard", tmp_path, "--anonymous").returncode == 0
    path = tmp_path / "pseudonyms.json"
    assert_refused_and_kept(path, "scoreboard", tmp_path, "--anonymous", "-o", path)


@slow
@pytest.mark.parametrize("name", few(["report.md", "report.html", "*.json"], 1))
def test_a_report_in_pdf_replaces_nothing_but_a_pdf(tmp_path, name):
    folder = student(tmp_path / "mine")
    assert run_here("report", folder).returncode == 0
    path = next(folder.rglob(name))
    assert_refused_and_kept(path, "report", folder, "-o", path)


def test_a_benchmark_does_not_replace_the_kernel_that_it_times(tmp_path):
    path = shutil.copy(ROOT / "kernels" / "naive.cu", tmp_path / "mine.cu")
    assert_refused_and_kept(path, "bench", path, "t01", "--output", path)


def test_a_profile_does_not_replace_the_kernel_that_it_is_of(tmp_path):
    path = shutil.copy(ROOT / "kernels" / "naive.cu", tmp_path / "mine.cu")
    assert_refused_and_kept(path, "profile", path, "t01", "-o", path)


def test_a_link_by_another_name_is_no_way_to_replace_a_kernel(tmp_path):
    path = shutil.copy(ROOT / "kernels" / "naive.cu", tmp_path / "mine.cu")
    link = tmp_path / "record.json"
    link.symlink_to("mine.cu")
    for command in ("bench", "profile", "check", "explain"):
        assert_refused_and_kept(link, command, path, "t01", "-o", link)


def test_a_benchmark_does_not_replace_the_program_that_it_times(tmp_path):
    path = shutil.copy(shutil.which("true"), tmp_path / "mine.json")
    assert_refused_and_kept(path, "bench", "t01", "--program", f"{path} -x", "--output", path)


def test_a_benchmark_does_not_replace_the_record_that_it_is_compared_with(tmp_path):
    path = shutil.copy(RECORD, tmp_path / "record.json")
    assert_refused_and_kept(path, "bench", "--compare", path, "--output", path)
