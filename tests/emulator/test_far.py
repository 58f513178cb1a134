"""Indices beyond 2^31: a few blocks of launches on arrays that no memory would hold (hw4cli/emulator/far.py)."""

from dataclasses import replace

import pytest
from needs import needs
from slow import few, quick_of_each, slow, slow_of_each

from hw4cli.emulator.build import RACE
from hw4cli.emulator.check import HUGE_SHAPES, check_kernel, trials_of
from hw4cli.emulator.far import MULTIPROCESSORS
from hw4cli.lab.arrays.check import FAR, check_trial
from hw4cli.plans.ladder import VARIANTS
from hw4cli.resources import data_path

pytestmark = needs("g++|clang++")
BY_MANY_ELEMENTS, BY_MANY_ROWS, MORE_ROWS = HUGE_SHAPES
OF_A_ROW = "p.q.data + batch * p.q.batch + "


def changed(folder, name, old, new, *, file=""):
    """A kernel's file in a folder with a text replaced in it, or in a file beside it."""
    for one in {name, file or name}:
        text = data_path(f"kernels/{one}").read_text(encoding="utf-8")
        if one == (file or name):
            assert text.count(old) == 1
            text = text.replace(old, new)
        (folder / one).write_text(text, encoding="utf-8")
    return folder / name


def test_an_index_of_int_that_overflows_for_many_rows_is_found(tmp_path):
    source = changed(tmp_path, "float64.cu", OF_A_ROW + "(long long)row * D", OF_A_ROW + "row * D")
    found = check_kernel(VARIANTS["float64"], source, shapes=[BY_MANY_ROWS], builds=[RACE])
    assert {mistake.kind for mistake in found} == {"undefined behaviour", "out of bounds"}
    line = next(n for n, text in enumerate(source.read_text().splitlines(), 1) if OF_A_ROW in text)
    assert any(f"a multiplication of int overflows at float64.cu:{line}" in mistake.sentence for mistake in found)


def test_an_index_that_wraps_without_a_sign_is_out_of_bounds(tmp_path):
    wrapped = OF_A_ROW + "(int)((unsigned)row * D)"
    source = changed(tmp_path, "float64.cu", OF_A_ROW + "(long long)row * D", wrapped)
    found = check_kernel(VARIANTS["float64"], source, shapes=[BY_MANY_ROWS], builds=[RACE])
    assert [mistake.kind for mistake in found] == ["out of bounds"]


@slow
def test_an_index_of_rows_of_all_heads_that_overflows_is_found(tmp_path):
    [trial] = [trial for trial in FAR if trial.kernel == "half_mma"]
    old, new = "(long long)(t.batch * p.heads + t.head) * (S", "(t.batch * p.heads + t.head) * (S"
    found = [*check_trial(trial, changed(tmp_path, "half_mma.cu", old, new, file="halfrows.cuh"))]
    assert any("of int overflows at halfrows.cuh" in sentence for sentence in found)
    assert any("out of bounds" in sentence for sentence in found)


@slow_of_each(10)
@slow
@quick_of_each(2)
@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernels_of_files_have_indices_for_every_legal_shape(kernel):
    assert check_kernel(VARIANTS[kernel], shapes=HUGE_SHAPES, builds=[RACE]) == []


@pytest.mark.parametrize("trial", few(FAR, 2), ids=lambda trial: trial.kernel)
def test_kernels_of_arrays_have_indices_for_every_legal_shape(trial):
    assert [*check_trial(trial)] == []


def test_a_kernel_whose_blocks_go_through_all_rows_is_spared_many_rows():
    tried = [trial.shape for trial in trials_of(VARIANTS["paper"], shapes=HUGE_SHAPES)]
    assert tried == [BY_MANY_ELEMENTS, MORE_ROWS]
    assert all(trial.props.sms == MULTIPROCESSORS for trial in trials_of(VARIANTS["flash"], shapes=HUGE_SHAPES))


def test_a_kernel_of_ones_own_is_tried_on_shapes_that_a_gpu_has_memory_for():
    own = replace(VARIANTS["flash"], name="./mine.cu")
    assert [trial.shape for trial in trials_of(own, shapes=HUGE_SHAPES)] == [BY_MANY_ELEMENTS, BY_MANY_ROWS]
