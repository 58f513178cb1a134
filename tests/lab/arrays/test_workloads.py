"""Workloads as text: sizes, names, and what is wrong with them; and the numbers that they stand for."""

import re
import sys

import numpy as np
import pytest
from halves import numbers as float_numbers
from halves import rounded
from helpers import ROOT

from hw4cli import generate
from hw4cli.errors import InputError, MachineError
from hw4cli.lab.arrays.inputs import PERIOD, from_words, numbers, on_host, to_words
from hw4cli.lab.arrays.named import named, read_named, workload
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload


def test_words_give_every_part_of_a_workload():
    one = workload("B=2 H=8 KVH=2 N=100 Nk=300 d=64 dtype=bf16 causal layout=BNHD scale=0.5 dist=uniform seed=7")
    assert one.work == Workload(BFLOAT16, 2, 8, 2, 100, 300, 64, True, 200, scale=0.5)
    assert (one.layout, one.distribution, one.seed) == ("BNHD", "uniform", 7)
    assert one.name == "(2, 8/2, 100/300, 64) bf16 causal"


def test_what_is_left_out_is_square_with_own_keys_and_normal_numbers():
    one = workload("N=128 d=32")
    assert one.work == Workload(FLOAT16, 1, 1, 1, 128, 128, 32)
    assert (one.layout, one.distribution, one.seed) == ("BHND", "normal", 0)
    assert one.work.scale == pytest.approx(32**-0.5)
    assert workload("N=5 Nk=9 d=8 causal align=top-left").work.offset == 0


def test_masks_at_two_corners_have_names_that_tables_can_tell_apart():
    names = [workload(f"N={N} Nk=9 d=8 causal{align}").name for N in (5, 9) for align in ("", " align=top-left")]
    assert names == [
        *("(1, 1, 5/9, 8) fp16 causal", "(1, 1, 5/9, 8) fp16 causal top-left"),
        *("(1, 1, 9, 8) fp16 causal", "(1, 1, 9, 8) fp16 causal"),  # both corners are one
    ]


def test_every_named_workload_is_one_and_no_two_are_alike():
    made = [workload(name) for name in named()]
    assert [one.name for one in made] == list(named())
    assert len({(one.work, one.layout) for one in made}) == len(made) > 10
    assert workload("tilelang").work == Workload.square(FLOAT16, 4, 64, 8192, 128)
    assert workload("lm16k").work == Workload.square(BFLOAT16, 1, 16, 16384, 64, causal=True)


