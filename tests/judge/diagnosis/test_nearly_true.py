"""Outputs of which a sentence is nearly true: all rows but one, one row alone, one element. What is said is so."""

import os
import re

import numpy as np
import pytest
from definitions import definition as definition_of
from helpers import definition, random_block
from mistakes import MISTAKES, attention
from slow import quick_of_each, slow
from test_diagnosis import TOLERANCE, diagnose  # noqa: F401 (a fixture)

from hw4cli.problem.errormap import ErrorMap
from hw4cli.problem.workload import Shape

STEP = 1 if "HW4_FUZZ" in os.environ else 3  # of what there is to try, each third in a usual run
BLOCK = random_block(2, 100, 8, seed=21)
ANSWER = definition(BLOCK).astype(np.float32)


def near(one, other):
    with np.errstate(all="ignore"):
        return np.abs(np.asarray(one, np.float64) - other) <= 2 * TOLERANCE + 1e-3 * np.abs(other)


def shifted(answer, amount, way):
    """Every element `amount` places earlier or later in the file, and which of them that gives."""
    flat, out = answer.reshape(-1), np.full(answer.size, np.nan)
    if way == "early":
        out[: out.size - amount] = flat[amount:]
    else:
        out[amount:] = flat[: out.size - amount]
    return out.reshape(answer.shape)


def unknown_or_near(output, expected):
    return np.isnan(expected) | near(output, expected)


def check(sentence, block, output, answer):
    """Fail unless a sentence is true of an output. Computed from the whole of it, by what the words mean."""
    d = answer.shape[2]
    wrong = ~(np.abs(output.astype(np.float64) - answer) <= TOLERANCE)
    rows = wrong.any(axis=2)
    if " without NaN or Inf" in sentence:
        rows &= np.isfinite(output).all(axis=2)
        wrong &= np.isfinite(output)
        sentence = sentence.replace(" without NaN or Inf", "")
    numbers = [int(word.replace(",", "")) for word in re.findall(r"\d[\d,]*", sentence)]
    unit = d if re.search(r"\d rows? too", sentence) else 1
    if match := re.match(r"(everything|the wrong rows) stands? .* too (early|late)", sentence):
        held = unknown_or_near(output, shifted(answer, numbers[0] * unit, match[2])).all(axis=2)
        assert held.all() if match[1] == "everything" else held[rows].all()
        assert rows.mean() > 0.5 or match[1] != "everything"
    elif sentence.startswith("each batch is transposed"):
        assert near(output, np.swapaxes(answer, 1, 2).reshape(answer.shape)).all()
    elif sentence.startswith("batches and rows are exchanged"):
        assert near(output, np.swapaxes(answer, 0, 1).reshape(answer.shape)).all()
    elif match := re.match(r"(batches are exchanged: )?batch \d+ holds what belongs in batch \d+$", sentence):
        assert near(output[numbers[0]], answer[numbers[1]]).all()
        assert not match[1] or rows[numbers[1]].any()
    elif sentence.startswith("the wrong batches hold what belongs in batch"):
        assert near(output[rows.any(axis=1)], answer[numbers[0]]).all() and rows.any(axis=1).sum() > 1
    elif sentence.startswith("the wrong rows of batch"):
        batch, other = numbers
        assert near(output[batch][rows[batch]], answer[other][rows[batch]]).all() and rows[batch].sum() == rows.sum()
    elif match := re.match(r"(rows are exchanged: )?row \d+ of batch \d+ holds what belongs in row \d+", sentence):
        row, batch, source, other = (*numbers, numbers[1])[:4]
        assert near(output[batch, row], answer[other, source]).all()
        assert not match[1] or rows[other, source]
    elif match := re.match(r"(all|the wrong) rows hold what belongs in row", sentence):
        held = near(output, answer[:, numbers[0], None]).all(axis=2)
        assert held.all() if match[1] == "all" else held[rows].all() and rows.sum() > 1
    elif match := re.match(
        r"in (every|the wrong) rows? the numbers stand (\d+) columns? too far to the (\w+)(,?)", sentence
    ):
        shift = int(match[2]) * (1 if match[3] == "right" else -1)
        held = near(output, np.roll(answer, shift, axis=2))
        if not match[4]:
            held[:, :, :shift] |= shift > 0
            held[:, :, shift:] |= shift < 0
        assert held.all() if match[1] == "every" else held[rows].all()
    elif match := re.match(r"in (every|the wrong) rows? the columns stand in another order", sentence):
        held = near(output[:, :, numbers[0]], answer[:, :, numbers[1]])
        assert held.all() if match[1] == "every" else held[rows].all()
        for one in output[rows]:
            assert near(np.sort(one), np.sort(answer[rows][near(output[rows], one).all(axis=1)][0])).all()
    elif match := re.match(r"(the whole output is|the wrong elements are all) (zeros|[-\d.e+]+)", sentence):
        value = 0 if match[2] == "zeros" else float(match[2])
        assert (
            np.isclose(output, value, rtol=1e-5).all()
            if "whole" in match[1]
            else np.isclose(output[wrong], value).all()
        )
    elif sentence.startswith("the numbers are right with their bytes in the other order"):
        assert near(output.byteswap(), answer).all()
    elif match := re.match(r"wrong rows are (\S+) times the answer", sentence):
        assert near(output[rows], float(match[1]) * answer[rows]).all()
    elif "equal attention computed" in sentence:
        share = re.match(r"(\d+) of (\d+) wrong rows", sentence)
        made = remade(sentence, block)
        if made is not None:
            rows[-1] &= "behind the file" not in sentence
            held = near(output, made).all(axis=2)[rows]
            assert held.all() if not share else held.any() and not held.all()
    elif sentence.startswith(
        ("errors ", "the errors are those", "each wrong row is the answer times", "the softmax goes")
    ):
        pass
    else:
        pytest.fail(f"nobody checks: {sentence}")


