"""`hw4 timeline` without a GPU: what is wrong is said, and nothing is written."""

import pytest
from helpers import fails, folder_is_clean


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["flash", "-o", "a.json"], 2, "name a shape"),
        (["naive", "--shape", "1,512,64", "-o", "a.json"], 2, "'naive'"),
        (["flash", "--shape", "1,512,64"], 2, "Missing option"),
        (["flash", "--shape", "1,512,64", "--block", "-1", "-o", "a.json"], 2, "--block"),
        (["flash", "--shape", "1,512,64", "-o", "none/a.json"], 2, "the folder"),
    ],
)
def test_a_mistake_is_named(hw4_here, tmp_path, args, code, words):
    fails(hw4_here("timeline", *args), code, words)
    folder_is_clean(tmp_path)
