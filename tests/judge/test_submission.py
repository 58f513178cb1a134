"""A submission as it is read: all that it holds is seen once, and there is a bound to it."""

import time

import pytest
from helpers import OPEN, run_hw4

from hw4cli.judge import submission
from hw4cli.judge.submission import BrokenError, Submission, program_of
from hw4cli.runner.confine import Confinement


def filled(folder, files, size=1):
    """A folder with so many files, some of them in folders."""
    for number in range(files):
        path = folder / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return folder


def test_four_times_the_files_take_no_more_than_linear_time(tmp_path):
    """10,000 files took 15 s: their sizes were summed up for each of them."""

    def seconds(files):
        place = filled(tmp_path / str(files), files)
        times = []
        for _ in range(3):
            start = time.process_time()
            one = Submission("ann", place)
            assert (len(one.files), one.contents.size) == (files, files)
            assert one.sha256
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(2000) < 10 * seconds(500)


def test_a_submission_with_too_many_files_is_refused_without_reading_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "MAX_ENTRIES", 50)
    with pytest.raises(BrokenError, match="it holds more than 50 files and folders"):
        program_of(Submission("ann", filled(tmp_path / "many", 60)), tmp_path / "out", 5, Confinement(), tmp_path)
    assert not (tmp_path / "out" / "build").exists()
    folders = tmp_path / "folders"
    for number in range(60):
        (folders / f"d{number}").mkdir(parents=True)
    assert Submission("ann", folders).excess
    assert len(Submission("ann", filled(tmp_path / "huge", 200)).contents.entries) <= 51
    assert Submission("ann", filled(tmp_path / "few", 40)).excess is None


def test_a_hash_tells_names_links_and_bytes_apart(tmp_path):
    seen = set()
    for name, text in (("a", "x"), ("b", "x"), ("a", "y")):
        place = tmp_path / f"{name}{text}"
        place.mkdir()
        (place / name).write_text(text)
        seen.add(Submission("ann", place).sha256)
    for target in ("x", "y"):
        place = tmp_path / f"link{target}"
        place.mkdir()
        (place / "a").symlink_to(target)
        seen.add(Submission("ann", place).sha256)
    assert len(seen) == 5


def test_a_class_goes_on_past_ten_thousand_files(tmp_path):
    """As a process: with a student's 10,001 files, the judging of the class ends as fast as without."""
    cases = tmp_path / "cases"
    assert run_hw4("gen", "t01", "--dir", cases).returncode == 0
    crowded = tmp_path / "submissions" / "ann"
    crowded.mkdir(parents=True)
    (crowded / "hw4").symlink_to("/bin/true")
    for number in range(10_000):
        (crowded / str(number)).touch()
    words = ("--class", tmp_path / "submissions", "--output", tmp_path / "out", "--dir", cases, *OPEN)
    result = run_hw4("judge", "t01", *words, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "it holds more than 10,000 files and folders" in result.stdout
