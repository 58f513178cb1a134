"""`hw4 profile --set timeline` without a GPU: what is wrong is said, and nothing is written."""

import pytest
from helpers import fails, folder_is_clean


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["flash", "-o", "a.json"], 2, "name a case"),
        (["naive", "1,512,64", "-o", "a.json"], 2, "the timeline is of flash, split, half, not of naive"),
        (["flash", "1,512,64"], 2, "give -o FILE.json"),
        (["flash", "1,512,64", "--block", "-1", "-o", "a.json"], 2, "--block"),
        (["flash", "1,512,64", "-o", "none/a.json"], 2, "the folder"),
    ],
)
def test_a_mistake_is_named(hw4_here, tmp_path, args, code, words):
    fails(hw4_here("profile", "--set", "timeline", *args), code, words)
    folder_is_clean(tmp_path)