def remade(sentence, block):
    """What the mistake in a sentence makes of the block; None if the tests have no program for it."""
    N, d = block.shape[2:]
    names = {key.format(tail=N % 32 or 32, pad=-N % 32, d=d, last=d - 1): key for key in MISTAKES}
    known = [name for name in names if name in sentence]
    return MISTAKES[names[max(known, key=len)]](block).reshape(block[:, 0].shape) if known else None


def made_by(words, block):
    with np.errstate(all="ignore"):
        return MISTAKES[words](block).astype(np.float32).reshape(block[:, 0].shape)


def all_but_one_row(mistaken, answer, rng):
    out = mistaken.copy()
    out[rng.integers(len(out)), rng.integers(out.shape[1])] = rng.normal(size=out.shape[2])
    return out


def all_but_one_right_row(mistaken, answer, rng):
    out = mistaken.copy()
    place = rng.integers(len(out)), rng.integers(out.shape[1])
    out[place] = answer[place]
    return out


def all_but_one_element(mistaken, answer, rng):
    out = mistaken.copy()
    out.reshape(-1)[rng.integers(out.size)] = 3
    return out


def one_row(mistaken, answer, rng):
    out = answer.copy()
    place = rng.integers(len(out)), rng.integers(out.shape[1])
    out[place] = mistaken[place]
    return out


def few_rows(mistaken, answer, rng):
    chosen = rng.random(answer.shape[:2]) < 0.05
    return np.where(chosen[:, :, None], mistaken, answer)


def one_batch(mistaken, answer, rng):
    return np.where(np.arange(len(answer))[:, None, None] == rng.integers(len(answer)), mistaken, answer)


def one_element(mistaken, answer, rng):
    out = answer.copy()
    place = rng.integers(out.size)
    out.reshape(-1)[place] = mistaken.reshape(-1)[place]
    return out


def one_not_finite(mistaken, answer, rng):
    out = mistaken.copy()
    out[rng.integers(len(out)), rng.integers(out.shape[1]), 0] = np.nan
    return out


NEARLY = [
    all_but_one_row,
    all_but_one_right_row,
    all_but_one_element,
    one_row,
    few_rows,
    one_batch,
    one_element,
    one_not_finite,
]


