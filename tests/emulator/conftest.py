"""Tests that execute kernels on the CPU: they need a C++ compiler, and most parameters of each are slow."""

import os

from needs import COMPILER, needs
from slow import quick_of_each


def pytest_collection_modifyitems(items):
    here = os.path.dirname(__file__)  # noqa: PTH120
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(needs(COMPILER))
            item.add_marker(quick_of_each(1))
