"""What is said of wrong outputs: the mistake that made them, if it is known, and nothing where it is not."""

import time
import tracemalloc

import numpy as np
import pytest
from helpers import definition, random_block, write_case
from mistakes import MISTAKES, attention, attention_of
from roundings import ROUNDINGS, bits, fp16, low_precision
from slow import quick_of_each, slow, slow_of_each

from hw4cli.judge.diagnosis.explain import explain
from hw4cli.judge.diagnosis.sample import Output
from hw4cli.judge.runcase import compare_files
from hw4cli.problem.errormap import ErrorMap
from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import Shape

TOLERANCE = 5e-3


@pytest.fixture
def diagnose(tmp_path):
    """The diagnosis of an output of a block; None if it is right."""

    def diagnosis(block, output, answer=None, tolerance=TOLERANCE):
        source = write_case(tmp_path / "in", block)
        for name, values in (("out", output), ("answer", definition(block) if answer is None else answer)):
            (tmp_path / name).write_bytes(np.ascontiguousarray(values, "<f4").tobytes())
        shape = Shape(block.shape[0], *block.shape[2:])
        paths = tmp_path / "out", tmp_path / "answer"
        result = compare_files(*paths, Comparison(tolerance, ErrorMap(shape)))
        return None if result.right else explain(*paths, source, shape, result)

    return diagnosis


def rising(block):
    block[:, 1] *= np.linspace(0, 8, block.shape[2], dtype=np.float32)[:, None]
    block[:, 2] += 1


