"""Which commit a record names: hw4's own, and no other repository's that hw4 happens to lie in."""

import os
import shutil
import subprocess
import sys

from helpers import ROOT
from needs import needs

NAMES_ITS_COMMIT = "import sys; sys.path.insert(0, sys.argv[1]); from hw4cli.lab.record import commit; print(commit())"
WHO = ("-c", "user.name=a", "-c", "user.email=a@b")


def commit_named_in(place, **env):
    settings = {name: value for name, value in os.environ.items() if name != "HW4_COMMIT"}
    command = [sys.executable, "-P", "-c", NAMES_ITS_COMMIT, str(place)]
    return subprocess.run(command, env={**settings, **env}, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder):
    folder.mkdir()
    for words in (("init", "-q"), (*WHO, "commit", "-q", "--allow-empty", "-m", "theirs")):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return folder


@needs("git")
def test_a_package_installed_below_a_users_repository_does_not_name_that_repositorys_commit(tmp_path):
    place = repository(tmp_path / "theirs") / "venv"
    shutil.copytree(ROOT / "hw4cli", place / "hw4cli", ignore=shutil.ignore_patterns("__pycache__"))
    assert commit_named_in(place) == "None"


@needs("git")
def test_a_source_tree_names_its_own_commit_whatever_repository_a_hook_of_git_works_on(tmp_path):
    place = repository(tmp_path / "ours")
    shutil.copytree(ROOT / "hw4cli", place / "hw4cli", ignore=shutil.ignore_patterns("__pycache__"))
    for words in (("add", "hw4cli/entry.py"), (*WHO, "commit", "-qm", "ours"), (*WHO, "tag", "-am", "-", "ours")):
        subprocess.run(["git", "-C", place, *words], check=True)
    theirs = repository(tmp_path / "theirs")
    assert commit_named_in(place, GIT_DIR=str(theirs / ".git")) == "ours"
