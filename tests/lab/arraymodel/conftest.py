"""Commands that read, compute a little and print need no process of their own."""

import pytest


@pytest.fixture
def hw4(hw4_in_process):
    return hw4_in_process
