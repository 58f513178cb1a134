"""Slow tests: `make test` leaves them out, `make test-all` runs them (tests/README.md says which tests are slow)."""

import pytest

slow = pytest.mark.slow


def few(values, quick=2):
    """A test's parameters, all but the first few of them slow: `@pytest.mark.parametrize("name", few(MISTAKES))`."""
    return [value if number < quick else slowly(value) for number, value in enumerate(values)]


def slowly(value):
    """A parameter with which the test is slow; a tuple is the values of several."""
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, slow], id=value.id)
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=slow)
