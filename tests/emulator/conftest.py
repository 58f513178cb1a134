"""Tests that execute kernels on the CPU: they need a C++ compiler, and most parameters of each are slow."""

import os

import pytest
from needs import COMPILER, needs
from slow import quick_of_each


def pytest_collection_modifyitems(items):
    here = os.path.dirname(__file__)  # noqa: PTH120
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(needs(COMPILER))
            item.add_marker(quick_of_each(1))


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory):
    """A folder for what is compiled, which all these tests share, those of other processes too."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUPY_CACHE_DIR", str(folder))
        yield
