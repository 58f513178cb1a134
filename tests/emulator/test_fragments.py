"""Where the lanes of a warp hold the elements of a matrix, and how the tensor cores add, against NumPy.

The places are written as the PTX ISA has them: from a lane, a register and a part of it to a row and a column.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from emulation import mma as real_mma
from probes import library, run

LANES = np.arange(32)
GROUP, MEMBER = LANES // 4, LANES % 4  # groupID and threadID_in_group


@dataclass(frozen=True)
class Shape:
    which: int  # in products.cu
    k: int
    size: int  # bytes of an element
    kind: str


SHAPES = {
    "fp16 k16": Shape(0, 16, 2, "half"),
    "fp16 k8": Shape(1, 8, 2, "half"),
    "bf16 k16": Shape(2, 16, 2, "bfloat"),
    "bf16 k8": Shape(3, 8, 2, "bfloat"),
    "tf32 k8": Shape(4, 8, 4, "tf32"),
    "s8 k32": Shape(5, 32, 1, "signed"),
    "u8 k32": Shape(6, 32, 1, "unsigned"),
    "fp16 k16 in fp16": Shape(7, 16, 2, "half"),
    "fp16 k8 in fp16": Shape(8, 8, 2, "half"),
}


def bfloat_bits(x):
    """Rounded to nearest, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def encode(x, kind):
    """The bits of numbers, and the numbers that they are."""
    if kind == "half":
        bits = x.astype(np.float16)
        return bits.view(np.uint16), bits.astype(np.float64)
    if kind == "bfloat":
        bits = bfloat_bits(x)
        return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "tf32":
        bits = x.astype(np.float32).view(np.uint32) & 0xFFFFE000
        return bits, bits.view(np.float32).astype(np.float64)
    whole = np.round(x * 40).astype(np.int8 if kind == "signed" else np.uint8)
    return whole.view(np.uint8), whole.astype(np.float64)


