"""A made-up student's folder with its report, made once."""

import shutil

import pytest
from helpers import run_here
from student import student


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder with its report and work log, as the commands write them: not to be changed."""
    folder = student(tmp_path_factory.mktemp("student") / "mine")
    for form in ("assignment", "worklog"):
        result = run_here("report", folder, "flash", "--form", form)
        assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def mine(finished, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(finished, tmp_path / "mine")
