"""Windows of keys in the kernels for float32 by tensor cores, executed on the CPU: right at both edges, without a
finding, whatever the scores are where a row's keys come late."""

from dataclasses import replace

import faketorch
import numpy as np
import pytest
from slow import quick_of_each, slow, slow_of_each

import hw4cli
from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.bounds import bound
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.registry import VARIANTS
from hw4cli.problem.oracle import exact_rows
from hw4cli.problem.workload import Magnitudes, Workload
from hw4cli.resources import kernel_path

pytestmark = quick_of_each(1)

# Of each, the kernel, the compute capability, and d.
WAYS = {
    "split by warps": ("split", 80, 64),
    "exact, some warps": ("exact", 80, 128),
    "split8 by warps": ("split8", 80, 64),
    "split by warpgroups": ("split", 90, 64),
    "split8 by warpgroups": ("split8", 90, 64),
    "split by warpgroups, polynomials": ("split", 90, 32),
}
# In the block, as there are few keys.
SHORT = {"split by warpgroups": ("split", 90, 64), "split by warps": ("split", 80, 64), "exact": ("exact", 80, 32)}
BATCHES = 2


def assert_right(kernel, cc, d, rows, keys, first, window, average=0.0, **options):
    """Rows from one on see as many keys before theirs as the window has. `average`: about which the scores lie."""
    given = np.random.default_rng(3).standard_normal((BATCHES, 3, keys, d)).clip(-3, 3).astype(np.float32)
    if average:
        each = np.sqrt(abs(average) / np.sqrt(d)) * np.abs(given[:, :2]) / np.float32(np.sqrt(2 / np.pi))
        given[:, :2] = each * np.float32([np.sign(average), 1])[:, None, None]
    shape = replace(Workload.one_head(BATCHES, keys, d, True, rows), window=window)
    plan = VARIANTS[kernel].plan(shape, DEVICES[cc])
    library = Library(shared_object(kernel_path(plan.source), plan.defines, cc, 32, RACE))
    outcome = library.run(plan, given, lse=True, rows=(first, rows), window=window, **options)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    q, k, v = given.swapaxes(0, 1).astype(float)
    some = slice(first, first + rows)
    o, lse = exact_rows(q[:, some], k, v, rows=np.arange(some.start, some.stop), offset=0, window=window)
    found = Magnitudes(*(np.abs(x).max() for x in (q, k, v)), *(np.linalg.norm(x, axis=2).max() for x in (q, k)))
    allowed = bound(kernel, found, d, keys, DEVICES[cc])
    assert np.abs(outcome.o[:, some] - o).max() <= allowed < np.inf
    np.testing.assert_allclose(outcome.lse.reshape(-1)[: BATCHES * rows], lse.reshape(-1), atol=allowed, rtol=1e-5)
    return outcome.o[:, some]


@slow_of_each(6)
@slow
@pytest.mark.parametrize(
    ("rows", "keys", "first", "window"), [(200, 640, 300, 70), (300, 530, 9, 1), (150, 700, 500, 140)]
)
@pytest.mark.parametrize("way", WAYS)
def test_every_row_sees_its_window(way, rows, keys, first, window):
    assert_right(*WAYS[way], rows, keys, first, window)


@pytest.mark.parametrize(("rows", "first", "window"), [(150, 50, 33), (150, 50, 100), (140, 60, 1), (1, 199, 150)])
@pytest.mark.parametrize("way", SHORT)
def test_every_row_sees_its_window_where_a_block_converts_its_keys(way, rows, first, window):
    assert_right(*SHORT[way], rows, 200, first, window)


@slow
@pytest.mark.parametrize("average", [-100.0, 100.0])
@pytest.mark.parametrize("way", [name for name in WAYS if "split8" not in name])  # whose integers are of small numbers
def test_a_row_whose_keys_come_late_is_weighed_by_its_own_scores(way, average):
    """Beside a maximum of 0, with which rows begin, all weights would be 0, or infinite."""
    assert_right(*WAYS[way], 256, 600, 300, 60, average)


@slow_of_each(8)
@slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_any_rows_see_any_window(way, seed):
    draw = np.random.default_rng(seed)
    keys = int(draw.integers(260, 1400))
    rows = int(draw.integers(1, min(keys, 300)))
    assert_right(*WAYS[way], rows, keys, int(draw.integers(0, keys - rows + 1)), int(draw.integers(1, keys)))


@slow
@pytest.mark.parametrize("way", WAYS)
def test_a_window_of_all_keys_gives_the_bits_of_none(way):
    kernel, cc, d = WAYS[way]
    given = np.random.default_rng(1).standard_normal((1, 3, 600, d)).astype(np.float32)
    found = []
    for window in (0, 600):
        shape = replace(Workload.one_head(1, 600, d, True, 200), window=window)
        plan = VARIANTS[kernel].plan(shape, replace(DEVICES[cc], sms=1))  # which splits no keys
        library = Library(shared_object(kernel_path(plan.source), plan.defines, cc, 32, RACE))
        found.append(library.run(plan, given, rows=(390, 200), window=window).o[:, 390:590])
    assert np.array_equal(*found)


@slow
@pytest.mark.parametrize(("cc", "kernel", "allowed"), [(90, "split", 3e-3), (80, "exact", 1e-5)])
def test_calls_have_rows_without_keys_and_heads_that_share_keys(monkeypatch, cc, kernel, allowed):
    """As the CPU computes them."""
    gpu, rng = faketorch.install_kernels(monkeypatch), np.random.default_rng(1)
    gpu.props = DEVICES[cc]
    for Nq, Nk, window, align in (
        (700, 560, (25, 0), "bottom-right"),
        (700, 560, (25, 9), "top-left"),
        (5, 600, (99, 0), "bottom-right"),
    ):
        shapes = (1, 2, Nq, 32), (1, 1, Nk, 32), (1, 1, Nk, 32)
        arrays = [rng.standard_normal(shape).clip(-3, 3).astype(np.float32) for shape in shapes]
        asked = {"window": window, "align": align, "return_lse": True}
        o, lse = hw4cli.attention(*map(aligned, arrays), kernel=kernel, **asked)
        right, sums = hw4cli.attention(*arrays, **asked)
        assert {*gpu.launched} == {kernel}
        assert np.abs(o.array - right).max() <= allowed
        np.testing.assert_allclose(lse.array, sums, atol=allowed)


def aligned(array):
    made = faketorch.empty(array.shape, faketorch.DType(array.dtype.name), None)
    made.array[...] = array
    return made
