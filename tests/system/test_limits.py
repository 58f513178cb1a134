"""Where a process may have little memory, or start no threads: one sentence and status 3, wherever it fails."""

import os
import resource

import pytest
from helpers import random_block, run_hw4, write_case
from needs import COMPILER, needs

pytestmark = needs("setpriv", "prlimit")

MEGABYTE = 1 << 20
# Root may start as many processes as it likes: a user without processes, who may read and write what root may.
NOBODY = ["setpriv", "--reuid=45678", "--regid=45678", "--clear-groups"]
NOBODY += ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"]
AS_USER = NOBODY if os.geteuid() == 0 else []
ONE_PROCESS = [*AS_USER, "prlimit", "--nproc=1"]


@pytest.fixture(autouse=True)
def no_wish_for_threads(monkeypatch):
    """hw4 itself finds out how many threads the BLAS may start."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)


@pytest.fixture
def case(tmp_path):
    (tmp_path / "answer").write_bytes(bytes(4 * 3 * 130 * 32))
    return write_case(tmp_path / "case", random_block(3, 130, 32))


def environment(folder):
    return {"CUDA_VISIBLE_DEVICES": "-1", "HOME": str(folder / "home")}


def commands(case, folder):
    return {
        "run": ["--device", "cpu", case, folder / "out"],
        "info": ["info", case],
        "verify": ["verify", folder / "answer", folder / "answer"],
        "gen": ["gen", "2,100,32", "-o", folder / "new"],
        "explain": ["explain"],
        "judge": ["judge", "t01", "--dir", folder],
        "doctor": ["doctor"],
    }


def lacks(result, folder, words):
    """One sentence with these words, status 3, and no file half-made."""
    *before, last = result.stderr.splitlines()
    assert all(line.startswith("answers: ") for line in before), result.stderr
    assert last.startswith("hw4: ")
    assert words in last
    assert result.returncode == 3
    assert {path.name for path in folder.iterdir()} <= {"answer", "case", "new", "home"}


@pytest.mark.parametrize(
    ("name", "megabytes"),
    [("run", 24), ("run", 60), ("run", 100), ("run", 220), ("run", 260), ("gen", 240)]
    + [(name, 100) for name in ("info", "verify", "gen", "explain", "judge", "doctor")],
)
def test_too_little_address_space_is_one_sentence(case, tmp_path, name, megabytes):
    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * MEGABYTE, megabytes * MEGABYTE))

    result = run_hw4(*commands(case, tmp_path)[name], preexec_fn=little_memory, env=environment(tmp_path))
    if result.returncode or megabytes < 200:  # how much is enough is not the question
        lacks(result, tmp_path, "ulimit -v")


@pytest.mark.parametrize("name", ["run", "gen", "doctor"])
def test_no_more_threads_is_one_sentence(case, tmp_path, name):
    result = run_hw4(*commands(case, tmp_path)[name], prefix=ONE_PROCESS, env=environment(tmp_path))
    lacks(result, tmp_path, "ulimit -u")


@pytest.mark.parametrize(("name", "status"), [("info", 0), ("verify", 0), ("explain", 0), ("judge", 3)])
def test_what_needs_no_threads_works_without_them(case, tmp_path, name, status):
    result = run_hw4(*commands(case, tmp_path)[name], prefix=ONE_PROCESS, env=environment(tmp_path))
    assert result.returncode == status, result.stderr
    assert "OpenBLAS" not in result.stderr
    assert "ulimit" not in result.stderr


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_where_the_blas_could_start_no_threads_doctor_is_not_interrupted_by_it(case, tmp_path, processes):
    result = run_hw4("doctor", prefix=[*AS_USER, "prlimit", f"--nproc={processes}"], env=environment(tmp_path))
    assert "interrupted" not in result.stderr + result.stdout
    assert "OpenBLAS" not in result.stderr + result.stdout
    assert result.returncode in (0, 3)


@pytest.mark.parametrize("name", ["run", "info", "gen", "doctor"])
def test_too_little_memory_for_data_is_one_sentence(case, tmp_path, name):
    def little_memory():
        resource.setrlimit(resource.RLIMIT_DATA, (30 * MEGABYTE, 30 * MEGABYTE))

    lacks(
        run_hw4(*commands(case, tmp_path)[name], preexec_fn=little_memory, env=environment(tmp_path)),
        tmp_path,
        "ulimit",
    )


def test_too_little_memory_is_no_wrong_kernel(tmp_path):
    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (400 * MEGABYTE, 400 * MEGABYTE))

    result = run_hw4("selftest", "--device", "cpu", "--minutes", "0.01", preexec_fn=little_memory)
    assert "wrong" not in result.stdout + result.stderr
    if result.returncode:  # how much is enough is not the question
        assert result.returncode == 3
        assert "ulimit -v" in result.stderr.splitlines()[-1]


@needs(COMPILER)
@pytest.mark.parametrize(("limit", "words"), [("--nproc=1", "ulimit -u"), ("--nofile=8", "ulimit -n")])
def test_where_no_compiler_can_be_started_the_limit_is_named(tmp_path, limit, words):
    command = ["check", "naive", "--run", "1,33,32"]
    result = run_hw4(*command, prefix=[*AS_USER, "prlimit", limit], env=environment(tmp_path))
    assert result.returncode == 3
    assert words in result.stderr.splitlines()[-1]
