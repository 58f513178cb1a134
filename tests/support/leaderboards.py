"""A leaderboard with all that there can be on one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from helpers import run_hw4

from hw4cli.show.leaderboard.contest import PROGRAM, Contest
from hw4cli.show.leaderboard.entries import RANKED, Entry, append

T28 = Contest.of(4, 16384, 64)
START = datetime(2026, 5, 1, 12, tzinfo=UTC)
ATTACK = "<script>alert(1)</script>"
ARABIC = "معاذ"


def entry(user="ann", ms=10.0, spread=0.01, day=0, workload=T28, machine="NVIDIA H200", **facts):
    samples = tuple(ms + spread * k for k in (-2, -1, 0, 1, 2))
    date = START + timedelta(days=day)
    given = {"program": "flash", "status": RANKED, "benchmark": samples, "ranked": samples, **facts}
    return Entry(user=user, workload=workload, machine=machine, date=date, **given)


@pytest.fixture(scope="session")
def crowded(tmp_path_factory):
    """The folder of a leaderboard: boards, ties, histories, a team, names that are scripts, a wrong one."""
    folder = tmp_path_factory.mktemp("crowded")
    for one in (
        entry("ann", 175.8, 0.4, 0, program="naive"),
        entry("ben", 31.2, 0.1, 0.4, program="./a-name-as-long-as-names-of-files-are.cu"),
        entry("ann", 24.5, 0.1, 1.2),
        entry(ATTACK, 5.83, 0.02, 3.1, program=ATTACK, authors=("Dana Katz", ATTACK)),
        entry("ann", 5.81, 0.02, 4),
        entry(ARABIC, 0.8389, 0.001, 6, program="split"),
        entry("ann", 0.8402, 0.001, 7, program="split"),
        entry("zoe", 1, day=7.5, status="wrong", reason=f"test: {ATTACK} of 16 elements are off", ranked=()),
        entry("ann", 1.02, 0.002, 8, machine="NVIDIA H100 80GB HBM3"),
        entry("ben", 301, 3, 8.5, replace(T28, timed=PROGRAM), program="./hw4"),
    ):
        append(folder, one)
    return folder


@pytest.fixture(scope="session")
def leaderboard_page(tmp_path_factory, crowded):
    """Its page, written by the command."""
    path = tmp_path_factory.mktemp("page") / "board.html"
    result = run_hw4("leaderboard", "--board", crowded, "-o", path, "--title", ATTACK)
    assert result.returncode == 0, result.stderr
    return path
