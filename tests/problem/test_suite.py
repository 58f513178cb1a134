"""The named cases: the assignment's shapes and limits, and the same bytes everywhere."""

import hashlib
import tomllib

import numpy as np
import pytest
from helpers import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hw4cli.errors import InputError
from hw4cli.problem import suite
from hw4cli.problem.workload import Shape

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


SUITE = (ROOT / "testcases/suite.toml").read_text()
FIRST = next(line for line in SUITE.splitlines() if line.startswith("t01"))


def edited(old, new):
    """The suite after an edit of its first case."""
    assert old in FIRST
    return SUITE.replace(FIRST, FIRST.replace(old, new))


SHA256 = suite.cases()["t01"].sha256
DAMAGE = {
    "nothing": ("", "has no cases"),
    "no cases": ("[cases]", "has no cases"),
    "another table": (SUITE + "[more]\n", "hw4 knows only the table cases, not 'more'"),
    "cases that are no table": ("cases = 5", "cases is 5, but must be a table"),
    "a line cut off": (edited(" }", ""), "line "),
    "not UTF-8": (SUITE.encode().replace(b"#", b"\xff", 1), "utf-8"),
    "a name twice": (SUITE + FIRST, "Cannot overwrite a value"),
    "a deep nest": ("cases = " + "[" * 50_000, "nested too deep"),
    "a case that is not a table": (edited(FIRST, "t01 = 5"), "t01 is 5, but must be a table"),
    "a name that is a path": (edited("t01", '"../t01"'), "'../t01' is not a name"),
    "a name that is a range": (edited("t01", "t01-t02"), "'t01-t02' is not a name"),
    "a name that an answer has": (edited("t01", '"t02.out"'), "'t02.out' is not a name"),
    "an empty name": (edited("t01", '""'), "'' is not a name"),
    "no shape": (edited("shape = [320, 128, 32], ", ""), "t01: shape is missing"),
    "an unknown key": (edited("limit", "colour = 3, limit"), "t01: hw4 knows no 'colour'"),
    "two numbers": (edited("320, ", ""), r"t01: shape is \[128, 32\]"),
    "a shape of words": (edited("320", '"320"'), "t01: shape is"),
    "a shape of fractions": (edited("320", "320.0"), "t01: shape is"),
    "a shape of truths": (edited("320", "true"), "t01: shape is"),
    "no batch": (edited("320", "0"), "t01: B is 0"),
    "a head size that no kernel has": (edited("32]", "129]"), "t01: d is 129"),
    "a negative seed": (edited("seed = 1", "seed = -1"), "t01: seed is -1"),
    "a seed of letters": (edited("seed = 1", 'seed = "1"'), "t01: seed is '1'"),
    "limit nan": (edited("limit = 2", "limit = nan"), "t01: limit is nan"),
    "limit inf": (edited("limit = 2", "limit = inf"), "t01: limit is inf"),
    "limit 0": (edited("limit = 2", "limit = 0"), "t01: limit is 0"),
    "limit of more than a day": (edited("limit = 2", "limit = 1e6"), "t01: limit is 1000000"),
    "limit true": (edited("limit = 2", "limit = true"), "t01: limit is True"),
    "a short hash": (edited(SHA256, SHA256[:-1]), "t01: sha256 is"),
    "a hash of capitals": (edited(SHA256, SHA256.upper()), "t01: sha256 is"),
    "a hash that is a number": (edited(f'"{SHA256}"', "5"), "t01: sha256 is 5"),
    "another case's hash": (edited(SHA256, suite.cases()["t02"].sha256), "t02: sha256 is that of t01, too"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_suite_is_one_sentence_that_says_where(tmp_path, damage):
    text, words = DAMAGE[damage]
    path = tmp_path / "suite.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=words) as error:
        suite.read(path)
    assert str(error.value).startswith(f"{path}")
    assert "\n" not in str(error.value)


def test_a_suite_that_is_missing_or_a_folder_is_one_sentence(tmp_path):
    for path in (tmp_path, tmp_path / "suite.toml"):
        with pytest.raises(InputError, match=str(path)):
            suite.read(path)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), removed=st.integers(0, 40), added=st.text(max_size=6))
def test_an_edited_suite_is_read_or_refused(tmp_path, place, removed, added):
    text = "\n".join(SUITE.splitlines()[3:6])
    path = tmp_path / "suite.toml"
    path.write_text(text[:place] + added + text[place + removed :])
    try:
        cases = suite.read(path)
    except InputError:
        return
    assert all(0 < case.limit <= 86400 and case.seed >= 0 for case in cases.values())


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
    assert suite.ranges(suite.select(words)) == expected


@given(st.sets(st.integers(1, 30), min_size=1))
def test_names_and_select_are_inverse(numbers):
    chosen = suite.select([f"t{n:02}" for n in numbers])
    assert suite.select(suite.ranges(chosen).split()) == chosen


@pytest.mark.parametrize("word", ["t31", "t1", "x", "t01-", "-t03", "t01-t99", "t05-t01", "", ","])
def test_a_name_the_suite_has_not_is_refused(word):
    with pytest.raises(InputError, match="case"):
        suite.select([word])