def registers_of_a(bits, shape):
    """A (16, k) as registers of 32 lanes: rows groupID, groupID + 8; columns beside each other, then half of k on."""
    per = 4 // shape.size
    held = np.zeros((32, 16 * shape.k // 32), bits.dtype)
    for lane in LANES:
        for i in range(held.shape[1]):
            register, part = divmod(i, per)
            row = GROUP[lane] + (8 if register % 2 else 0)
            column = MEMBER[lane] * per + part + (4 * per if register >= 2 else 0)
            held[lane, i] = bits[row, column]
    return words(held, 4)


def registers_of_b(bits, shape):
    """B (k, 8): column groupID; rows beside each other, then half of k on."""
    per = 4 // shape.size
    held = np.zeros((32, 8 * shape.k // 32), bits.dtype)
    for lane in LANES:
        for i in range(held.shape[1]):
            register, part = divmod(i, per)
            held[lane, i] = bits[MEMBER[lane] * per + part + register * 4 * per, GROUP[lane]]
    return words(held, 2)


def words(held, count):
    """Each lane's registers, and zeros for those that it has not."""
    rows = np.zeros((32, 4 * count), np.uint8)
    bytes_ = held.view(np.uint8).reshape(32, -1)
    rows[:, : bytes_.shape[1]] = bytes_
    return rows


def places_of_c():
    rows = np.stack([GROUP, GROUP, GROUP + 8, GROUP + 8], axis=1)
    columns = np.stack([MEMBER * 2, MEMBER * 2 + 1] * 2, axis=1)
    return rows, columns


def product(name, rng, c=None):
    """What the instruction makes of random a, b, c; and a, b, c as float64."""
    shape = SHAPES[name]
    low = 0 if shape.kind == "unsigned" else -3
    (a_bits, a), (b_bits, b) = (encode(rng.uniform(low, 3, size), shape.kind) for size in ((16, shape.k), (shape.k, 8)))
    whole, halves = shape.size == 1, shape.which >= 7
    c = rng.uniform(-3, 3, (16, 8)) * (1000 if whole else 1) if c is None else c
    c = c.astype(np.int32 if whole else np.float16 if halves else np.float32)
    rows, columns = places_of_c()
    held = words(c[rows, columns].reshape(32, 4), 4)
    out, outcome = run(
        "products", "warp_product", registers_of_a(a_bits, shape), registers_of_b(b_bits, shape), held, shape.which
    )
    assert outcome.finished
    kept = out.reshape(-1, 16)[:32, : 4 * c.dtype.itemsize].copy().view(c.dtype)
    result = np.zeros((16, 8), c.dtype)
    result[rows, columns] = kept
    return result, a, b, c


@pytest.mark.parametrize("name", SHAPES)
def test_a_product_of_fragments_is_the_product_of_the_matrices(name):
    result, a, b, c = product(name, np.random.default_rng(SHAPES[name].which))
    np.testing.assert_array_equal(result, (c + a @ b).astype(result.dtype))


@pytest.mark.parametrize("name", SHAPES)
def test_every_element_of_a_fragment_has_a_place_of_its_own(name):
    """One element of a and of b is not zero: exactly that sum of 16x8 changes, for each of them."""
    shape = SHAPES[name]
    one = {"half": np.uint16(0x3C00), "bfloat": np.uint16(0x3F80), "tf32": np.uint32(0x3F800000)}.get(
        shape.kind, np.uint8(1)
    )
    zero = np.zeros((32, 16), np.uint8)
    rows, columns = places_of_c()
    whole, halves = shape.size == 1, shape.which >= 7
    kind = np.int32 if whole else np.float16 if halves else np.float32
    for k in range(shape.k):
        a, b = np.zeros((16, shape.k), one.dtype), np.zeros((shape.k, 8), one.dtype)
        row, column = k * 5 % 16, k * 3 % 8
        a[row, k] = b[k, column] = one
        out, _ = run("products", "warp_product", registers_of_a(a, shape), registers_of_b(b, shape), zero, shape.which)
        result = np.zeros((16, 8))
        result[rows, columns] = out.reshape(-1, 16)[:32, : 4 * np.dtype(kind).itemsize].copy().view(kind)
        assert result[row, column] == 1
        assert result.sum() == 1


@pytest.mark.parametrize("cc", [80, 90, 100, 120])
def test_the_truncating_model_adds_as_the_proof_of_the_bounds_has_it(cc):
    rng = np.random.default_rng(cc)
    library("products").add_as(cc)
    try:
        for scale in (1e-3, 1, 1e3, 1e6):
            result, a, b, c = product("fp16 k16", rng, rng.uniform(-scale, scale, (16, 8)))
            expected = real_mma(c.astype(np.float64), a, b.T, cc)
            np.testing.assert_array_equal(result, expected.astype(np.float32))
            assert (result != (c + a @ b).astype(np.float32)).any()
    finally:
        library("products").add_as(0)


def test_integers_wrap_around():
    result, a, b, c = product("s8 k32", np.random.default_rng(0), np.full((16, 8), 2**31 - 1))
    assert (result == ((c.astype(np.int64) + (a @ b).astype(np.int64)).astype(np.uint32).view(np.int32))).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("index", "count"), [(0, 1), (1, 2), (2, 4)])
def test_ldmatrix_gives_each_lane_its_two_elements_of_each_matrix(index, count, transposed):
    matrices = np.arange(4 * 64, dtype=np.uint16).reshape(4, 8, 8)
    out, outcome = run("products", "warp_matrices", matrices, matrices, matrices, index + 3 * transposed)
    assert outcome.finished
    got = out[: 32 * 16].view(np.uint16).reshape(32, 4, 2)
    for m in range(count):
        source = matrices[m].T if transposed else matrices[m]
        expected = np.stack([source[GROUP, MEMBER * 2], source[GROUP, MEMBER * 2 + 1]], axis=1)
        np.testing.assert_array_equal(got[:, m], expected)
    assert (got[:, count:] == 0).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix_is_ldmatrix_the_other_way_round(transposed):
    held = np.arange(32 * 8, dtype=np.uint16).reshape(32, 4, 2)
    out, _ = run("products", "warp_matrices", held, held, held, 7 if transposed else 6)
    got = out[: 32 * 16].view(np.uint16).reshape(4, 8, 8)
    for m in range(4):
        expected = np.zeros((8, 8), np.uint16)
        expected[GROUP, MEMBER * 2], expected[GROUP, MEMBER * 2 + 1] = held[:, m, 0], held[:, m, 1]
        np.testing.assert_array_equal(got[m], expected.T if transposed else expected)
