"""The GPU tests share one opened GPU; without a GPU they are skipped, and say why."""

from pathlib import Path

import pytest

from hw4cli.errors import MachineError
from hw4cli.gpu import Gpu


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def gpu():
    try:
        return Gpu()
    except MachineError as reason:
        pytest.skip(str(reason))
