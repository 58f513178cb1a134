"""Slow tests: `make test` leaves them out, `make test-all` runs them, but for the rest of large grids, which
`make test-exhaustive` runs (tests/README.md says which tests are slow)."""

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


def slow_of_each(number):
    """A mark for a test: of all tests that parameters make of one, so many are run by `make test-all`, spread evenly,
    and those that are quick; the others, which would take it minutes, by `make test-exhaustive`."""
    return pytest.mark.slow_of_each(number)


def mark_others(items):
    """Apply `quick_of_each`, and then `slow_of_each`, to the tests that were collected."""
    for item in _others(items, "quick_of_each"):
        item.add_marker(slow)
    for item in _others(items, "slow_of_each"):
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.exhaustive)


def _others(items, mark):
    """The tests with this mark that are not among those, so many of each test, that it leaves as they are."""
    tests = {}
    for item in items:
        if found := item.get_closest_marker(mark):
            test = item.parent.nodeid, getattr(item, "originalname", item.name)
            tests.setdefault(test, ([], found.args[0]))[0].append(item)
    for same, left in tests.values():
        chosen = {round(n * (len(same) - 1) / max(1, left - 1)) for n in range(left)}
        yield from (item for number, item in enumerate(same) if number not in chosen)
