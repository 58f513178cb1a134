"""`--causal` from file to file: what makes, computes, compares and judges the answers of causal attention."""

import json
import sys

import numpy as np
import pytest
from helpers import JUDGE_T01, definition, fails, random_block, run_here, write_case
from slow import slow

from hw4cli.errors import InputError
from hw4cli.judge.casemanifest import CaseManifest

SHAPE = (2, 150, 36)


def causal(block):
    return np.stack([definition(block[:, :, : row + 1])[:, -1] for row in range(block.shape[2])], axis=1)


def done(*words):
    result = run_here(*words)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The case t01 with its causal answer, and no other."""
    folder = tmp_path_factory.mktemp("causal")
    done("gen", "t01", "--causal", "--dir", folder)
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".json")[-2:] == ["t01", "t01.causal.out"]
    return folder


def test_a_made_answer_and_the_cpus_are_the_definitions(tmp_path):
    done("gen", ",".join(map(str, SHAPE)), "--causal", "-o", tmp_path / "in")
    block = np.fromfile(tmp_path / "in", np.float32, offset=12).reshape(SHAPE[0], 3, *SHAPE[1:])
    answer = np.fromfile(tmp_path / "in.causal.out", np.float32).reshape(SHAPE)
    assert np.abs(answer - causal(block)).max() < 1e-6
    assert "causal" in done(tmp_path / "in", tmp_path / "mine", "--causal", "--device", "cpu")
    assert done("verify", tmp_path / "mine", tmp_path / "in.causal.out").endswith("right\n")
    (tmp_path / "other.out").write_bytes((tmp_path / "in.causal.out").read_bytes())
    words = ("verify", tmp_path / "mine", tmp_path / "other.out", "--causal", tmp_path / "in", "--json")
    found = json.loads(done(*words))
    assert (found["causal"], found["right"], found["shape"]) == (True, True, list(SHAPE))


def scores(block):
    return block[:, 0].astype(np.float64) @ block[:, 1].swapaxes(1, 2) / np.sqrt(block.shape[3])


def weighted(block, s):
    p = np.exp(s - s.max(axis=2, keepdims=True))
    return p / p.sum(axis=2, keepdims=True) @ block[:, 2]


WRONG = {
    "without the causal mask": definition,
    "with a causal mask that lets each row see one key too many": lambda block: weighted(
        block, np.where(np.tri(SHAPE[1], k=1), scores(block), -np.inf)
    ),
    "when masked scores are 0, not minus infinity": lambda block: weighted(block, np.tril(scores(block))),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_with_the_mask_is_named(tmp_path, mistake):
    block = random_block(*SHAPE)
    write_case(tmp_path / "in", block)
    causal(block).astype("<f4").tofile(tmp_path / "in.causal.out")
    WRONG[mistake](block).astype("<f4").tofile(tmp_path / "mine")
    result = run_here("verify", tmp_path / "mine", tmp_path / "in.causal.out")
    assert result.returncode == 1
    assert f"the wrong rows equal attention computed {mistake}" in " ".join(result.stdout.split())


@slow
def test_the_judge_compares_with_causal_answers(folder):
    assert "AC" in done(*JUDGE_T01, "--causal", "--dir", folder)
    unmasked = run_here(*JUDGE_T01, "--causal", "--dir", folder, "--program", f"{sys.executable} -P -m hw4cli")
    assert unmasked.returncode == 1, unmasked.stderr
    assert "NA" in unmasked.stdout


def test_answers_that_are_missing_are_named_with_the_command_that_makes_them(folder, tmp_path):
    fails(run_here("judge", "t01", "--dir", folder), 3, "hw4 gen t01 --dir")
    fails(run_here("judge", "t01", "--causal", "--dir", tmp_path), 3, "--causal`")


def test_a_judging_of_causal_answers_is_not_resumed_as_another(tmp_path):
    CaseManifest.load(tmp_path, secret=False, causal=True).save()
    with pytest.raises(InputError, match="causal answers: give --causal"):
        CaseManifest.load(tmp_path, secret=False)
    assert CaseManifest.load(tmp_path, secret=False, causal=True).causal