@slow
@quick_of_each(2)
@pytest.mark.parametrize("change", NEARLY)
def test_what_is_said_of_an_output_that_nearly_has_a_mistake_is_so(diagnose, change):  # noqa: F811
    rng, said = np.random.default_rng(3), 0
    for words in list(MISTAKES)[NEARLY.index(change) % STEP :: STEP]:
        output = change(made_by(words, BLOCK), ANSWER, rng).astype(np.float32)
        found = diagnose(BLOCK, output, ANSWER)
        if found is not None and found.mistake:
            said += 1
            for sentence in found.mistake.split("; "):
                check(sentence, BLOCK, output, ANSWER)
    assert said or change in (one_element,)


def equal_keys(block):
    block[:, 1] = block[:, 1, :1]


def constant(block):
    block[:] = 1


def zeros(block):
    block[:] = 0


def equal_values(block):
    block[:, 2] = block[:, 2, :1]


@quick_of_each(2)
@pytest.mark.parametrize("N", [1, 2, 3])
@pytest.mark.parametrize("change", [lambda block: None, equal_keys, equal_values, constant, zeros])
def test_what_is_said_of_the_smallest_cases_and_of_constant_data_is_so(diagnose, N, change):  # noqa: F811
    rng = np.random.default_rng(5)
    for shape in ((1, N, 4), (2, N, 8))[:: 1 if STEP == 1 else 2 - N % 2]:
        block = random_block(*shape, seed=N)
        change(block)
        answer = attention(block).astype(np.float32)
        outputs = [
            made_by(words, block) for words in MISTAKES if not re.search("batch|columns only", words) or len(block) > 1
        ]
        outputs += [answer + rng.normal(size=answer.shape).astype(np.float32) for _ in range(30)]
        outputs += [change(output, answer, rng) for output in list(outputs) for change in (one_row, all_but_one_row)]
        for output in outputs[:: 2 * STEP - 1]:
            found = diagnose(block, output.astype(np.float32), answer)
            for sentence in ((found and found.mistake) or "").split("; "):
                if sentence:
                    check(sentence, block, output.astype(np.float32), answer)


def test_the_last_row_alone_does_not_shift_everything(diagnose):  # noqa: F811
    output = ANSWER.copy()
    output[1, 99] = ANSWER[1, 0]
    found = diagnose(BLOCK, output, ANSWER)
    assert found.mistake == "row 99 of batch 1 holds what belongs in row 0"
    output[:, 90:] = ANSWER[:, 80:90]
    assert diagnose(BLOCK, output, ANSWER).mistake == "the wrong rows stand 10 rows too late"


def test_a_permuted_v_is_not_a_softmax_of_the_columns(diagnose):  # noqa: F811
    """Its columns add up to the same."""
    output = np.random.default_rng(1).permutation(BLOCK[:, 2], axis=1)
    found = diagnose(BLOCK, output, ANSWER)
    assert found.mistake is None or "softmax goes" not in found.mistake


@quick_of_each(8)
@pytest.mark.parametrize("k", [2, 3, 4, 6, 8, 12, 16, 24, 40, 64, 99])
@pytest.mark.parametrize("first", [True, False])
def test_any_number_of_keys_that_are_left_out_is_found(diagnose, k, first):  # noqa: F811
    block = random_block(2, 200, 32, seed=9)
    keys = slice(k, None) if first else slice(None, -k)
    output = np.stack([_some_keys(one, keys) for one in block])
    found = diagnose(block, output)
    assert re.search(rf"without the {'first' if first else 'last'} {k} keys\b", found.mistake), found.mistake


def _some_keys(one, keys):
    q, k, v = one
    return definition_of(q, k[keys], v[keys])[0]


def test_rows_that_differ_from_batch_to_batch_are_not_those_of_every_batch():
    errors = ErrorMap(Shape(3, 50, 4))
    errors.columns[:] = True
    for batch, row in ((0, 3), (1, 4), (2, 5)):
        errors.marks[batch, row] = 1
    assert "of every batch" not in (errors.where() or "")
    errors.marks[:, 3:6] = 1
    assert errors.where() == "errors only in rows 3 to 5 of every batch"