WRONG = {
    "there is no workload 'tilelamp'": "tilelamp",
    "N is missing": "B=1 d=64",
    "'M=3' is none of B, H,": "N=4 d=8 M=3",
    "'causal=1' is none of": "N=4 d=8 causal=1",
    "'N' is none of": "N d=8",
    "d is given twice": "N=4 d=8 d=16",
    "N is 'many', but must be an integer from 1": "N=many d=8",
    "B is '0', but must be an integer from 1": "B=0 N=4 d=8",
    "dtype is 'int8', but must be one of fp16": "N=4 d=8 dtype=int8",
    "scale is -1: it must be a positive number": "N=4 d=8 scale=-1",
    "scale is 1e-46: it must be a positive number, from 1e-37 to 1e+38": "N=4 d=8 scale=1e-46",
    "scale is 1e+300: it must be a positive number": "N=4 d=8 scale=1e300",
    "scale is 'two', but must be a number": "N=4 d=8 scale=two",
    "batch * heads is 1,099,511,627,776: it must be at most 1,073,741,824": "B=1048576 H=1048576 N=4 d=8",
    "q has 6 heads, which is not a multiple of the 4": "H=6 KVH=4 N=4 d=8",
    "d is 257: it must be between 1 and 256": "N=4 d=257",
    "Q, K and V in one array need as many keys as rows": "N=4 Nk=5 d=8 layout=packed",
    "Q, K and V in one array need as many columns each": "N=4 d=16 dv=8 layout=packed",
    "v has 257 columns: they must be between 1 and 256": "N=4 d=8 dv=257",
    "dv is '0', but must be an integer from 1": "N=4 d=8 dv=0",
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_no_workload_is_reported_in_a_sentence(sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        workload(WRONG[sentence])


def test_a_damaged_file_of_workloads_is_reported(tmp_path):
    path = tmp_path / "workloads.toml"
    for text, words in (("[workloads", "is damaged"), ("[workloads]\na = 1", "must have a table"), ("", "must have")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_named(path)
    with pytest.raises(InputError, match="cannot read"):
        read_named(tmp_path / "none")


def test_a_causal_workload_counts_half_by_convention_and_its_pairs_beside_it():
    full, causal = (Workload(FLOAT16, 2, 3, 3, 100, 100, 64, masked) for masked in (False, True))
    assert causal.flops * 2 == full.flops == 4 * full.pairs * 64
    assert causal.pairs == 6 * 100 * 101 // 2
    seen = sum(max(0, min(70, row + 31)) for row in range(100))
    shifted = Workload(FLOAT16, 1, 1, 1, 100, 70, 64, True, 30)
    assert shifted.pairs == seen
    assert shifted.computed_pairs(1, 1) == seen
    assert seen < shifted.computed_pairs(16, 16) <= shifted.computed_pairs(64, 32) <= 7000


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_numbers_are_rounded_to_nearest_even(dtype):
    values = np.random.default_rng(0).standard_normal(5000, np.float32) * np.float32(30)
    words = to_words(values, dtype)
    assert np.array_equal(words.view(np.uint16), rounded(values, dtype))
    assert np.array_equal(from_words(words, dtype), float_numbers(words.view(np.uint16), dtype))
    assert np.array_equal(from_words(to_words(values, FLOAT32), FLOAT32), values)


@pytest.mark.parametrize("layout", ["BHND", "BNHD", "packed"])
def test_inputs_have_their_shapes_in_every_layout_and_the_same_bits_again(layout):
    case = workload(f"B=2 H=4 KVH=2 N=7 d=8 layout={layout}")
    q, k, v = on_host(case)
    assert (q.shape, k.shape, v.shape) == ((2, 4, 7, 8), (2, 2, 7, 8), (2, 2, 7, 8))
    assert (q.strides[1] == 16) == (layout != "BHND")
    assert np.array_equal(q, on_host(case)[0])
    assert not np.array_equal(k, v)
    assert not np.array_equal(q, on_host(workload(f"B=2 H=4 KVH=2 N=7 d=8 layout={layout} seed=1"))[0])


def test_normal_numbers_are_normal_and_uniform_ones_within_three():
    normal, uniform = (
        from_words(numbers(workload(f"N=1 d=8 dist={d}"), 0, 100_000), FLOAT16) for d in ("normal", "uniform")
    )
    assert abs(normal.std() - 1) < 0.01 and np.abs(normal).max() > 3.5
    assert abs(uniform.std() - 3**0.5) < 0.01 and np.abs(uniform).max() <= 3
    assert PERIOD % 2 and len(numbers(workload("N=1 d=8"), 0, 10)) == 10


def test_the_page_of_workloads_has_every_name():
    text = (ROOT / "docs/workloads.md").read_text()
    assert [name for name in named() if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("text", "options", "kind", "words"),
    [
        (None, {}, InputError, "a workload is a text, but this is a NoneType"),
        ("N=8 d=8", {"seed": -1}, InputError, "seed is -1: give an integer, 0 or more"),
        ("N=8 d=8", {"seed": "x"}, InputError, "seed is x: give an integer, 0 or more"),
        ("N=8 d=8", {"library": "jax"}, InputError, "library is 'jax': give 'numpy', 'cupy' or 'torch'"),
        ("B=1000000000 N=1000000000 d=128", {}, MachineError, "not enough memory for the arrays of B=1000000000"),
    ],
)
def test_arrays_that_cannot_be_made_are_a_sentence(text, options, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        generate(text, **options)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_a_library_that_is_missing_are_a_sentence(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MachineError, match=f"^{library} is not installed here$"):
        generate("N=8 d=8", library=library)
