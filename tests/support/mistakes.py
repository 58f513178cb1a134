"""Programs with known mistakes, each a small piece of NumPy: an input (B, 3, N, d) in, an output (B, N, d) out.

They share nothing with the product: what is named is compared with how it was made. The keys of MISTAKES are part of
what is to be said; {tail}, {pad} and {d} stand for the length of the last tile of 32 keys, what it lacks, and d.
"""

import numpy as np


def parts(block):
    return (block[:, part].astype(np.float64) for part in range(3))


def scores(block, scale=None):
    q, k, _ = parts(block)
    s = np.einsum("bid,bjd->bij", q, k)
    return s / np.sqrt(block.shape[3]) if scale is None else s * scale


def softmax(s, axis=-1):
    p = np.exp(s - s.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


def attention(block):
    return softmax(scores(block)) @ block[:, 2].astype(np.float64)


def of_scores(change):
    """The attention whose scores (B, N, N) go through `change`."""
    return lambda block: softmax(change(scores(block))) @ block[:, 2].astype(np.float64)


def masked(keep):
    """The attention that sees only the keys for which keep(row, key, N) is true."""

    def program(block):
        N = block.shape[2]
        row, key = np.arange(N)[:, None], np.arange(N)
        return softmax(np.where(keep(row, key, N), scores(block), -np.inf)) @ block[:, 2].astype(np.float64)

    return program


def weighted(weights):
    """softmax with weights(row, key, N) for each key: 2 where it counts twice."""

    def program(block):
        N = block.shape[2]
        s = scores(block)
        p = np.exp(s - s.max(axis=2, keepdims=True)) * weights(np.arange(N)[:, None], np.arange(N), N)
        return p / p.sum(axis=2, keepdims=True) @ block[:, 2].astype(np.float64)

    return program


def online(tile, *, rescale_o=True, rescale_l=True, keep_o=True, keep_l=True, divide_early=False):
    """The online softmax over tiles of keys, with one of its steps forgotten."""

    def program(block):
        v = block[:, 2].astype(np.float64)
        s = scores(block)
        m = np.full((*s.shape[:2], 1), -np.inf)
        total, o = np.zeros_like(m), np.zeros_like(v)
        for j in range(0, s.shape[2], tile):
            m_new = np.maximum(m, s[:, :, j : j + tile].max(axis=2, keepdims=True))
            p = np.exp(s[:, :, j : j + tile] - m_new)
            factor = np.exp(m - m_new)
            total = (total * (factor if rescale_l else 1) if keep_l else 0) + p.sum(axis=2, keepdims=True)
            o = (o * (factor if rescale_o else 1) if keep_o else 0) + p @ v[:, j : j + tile]
            if divide_early:
                o = o / total
            m = m_new
        return o if divide_early else o / total

    return program


def tiles_alone(tile, mean):
    def program(block):
        N = block.shape[2]
        made = [
            attention_of(block[:, 0], block[:, 1, j : j + tile], block[:, 2, j : j + tile]) for j in range(0, N, tile)
        ]
        return np.mean(made, axis=0) if mean else np.sum(made, axis=0)

    return program


def attention_of(q, k, v, scale=None):
    q, k, v = (part.astype(np.float64) for part in (q, k, v))
    s = np.einsum("bid,bjd->bij", q, k) * (scale or q.shape[2] ** -0.5)
    return softmax(s) @ v


def reordered(*order):
    return lambda block: attention_of(*(block[:, part] for part in order))


def flat(block):
    """The file's elements behind the header."""
    return np.ascontiguousarray(block, np.float32).reshape(-1)


def all_q_all_k_all_v(block):
    B, _, N, d = block.shape
    q, k, v = flat(block).reshape(3, B, N, d)
    return attention_of(q, k, v)


def header_as_data(block):
    B, _, N, d = block.shape
    header = np.array([B, N, d], np.int32).view(np.float32)
    data = np.concatenate([header, flat(block)])[: block.size].reshape(block.shape)
    return attention_of(data[:, 0], data[:, 1], data[:, 2])


def short_stride(block):
    """Batches N·d apart."""
    B, _, N, d = block.shape
    matrices = flat(block).reshape(-1, N, d)
    return attention_of(matrices[:B], matrices[1 : B + 1], matrices[2 : B + 2])


def of_batch_0(*which):
    def program(block):
        other = block.copy()
        for part in which:
            other[:, part] = block[0, part]
        return attention(other)

    return program


def interleaved(block):
    B, _, N, d = block.shape
    rows = flat(block).reshape(B, N, 3, d)
    return attention_of(rows[:, :, 0], rows[:, :, 1], rows[:, :, 2])


def turned(part):
    """K or V read as (d, N)."""

    def program(block):
        B, _, N, d = block.shape
        other = block.copy()
        other[:, part] = np.swapaxes(block[:, part].reshape(B, d, N), 1, 2)
        return attention(other)

    return program


def some_columns(count, divisor):
    def program(block):
        q, k, v = parts(block)
        return attention_of(q[:, :, :count], k[:, :, :count], v, divisor**-0.5)

    return program


def padded(count):
    """Keys of zeros behind the last."""

    def program(block):
        s = scores(block)
        s = np.concatenate([s, np.zeros((*s.shape[:2], count))], axis=2)
        return softmax(s)[:, :, : block.shape[2]] @ block[:, 2].astype(np.float64)

    return program


def keys_of_next_batch(count):
    def program(block):
        after = np.concatenate([block[1:], np.zeros_like(block[:1])])
        more = [np.concatenate([block[:, part], after[:, part, :count]], axis=1) for part in (1, 2)]
        return attention_of(block[:, 0], *more)

    return program


def wrong_axis(block):
    return softmax(scores(block), axis=1) @ block[:, 2].astype(np.float64)


def unnormalised(block):
    s = scores(block)
    return np.exp(s - s.max(axis=2, keepdims=True)) @ block[:, 2].astype(np.float64)


def wrong_sum(block):
    """Divided by a sum that a race has spoiled: a factor of its own for every row."""
    factors = np.random.default_rng(3).uniform(0.3, 0.8, block.shape[0] * block.shape[2])
    return attention(block) * factors.reshape(block.shape[0], -1, 1)


def of_answer(change):
    return lambda block: change(attention(block))


def columns_lost(answer):
    answer = answer.copy()
    answer[:, :, answer.shape[2] // 2 :] = 0
    return answer


def swapped(answer):
    """Big-endian."""
    return answer.astype("<f4").byteswap()


def columns_late(answer):
    """A program that writes from column 1 on; column 0 keeps what was there."""
    late = np.full_like(answer, 7)
    late[:, :, 1:] = answer[:, :, :-1]
    return late


def pairs_exchanged(answer):
    """The halves of a float2 the wrong way round."""
    B, N, d = answer.shape
    return answer.reshape(B, N, d // 2, 2)[:, :, :, ::-1].reshape(B, N, d)


MISTAKES = {
    "without the factor 1/sqrt(d)": lambda block: attention_of(*parts(block), scale=1),
    "with 1/d instead of 1/sqrt(d)": lambda block: attention_of(*parts(block), scale=1 / block.shape[3]),
    "with sqrt(d) instead of 1/sqrt(d)": lambda block: attention_of(*parts(block), scale=block.shape[3] ** 0.5),
    "with 1/sqrt(N) instead of 1/sqrt(d)": lambda block: attention_of(*parts(block), scale=block.shape[2] ** -0.5),
    "with 1/sqrt(128), though d is": lambda block: attention_of(*parts(block), scale=128**-0.5),
    "with the sign of the scores reversed": of_scores(np.negative),
    "with 2^S instead of e^S": of_scores(lambda s: s * np.log(2)),
    "multiplied by log2(e), as for exp2": of_scores(lambda s: s * np.log2(np.e)),
    "all keys weigh the same (the mean of V)": of_scores(lambda s: 0 * s),
    "when rows are not divided by their sum l": unnormalised,
    "not divided by their sum l, nor their maximum subtracted": lambda block: (
        np.exp(scores(block)) @ block[:, 2].astype(float)
    ),
    "without the softmax (S times V)": lambda block: scores(block) @ block[:, 2].astype(float),
    "without the softmax and the factor": lambda block: scores(block, 1) @ block[:, 2].astype(float),
    "with the softmax twice": of_scores(softmax),
    "with a causal mask (keys up to the row's own only)": masked(lambda row, key, N: key <= row),
    "with a causal mask that leaves out the row's own key": masked(lambda row, key, N: (key < row) | (row == 0)),
    "with a causal mask the wrong way round": masked(lambda row, key, N: key >= row),
    "without the last key": masked(lambda row, key, N: key < N - 1),
    "without the first key": masked(lambda row, key, N: key > 0),
    "with one key of zeros too many": padded(1),
    "with {pad} keys of zeros behind the last": lambda block: padded(-block.shape[2] % 32)(block),
    "when QKᵀ adds up the first 16 of {d} columns only": lambda block: some_columns(16, block.shape[3])(block),
    "adds up the first 16 of {d} columns only and is divided by sqrt(16)": some_columns(16, 16),
    "from the first 64 keys (a tile) alone": masked(lambda row, key, N: key < 64),
    "without the first 16 keys": masked(lambda row, key, N: key >= 16),
    "when the first 32 keys (a tile) count twice": weighted(lambda row, key, N: 1 + (key < 32)),
    "when the last {tail} keys": weighted(lambda row, key, N: 1 + (key >= (N - 1) // 32 * 32)),
    "without the last {tail} keys": masked(lambda row, key, N: key < (N - 1) // 32 * 32),
    "from the last {tail} keys": masked(lambda row, key, N: key >= (N - 1) // 32 * 32),
    "only the keys of its own tile (tiles of 32": masked(lambda row, key, N: key // 32 == row // 32),
    "without rescaling O when the maximum grows (tiles of 16": online(16, rescale_o=False),
    "without rescaling O when the maximum grows (tiles of 64": online(64, rescale_o=False),
    "without rescaling l when the maximum grows (tiles of 32": online(32, rescale_l=False),
    "without rescaling O and l when the maximum grows (tiles of 128": online(128, rescale_o=False, rescale_l=False),
    "when l is the sum over the last {tail} keys": online(32, keep_l=False),
    "when O is made from the last {tail} keys": online(32, keep_o=False),
    "divided by l in every tile, and not multiplied by the old l (tiles of 32": online(32, divide_early=True),
    "of every tile is taken by itself, and they are added (tiles of 32": tiles_alone(32, mean=False),
    "of every tile is taken by itself, and their mean taken (tiles of 64": tiles_alone(64, mean=True),
    "with V copied to O": lambda block: block[:, 2],
    "with K copied to O": lambda block: block[:, 1],
    "with Q copied to O": lambda block: block[:, 0],
    "when K and V are exchanged": reordered(0, 2, 1),
    "when Q and K are exchanged": reordered(1, 0, 2),
    "when Q and V are exchanged": reordered(2, 1, 0),
    "taken for K, V, Q": reordered(2, 0, 1),
    "taken for V, Q, K": reordered(1, 2, 0),
    "with K in place of V": reordered(0, 1, 1),
    "with V in place of K": reordered(0, 2, 2),
    "with Q in place of K": reordered(0, 0, 2),
    "as all Q, all K, all V": all_q_all_k_all_v,
    "when the header is read as data": header_as_data,
    "when batches are N·d elements apart": short_stride,
    "with K and V of batch 0": of_batch_0(1, 2),
    "with Q of batch 0": of_batch_0(0),
    "with K of batch 0": of_batch_0(1),
    "with V of batch 0": of_batch_0(2),
    "when Q, K and V are interleaved row by row": interleaved,
    "when K is read as (d, N)": turned(1),
    "when V is read as (d, N)": turned(2),
    "with one key too many, of the next batch": keys_of_next_batch(1),
    "with {pad} keys too many, of the next batch": lambda block: keys_of_next_batch(-block.shape[2] % 32)(block),
    "the softmax goes the wrong way": wrong_axis,
    "wrong rows are 0.5 times the answer": of_answer(lambda answer: 0.5 * answer),
    "wrong rows are -1 times the answer": of_answer(np.negative),
    "answer times a factor of its own": wrong_sum,
    "the whole output is zeros": of_answer(np.zeros_like),
    "the whole output is 7, as if never written": of_answer(lambda answer: np.full_like(answer, 7)),
    "the wrong elements are all zeros": of_answer(columns_lost),
    "each batch is transposed": of_answer(lambda answer: np.swapaxes(answer, 1, 2)),
    "batches and rows are exchanged": of_answer(lambda answer: np.swapaxes(answer, 0, 1)),
    "batches are exchanged": of_answer(lambda answer: np.roll(answer, 1, axis=0)),
    "the wrong batches hold what belongs in batch 0": of_answer(lambda answer: answer[np.zeros(len(answer), int)]),
    "everything stands 1 row too early": of_answer(lambda answer: np.roll(answer.reshape(-1), -answer.shape[2])),
    "as behind a header of 12 bytes": of_answer(lambda answer: np.roll(answer.reshape(-1), 3)),
    "rows are exchanged": of_answer(lambda answer: answer[:, ::-1]),
    "without the last 4 keys": masked(lambda row, key, N: key < N - 4),
    "without the last 5 keys": masked(lambda row, key, N: key < N - 5),
    "without the last 33 keys": masked(lambda row, key, N: key < N - 33),
    "without the first 3 keys": masked(lambda row, key, N: key >= 3),
    "from the first 7 keys alone": masked(lambda row, key, N: key < 7),
    "from the last 7 keys alone": masked(lambda row, key, N: key >= N - 7),
    "the numbers are right with their bytes in the other order": of_answer(swapped),
    "in every row the numbers stand 1 column too far to the right": of_answer(columns_late),
    "in every row the numbers stand 2 columns too far to the left, those of the first ones behind": of_answer(
        lambda answer: np.roll(answer, -2, axis=2)
    ),
    "the columns stand in another order: column 0 holds what belongs in column {last}": of_answer(
        lambda answer: answer[:, :, ::-1]
    ),
    "the columns stand in another order: column 0 holds what belongs in column 1": of_answer(pairs_exchanged),
    "everything stands 1 element too early": of_answer(lambda answer: np.roll(answer.reshape(-1), -1)),
    "all rows hold what belongs in row 0 of their batch": of_answer(
        lambda answer: np.repeat(answer[:, :1], answer.shape[1], axis=1)
    ),
}
