"""Where the errors of an output are: in words, and as a coarse grid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.problem.errormap import NOT_FINITE, WRONG, ErrorMap
from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import Shape

ALL = slice(None)


def map_of(wrong, chunk=None, not_finite=False):
    """The map of an output that is wrong where `wrong` (B, N, d) is true, compared in chunks of so many elements."""
    result = Comparison(errors=ErrorMap(Shape(*wrong.shape)))
    got = np.where(wrong, np.float32(np.nan if not_finite else 1), np.float32(0)).ravel()
    chunk = chunk or got.size
    for start in range(0, got.size, chunk):
        part = got[start : start + chunk]
        result.add(part, np.zeros_like(part))
    return result.errors


def where(place, shape=(3, 200, 32)):
    wrong = np.zeros(shape, bool)
    wrong[place] = True
    return map_of(wrong).where()


PLACES = {
    "errors in every batch but the first": slice(1, None),
    "errors in every batch but the last": slice(0, -1),
    "errors only in batch 1": 1,
    "errors only in the last 8 rows (the tail behind the last whole tile of 16, 32 or 64 rows) of every batch": (
        ALL,
        slice(192, None),
    ),
    "errors in every batch but the last, in rows 3, 4 and 9": (slice(0, 2), [3, 4, 9]),
    "errors only in the last 72 rows (the tail behind the last whole tile of 128 rows) of every batch": (
        ALL,
        slice(128, None),
    ),
    "errors only in row 199 (the last) of every batch": (ALL, -1),
    "errors only in rows 10 to 12 of every batch": (ALL, slice(10, 13)),
    "errors only in batch 1, in rows 10 to 12": (1, slice(10, 13)),
    "errors only in every 32nd row, from 0 on, of every batch": (ALL, slice(None, None, 32)),
    "errors only in rows 3, 77 and 150 of every batch": (ALL, [3, 77, 150]),
    "errors only from batch 1, row 150 on": None,
    "errors only in columns 16 to 31 (the last)": (..., slice(16, None)),
    "errors only in column 3": (..., 3),
    "errors only in every 4th column, from 1 on": (..., slice(1, None, 4)),
    "errors only in batch 1, in row 2, in column 3": (1, 2, 3),
}


@pytest.mark.parametrize("words", PLACES)
def test_a_pattern_of_places_is_put_into_words(words):
    place = PLACES[words]
    if place is None:
        place = np.arange(3 * 200).reshape(3, 200) >= 350
    assert where(place) == words


TILES = {
    "errors only in rows 28 to 31 (the last) of every 32, of every batch": [28, 29, 30, 31],
    "errors only in row 31 (the last) of every 32, of every batch": [31],
    "errors only in rows 0 to 15 of every 32, of every batch": range(16),
}


@pytest.mark.parametrize("words", TILES)
def test_the_same_rows_of_every_tile_are_reported(words):
    rows = (np.arange(256) % 32)[:, None] == list(TILES[words])
    assert where((ALL, rows.any(axis=1)), (2, 256, 8)) == words


def test_scattered_errors_and_errors_everywhere_have_no_place():
    rng = np.random.default_rng(2)
    assert map_of(rng.random((3, 200, 32)) < 0.01).where() is None
    assert where(ALL) is None
    assert map_of(np.zeros((3, 200, 32), bool)).where() is None


LIMITS = {
    "errors only in batches 5462 to 7999 (the last), where offsets in the input pass 2^31 elements": (
        8000,
        1024,
        128,
        5462,
    ),
    "errors only in batches 10923 to 15999 (the last), where offsets in the input pass 2^32 bytes": (
        16000,
        256,
        128,
        10923,
    ),
    "errors only in batches 65535 to 65599 (the last), where a CUDA grid ends (65,535 in y and z)": (
        65600,
        1,
        4,
        65535,
    ),
    "errors only in batches 65536 to 65599 (the last), where a CUDA grid ends (65,535 in y and z)": (
        65600,
        1,
        4,
        65536,
    ),
    "errors only in batches 5000 to 7999 (the last)": (8000, 1024, 128, 5000),
}


@pytest.mark.parametrize("words", LIMITS)
def test_a_limit_of_offsets_or_grids_is_reported_where_errors_begin_at_it(words):
    *shape, first = LIMITS[words]
    errors = ErrorMap(Shape(*shape))
    errors.marks[first:] = WRONG
    assert errors.where() == words


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 40), st.sampled_from([4, 12, 32])),
    chunk=st.integers(1, 300),
    not_finite=st.booleans(),
    seed=st.integers(0, 99),
)
def test_marks_do_not_depend_on_the_chunks(shape, chunk, not_finite, seed):
    wrong = np.random.default_rng(seed).random(shape) < 0.05
    errors = map_of(wrong, chunk, not_finite)
    assert (errors.marks == wrong.any(axis=2) * (NOT_FINITE if not_finite else WRONG)).all()
    assert (errors.columns == wrong.any(axis=(0, 1))).all()


@given(total=st.integers(1, 3000), most=st.integers(1, 50), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_rows_with_a_mark_are_found_evenly(total, most, share, seed):
    errors = ErrorMap(Shape(total, 70, 4))
    errors.marks[:] = np.random.default_rng(seed).random((total, 70)) < share
    marked, found = np.flatnonzero(errors.marks), errors.rows(WRONG, most)
    assert len(found) == min(most, len(marked))
    assert (found == marked[np.linspace(0, len(marked) - 1, len(found)).astype(int)]).all()


@given(
    B=st.integers(1, 70),
    N=st.integers(1, 300),
    lines=st.integers(1, 20),
    cells=st.integers(1, 60),
    seed=st.integers(0, 9),
)
def test_a_grid_has_every_row_in_one_cell_and_no_more_lines_and_cells_than_asked_for(B, N, lines, cells, seed):
    errors = ErrorMap(Shape(B, N, 4))
    errors.marks[:] = np.random.default_rng(seed).choice([0, WRONG, NOT_FINITE], (B, N), p=[0.7, 0.29, 0.01])
    grid = errors.grid(lines, cells)
    assert grid.wrong.shape == grid.sizes.shape == grid.not_finite.shape
    assert grid.wrong.shape[0] <= lines
    assert grid.wrong.shape[1] <= cells
    assert grid.sizes.sum() == B * N
    assert grid.wrong.sum() == (errors.marks > 0).sum()
    assert grid.not_finite.any() == (errors.marks == NOT_FINITE).any()
    assert (grid.wrong <= grid.sizes).all()
