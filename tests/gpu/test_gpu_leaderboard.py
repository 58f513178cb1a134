"""`hw4 leaderboard` on a GPU: three stages of kernels of the ladder and of your own, with the true conditions."""

import json

import pytest

from hw4cli.show.leaderboard.entries import read

pytestmark = [pytest.mark.usefixtures("gpu"), pytest.mark.alone]
SHAPE = ("4,2048,64",)


def test_a_kernel_of_the_ladder_goes_through_three_stages(hw4, tmp_path):
    for kernel, user in (("flash", "ann"), ("naive", "ben")):
        result = hw4("leaderboard", kernel, *SHAPE, "--user", user, "--board", tmp_path)
        assert result.returncode == 0, result.stdout + result.stderr
        assert [line.split()[0] for line in result.stdout.splitlines()] == ["test", "benchmark", "ranked", "rank"]
    fast, slow = read(tmp_path).entries
    assert slow.times.mean > 2 * fast.times.mean
    assert fast.times.count >= 10 and fast.times.error < 0.02 * fast.times.mean
    assert 0.8 < fast.times.mean / (sum(fast.benchmark) / len(fast.benchmark)) < 1.6, "the L2 cache makes no more"
    assert fast.facts["driver"] and fast.facts["compute_capability"]
    boards = json.loads(hw4("leaderboard", "--board", tmp_path, "--json").stdout)["boards"]
    assert [place["user"] for place in boards[0]["places"]] == ["ann", "ben"]


def test_a_kernel_of_ones_own_is_ranked_and_a_wrong_one_is_kept_with_its_reason(hw4, tmp_path):
    assert hw4("new-kernel", "mine", "--from", "naive", cwd=tmp_path).returncode == 0
    options = (*SHAPE, "--user", "ann", "--board", tmp_path / "board")
    right = hw4("leaderboard", "./mine.cu", *options, cwd=tmp_path)
    assert right.returncode == 0, right.stdout + right.stderr
    source = tmp_path / "mine.cu"
    source.write_text(source.read_text().replace("p.scale", "(2 * p.scale)"))
    wrong = hw4("leaderboard", "./mine.cu", *options, cwd=tmp_path)
    assert wrong.returncode == 1
    assert wrong.stdout.startswith("test       wrong: ")
    first, second = read(tmp_path / "board").entries
    assert (first.status, second.status) == ("ranked", "wrong")
    assert first.sha256 != second.sha256
