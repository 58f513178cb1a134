"""What launches are passed where scores are changed before the softmax (problem/scores.py): kernels/score.cuh."""

import struct
from typing import NamedTuple

from hw4cli.problem.scores import MOST_DIMENSIONS, Score
from hw4cli.problem.workload import Workload

LOG2E = 1.44269504088896341
_HEAD = struct.Struct("<f7iqQ")
_VIEW = struct.Struct("<Q4q4i")


class Way(NamedTuple):
    """How kernels of 16 bits compute scores: the macros that say so (kernels/scored.cuh), what products are multiplied
    by before that, and what scores are multiplied by for powers of 2."""

    macros: dict[str, int]
    scale: float
    factor: float


def way_of(score: Score, scale: float) -> Way:
    """That of a score, where the workload's scale is this."""
    folded = score.folded
    inner = scale * folded.inner
    if not 2.0**-20 <= inner <= 2.0**20:  # whose powers and inverses kernels need
        return Way({}, scale, LOG2E)
    if score.line:
        return Way({"SCORE_LINEAR": 1} | ({"SCORE_RISES": 1} if score.rises else {}), inner, inner * LOG2E)
    macros = {"SCORE_FOLDED": 1} if folded.core is not score.trees[0] else {}
    return Way(macros | ({"SCORE_TANH": 1} if folded.is_tanh else {}), inner, LOG2E * folded.outer)


class Heads(NamedTuple):
    """Which heads a launch computes: so many of a batch, from a first one on, every so many."""

    number: int
    first: int = 0
    step: int = 1
    first_batch: int = 0


def scoring_bytes(work: Workload) -> int:
    """How many bytes `scoring` gives."""
    return _HEAD.size + max(1, len(work.score.arrays)) * _VIEW.size if work.score else 0


def scoring(
    work: Workload,
    views: tuple[int, ...],
    gradient: int = 0,
    heads: Heads | None = None,
    way: Way | None = None,
    steps: tuple[int, int] | None = None,
) -> bytes:
    """The bytes of a workload's Scoring, none where it has no score: `views`, the arrays' addresses in their order, and
    `gradient`, that of the float32 array of the shape work.of_scores in which gradients of scores are wanted; `steps`,
    from a head of it to the next and from a row, in elements, if it is another one's. `heads`: those of a launch, if
    not all; `way`: how scores are computed, if not as they stand."""
    if not work.score:
        return b""
    number, first, step, batch = heads or Heads(work.heads, first_batch=work.first_number)
    scale, batch = way.scale if way else work.scale, batch + work.score.first
    _, _, rows, keys = work.of_scores
    of_head, of_row = steps or (rows * keys, keys)
    parts = [_HEAD.pack(scale, batch, number, first, step, work.Nq, work.Nk, of_row, of_head, gradient)]
    for address, array in zip(views, work.score.arrays, strict=True):
        missing = (0,) * (MOST_DIMENSIONS - len(array.shape))
        parts.append(_VIEW.pack(address, *array.strides, *missing, *array.shape, *missing))
    return b"".join(parts) if views else parts[0] + bytes(_VIEW.size)
