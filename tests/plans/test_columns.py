"""Rows of a head size that kernels cannot load: they get zero columns, and the answer loses them again."""

import ctypes
import re

import numpy as np
import pytest
from helpers import ROOT
from needs import COMPILER, needs
from slow import quick_of_each

from hw4cli.device.kernelcheck import compiled, compiler_for
from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.library import GAP, Library, Watched, space
from hw4cli.errors import MachineError
from hw4cli.plans import columns
from hw4cli.plans.columns import Copied
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import Matrix
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.plans.tensor import policy
from hw4cli.problem.workload import Shape, stored_d
from hw4cli.resources import kernel_path

ALL = range(1, 129)
WORDS = {2: np.uint16, 4: np.uint32}


def planned(kernel, shape, props):
    try:
        return VARIANTS[kernel].plan(shape, props)
    except MachineError:
        return None


@quick_of_each(6)
@pytest.mark.parametrize("kernel", VARIANTS)
def test_the_code_and_the_launches_are_those_of_the_next_multiple(kernel):
    """So nothing is compiled for a head size of its own but where the kernel computes the scale itself."""
    for props in DEVICES.values():
        for d in ALL:
            for shape in (Shape(3, 700, d), Shape(1, 700, d, True, 64)):
                plan, whole = planned(kernel, shape, props), planned(kernel, shape.stored, props)
                if whole is None:
                    assert plan is None
                    continue
                own = {"SCALED": d} if kernel == "float64" and d % 4 else {}
                assert {**plan.macros} == {**whole.macros, **own}
                assert (plan.launches, plan.splits, plan.d) == (whole.launches, whole.splits, stored_d(d))
                assert (plan.layout.staged is None) == (d % 4 == 0)
                if d % 4:
                    assert whole.scratch <= plan.layout.staged < whole.scratch + 256
                    assert plan.scratch == plan.layout.staged + 4 * 2 * shape.B * (shape.Nq + shape.N) * plan.d
                else:
                    assert plan == whole


@pytest.mark.parametrize("held", [entry.pieces for entry in VARIANTS.values() if entry.pieces])
def test_a_bound_is_that_of_how_rows_with_zero_columns_are_added_up(held):
    for cc, props in DEVICES.items():
        for d in ALL:
            for N in (100, 300, 600, 5000):
                assert policy(held, N, d, props) == policy(held, N, stored_d(d), props), (cc, d, N)


def test_the_numbers_of_the_kernel_are_those_of_its_launch():
    text = (ROOT / "kernels/columns.cu").read_text()
    found = dict(re.findall(r"\b(MOST|THREADS_OF_COPY|PASS) = (\d+)", text))
    assert found == {"MOST": str(columns.MOST), "THREADS_OF_COPY": str(columns.THREADS), "PASS": str(columns.PASS)}


@quick_of_each(2)
@pytest.mark.parametrize("gpu", [*DEVICES, *AMD_DEVICES])
def test_it_compiles_for_every_architecture_without_a_spill(gpu):
    props = {**DEVICES, **AMD_DEVICES}[gpu]
    try:
        compiler = compiler_for(props)
    except MachineError as reason:
        pytest.skip(str(reason))
    made = compiled(columns.COLUMNS.name, columns.CODE, props, compiler)
    assert made.wrong is None
    assert [made.used[symbol].spilled for symbol in columns.SYMBOLS] == [0, 0, 0]


@pytest.fixture(scope="module")
def library():
    return Library(shared_object(kernel_path(columns.COLUMNS.name), {}, 61, 32, RACE))


def place(array, address):
    return Matrix(address, *(stride // array.itemsize for stride in array.strides))


def copied(library, source, target_strides, shape):
    """An array (batch, heads, rows, d) copied to one of other columns, whose strides are in elements; what is not
    written stays 0xFF."""
    size = source.itemsize
    low, high = np.lib.array_utils.byte_bounds(source)
    extent = size * (1 + sum((n - 1) * stride for n, stride in zip(shape, target_strides, strict=True)))
    buffer, starts = space([high - low, extent], GAP)
    ctypes.memmove(buffer.ctypes.data + starts[0], low, high - low)
    strides = tuple(size * stride for stride in target_strides)
    target = np.ndarray(shape, source.dtype, buffer, starts[1], strides)
    first = place(source, buffer.ctypes.data + starts[0] + source.ctypes.data - low)
    second = place(target, buffer.ctypes.data + starts[1])
    batches, heads, rows, given = source.shape
    one = Copied(first, second, batches, heads, rows, min(given, shape[3]), shape[3])
    watched = [
        Watched(buffer.ctypes.data + starts[0], high - low, False, "given"),
        Watched(buffer.ctypes.data + starts[1], extent, True, "made"),
    ]
    finished, findings = library.launches([columns.launch_of([one], size)], columns.arguments([one]), watched)
    assert finished
    assert not findings, findings[0].sentence
    return target


def numbers(shape, size):
    return np.random.default_rng(1).integers(1, 60000, shape).astype(WORDS[size])


@quick_of_each(1)
@needs(COMPILER)
@pytest.mark.parametrize("size", [2, 4])
def test_every_head_size_gets_zero_columns_and_loses_them_again(library, size):
    for d in ALL:
        wide = stored_d(d, size)
        given = numbers((1, 2, 70, d), size)
        made = copied(library, given, (2 * 70 * wide, 70 * wide, wide, 1), (1, 2, 70, wide))
        np.testing.assert_array_equal(made[..., :d], given)
        assert not made[..., d:].any()
        back = copied(library, made, (2 * 70 * d, 70 * d, d, 1), given.shape)
        np.testing.assert_array_equal(back, given)


VIEWS = {
    "heads of a row side by side": lambda x: x.swapaxes(1, 2),
    "expanded": lambda x: np.broadcast_to(x[:1, :, :1], (2, x.shape[1], 9, x.shape[3])),
    "columns apart": lambda x: x[..., ::3],
    "some rows of more": lambda x: x[:, 1:, 1::2],
    "backwards": lambda x: x[:, :, ::-1],
}


@needs(COMPILER)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("view", VIEWS)
def test_any_strides_are_read_and_nothing_between_rows_is_written(library, view, size):
    given = VIEWS[view](numbers((2, 3, 7, 59), size))
    *outer, d = given.shape
    wide = stored_d(d, size)
    made = copied(library, given, (outer[1] * outer[2] * wide, outer[2] * wide, wide, 1), (*outer, wide))
    np.testing.assert_array_equal(made[..., :d], given)
    assert not made[..., d:].any()
    step = 2 * d + 1  # O lies in a larger array, whose other elements stay as they are
    back = copied(library, made, (outer[1] * outer[2] * step, outer[2] * step, step, 2), given.shape)
    np.testing.assert_array_equal(back, given)
    beside = np.ndarray(len(back.reshape(-1)) - 1, given.dtype, back.base, back.ctypes.data - back.base.ctypes.data)
    assert beside[1] == np.iinfo(given.dtype).max