def peaked(block):
    block[:, 1, block.shape[2] // 3] *= 5
    block[::2] *= np.float32(0.5)


def with_data(change, *shape):
    block = random_block(*shape, seed=7)
    change(block)
    return block


UNIFORM = random_block(3, 72, 32, seed=5)
TILES = random_block(3, 200, 32, seed=5)  # with several tiles of keys
OTHERS = {
    "uniform, N a power of two": random_block(3, 128, 64, seed=6),
    "scores that rise": with_data(rising, 4, 72, 32),
    "one key above all": with_data(peaked, 3, 72, 32),
    "large": with_data(lambda block: np.multiply(block, 4, out=block), 3, 72, 32),
}


def makes(words, block):
    """What the program that the words name makes of a block. Where keys are part of each other, the longest counts."""
    N, d = block.shape[2:]
    names = {key.format(tail=N % 32 or 32, pad=-N % 32, d=d, last=d - 1): key for key in MISTAKES}
    return MISTAKES[names[max((name for name in names if name in words), key=len)]](block).astype(np.float32)


@pytest.mark.parametrize("words", MISTAKES)
def test_a_known_mistake_is_named(diagnose, words):
    block = TILES if "tile" in words else UNIFORM
    found = diagnose(block, MISTAKES[words](block))
    if words == "with one key of zeros too many":
        assert found is None  # that little is right
    else:
        assert words.format(tail=8, pad=24, d=32, last=31) in found.mistake


def check_named(diagnose, block, mistakes):
    """Whatever is named makes just the output that one of these programs has made; how many outputs were refused."""
    refused, unnamed = 0, []
    answer = definition(block)
    for words in mistakes:
        output = MISTAKES[words](block).astype(np.float32)
        found = diagnose(block, output, answer)
        if found is not None:
            refused += 1
            if not found.mistake:
                unnamed.append(words)
            else:
                close = np.isclose(makes(found.mistake, block), output, rtol=1e-4, atol=TOLERANCE, equal_nan=True)
                assert close.all() or words in found.mistake, f"{words}: {found.mistake}"
    assert unnamed == []
    return refused


@slow
@quick_of_each(1)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # exp of large scores, into float32
@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_what_is_named_on_other_shapes_and_data_makes_just_that_output(diagnose, number):
    """Each mistake on one of them."""
    assert check_named(diagnose, [*OTHERS.values()][number], [*MISTAKES][number :: len(OTHERS)]) > 10


@slow_of_each(2)
@slow
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("data", OTHERS)
def test_every_mistake_on_all_other_shapes_and_data(diagnose, data):
    assert check_named(diagnose, OTHERS[data], MISTAKES) > 50


@pytest.mark.parametrize("words", ROUNDINGS)
def test_rounding_is_named_with_its_format(diagnose, words):
    for block in (UNIFORM, random_block(2, 96, 64, seed=8)):
        output, answer = ROUNDINGS[words](block), definition(block)
        found = diagnose(block, output, answer, tolerance=np.abs(output - answer).max() / 2)
        assert words in found.mistake


def test_a_program_that_rounds_everything_to_fp16_is_not_told_that_it_lost_keys(diagnose):
    """Behind the others stand 16 keys of little weight: leaving them, or one of them, out changes next to nothing."""
    block = random_block(4, 528, 32, seed=11)
    block[:, 1, 512:] *= np.float32(0.05)
    block[:, 2] += 3
    answer = definition(block)
    output = low_precision(fp16, s=True)(block)
    assert np.abs(output - answer).max() > TOLERANCE
    found = diagnose(block, output, answer)
    assert found.mistake == "the errors are those of Q, K, V, S, P and O rounded to fp16 or TF32 (10 bits of fraction)"


def test_what_would_be_accepted_itself_is_not_named(diagnose):
    """A zero key too many is within the tolerance; of an output with other errors on top it is not the reason."""
    output = MISTAKES["with one key of zeros too many"](UNIFORM)
    output[1, 7, 3] += 1
    found = diagnose(UNIFORM, output)
    assert found.mistake is None
    assert found.where == "errors only in batch 1, in row 7, in column 3"


def add(amount):
    return lambda rng, answer, scale: answer + scale * amount(rng, answer.shape)


NOISE = {
    "normal": add(lambda rng, shape: rng.normal(size=shape)),
    "uniform": add(lambda rng, shape: rng.uniform(-1, 1, shape)),
    "heavy tails": add(lambda rng, shape: rng.standard_t(1.5, shape)),
    "some elements": add(lambda rng, shape: (rng.random(shape) < 0.02) * rng.normal(size=shape)),
    "some rows": add(lambda rng, shape: (rng.random((*shape[:2], 1)) < 0.2) * rng.normal(size=shape)),
    "one batch": add(lambda rng, shape: (np.arange(shape[0]) == 0)[:, None, None] * rng.normal(size=shape)),
    "one column": add(lambda rng, shape: (np.arange(shape[2]) == 1) * rng.normal(size=shape)),
    "nothing but noise": lambda rng, answer, scale: scale * rng.normal(size=answer.shape),
    "any bits": lambda rng, answer, scale: np.frombuffer(rng.bytes(4 * answer.size), "<f4").reshape(answer.shape),
    "keys lost here and there": lambda rng, answer, scale: np.where(
        rng.random((*answer.shape[:2], 1)) < 0.1, answer * rng.uniform(0.5, 1, answer.shape), answer
    ),
}


@pytest.mark.parametrize("kind", NOISE)
def test_noise_of_no_known_make_is_not_named(diagnose, kind):
    rng = np.random.default_rng(list(kind.encode()))
    for _ in range(8):
        shape = int(rng.integers(1, 5)), int(rng.choice([1, 2, 3, 17, 32, 33, 64, 100])), int(rng.choice([4, 32, 64]))
        block = with_data([lambda block: None, rising, peaked][rng.integers(3)], *shape)
        answer = definition(block)
        output = NOISE[kind](rng, answer, 10 ** rng.uniform(-2, 1))
        found = diagnose(block, output, answer)
        assert found is None or found.mistake is None, (shape, found)


def test_a_right_but_imprecise_program_is_not_named_by_a_stricter_tolerance(diagnose):
    single = attention(UNIFORM.astype(np.float32)).astype(np.float32)
    for tolerance in (0, 1e-8, 1e-6):
        output = single * (
            1 + np.float32(1e-6) * np.sin(np.arange(single.size, dtype=np.float32)).reshape(single.shape)
        )
        found = diagnose(UNIFORM, output, definition(UNIFORM), tolerance)
        assert found.mistake is None
    coarse = low_precision(bits(16))(UNIFORM)
    assert diagnose(UNIFORM, coarse, tolerance=np.abs(coarse - definition(UNIFORM)).max() / 2).mistake is None


def naive(block, exp_type=np.float32, score_type=np.float32, scale=None):
    """Attention without subtracting the maximum: exp, or the scores before it, may leave the range of their type."""
    q, k, v = (block[:, part].astype(np.float64) for part in range(3))
    with np.errstate(all="ignore"):
        raw = np.einsum("bid,bjd->bij", q, k).astype(score_type).astype(np.float64)
        p = np.exp(raw * (scale or block.shape[3] ** -0.5)).astype(exp_type).astype(np.float64)
        return p @ v / p.sum(axis=2, keepdims=True)


def below_zero(block):
    """Scores far below 0 in the second half of the rows."""
    block[:, 0] = np.abs(block[:, 0])
    block[:, 1] = -np.abs(block[:, 1]) - 1
    block[:, 0, block.shape[2] // 2 :] *= 30


OVERFLOWS = {
    "exp overflows: that row's largest score is": (lambda block: np.multiply(block, 3.5, out=block), {}),
    "exp is 0 for all keys: that row's largest score is -": (below_zero, {}),
    "without the factor 1/sqrt(d): that row's largest Q·K is": (lambda block: None, {"scale": 1}),
    "exp overflows in fp16, whose largest number is 65504: that row": (lambda block: None, {"exp_type": np.float16}),
    "QKᵀ overflows in fp16": (
        lambda block: np.multiply(block, [[[30]], [[30]], [[0.1]]], out=block, casting="unsafe"),
        {"score_type": np.float16, "scale": 1e-3},
    ),
}


@pytest.mark.parametrize("words", OVERFLOWS)
def test_an_overflow_is_named_with_a_number_that_shows_it(diagnose, words):
    change, types = OVERFLOWS[words]
    block = with_data(change, 2, 384, 64)
    output = naive(block, **types)
    assert 0 < np.isnan(output).any(axis=2).sum() < output.shape[0] * output.shape[1]
    assert words in diagnose(block, output).mistake


def test_the_answer_of_another_case_is_known_by_its_name(diagnose, tmp_path):
    other = random_block(3, 200, 32, seed=12)
    write_case(tmp_path / "t08", other)
    (tmp_path / "t08.out").write_bytes(definition(other).astype("<f4").tobytes())
    assert diagnose(UNIFORM, definition(other)).mistake == "the output is that of another case, t08"


@slow
def test_a_diagnosis_takes_little_time_and_memory_for_long_rows_too(tmp_path):
    """0.4 s of processor time and 80 MB at t30's shape; with room for slow machines."""
    shape, rng = Shape(2, 32768, 64), np.random.default_rng(1)
    answer = rng.random((2, 32768, 64), np.float32) - 0.5
    block = 6 * rng.random((2, 3, 32768, 64), np.float32) - 3
    answer[:, 0] = attention_of(block[:, 0, :1], block[:, 1], block[:, 2])[:, 0]  # the others are looked at, too, but
    source = write_case(tmp_path / "in", block)  # what they are makes no difference to the time
    paths = tmp_path / "out", tmp_path / "answer"
    for path, values in zip(paths, (answer + 0.1 * rng.random(answer.shape, np.float32), answer), strict=True):
        path.write_bytes(values.tobytes())
    result = compare_files(*paths, Comparison(TOLERANCE, ErrorMap(shape)))
    begun = time.process_time()
    found = explain(*paths, source, shape, result)
    assert time.process_time() - begun < 3
    assert (found.mistake, found.strange_input) == (None, False)
    tracemalloc.start()
    explain(*paths, source, shape, result)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


def test_short_rows_are_read_together_however_many_they_are(diagnose, monkeypatch):
    """A read for each would take longer than all the rest."""
    block = random_block(256, 256, 1, seed=8)
    reads, elements = [], Output.elements
    monkeypatch.setattr(Output, "elements", lambda self, *where: reads.append(where) or elements(self, *where))
    found = diagnose(block, np.zeros((256, 256, 1)), answer=np.ones((256, 256, 1)))
    assert found.mistake == "the whole output is zeros, as if never computed or copied back"
    assert len(reads) < 65536 / 4
