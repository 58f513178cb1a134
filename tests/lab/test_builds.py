"""`hw4 bench --against`: another build in turns with this one. Builds are made up: their processes are real."""

import json
import subprocess
import sys

import pytest
from helpers import ROOT, fails, fits, hw4_env, on_a_terminal
from needs import needs
from slow import quick_of_each

from hw4cli.cli.benchcommand.builds import SURE, against, compared

# A build that measures nothing: each process writes down its arguments, and takes a little longer than the one before.
ENTRY = """
import json, os, pathlib, sys
def main():
    log = pathlib.Path({log!r})
    with log.open("a") as file:
        print({name!r}, *sys.argv[1:], os.environ["HW4_COMMIT"], sep="|", file=file)
    if {status}:
        sys.exit("hw4: no GPU can be used")
    ms = {ms} * (1 + 0.0001 * len(log.read_text().splitlines()))
    row = dict(kernel="flash", case="t28", shape=[4, 16384, 64], status="ok", reason="")
    row |= dict(median=ms, low=0.99 * ms, high=1.01 * ms)
    print(json.dumps(dict(machine=dict(gpu="G"), rows=[row])))
"""
# The command, whose own build is a folder.
START = """
import sys
sys.path.insert(0, {root!r})
import pathlib
import hw4cli.cli.benchcommand.builds as builds
builds.IMPORT_PATH, builds.data_path = {here!r}, lambda name: pathlib.Path({repository!r}) / name
from hw4cli.cli import run_command
sys.exit(run_command())
"""


@pytest.fixture
def builds(tmp_path):
    """Folders with a build each, one of them faster; and the command that runs `hw4` as the one called here."""

    def make(name, ms, status=0):
        folder = tmp_path / name
        for part in ("hw4cli", "kernels", "testcases"):
            (folder / part).mkdir(parents=True)
            (folder / part / "__init__.py").write_text("")
        entry = ENTRY.format(log=str(tmp_path / "log"), name=name, ms=ms, status=status)
        (folder / "hw4cli/entry.py").write_text(entry)
        return folder

    make("there", 10.0)
    make("here", 8.0)
    make("broken", 8.0, status=3)
    return tmp_path


def start(builds, repository="there"):
    return START.format(root=str(ROOT), here=str(builds / "here"), repository=str(builds / repository))


def run(builds, *args, repository="there"):
    command = [sys.executable, "-c", start(builds, repository), "bench", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=hw4_env(COLUMNS="100"), cwd=builds)


def test_processes_of_two_builds_take_turns_with_the_arguments_that_were_given(builds):
    args = (
        "flash",
        "./mine.cu",
        "4,512,64",
        "--tile",
        "64x32",
        "--warm",
        "--peers",
        "torch",
        "--samples",
        "20",
    )
    result = run(builds, *args, "--against", "there", "--json", "--output", "record.json")
    assert result.returncode == 0, result.stderr
    lines = (builds / "log").read_text().splitlines()
    assert [line.partition("|")[0] for line in lines] == ["there", "here"] * SURE
    passed = f"there|bench|flash|{builds}/mine.cu|4,512,64|--tile|64x32|--warm|--peers|torch|--samples|20"
    assert lines[0] == f"{passed}|--json|there"
    record = json.loads(result.stdout)
    assert record == json.loads((builds / "record.json").read_text())
    first, second = record["rows"]
    assert (first["build"], second["build"], second["verdict"]) == ("A", "B", "faster")
    assert second["ratio"] == pytest.approx(0.8, rel=1e-3)
    assert len(second["medians"]) == record["processes"] == SURE
    assert 0 < second["between"] < 0.002
    assert second["within"] == pytest.approx(0.01)


@needs("git")
def test_a_commit_is_unpacked_and_measured(builds):
    def git(*words):
        who = ("-c", "user.name=n", "-c", "user.email=e")
        return subprocess.run(
            ["git", *who, *words], cwd=builds / "there", check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q"), git("add", "."), git("commit", "-qm", "first")
    result = run(builds, "flash", "t28", "--against", "HEAD", "--processes", "2")
    assert result.returncode == 0, result.stderr
    name = git("rev-parse", "--short", "HEAD").strip()
    assert (builds / "log").read_text().splitlines()[0].endswith(f"|{name}")
    assert f"A: {name}" in result.stdout
    assert "perhaps faster: give 6 processes" in " ".join(result.stdout.split())


def test_processes_of_one_build_show_the_spread_between_them(builds):
    result = run(builds, "flash", "t28", "--processes", "3", "--json")
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["build"], row["verdict"], len(row["medians"])) == ("B", None, 3)
    assert row["between"] > 0


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--against", "elsewhere"], 2, "elsewhere is neither a folder nor a commit"),
        (["--against", "--output"], 2, "--output is neither"),
        (["--against", "."], 2, "holds no build of hw4"),
        (["--against", "there", "--compare", "a.json"], 2, "--compare and --against both name"),
        (["--against", "there", "--program", "cp"], 2, "--against does not go with --program"),
    ],
)
def test_what_is_no_build_is_refused_in_a_sentence(builds, args, code, words):
    fails(run(builds, "t28", *args), code, words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["flash"], "name a case"),
        (["flash", "t99"], "there is no case 't99'"),
        (["half", "N=8"], "d is missing"),
    ],
)
def test_what_no_build_could_measure_is_refused_before_a_process_starts(builds, args, words):
    fails(run(builds, *args, "--against", "there"), 2, words)
    assert not (builds / "log").exists()


def test_a_build_whose_process_fails_is_named_with_its_last_line(builds):
    result = run(builds, "flash", "t28", "--against", "broken")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.splitlines()[-1] == "hw4: build A (broken) ended with status 1: no GPU can be used"


@quick_of_each(1)
@pytest.mark.parametrize("width", [60, 200])
def test_a_table_of_builds_fits_the_terminal(builds, width, monkeypatch):
    monkeypatch.chdir(builds)
    code, text = on_a_terminal(width, "bench", "flash", "t28", "--against", "there", start=("-c", start(builds)))
    assert code == 0, text
    assert fits(text, width)


def test_a_difference_is_one_only_if_every_pair_shows_it():
    slow, fast = [10.0, 10.1, 10.0, 9.9, 10.0, 10.2], [9.0, 9.1, 9.0, 8.9, 9.0, 9.2]
    assert against(slow, fast)["verdict"] == "faster"
    assert against(fast, slow)["verdict"] == "slower"
    assert against(slow, [*fast[:5], 10.3])["verdict"] == "no difference seen"
    assert against(slow[:5], fast[:5])["verdict"] == "perhaps faster: give 6 processes"


def test_what_one_process_got_wrong_is_not_compared():
    good = {"kernel": "flash", "case": "t28", "status": "ok", "reason": "", "shape": [1, 2, 4]}
    good |= {"median": 1.0, "low": 0.9, "high": 1.1}
    wrong = {**good, "status": "wrong", "reason": "3 elements are off", "median": None}
    first, second = compared({"A": [[good], [wrong]], "B": [[good], [good]]})
    assert (first["status"], first["reason"], first["median"]) == ("wrong", "3 elements are off", None)
    assert (second["status"], second["ratio"]) == ("ok", None)
