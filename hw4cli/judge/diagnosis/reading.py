"""Mistakes in reading the input: attention of matrices that are mixed up or read from other places."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from hw4cli.judge.diagnosis.evidence import Doubles
from hw4cli.judge.diagnosis.formulas import Mistake
from hw4cli.judge.diagnosis.sample import Matrices, Rows, Sample
from hw4cli.problem.casefile import FLOAT32, HEADER, Floats
from hw4cli.problem.errormap import TILES

HEADER_FLOATS = HEADER.size // FLOAT32.itemsize


def reading_mistakes(matrices: Matrices, batch: int, rows: Rows, sample: Sample) -> Iterator[Mistake]:
    """Attention of an input that is read in another order than Q, K, V of each batch in turn."""
    shape, size = matrices.shape, matrices.size
    B, N, d = shape.B, shape.N, shape.d
    q, k, v = (3 * batch * size + index * size for index in range(3))

    def reading(phrase: str, *starts: int) -> Iterator[Mistake]:
        if starts != (q, k, v) and matrices.holds(*starts):
            yield phrase, lambda: _attention(matrices.sample_at(rows, *starts))

    def sample_of(q: Floats = sample.q, k: Floats = sample.k, v: Floats = sample.v) -> Doubles:
        return _attention(Sample(rows, q, k, v))

    whole_q = cache(partial(matrices.matrix, q))
    yield "with V copied to O", lambda: sample.v[rows].astype(np.float64)
    yield "with K copied to O", lambda: sample.k[rows].astype(np.float64)
    yield "with Q copied to O", lambda: sample.q.astype(np.float64)
    yield "when K and V are exchanged", lambda: sample_of(k=sample.v, v=sample.k)
    yield "when Q and K are exchanged", lambda: sample_of(q=sample.k[rows], k=whole_q())
    yield "when Q and V are exchanged", lambda: sample_of(q=sample.v[rows], v=whole_q())
    yield from reading("when the matrices of a batch are taken for K, V, Q", v, q, k)
    yield from reading("when the matrices of a batch are taken for V, Q, K", k, v, q)
    yield "with K in place of V", lambda: sample_of(v=sample.k)
    yield "with V in place of K", lambda: sample_of(k=sample.v)
    yield "with Q in place of K", lambda: sample_of(k=whole_q())
    yield from reading(
        "when the file is read as all Q, all K, all V (it holds Q, K, V of each batch in turn)",
        batch * size,
        (B + batch) * size,
        (2 * B + batch) * size,
    )
    yield from reading(
        "when the header is read as data: all values stand 12 bytes too late",
        q - HEADER_FLOATS,
        k - HEADER_FLOATS,
        v - HEADER_FLOATS,
    )
    yield from reading(
        "when batches are N·d elements apart in the input (they are 3·N·d)",
        batch * size,
        (batch + 1) * size,
        (batch + 2) * size,
    )
    yield from reading("with K and V of batch 0 in every batch", q, size, 2 * size)
    yield from reading("with Q of batch 0 in every batch", 0, k, v)
    yield from reading("with K of batch 0 in every batch", q, size, v)
    yield from reading("with V of batch 0 in every batch", q, k, 2 * size)
    if N > 1 and d > 1:
        yield "when K is read as (d, N)", lambda: sample_of(k=sample.k.reshape(d, N).T)
        yield "when V is read as (d, N)", lambda: sample_of(v=sample.v.reshape(d, N).T)
        yield "when Q, K and V are interleaved row by row", lambda: _interleaved(matrices, batch, rows)
    if batch + 1 < B:
        more = 3 * size
        for keys in sorted({1, *(-N % tile for tile in TILES)} - {0}):
            if keys <= N:
                amount = "one key" if keys == 1 else f"{keys} keys"
                rows_with = partial(_more_keys, matrices, sample, k + more, v + more, keys)
                yield f"with {amount} too many, of the next batch", rows_with


def _attention(sample: Sample) -> Doubles:
    return sample.attend(sample.scores)


def _interleaved(matrices: Matrices, batch: int, rows: Rows) -> Doubles:
    N, d = matrices.shape.N, matrices.shape.d
    start = 3 * batch * matrices.size
    block = np.concatenate([matrices.matrix(start + index * matrices.size) for index in range(3)]).reshape(N, 3, d)
    return _attention(Sample(rows, block[rows, 0], block[:, 1], block[:, 2]))


def _more_keys(matrices: Matrices, sample: Sample, k: int, v: int, count: int) -> Doubles:
    more = np.arange(count)
    keys, values = (
        np.concatenate([own, matrices.some_rows(start, more)]) for own, start in ((sample.k, k), (sample.v, v))
    )
    return _attention(Sample(sample.rows, sample.q, keys, values))
