"""Changed scores and masks in the kernels for arrays, executed on the CPU: right, and without a finding."""

from dataclasses import replace

import numpy as np
import pytest
from halves import ALLOWED, SUMS, numbers, random_words, rounded
from scoredcases import cases, exact
from slow import quick_of_each

from hw4cli.arrays.emulated import run_half
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.arrays.operand import operand
from hw4cli.arrays.scored import Words, scored
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Span, Workload

pytestmark = quick_of_each(1)

# Of a kernel, the compute capability and the sizes; half_short is what `half` is of short rows.
FORWARD = {
    "half_cores": (61, FLOAT16, 70, 90, 40),
    "half": (90, BFLOAT16, 200, 330, 64),
    "half_short": (90, FLOAT16, 75, 80, 64),
    "half_mma": (80, BFLOAT16, 130, 150, 128),
    "half_split": (80, FLOAT16, 2, 700, 64),
}
BACKWARD = {
    "backward": (80, FLOAT32, 70, 90, 32),
    "backward_mma": (80, FLOAT16, 130, 100, 64),
    "backward_wgmma": (90, BFLOAT16, 130, 200, 64),
    "backward_once": (90, FLOAT16, 130, 200, 64),
    "backward_atomic": (90, FLOAT16, 130, 200, 64),
}
TOGETHER, EMPTY, ADDED = "all together", "a mask with an empty row", "an additive mask with holes"
ERROR = {FLOAT16: 4e-3, BFLOAT16: 3e-2, FLOAT32: 1e-5}  # of the largest gradient
LARGEST = 4  # by which "all together" may widen a score's rounding


def those(entries, kernels, kind, beside):
    """Kernels that change scores, with all that is asked for at once, and some of them with one kind of change."""
    known = [(TOGETHER, name) for name in kernels if entries[name].scores]
    known += [(kind, name) for name in kernels if entries[name].scores and beside(name)]
    return [pytest.param(*one, id=", ".join(one)) for one in known]


def asked(work, case, q, gradient=False):
    """The workload with what is asked for, and the arrays that it names."""
    found = scored(Words(**case.asked), replace(operand("q", q, "BHND"), dtype=work.dtype), work, gradient=gradient)
    return found.of(work), found.given


def visible(work):
    """Which keys a row sees of what is no score's."""
    own = np.arange(work.Nq)[:, None] + work.offset
    key = np.arange(work.Nk)
    return (key <= own) & (key > own - (work.window or work.Nk + work.Nq)) if work.causal else key >= 0 * own


