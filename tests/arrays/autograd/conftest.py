"""Each test compiles anew: torch.compile compiles no more than eight variants of a function in a process."""

import sys

import pytest


@pytest.fixture(autouse=True)
def nothing_compiled():
    """torch.compile remembers nothing of the tests before."""
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
