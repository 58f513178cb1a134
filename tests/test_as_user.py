"""Tests of the judge once more as an ordinary user, where all tests run as root: root may do what others may not."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from attacks import NOBODY
from helpers import ROOT
from needs import needs
from slow import slow

# Whole files, and what is skipped for root.
AGAIN = (
    *(
        "environment",
        "casewatch",
        "secret_seeds",
        "public",
        "submission",
        "exits",
        "journal",
        "restart",
        "attack_launcher",
    ),
    "program_runs::test_the_judges_working_directory_cannot_be_found_through_proc",
    "programs::test_a_program_in_a_closed_folder_is_refused_with_the_cause",
    "session_command::test_an_output_folder_without_permission_is_reported",
)
PARTS = ("hw4cli", "kernels", "tests", "testcases/suite.toml", "pyproject.toml")
PACKAGES = ("click", "numpy", "rich", "psutil", "pytest", "pytest-timeout")


def python_for_everyone():
    """A Python of this version that every user may run."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path("/usr/local/bin", version), Path("/usr/bin", version)):
        if path.exists() and all(folder.stat().st_mode & 0o001 for folder in path.parents):
            return path
    return pytest.skip(f"there is no {version} that every user may run")


def files_of(*names):
    """The files of these packages and of what they need, by their paths in site-packages."""
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        with suppress(PackageNotFoundError):  # a package for another system, say
            package = distribution(name)
            needed = [line for line in package.requires or () if "extra ==" not in line]
            waiting += {re.match(r"[\w.-]+", line)[0] for line in needed} - seen
            seen.add(name)
            yield from ((file, file.locate()) for file in package.files if ".." not in file.parts)


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


@pytest.fixture
def checkout():
    """An ordinary user's checkout, with the packages that the tests need: ours may lie where only root may look."""
    with tempfile.TemporaryDirectory(prefix="hw4-user-", dir="/tmp") as name:
        base = Path(name)
        for part in PARTS:
            copy(ROOT / part, base / "checkout" / part)
        for file, source in files_of(*PACKAGES):
            copy(source, base / "packages" / file)
        for folder in ("home", "tmp"):
            (base / folder).mkdir()
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", base], check=True)
        yield base / "checkout"


@slow
@pytest.mark.skipif(os.geteuid() != 0, reason="all tests run as an ordinary user already")
@needs("setpriv")
@pytest.mark.timeout(600)
def test_what_holds_for_roots_judge_holds_for_an_ordinary_users(checkout):
    base = checkout.parent
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    tests = []
    for name in AGAIN:
        file, colons, test = name.partition("::")
        [path] = checkout.glob(f"tests/**/test_{file}.py")
        tests.append(f"{path}{colons}{test}")
    options = ["-q", "-p", "no:cacheprovider", "--color=no", "--basetemp", base / "tmp" / "tests"]
    options += ["-k", "not linear_time and not ten_thousand_files"]  # slow, and nobody's rights play a part
    theirs = {"HOME": base / "home", "TMPDIR": base / "tmp", "PYTHONPATH": base / "packages", "USER": "", "LOGNAME": ""}
    result = subprocess.run(
        [*user, python_for_everyone(), "-m", "pytest", *options, *tests],
        cwd=checkout,
        env={**os.environ, **{name: str(value) for name, value in theirs.items()}},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
