"""docs/train.py: a small transformer learns as much with our attention as with torch's, with the same bits again."""

import re
import sys

import pytest
from helpers import ROOT

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
sys.path.append(str(ROOT / "docs"))

import train  # noqa: E402


@pytest.fixture(autouse=True)
def other_tests_as_they_were():
    """The example asks torch for deterministic operators."""
    yield
    torch.use_deterministic_algorithms(False)


def trained(attention):
    return train.train(train.Training(attention, size=train.TINY), 60)


def test_a_tiny_model_learns_the_same_and_has_the_same_bits_again():
    losses, digest = trained("hw4")
    assert losses[-1] < 0.8 * losses[0]
    assert trained("hw4")[1] == digest
    theirs, _ = trained("torch")
    assert losses == pytest.approx(theirs, abs=1e-3)


def test_the_example_prints_its_loss_and_a_digest(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--size", "tiny", "--device", "cpu", "--steps", "60"])
    train.main()
    first, second, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step   50  loss \d\.\d{4}", first)
    assert re.fullmatch(r"step   60  loss \d\.\d{4}  [\d,]+ tokens/s", second), "of the steps after the first ones"
    assert last.startswith("parameters ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "-1"], "-1 steps: give 1 or more"),
        (["--size", "huge"], "invalid choice: 'huge'"),
        (["--device", "cuda"], "there is no GPU that PyTorch can use here"),
    ],
)
def test_the_example_says_what_is_wrong_in_a_sentence(monkeypatch, capsys, words, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 2 and said in capsys.readouterr().err
