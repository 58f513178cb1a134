"""The command as a fixture."""

import pytest
from helpers import run_hw4


@pytest.fixture
def hw4():
    return run_hw4
