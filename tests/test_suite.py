"""The named cases: the assignment's shapes and limits, and the same bytes everywhere."""

import hashlib
import tomllib

import numpy as np
import pytest
from helpers import ROOT
from hypothesis import given
from hypothesis import strategies as st

from hw4cli import suite
from hw4cli.errors import InputError
from hw4cli.shape import Shape

THIRTY = """320,128,32 160,128,64 160,256,32 80,256,64 80,512,32 40,512,64 40,1024,32 20,1024,64 20,2048,32 10,2048,64
13600,128,32 9600,128,64 6400,256,32 2000,256,64 2000,512,32 800,512,64 800,1024,32 300,1024,64 300,2048,32 100,2048,64
500,2048,32 500,2048,64 100,4096,32 100,4096,64 30,8192,32 10,8192,64 10,16384,32 4,16384,64 4,32768,32 2,32768,64"""


def test_the_suite_is_the_assignments():
    cases = list(suite.cases().values())
    assert [case.name for case in cases] == [f"t{i:02}" for i in range(1, 31)]
    assert [case.shape for case in cases] == [Shape(*map(int, word.split(","))) for word in THIRTY.split()]
    assert [case.limit for case in cases] == [2] * 10 + [6] * 10 + [10] * 10
    assert len({case.seed for case in cases}) == 30


@pytest.mark.parametrize("name", ["t01", "t02", "t06", "t10"])
def test_a_name_gives_the_bytes_it_always_gave(name):
    case = suite.cases()[name]
    digest = hashlib.sha256(b"".join(chunk.tobytes() for chunk in suite.input_chunks(case.shape, case.seed)))
    assert digest.hexdigest() == case.sha256


def test_the_committed_hashes_are_the_ones_first_published():
    """A changed suite.toml must be meant: these are the hashes under which answers and times were published."""
    table = tomllib.loads((ROOT / "testcases/suite.toml").read_text())["cases"]
    assert table["t01"]["sha256"].startswith("4de41b605a04ba7f")
    assert table["t12"]["sha256"].startswith("025de9134097f182")
    assert table["t30"]["sha256"].startswith("3b722846effb5fd1")


def pcg64(seed):
    """PCG64 (XSL-RR 128/64, O'Neill 2014) in plain integers, seeded as NumPy seeds it."""
    state = np.random.PCG64(seed).state["state"]
    value, increment, mask = state["state"], state["inc"], 2**128 - 1
    while True:
        value = (value * 47026247687942121848144207491837523525 + increment) & mask
        word, turn = (value >> 64 ^ value) & 2**64 - 1, value >> 122
        yield (word >> turn | word << (64 - turn)) & 2**64 - 1


def test_the_values_are_those_of_the_documented_recipe():
    """Worked in plain integers and fractions, so that no change of NumPy can slip through."""
    got = np.concatenate(list(suite.uniform(7, 999)))
    halves = []
    for draw in pcg64(7):
        halves += [draw & 0xFFFFFFFF, draw >> 32]
        if len(halves) >= 999:
            break
    expected = [np.float32(((half >> 8) - 2**23) * 3 / 2**23) for half in halves[:999]]
    assert got.tolist() == expected


def test_the_values_fill_the_half_open_range_evenly():
    values = np.concatenate(list(suite.uniform(1, 1 << 20)))
    assert -3 <= values.min() < -2.99
    assert 2.99 < values.max() < 3
    assert abs(values.mean()) < 0.01
    assert values.std() == pytest.approx(3**0.5, rel=0.01)


def test_the_largest_possible_value_stays_under_three():
    assert np.float32(2**23 - 1) * np.float32(3 * 2.0**-23) < 3


@given(chunk=st.integers(1, 700), count=st.integers(1, 1000))
def test_the_bytes_do_not_depend_on_the_chunks(chunk, count):
    whole = np.concatenate(list(suite.uniform(2, count)))
    size, suite.CHUNK = suite.CHUNK, 2 * chunk
    try:
        assert np.array_equal(np.concatenate(list(suite.uniform(2, count))), whole)
    finally:
        suite.CHUNK = size


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["t03"], "t03"),
        (["t01-t10"], "t01-t10"),
        (["t28", "t01-t03"], "t01-t03 t28"),
        (["t01,t05-t07", "t06"], "t01 t05-t07"),
        ([], "t01-t30"),
    ],
)
def test_cases_are_chosen_by_names_and_ranges(words, expected):
    assert suite.names(suite.select(words)) == expected


@given(st.sets(st.integers(1, 30), min_size=1))
def test_names_and_select_are_inverse(numbers):
    chosen = suite.select([f"t{n:02}" for n in numbers])
    assert suite.select(suite.names(chosen).split()) == chosen


@pytest.mark.parametrize("word", ["t31", "t1", "x", "t01-", "-t03", "t01-t99", "t05-t01", "", ","])
def test_a_name_the_suite_has_not_is_refused(word):
    with pytest.raises(InputError, match="case"):
        suite.select([word])
