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


def quick_of_each(quick=2):
    """A mark for a test, or for a file as `pytestmark`: of all tests that parameters make of one, so many stay quick,
    spread evenly; the others are slow."""
    return pytest.mark.quick_of_each(quick)


def mark_others_slow(items):
    """Apply `quick_of_each` to the tests that were collected."""
    tests = {}
    for item in items:
        if mark := item.get_closest_marker("quick_of_each"):
            tests.setdefault((item.parent.nodeid, getattr(item, "originalname", item.name)), ([], mark.args[0]))[
                0
            ].append(item)
    for same, quick in tests.values():
        chosen = {round(n * (len(same) - 1) / max(1, quick - 1)) for n in range(quick)}
        for number, item in enumerate(same):
            if number not in chosen:
                item.add_marker(slow)
