"""The binary format: every legal file is read exactly, every other one is refused in one sentence."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers import random_block, write_case
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.casefile import InputFile, NewFile, batch_spans, check_finite, magnitudes
from hw4cli.errors import InputError, MachineError
from hw4cli.shape import Shape

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
def test_a_place_is_told_as_batch_row_and_column(index):
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
        ((2, 8, 6), "multiple of 4"),
        ((2, 8, 132), "multiple of 4 up to 128"),
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


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_nan_and_inf_are_found_and_placed(part, bad):
    block = random_block(3, 7, 8)
    block[2, part, 6, 5] = bad
    with pytest.raises(InputError, match=f"{'QKV'[part]} of batch 12, row 6, column 5"):
        check_finite(block, 10, Path("in"))


def test_magnitudes_are_the_largest_absolute_values():
    block = random_block(3, 7, 8)
    block[1, 0, 2, 3], block[0, 1, 1, 1], block[2, 2, 0, 0] = -11, 12, -3.5e38 * 0.9
    assert magnitudes(block) == (11, 12, pytest.approx(3.5e38 * 0.9))


def test_a_new_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), NewFile(path) as file:
        file.write(np.zeros(1000, np.float32))
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    with NewFile(path) as file:
        file.write(np.frombuffer(b"new!", np.uint8))
    assert path.read_bytes() == b"new!"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_new_file_has_the_usual_permissions_and_a_replaced_one_keeps_its_own(tmp_path):
    previous = os.umask(0o027)
    try:
        for mode in (0o640, 0o604):
            with NewFile(tmp_path / "out") as file:
                file.write(np.zeros(1, np.float32))
            assert (tmp_path / "out").stat().st_mode & 0o777 == mode
            (tmp_path / "out").chmod(0o604)
    finally:
        os.umask(previous)


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with NewFile(link) as file:
        file.write(np.frombuffer(b"new", np.uint8))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_device_is_no_output(tmp_path):
    for name in ("/dev/null", "/dev/stdout", "/proc/self/fd/1"):
        with pytest.raises(InputError, match="no place for a file"):
            NewFile(Path(name))
    (tmp_path / "link").symlink_to("/dev/null")
    with pytest.raises(InputError, match="device"):
        NewFile(tmp_path / "link")


def test_a_folder_without_room_is_told(tmp_path):
    with pytest.raises((InputError, MachineError), match="folder"), NewFile(tmp_path / "none" / "out"):
        pass
