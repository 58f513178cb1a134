"""Asynchronous copies and products on the CPU: what a wait orders, and what is found where one is left out."""

import itertools
import re

import numpy as np
import pytest
from probes import HERE, run

SOURCE = (HERE / "copies.cu").read_text()


def names(kind):
    return [name.strip() for name in re.search(rf"enum {kind} \{{(.*?)\}}", SOURCE, re.DOTALL)[1].split(",")]


def tried(symbol, name, threads=256, order="forward", build="race"):
    """The sentences that were found, and O."""
    kind = {"load": "Load", "store": "Store", "product": "Product"}[symbol]
    x = np.arange(1, 2049, dtype=np.float32)
    out, outcome = run("copies", symbol, x, x, x, names(kind).index(name), threads, build=build, order=order)
    return [str(finding) for finding in outcome.findings], out.view(np.float32)[:threads], x[:threads]


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize("build", ["plain", "race"])
def test_a_copy_that_is_awaited_brings_its_data(build, order):
    for name, factor in (("RIGHT", 1), ("ONE_WAITS_AND_SYNCS", 1), ("RELEASED", 2)):
        found, got, x = tried("load", name, order=order, build=build)
        assert found == [], name
        np.testing.assert_array_equal(got, x + (x + 256 if factor == 2 else 0))


WAIT = "race: .* (an|the) asynchronous copy"
LOADS = {
    "NO_WAIT": WAIT,
    "WRONG_PARITY": WAIT,
    "NO_FENCE": "mbarrier: .* the copy engine does not know the barrier yet",
    "NO_SYNC": "race: .*thread .* reads .* thread 0 wrote|mbarrier: .* nobody has made it",
    "TOO_FEW_BYTES": "divergence: .*mbarrier.* 0 arrivals and 16 bytes have come that nobody announced",
    "TOO_MANY_BYTES": "divergence: .*mbarrier.* 0 arrivals and 16 bytes are missing",
    "NO_EXPECT": WAIT,
    "ONE_WAITS": "race: ",
    # The second copy may end the next phase before all threads have looked for the end of the first.
    "NO_RELEASE": "race: .*an asynchronous copy or product writes|divergence: .* never come: .* at mbarrier",
    "TWICE_MADE": "mbarrier: .* made where one is already",
    "NOT_MADE": "mbarrier: .* nobody has made it",
    "NEVER_AWAITED": "copy: .* the block ends before a bulk copy has arrived",
    "MISALIGNED": "misaligned: ",
    "OUTSIDE": "out of bounds: ",
}


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("name", LOADS)
def test_a_copy_that_is_not_ordered_is_found(name, order):
    found, _, _ = tried("load", name, order=order)
    assert any(re.search(LOADS[name], sentence) for sentence in found), found


@pytest.mark.parametrize("name", ["NO_WAIT", "WRONG_PARITY", "NO_EXPECT"])
def test_what_has_not_arrived_reads_as_nan(name):
    _, got, _ = tried("load", name, build="plain")
    assert np.isnan(got).all()


@pytest.mark.parametrize("name", ["STORED", "FENCE_BY_READER", "OVERWRITTEN_AFTER_READ"])
def test_a_store_of_what_the_engine_has_been_told_of_is_right(name):
    for build in ("plain", "race"):
        found, got, x = tried("store", name, build=build)
        assert found == []
        np.testing.assert_array_equal(got, x)


STORES = {
    "NO_PROXY_FENCE": "proxy: .* fence.proxy.async is missing",
    "OVERWRITTEN": "race: .*thread .* writes .* asynchronous copy or product read",
    "NEVER_READ": "copy: .* the block ends while a bulk copy reads its shared memory",
    "NEVER_COMMITTED": "copy: .* the block ends while a bulk copy reads its shared memory",
}


@pytest.mark.parametrize("name", STORES)
def test_a_store_that_is_not_ordered_is_found(name):
    found, _, _ = tried("store", name)
    assert any(re.search(STORES[name], sentence) for sentence in found), found


PRODUCTS = {
    "NO_FENCE_BEFORE": "wgmma: .* written after the last wgmma.fence",
    "READ_EARLY": "wgmma: .*thread .* reads .* still adding to",
    "WRITTEN_EARLY": "wgmma: .*thread .* writes .* still adding to",
    "OPERAND_EARLY": "race: .*thread .* writes .* asynchronous copy or product read",
    "NOT_COMMITTED": "wgmma: .* the block ends while products are computed",
    "NO_PROXY": "proxy: .* fence.proxy.async is missing",
    "ONE_LEFT": "wgmma: .*thread .* reads .* still adding to",
    "STALE_CHAIN": "wgmma: .* written after the last wgmma.fence",
}


def test_a_product_that_is_awaited_has_no_findings():
    found, got, x = tried("product", "MULTIPLIED", 128)
    assert found == []
    np.testing.assert_array_equal(got, 8 * x)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_that_is_not_ordered_is_found(name):
    found, _, _ = tried("product", name, 128)
    assert any(re.search(PRODUCTS[name], sentence) for sentence in found), found


@pytest.mark.parametrize("name", ["READ_EARLY", "NOT_COMMITTED", "ONE_LEFT"])
def test_a_sum_reads_as_nan_before_its_wait(name):
    _, got, _ = tried("product", name, 128, build="plain")
    assert np.isnan(got).all()


