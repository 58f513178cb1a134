"""The binary format: every legal file is read exactly, every other one is refused in one sentence."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers import random_block, write_case
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.errors import InputError
from hw4cli.problem import casefile
from hw4cli.problem.casefile import InputFile, batch_spans, check_finite, magnitudes_of
from hw4cli.problem.workload import Shape

shapes = st.builds(Shape, st.integers(1, 6), st.integers(1, 40), st.integers(1, 32).map(lambda x: 4 * x))


@given(shape=shapes, max_bytes=st.integers(1, 100_000))
def test_blocks_cover_every_batch_once_and_in_order(shape, max_bytes):
    spans = list(batch_spans(shape, max_bytes))
    assert [b for start, stop in spans for b in range(start, stop)] == list(range(shape.B))
    one = 12 * shape.N * shape.d
    assert all(stop - start == 1 or (stop - start) * one <= max_bytes for start, stop in spans)


@given(shape=shapes)
def test_a_file_reads_back_as_it_was_written(shape, tmp_path_factory):
    block = random_block(shape.B, shape.N, shape.d, seed=3)
    path = write_case(tmp_path_factory.mktemp("case") / "in", block)
    assert path.stat().st_size == shape.input_bytes
    with InputFile(path) as inputs:
        assert inputs.shape == shape
        read = np.concatenate([part for _, part in inputs.blocks(1000)])
    assert np.array_equal(read, block)


@given(index=st.integers(0, 5 * 7 * 12 - 1))
def test_a_place_is_stated_as_batch_row_and_column(index):
    batch, row, column = np.unravel_index(index, (5, 7, 12))
    assert Shape(5, 7, 12).place(index) == f"batch {batch}, row {row}, column {column}"


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ((0, 8, 4), "B is 0"),
        ((-3, 8, 4), "B is -3"),
        ((2, 0, 4), "N is 0"),
        ((2, -1, 4), "N is -1"),
        ((2, 8, 0), "d is 0"),
        ((2, 8, -4), "d is -4"),
        ((2, 8, 129), "d is 129, but must be between 1 and 128"),
        ((2**31 - 1, 2**31 - 1, 128), "too short"),
    ],
)
def test_an_absurd_header_is_refused(tmp_path, header, word):
    path = tmp_path / "in"
    path.write_bytes(struct.pack("<iii", *header) + bytes(12 * 2 * 8 * 4))
    with pytest.raises(InputError, match=word) as error:
        InputFile(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda data: b"", "0 bytes"),
        (lambda data: data[:11], "11 bytes"),
        (lambda data: data[:12], "too short"),
        (lambda data: data[:-1], "1 byte too short"),
        (lambda data: data + b"x", "1 byte too long"),
    ],
)
def test_a_file_of_the_wrong_size_is_refused(tmp_path, change, word):
    path = write_case(tmp_path / "in", random_block(2, 5, 8))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=word):
        InputFile(path)


def test_a_file_that_shrinks_while_it_is_read_is_noticed(tmp_path):
    path = write_case(tmp_path / "in", random_block(4, 5, 8))
    with InputFile(path) as inputs:
        os.truncate(path, 1000)
        with pytest.raises(InputError, match="became shorter"):
            list(inputs.blocks(1 << 20))


def test_a_file_whose_size_is_not_what_can_be_read_is_reported():
    """Files of /sys say that they have 4096 bytes, and give a few."""
    with pytest.raises(InputError, match=r"^/sys/class/net/lo/mtu ends after \d of its 4,096 bytes"):
        InputFile(Path("/sys/class/net/lo/mtu"))


@pytest.mark.parametrize("max_bytes", [1, 100, 1000, 10**6])
def test_ranges_are_those_of_the_whole_file_however_much_is_read_at_a_time(tmp_path, monkeypatch, max_bytes):
    monkeypatch.setattr(casefile, "RANGE_BYTES", max_bytes)
    block = random_block(3, 7, 8)
    block[1, 0, 2, 3], block[2, 1, 6, 7], block[0, 2, 0, 0] = -11, 12, -13
    with InputFile(write_case(tmp_path / "in", block)) as inputs:
        found = inputs.ranges()
    assert found == {part: (block[:, i].min(), block[:, i].max()) for i, part in enumerate("QKV")}
    block[2, 1, 6, 5] = np.nan
    with (
        InputFile(write_case(tmp_path / "in", block)) as inputs,
        pytest.raises(InputError, match="holds nan in K of batch 2, row 6, column 5"),
    ):
        inputs.ranges()
    with InputFile(tmp_path / "in") as inputs:
        inputs.check_finite(0, 2)
        with pytest.raises(InputError, match="holds nan in K of batch 2, row 6, column 5"):
            inputs.check_finite(1, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_nan_and_inf_are_found_and_placed(part, bad):
    block = random_block(3, 7, 8)
    block[2, part, 6, 5] = bad
    with pytest.raises(InputError, match=f"{'QKV'[part]} of batch 12, row 6, column 5"):
        check_finite(block, (10, 0, 0), Path("in"))


def test_magnitudes_are_the_largest_absolute_values_and_norms():
    block = random_block(3, 7, 8)
    block[1, 0, 2, 3], block[0, 1, 1, 1], block[2, 2, 0, 0] = -11, 12, -3.5e38 * 0.9
    found = magnitudes_of(block)
    assert found[:3] == (11, 12, pytest.approx(3.5e38 * 0.9))
    norms = np.linalg.norm(block[:, :2].astype(np.float64), axis=3).max(axis=(0, 2))
    assert norms[0] <= found.q_norm <= norms[0] * (1 + 2.0**-15)
    assert norms[1] <= found.k_norm <= norms[1] * (1 + 2.0**-15)
    block[1, 1, 2] = 1e30
    assert magnitudes_of(block).k_norm == np.inf
