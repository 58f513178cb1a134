"""`hw4 profile --set timeline` on a GPU: every warp's stamps, in the order of its work."""

import json

import pytest

from hw4cli.lab.stepper.blocktimeline import ACTIVITIES
from hw4cli.show.records import load

COPY_OF_V = ACTIVITIES.index("copy of V")

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.mark.alone
def test_every_warp_of_the_block_says_what_it_does_with_every_tile(hw4, gpu, tmp_path):
    kernels = ["flash", *(["split"] if gpu.props.warpgroups else [])]
    for d in (32, 64):
        path = tmp_path / f"{d}.json"
        result = hw4("profile", *kernels, f"2,4096,{d}", "--set", "timeline", "--block", "5", "-o", path)
        assert result.returncode == 0, result.stderr
        assert json.loads(path.read_text())["machine"]["gpu"] == gpu.name
        found = load(path).timelines
        assert [one.kernel for one in found] == kernels
        for one in found:
            working = {warp for warp, _, activity, *_ in one.spans if activity > COPY_OF_V}
            assert working == set(range(len(working)))
            assert len(working) in (4, 8, 12)  # beside a warp that only copies, where there is one
            spans = {(warp, tile, activity): (begin, end) for warp, tile, activity, begin, end in one.spans}
            for warp in working:
                for tile in range(12):
                    scores, weights, values = (
                        spans[warp, tile, activity] for activity in range(COPY_OF_V + 1, len(ACTIVITIES))
                    )
                    assert scores[1] <= weights[0] < weights[1] <= values[0]
                    assert weights[1] - weights[0] < 100_000


@pytest.mark.alone
def test_half_says_it_of_arrays(hw4, gpu, tmp_path):
    if not gpu.props.warpgroups:
        pytest.skip("half is for compute capability 9.0")
    path = tmp_path / "half.json"
    result = hw4("profile", "half", "lm8k", "--set", "timeline", "-o", path)
    assert result.returncode == 0, result.stderr
    (found,) = load(path).timelines
    assert found.kernel == "half"
    spans = {(warp, tile, activity): (begin, end) for warp, tile, activity, begin, end in found.spans}
    last = max(warp for warp, *_ in spans)  # the first group has no rows in a head's first tile
    for tile in range(1, 12):
        scores, weights, values = (spans[last, tile, activity] for activity in range(COPY_OF_V + 1, len(ACTIVITIES)))
        assert scores[1] <= weights[0] < weights[1]
        assert spans[last, tile - 1, len(ACTIVITIES) - 1][1] > scores[0], "P V of the tile before beside the scores"
        assert values[1] - values[0] < 100_000
        assert spans[0, tile, 0][0] < scores[0]


def test_a_kernel_without_stamps_is_refused(hw4, tmp_path):
    result = hw4("profile", "split", "2,128,64", "--set", "timeline", "-o", tmp_path / "a.json")
    assert result.returncode == 2
    assert "kernel split leaves no stamps here" in result.stderr
    assert list(tmp_path.iterdir()) == []
