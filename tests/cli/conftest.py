"""Tests of what commands say: commands need no process of their own here, but where a test takes `run_hw4`."""

import pytest
from helpers import run_here


@pytest.fixture
def hw4():
    """Run `hw4 ARGS` in this process."""
    return run_here
