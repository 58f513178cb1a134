"""Reading a submission: its contents are read once, and are limited in number and size."""

import errno
import os
import shutil
import time

import pytest
from helpers import OPEN, run_here
from needs import needs
from slow import slow

from hw4cli.errors import MachineError
from hw4cli.judge import submission
from hw4cli.judge.submission import BrokenError, Build, Submission, build_program
from hw4cli.sandbox.confine import Confinement


def within(seconds, cases):
    return Build(seconds, Confinement(), cases)


def filled(folder, files, size=1):
    """A folder with so many files, some of them in folders."""
    for number in range(files):
        path = folder / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return folder


@slow
def test_reading_a_submission_takes_linear_time(tmp_path):
    """It once took 15 s for 10,000 files, with a sum over all of them for each."""

    def seconds(files):
        folder = filled(tmp_path / str(files), files)
        times = []
        for _ in range(3):
            start = time.process_time()
            submission = Submission("ann", folder)
            assert (len(submission.files), submission.contents.size) == (files, files)
            assert submission.sha256
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(8000) < 16 * seconds(1000)


def test_a_submission_with_too_many_files_is_refused_without_reading_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "MAX_ENTRIES", 50)
    with pytest.raises(BrokenError, match="it holds more than 50 files and folders"):
        build_program(Submission("ann", filled(tmp_path / "many", 60)), tmp_path / "out", within(5, tmp_path))
    assert not (tmp_path / "out" / "build").exists()
    folders = tmp_path / "folders"
    for number in range(60):
        (folders / f"d{number}").mkdir(parents=True)
    assert Submission("ann", folders).excess
    assert len(Submission("ann", filled(tmp_path / "huge", 200)).contents.entries) <= 51
    assert Submission("ann", filled(tmp_path / "few", 40)).excess is None


def test_a_submissions_hash_differs_by_names_links_and_bytes(tmp_path):
    hashes = set()
    for name, text in (("a", "x"), ("b", "x"), ("a", "y")):
        folder = tmp_path / f"{name}{text}"
        folder.mkdir()
        (folder / name).write_text(text)
        hashes.add(Submission("ann", folder).sha256)
    for target in ("x", "y"):
        folder = tmp_path / f"link{target}"
        folder.mkdir()
        (folder / "a").symlink_to(target)
        hashes.add(Submission("ann", folder).sha256)
    assert len(hashes) == 5


@slow
def test_a_submission_with_ten_thousand_files_does_not_delay_the_class(tmp_path):
    """The command, with a student's 10,001 files, takes hardly longer than without them."""
    cases = tmp_path / "cases"
    assert run_here("gen", "t01", "--dir", cases).returncode == 0
    crowded = tmp_path / "submissions" / "ann"
    crowded.mkdir(parents=True)
    (crowded / "hw4").symlink_to("/bin/true")
    for number in range(10_000):
        (crowded / str(number)).touch()
    args = ("--class", tmp_path / "submissions", "--output", tmp_path / "out", "--dir", cases, *OPEN)
    result = run_here("judge", "t01", *args)
    assert result.returncode == 0, result.stderr
    assert "it holds more than 10,000 files and folders" in result.stdout


@needs("make")
@pytest.mark.parametrize(
    ("number", "kind", "sentence"),
    [
        (errno.EDQUOT, MachineError, "cannot build in .*: Disk quota exceeded"),
        (errno.EACCES, BrokenError, "what it built cannot be read: Permission denied"),
    ],
)
def test_a_disk_that_is_full_when_a_build_is_copied_is_not_its_authors_fault(
    tmp_path, monkeypatch, number, kind, sentence
):
    """shutil.copytree collects errors, and keeps their messages alone."""

    def copy(source, target, **options):
        raise OSError(number, os.strerror(number), target)

    def build(results, *others):
        shutil.copytree(results / submission.COPY, tmp_path / "taken", copy_function=copy)

    folder = tmp_path / "class" / "ann"
    filled(folder, 3)
    (folder / "Makefile").touch()
    monkeypatch.setattr(submission, "_run_build", build)
    with pytest.raises(kind, match=sentence):
        build_program(Submission("ann", folder), tmp_path / "results", within(60, tmp_path))


def test_what_is_no_program_is_said_to_be_none_and_a_few_of_many_files_are_named(tmp_path):
    def refused(name, fill):
        folder = tmp_path / name
        folder.mkdir()
        fill(folder)
        with pytest.raises(BrokenError) as error:
            build_program(Submission(name, folder), tmp_path / f"{name}.out", within(5, tmp_path))
        return str(error.value)

    def sources(count):
        return lambda folder: [(folder / f"s{n}.cu").write_text("int x;") for n in range(count)]

    assert refused("plain", lambda folder: (folder / "hw4").write_text("#!/bin/sh\n")) == (
        "hw4 is not executable (chmod +x hw4)"
    )
    assert refused("folder", lambda folder: (folder / "hw4").mkdir()) == "hw4 is a folder, not a program"
    assert "s0.cu, s1.cu, s2.cu, s3.cu, s4.cu, but no Makefile" in refused("five", sources(5))
    assert "s3.cu, s4.cu, …, but no Makefile" in refused("six", sources(6))