@pytest.mark.parametrize(
    ("which", "sentence"),
    [
        (0, None),
        (1, "divergence: .*128 at setmaxnreg.inc.*for 10240 registers; the block has 8192 left"),
        (2, "multiple of 8"),
        (3, "fewer registers than"),
        (4, "setmaxnreg.inc"),
    ],
)
def test_registers_are_shared_by_whole_warp_groups(which, sentence):
    x = np.zeros(384, np.float32)
    _, outcome = run("copies", "registers", x, x, x, which, 384, build="race")
    found = [str(finding) for finding in outcome.findings]
    assert found == [] if sentence is None else any(re.search(sentence, text) for text in found), found


# ---- Boxes of tensors


def box(symbol, tensor, sizes, shape, first, swizzle=0, nan=False, strides=None):
    """What the copy engine makes of an array (outermost dimension first) with a box of a shape at a place."""
    element = tensor.itemsize
    strides = strides or [int(np.prod(tensor.shape[n:])) * element for n in range(1, tensor.ndim)][::-1]
    five = [list(reversed(x)) + [0] * (5 - len(x)) for x in (sizes, strides[::-1], shape, first)]
    v = np.array([tensor.ndim, element, swizzle, nan, *itertools.chain(*five)], np.int64)
    image = np.arange(16384, dtype=np.uint16)
    out, outcome = run(
        "copies", "box", image, np.pad(tensor.reshape(-1), (0, 1 << 14)), v, symbol, 64, 65536, build="race"
    )
    return out, image.view(np.uint8), [str(finding) for finding in outcome.findings]


def window(tensor, shape, first, outside=0):
    """A part of an array, with zeros outside."""
    padded = np.full(shape, outside, tensor.dtype)
    for place in itertools.product(*map(range, shape)):
        at = tuple(np.add(place, first))
        if all(0 <= x < size for x, size in zip(at, tensor.shape, strict=True)):
            padded[place] = tensor[at]
    return padded


def swizzled(x, swizzle):
    """Bytes in rows of 16-byte chunks, as a swizzle places them from a multiple of 1024 on."""
    if not swizzle:
        return x
    chunks = x.reshape(-1, 16)
    n = np.arange(len(chunks))
    placed = np.empty_like(chunks)
    placed[n ^ (n >> 3 & swizzle // 16 - 1)] = chunks
    return placed.reshape(-1)


BOXES = [
    ((20, 64), (16, 64), (0, 0), 128),
    ((20, 64), (16, 64), (10, 0), 128),
    ((20, 64), (16, 64), (-3, 0), 128),
    ((20, 40), (8, 32), (15, 16), 64),
    ((20, 40), (8, 16), (17, -8), 32),
    ((20, 40), (8, 24), (17, 24), 0),
    ((3, 20, 64), (2, 8, 64), (2, 16, 0), 128),
    ((3, 20, 32), (1, 8, 32), (-1, 0, 0), 64),
    ((2, 3, 10, 64), (1, 2, 8, 64), (1, 2, 5, 0), 128),
    ((2, 3, 10, 16), (2, 2, 4, 16), (1, -1, 8, 0), 32),
]


@pytest.mark.parametrize(("sizes", "shape", "first", "swizzle"), BOXES)
def test_a_box_of_a_tensor_arrives_swizzled_with_zeros_outside(sizes, shape, first, swizzle):
    tensor = (np.arange(np.prod(sizes)) + 1).astype(np.uint16).reshape(sizes)
    out, _, found = box(0, tensor, sizes, shape, first, swizzle)
    assert found == []
    expected = swizzled(window(tensor, shape, first).reshape(-1).view(np.uint8), swizzle)
    np.testing.assert_array_equal(out[: expected.size], expected)
    assert (out[expected.size : 32768] == 0).all()


@pytest.mark.parametrize(("sizes", "shape", "first", "swizzle"), BOXES)
def test_a_box_is_stored_where_the_tensor_is(sizes, shape, first, swizzle):
    tensor = np.zeros(sizes, np.uint16)
    out, image, _ = box(1, tensor, sizes, shape, first, swizzle)
    elements = int(np.prod(shape)) * 2
    chunk = np.arange(elements // 16)
    source = (
        image[:elements]
        .reshape(-1, 16)[chunk ^ (chunk >> 3 & max(swizzle // 16, 1) - 1)]
        .reshape(-1)
        .view(np.uint16)
        .reshape(shape)
    )
    stored = out[: tensor.nbytes].view(np.uint16).reshape(sizes)
    for place in itertools.product(*map(range, shape)):
        at = tuple(np.add(place, first))
        if all(0 <= x < size for x, size in zip(at, sizes, strict=True)):
            assert stored[at] == source[place]


def test_what_is_outside_may_be_nan():
    tensor = np.ones((4, 8), np.float16)
    out, _, _ = box(0, tensor, (4, 8), (8, 8), (0, 0), 0, nan=True)
    assert np.isnan(out[:128].view(np.float16).astype(float)).sum() == 32


@pytest.mark.parametrize(
    ("shape", "swizzle", "sentence"),
    [
        ((8, 64), 64, "must not be longer than the swizzle"),
        ((8, 4), 0, "multiple of 16 bytes"),
        ((300, 64), 0, "1 to 256 elements"),
    ],
)
def test_a_map_that_the_driver_would_refuse_is_found(shape, swizzle, sentence):
    _, _, found = box(0, np.ones((20, 64), np.uint16), (20, 64), shape, (0, 0), swizzle)
    assert any(sentence in text for text in found)
