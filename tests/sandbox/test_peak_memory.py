"""The largest resident memory of a program is recorded, however small it is beside the judge, in every sandbox."""

import csv
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from attacks import NOBODY, needs_bwrap
from helpers import JUDGE_T01, make_cases, run_hw4, tiny_case
from needs import SLURM, needs
from slow import slow

from hw4cli.judge.plan import RunSettings
from hw4cli.judge.runcase import judge_case
from hw4cli.system import process

pytestmark = needs("g++|clang++")
MB = 1 << 20
OVERHEAD = 3 * MB  # of a program's runtime, and of what starts it
SETTINGS = {
    "none": {"sandbox": "none"},
    "processes": {"sandbox": "processes"},
    "bwrap": {"sandbox": "bwrap"},
    "another user": {"sandbox": "none", "run_as": f"+{NOBODY}"},
    "another user in bwrap": {"sandbox": "bwrap", "run_as": f"+{NOBODY}"},
}
PROGRAM = """\
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// Fills so many MB, and ends.
int main(int argc, char **argv) {
    size_t size = MEGABYTES << 20;
    char *block = (char *)malloc(size);
    memset(block, 1, size);
    return block[size / 2] == 1 ? 3 : 0;
}
"""


@pytest.fixture(scope="module")
def place():
    """A folder that everyone may enter, with a case, and programs of 3 and of 40 MB."""
    with tempfile.TemporaryDirectory(prefix="hw4-memory-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "x.cpp").write_text(PROGRAM)
        compiler = "g++" if subprocess.run(["which", "g++"], capture_output=True).returncode == 0 else "clang++"
        for size in (3, 40):
            command = [compiler, "-O0", f"-DMEGABYTES={size}ul", "x.cpp", "-o", f"fills{size}"]
            subprocess.run(command, cwd=folder, check=True)
        make_cases(folder, tiny_case(), "t01")
        yield folder


def peak(place, size, **settings):
    attempt = judge_case(tiny_case(), [str(place / f"fills{size}")], place, RunSettings(**settings))
    assert attempt.exit_code == 3, attempt
    return attempt.peak_rss


@pytest.mark.parametrize("name", SETTINGS)
def test_a_program_of_3_mb_has_its_3_mb_beside_a_judge_of_many_times_that(place, name):
    settings = SETTINGS[name]
    if "run_as" in settings and os.geteuid() != 0:
        pytest.skip("only root runs programs as another user")
    if settings["sandbox"] != "none":
        needs_bwrap(settings.get("run_as", ""))
    own = bytearray(150 * MB)
    for size in (3, 40):
        assert size * MB <= peak(place, size, **settings) < size * MB + OVERHEAD
    assert len(own) == 150 * MB


def test_without_a_small_process_to_start_it_from_only_what_is_larger_than_the_judge_is_known(place, monkeypatch):
    monkeypatch.setattr(process, "_launcher", lambda: ())
    assert peak(place, 3, sandbox="none") is None


@slow
def test_the_results_of_a_class_have_it(place, tmp_path):
    own = tmp_path / "submissions" / "ann"
    own.mkdir(parents=True)
    (own / "hw4").write_bytes((place / "fills3").read_bytes())
    (own / "hw4").chmod(0o755)
    for sandbox in ("none", "bwrap"):
        if sandbox == "bwrap":
            needs_bwrap()
        options = ("--class", "submissions", "-o", sandbox, "--dir", place, "--sandbox", sandbox)
        result = run_hw4(*JUDGE_T01, *options, *(("--run-as", "root") if os.geteuid() == 0 else ()), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        [row] = csv.DictReader((tmp_path / sandbox / "results.csv").open())
        assert 3 * MB <= int(row["peak_rss"]) < 3 * MB + OVERHEAD, row


@pytest.mark.slurm
@needs(*SLURM)
def test_behind_a_launcher_it_is_the_programs_on_the_other_machine(place, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    srun = ("srun", "-p", "nvidia", "-N1", "-n1", "--gres=gpu:1")
    for size in (3, 40):
        assert size * MB <= peak(place, size, launcher=srun, env=cluster.env) < size * MB + OVERHEAD
