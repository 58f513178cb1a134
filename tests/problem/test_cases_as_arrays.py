"""Cases as arrays, from Python: what does not fit is refused in a sentence, and no file is left."""

import re

import numpy as np
import pytest

import hw4cli
from hw4cli import InputError, Shape

SHAPE = Shape(2, 4, 8)
BLOCK = hw4cli.random_input(SHAPE, 1)
O = np.zeros((2, 4, 8), np.float32)  # noqa: E741
MASKED = np.ma.masked_array(BLOCK, BLOCK > 1)
A_BLOCK, AN_OUTPUT = (
    "must be a float32 array (B, 3, N, d), but this is",
    "must be a float32 array (B, N, d), but this is",
)
A_NUMBER = "it must be a number, 0 or more"

REFUSED = {
    "the oracle, a list": (hw4cli.exact_attention, (BLOCK.tolist(),), f"{A_BLOCK} a list"),
    "the oracle, nothing": (hw4cli.exact_attention, (None,), f"{A_BLOCK} a NoneType"),
    "the oracle, a masked array": (hw4cli.exact_attention, (MASKED,), f"{A_BLOCK} a MaskedArray"),
    "tiles, a list": (hw4cli.tiled_attention, (BLOCK.tolist(),), f"{A_BLOCK} a list"),
    "an input, a list": (hw4cli.write_input, ("f", [1]), f"{A_BLOCK} a list"),
    "an input, a masked array": (hw4cli.write_input, ("f", MASKED), f"{A_BLOCK} a MaskedArray"),
    "an output, a list": (hw4cli.write_output, ("f", [1]), f"{AN_OUTPUT} a list"),
    "an output, a masked array": (hw4cli.write_output, ("f", MASKED[:, 0]), f"{AN_OUTPUT} a MaskedArray"),
    "an output without batches": (hw4cli.write_output, ("f", O[:0]), "the array: B is 0, but must be between 1"),
    "an output of d = 0": (hw4cli.write_output, ("f", O[..., :0]), "the array: d is 0, but must be between 1 and 128"),
    "O without batches": (hw4cli.write, ("f", O[None, :0]), "the array: B is 0, but must be between 1"),
    "O as a list": (hw4cli.write, ("f", [1, 2]), "all of one shape (B, heads, N, d), but these are a list"),
    "Q, K and V, one a list": (hw4cli.write, ("f", O, [1], O), "but these are (2, 4, 8), a list, (2, 4, 8)"),
    "Q, K and V of other types": (hw4cli.write, ("f", O, O.astype(float), O), f"{A_BLOCK} float64"),
    "a comparison with a list": (hw4cli.compare, (O.tolist(), O), f"the output {AN_OUTPUT} a list"),
    "a comparison with nothing": (hw4cli.compare, (O, None), f"the answer {AN_OUTPUT} a NoneType"),
    "a comparison within nan": (
        hw4cli.compare,
        (O, O, float("nan")),
        f"tolerance is nan: {A_NUMBER}",
    ),
    "a comparison within -1": (hw4cli.compare, (O, O, -1), f"tolerance is -1: {A_NUMBER}"),
    "a comparison within a text": (hw4cli.compare, (O, O, "5e-3"), f"tolerance is 5e-3: {A_NUMBER}"),
    "a shape of fractions": (hw4cli.random_input, (Shape(2.5, 4, 8), 1), "B is 2.5, but must be between 1 and"),
    "a shape of texts": (hw4cli.random_input, (Shape("2", 4, 8), 1), "B is 2, but must be between 1 and"),
    "a seed below 0": (hw4cli.random_input, (SHAPE, -1), "seed is -1: give an integer, 0 or more"),
    "no seed": (hw4cli.random_input, (SHAPE, None), "seed is None: give an integer, 0 or more"),
    "a seed with a fraction": (hw4cli.random_input, (SHAPE, 1.5), "seed is 1.5: give an integer, 0 or more"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence_and_writes_nothing(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, arguments, words = REFUSED[case]
    with pytest.raises(InputError, match=re.escape(words)):
        function(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_any_byte_order_become_the_same_files(tmp_path):
    inputs = [hw4cli.write_input(tmp_path / f"in{order}", BLOCK.astype(f"{order}f4")) for order in "<>"]
    assert inputs[0].read_bytes() == inputs[1].read_bytes()
    outputs = [hw4cli.write(tmp_path / f"out{order}", BLOCK[:, 0].astype(f"{order}f4")) for order in "<>"]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_numbers_of_numpy_are_sizes_and_seeds():
    shape = Shape(*np.array([2, 4, 8]))
    assert np.array_equal(hw4cli.random_input(shape, np.int64(1)), BLOCK)
