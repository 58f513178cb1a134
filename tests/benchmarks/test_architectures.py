"""The comparison of transformers' architectures says what is right, wrong, refused and left out."""

import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import hw4cli.torch  # noqa: E402
from benchmarks.measure import architectures  # noqa: E402
from hw4cli.errors import InputError  # noqa: E402

TASK = architectures.TASKS["the next token"]


@pytest.fixture(autouse=True)
def registered():
    hw4cli.torch.register_in_transformers()
    yield
    hw4cli.torch.register_in_transformers()


def test_an_architecture_is_right_with_hw4s_attention():
    found = architectures.row_of("llama", "LlamaForCausalLM", TASK)
    assert found["status"] == "ok" and found["worst"] < 1e-5


def test_attention_that_sees_later_tokens_is_wrong():
    def without_a_mask(module, query, key, value, attention_mask, **_):
        o = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return o.transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("hw4", without_a_mask)
    assert architectures.row_of("llama", "LlamaForCausalLM", TASK)["status"] == "wrong"


def test_what_is_refused_and_what_is_left_out_have_their_reasons():
    found = architectures.row_of("gpt_oss", "GptOssForCausalLM", TASK)
    assert found["status"] == "refused" and "attention sinks" in found["why"]
    found = architectures.row_of("llama", "NoSuchModel", TASK)
    assert found["status"] == "left out" and "NoSuchModel" in found["why"]


def test_an_architecture_that_there_is_not_is_named_before_any_is_made(monkeypatch, tmp_path):
    output = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["architectures.py", "--only", "nosuch", "llama", "--output", str(output)])
    with pytest.raises(InputError, match=r"nosuch: transformers .* has no such architecture here"):
        architectures.main()
    assert not output.exists()
