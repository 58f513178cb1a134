"""Products of warp groups: matrices in shared memory as descriptors describe them, against NumPy.

Shared memory is filled by the canonical layouts of the PTX ISA (CuTe's notation), evaluated as they are written there.
"""

import itertools

import numpy as np
import pytest
from probes import run
from test_fragments import encode

FORMATS = {"half": 0, "bfloat": 1, "signed": 3, "unsigned": 4}  # as in numbers.h
MODES = {0: 0, 128: 1, 64: 2, 32: 3}  # of swizzles, in a descriptor
FROM_REGISTERS, A_MN_MAJOR, B_MN_MAJOR, FRESH, NEGATED = 8, 16, 32, 64, 128  # in products.cu


def along(index, sizes, strides):
    """A coordinate of a CuTe mode, cut into its parts, as an offset."""
    offset = 0
    for size, stride in zip(sizes, strides, strict=True):
        offset += index % size * stride
        index //= size
    return offset


def offsets(lines, depth, size, swizzle, k_major, leading, stride):
    """The byte of every element (line, k). `leading` and `stride` are in bytes."""
    T, many, LBO, SBO = 16 // size, 10**6, leading // size, stride // size
    chunks = max(1, swizzle // 16)
    if k_major:
        of_line = ((8, many), (chunks * T, SBO))
        of_k = ((T, 2), (1, T if swizzle else LBO))
    else:
        of_line = ((T, chunks, many), (1, T, LBO if swizzle else SBO))
        of_k = ((8, many), (chunks * T, SBO if swizzle else LBO))
    linear = np.array(
        [[(along(line, *of_line) + along(k, *of_k)) * size for k in range(depth)] for line in range(lines)]
    )
    return linear ^ (linear >> 7 & chunks - 1) << 4  # Swizzle<log2(chunks), 4, 3>


def operand(matrix_bits, at, swizzle, k_major, leading, stride, image):
    """Writes a matrix (line, k) to the image of shared memory; returns its descriptor."""
    lines, depth = matrix_bits.shape
    size = matrix_bits.itemsize
    places = at + offsets(lines, depth, size, swizzle, k_major, leading, stride)
    assert len(np.unique(places)) == places.size
    assert places.max() < image.size
    for n in range(size):
        image[places + n] = matrix_bits.view(np.uint8).reshape(lines, depth, size)[:, :, n]
    return at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODES[swizzle] << 62


def strides(swizzle, k_major, loose):
    """(leading, stride) that keep the matrix together, or with room between its pieces."""
    if k_major:
        return (0, 8 * swizzle * (1 + loose)) if swizzle else (128, 256 * (1 + loose))
    if swizzle:
        return 16 * swizzle * (
            1 + loose
        ), 8 * swizzle  # from pattern to pattern along the lines; from 8 k to the next 8
    return 128 * (1 + loose), 512  # from 8 k to the next 8; from 8 lines to the next 8


def group_registers(bits):
    """A (64, depth) as the registers of 128 threads."""
    per = 4 // bits.itemsize
    held = np.zeros((128, 4 * per), bits.dtype)
    for thread, register, part in itertools.product(range(128), range(4), range(per)):
        row = thread // 32 * 16 + thread % 32 // 4 + (8 if register % 2 else 0)
        held[thread, register * per + part] = bits[row, thread % 4 * per + part + (4 * per if register >= 2 else 0)]
    return held


def multiply(
    kind, blocks, a_swizzle=None, b_swizzle=128, a_k=True, b_k=True, loose=0, flags=0, build="plain", edit=None
):
    """c + a b as the instruction has it and as it should be. a_swizzle None: a comes from registers."""
    rng = np.random.default_rng(blocks)
    size = 2 if kind in ("half", "bfloat") else 1
    depth, columns = 32 // size, 8 * blocks
    low = 0 if kind == "unsigned" else -3
    a_bits, a = encode(rng.uniform(low, 3, (64, depth)), kind)
    b_bits, b = encode(rng.uniform(low, 3, (columns, depth)), kind)
    c = rng.uniform(-3, 3, (64, columns)).astype(np.float32 if size == 2 else np.int32)
    image = np.zeros(32768, np.uint8)
    which = FORMATS[kind] | flags | (0 if b_k else B_MN_MAJOR)
    descriptors = np.zeros(2, np.uint64)
    if a_swizzle is None:
        which |= FROM_REGISTERS
    else:
        which |= 0 if a_k else A_MN_MAJOR
        descriptors[0] = operand(a_bits, 0, a_swizzle, a_k, *strides(a_swizzle, a_k, loose), image)
    descriptors[1] = operand(
        b_bits, 16384 if a_swizzle is not None else 0, b_swizzle, b_k, *strides(b_swizzle, b_k, loose), image
    )
    if edit:
        descriptors[1] = edit(int(descriptors[1]))
    thread = np.arange(128)
    rows = (thread // 32 * 16 + thread % 32 // 4)[:, None, None] + np.array([0, 0, 8, 8])
    at = np.arange(blocks)[None, :, None] * 8 + (thread % 4 * 2)[:, None, None] + np.array([0, 1, 0, 1])
    v = descriptors.tobytes() + c[rows, at].tobytes()
    out, outcome = run(
        "products",
        f"group_product_{blocks}",
        group_registers(a_bits),
        image,
        np.frombuffer(v, np.uint8),
        which,
        128,
        build=build,
    )
    assert outcome.finished
    result = np.zeros_like(c)
    result[rows, at] = out[: 128 * blocks * 16].view(c.dtype).reshape(128, blocks, 4)
    expected = (0 if flags & FRESH else c) + (-1 if flags & NEGATED else 1) * (a @ b.T)
    return result, expected.astype(c.dtype), outcome


SWIZZLES = (0, 32, 64, 128)


CASES = [
    (blocks, swizzle, k_major)
    for blocks, swizzle, k_major in itertools.product((1, 4, 8, 9), SWIZZLES, (True, False))
    if k_major or blocks * 16 % max(16, swizzle) == 0  # columns are whole patterns
]


@pytest.mark.parametrize("loose", [0, 1])
@pytest.mark.parametrize(("blocks", "swizzle", "k_major"), CASES)
def test_b_is_read_as_its_descriptor_says(blocks, swizzle, k_major, loose):
    got, expected, _ = multiply("half", blocks, None, swizzle, b_k=k_major, loose=loose)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("loose", [0, 1])
@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_a_is_read_as_its_descriptor_says(swizzle, k_major, loose):
    got, expected, _ = multiply("half", 4, swizzle, 64, a_k=k_major, loose=loose)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("a_swizzle", [None, 128])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_multiplied(kind, a_swizzle):
    got, expected, _ = multiply(kind, 8, a_swizzle, 32)
    np.testing.assert_array_equal(got, expected)


def test_256_columns_are_multiplied_at_once():
    got, expected, _ = multiply("bfloat", 32, None, 32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("flags", [FRESH, NEGATED, FRESH | NEGATED])
def test_a_sum_may_begin_anew_and_a_be_negated(flags):
    got, expected, _ = multiply("half", 4, None, 128, flags=flags)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("build", ["plain", "race"])
def test_another_swizzle_or_stride_is_another_matrix(build):
    for edit in (lambda x: x ^ 1 << 63, lambda x: x + (1 << 32), lambda x: x + 2):
        got, expected, _ = multiply("half", 8, None, 128, edit=edit, build=build)
        assert (got != expected).any()


def test_a_matrix_outside_shared_memory_is_found():
    _, _, outcome = multiply("half", 8, None, 128, edit=lambda x: x + (40_000 >> 4), build="race")
    assert any(finding.kind == "out of bounds" and "wgmma" in finding.sentence for finding in outcome.findings)


def test_a_swizzled_matrix_off_its_pattern_is_found():
    _, _, outcome = multiply("half", 8, None, 128, edit=lambda x: x + (256 >> 4), build="race")
    assert any("does not start in the first row of its pattern" in finding.sentence for finding in outcome.findings)


def test_a_clean_product_has_no_findings():
    _, _, outcome = multiply("half", 8, 128, 128, build="race")
    assert outcome.findings == ()