@pytest.mark.parametrize(("kind", "kernel"), those(ENTRIES16, FORWARD, EMPTY, ["half", "half_mma"].__contains__))
def test_every_kernel_changes_scores(kernel, kind):
    cc, dtype, Nq, Nk, d = FORWARD[kernel]
    plain = Workload(dtype, 2, 2, 1, Nq, Nk, d, True, Nk - Nq + 3, window=Nk // 2)
    case = cases(2, 2, Nq, Nk)[kind]
    words = random_words(plain, factor=0.7)
    work, views = asked(plain, case, words[0])
    outcome = run_half(work, *words, kernel="half" if kernel == "half_short" else kernel, cc=cc, views=views)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    q, k, v = (numbers(x, dtype) for x in words)
    o, lse, *_ = exact(q, q, k, v, *case.formulas(Nq, Nk, visible(plain)))
    assert np.abs(numbers(outcome.o, dtype) - o).max() <= 2 * ALLOWED[dtype]
    there = np.isfinite(lse)
    assert (outcome.lse[~there] == -np.inf).all()
    np.testing.assert_allclose(outcome.lse[there], lse[there], rtol=1e-5, atol=2 * SUMS[dtype])


@pytest.mark.parametrize("kernel", [name for name in FORWARD if ENTRIES16[name].scores and ENTRIES16[name].sequences])
def test_each_sequence_counts_its_rows_and_keys_and_keeps_its_batch(kernel):
    cc, dtype, *_ = FORWARD[kernel]
    spans = (Span(0, 0, 70, 0, 33, -37), Span(1, 0, 1, 0, 150, 149), Span(2, 0, 130, 0, 129, -1))
    plain = Workload(dtype, 3, 2, 2, 130, 150, 64, True, sequences=spans)
    case = cases(3, 2, 130, 150)[TOGETHER]
    words = random_words(plain, factor=0.7)
    work, views = asked(plain, case, words[0])
    outcome = run_half(work, *words, kernel=kernel, cc=cc, views=views)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    for b, _, rows, _, keys, offset in spans:
        change, keep = case.formulas(rows, keys, visible(replace(plain.alone(spans[b]), offset=offset)))
        q, k, v = (numbers(x[b : b + 1, :, :n], dtype) for x, n in zip(words, (rows, keys, keys), strict=True))

        def change_of(s, at, *rest, b=b, by=change):
            return by(s, at + b, *rest)

        o, *_ = exact(q, q, k, v, change_of, lambda at, *rest, b=b, by=keep: by(at + b, *rest))
        assert np.abs(numbers(outcome.o[b, :, :rows], dtype) - o[0]).max() <= 2 * ALLOWED[dtype]


def test_elements_of_16_bits_are_read_as_those_of_q():
    plain = Workload(BFLOAT16, 1, 2, 2, 40, 50, 64)
    words = random_words(plain)
    bias = rounded(np.random.default_rng(2).standard_normal((40, 50)), BFLOAT16)
    work, _ = asked(plain, cases(1, 2, 40, 50)["an additive mask of heads"], words[0])
    (named,) = work.score.arrays
    named = named._replace(kind="element", shape=(40, 50), strides=(50, 1))
    score = replace(work.score, change=f"s + {named.name}[i, j]", arrays=(named,))
    outcome = run_half(replace(work, score=score), *words, kernel="half_mma", cc=80, views=(bias,))
    q, k, v = (numbers(x, BFLOAT16) for x in words)
    o, *_ = exact(q, q, k, v, lambda s, *_: (s + numbers(bias, BFLOAT16), 1), lambda *_: True)
    assert outcome.findings == () and np.abs(numbers(outcome.o, BFLOAT16) - o).max() <= ALLOWED[BFLOAT16]


@pytest.mark.parametrize(
    ("kind", "kernel"), those(GRADIENTS, BACKWARD, ADDED, lambda name: GRADIENTS[name].score_gradients)
)
def test_every_kernel_of_gradients_derives_them(kernel, kind):
    cc, dtype, Nq, Nk, d = BACKWARD[kernel]
    plain = Workload(dtype, 2, 2, 1, Nq, Nk, d, True, Nk - Nq + 3, window=Nk // 2)
    case = cases(2, 2, Nq, Nk)[kind]
    rng = np.random.default_rng(5)
    given = [rng.standard_normal((2, heads, rows, d)) for heads, rows in ((2, Nq), (2, Nq), (1, Nk), (1, Nk))]
    given[1] *= 0.7
    words = [x.astype(np.float32) if dtype == FLOAT32 else rounded(x, dtype) for x in given]
    right = [x.astype(float) if dtype == FLOAT32 else numbers(x, dtype) for x in words]
    o, lse, *gradients, dscore = exact(*right, *case.formulas(Nq, Nk, visible(plain)))
    passed = o.astype(np.float32) if dtype == FLOAT32 else rounded(o, dtype)
    wants = kind == ADDED
    work, views = asked(plain, case, words[1], gradient=wants)
    scores = np.zeros((2, 2, Nq, Nk), np.float32) if wants else None
    outcome = run_backward(
        work, *words, passed, lse.astype(np.float32), kernel=kernel, cc=cc, views=views, scores=scores
    )
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    found = [x.astype(float) if dtype == FLOAT32 else numbers(x, dtype) for x in outcome.gradients]
    for got, one in zip(
        [*found, *([scores] if wants else [])], [*gradients, *([dscore] if wants else [])], strict=True
    ):
        assert np.abs(got - one).max() <= LARGEST * ERROR[dtype] * max(1, np.abs(one).max())
