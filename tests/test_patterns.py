"""Wrong outputs of known makes, and what the judge says of them."""

import numpy as np
import pytest
from helpers import definition, random_block, write_case

from hw4cli import patterns
from hw4cli.shape import Shape

SHAPE = Shape(3, 200, 32)
BLOCK = random_block(SHAPE.B, SHAPE.N, SHAPE.d, seed=5)
Q, K, V = (BLOCK[:, part].astype(np.float64) for part in range(3))
S = np.einsum("bid,bjd->bij", Q, K) / np.sqrt(SHAPE.d)
ANSWER = definition(BLOCK).astype(np.float32)


@pytest.fixture
def explain(tmp_path):
    def tell(output, answer=ANSWER, block=BLOCK):
        source = write_case(tmp_path / "in", block)
        for name, values in (("out", output), ("answer", answer)):
            (tmp_path / name).write_bytes(np.ascontiguousarray(values, "<f4").tobytes())
        shape = Shape(block.shape[0], block.shape[2], block.shape[3])
        return patterns.explain(tmp_path / "out", tmp_path / "answer", source, shape, 5e-3)

    return tell


def softmax(s, axis=-1):
    p = np.exp(s - s.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


def changed(place, value):
    output = ANSWER.copy()
    output[place] = value
    return output


def causal():
    return softmax(np.where(np.tril(np.ones(S.shape[1:], bool)), S, -np.inf)) @ V


def not_rescaled(tile=32):
    output = np.empty_like(Q)
    for b, r in np.ndindex(*Q.shape[:2]):
        m, total, o = -np.inf, 0.0, np.zeros(SHAPE.d)
        for j in range(0, SHAPE.N, tile):
            m = max(m, S[b, r, j : j + tile].max())
            p = np.exp(S[b, r, j : j + tile] - m)
            total, o = total + p.sum(), o + p @ V[b, j : j + tile]
        output[b, r] = o / total
    return output


def padded_with_zeros():
    s = np.concatenate([S, np.zeros((SHAPE.B, SHAPE.N, 24))], axis=2)
    return softmax(s)[:, :, : SHAPE.N] @ V


MISTAKES = {
    "without the factor 1/sqrt(d)": lambda: softmax(S * np.sqrt(SHAPE.d)) @ V,
    "with 1/d instead": lambda: softmax(S / np.sqrt(SHAPE.d)) @ V,
    "mean of V": lambda: np.broadcast_to(V.mean(axis=1, keepdims=True), V.shape),
    "not divided by their sum l": lambda: np.exp(S - S.max(axis=2, keepdims=True)) @ V,
    "nor their maximum subtracted": lambda: np.exp(S) @ V,
    "without the softmax": lambda: S @ V,
    "2^S": lambda: softmax(S * np.log(2)) @ V,
    "K and V are exchanged": lambda: softmax(np.einsum("bid,bjd->bij", Q, V) / np.sqrt(SHAPE.d)) @ K,
    "V copied to O": lambda: V,
    "causal mask": causal,
    "without the last key": lambda: softmax(S[:, :, :-1]) @ V[:, :-1],
    "from the first tile of 64 keys alone": lambda: softmax(S[:, :, :64]) @ V[:, :64],
    "from the last tile of 128 keys alone": lambda: softmax(S[:, :, 128:]) @ V[:, 128:],
    "24 keys of zeros behind the last": padded_with_zeros,
    "without rescaling O": not_rescaled,
    "wrong rows are 0.5 times the answer": lambda: ANSWER * 0.5,
    "wrong rows are -1 times the answer": lambda: -ANSWER,
    "the whole output is zeros": lambda: np.zeros_like(ANSWER),
    "the whole output is 7, as if never written": lambda: np.full_like(ANSWER, 7),
    "the wrong elements are all zeros": lambda: changed((1, slice(3, 9)), 0),
    "each batch is transposed": lambda: np.swapaxes(ANSWER, 1, 2),
    "batches and rows are exchanged": lambda: np.swapaxes(ANSWER, 0, 1),
    "batch 0 holds what belongs in batch 2": lambda: ANSWER[[2, 0, 1]],
    "row 0 of batch 0 holds what belongs in row 1": lambda: np.roll(ANSWER, -1, axis=1),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_classic_mistake_is_named(explain, words):
    said = explain(MISTAKES[words]())
    assert said is not None
    assert words in said


PLACES = {
    "every batch but the first is wrong": slice(1, None),
    "every batch but the last is wrong": slice(0, -1),
    "only in batch 1": 1,
    "every batch but the last is wrong, only in the last 8 rows of a batch": (slice(0, 2), slice(192, None)),
    "the tail behind the last whole tile of 16 or 32 or 64 rows": (slice(None), slice(192, None)),
    "the last 72 rows of a batch, the tail behind the last whole tile of 128 rows": (slice(None), slice(128, None)),
    "only in rows 10 to 12 of a batch": (slice(None), slice(10, 13)),
    "only in columns 16 to 31": (..., slice(16, None)),
    "only in column 3": (..., 3),
}


@pytest.mark.parametrize("words", PLACES)
def test_where_the_wrong_elements_are_is_told_if_it_is_a_pattern(explain, words):
    noise = np.random.default_rng(1).uniform(1, 2, ANSWER.shape).astype(np.float32)
    said = explain(changed(PLACES[words], noise[PLACES[words]]))
    assert words in (said or "")


def test_the_last_rows_of_every_tile_are_told(explain):
    block = random_block(2, 256, 8)
    answer = definition(block).astype(np.float32)
    for first, words in (
        (28, "only in the last 4 rows of every tile of 32 rows"),
        (31, "only in the last row of every"),
    ):
        output = answer.copy()
        for row in range(first, 32):
            output[:, row::32] += row
        assert words in explain(output, answer, block)


def test_an_overflow_of_exp_is_told_with_its_score(explain):
    block = random_block(1, 64, 32)
    block[:, 0, 7] *= 40
    output = definition(block)
    output[:, 7] = np.nan
    assert "exp overflows: that row's largest score is" in explain(output, definition(block), block)


def test_without_a_pattern_nothing_is_claimed(explain):
    rng = np.random.default_rng(2)
    output = ANSWER.copy()
    scattered = rng.random(ANSWER.shape) < 0.01
    output[scattered] += rng.uniform(1, 2, scattered.sum())
    assert explain(output) is None
    assert explain(ANSWER) is None
    assert explain(changed((1, 2, 3), np.nan)) == "only in batch 1, only in row 2 of a batch, only in column 3"
