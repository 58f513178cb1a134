"""Models of Hugging Face's transformers with hw4's attention, beside their own, on the CPU: padding, generation."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import hw4cli.torch  # noqa: E402
from hw4cli.arrays.autograd.transformers import attention_of_model  # noqa: E402

LENGTHS = [12, 7, 1]
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}


def model_of(kind):
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, pad_token_id=0, eos_token_id=49)
        return transformers.LlamaForCausalLM(config).eval()
    if kind == "mistral":  # of which a token sees itself and the four before it
        config = transformers.MistralConfig(
            **SMALL, num_key_value_heads=2, sliding_window=5, pad_token_id=0, eos_token_id=49
        )
        return transformers.MistralForCausalLM(config).eval()
    return transformers.BertModel(transformers.BertConfig(**SMALL)).eval()


def batch(side):
    """Tokens of several lengths, with padding on a side."""
    tokens, mask = torch.zeros(3, 12, dtype=torch.long), torch.zeros(3, 12, dtype=torch.long)
    random = torch.Generator().manual_seed(1)
    for n, length in enumerate(LENGTHS):
        some = slice(0, length) if side == "right" else slice(12 - length, 12)
        tokens[n, some], mask[n, some] = torch.randint(1, 49, (length,), generator=random), 1
    return {"input_ids": tokens, "attention_mask": mask}


def found(model, implementation, given):
    """The output of tokens that are no padding, and a parameter's gradient of a loss of them."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    out = model(**given)
    out = (out.logits if hasattr(out, "logits") else out.last_hidden_state)[given["attention_mask"].bool()]
    out.square().mean().backward()
    return out.detach(), next(model.parameters()).grad.clone()


@pytest.fixture(autouse=True)
def registered():
    hw4cli.torch.register_in_transformers()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["llama", "bert", "mistral"])
def test_a_padded_batch_is_computed_and_learnt_from_as_by_the_models_own_attention(kind, side):
    model, given = model_of(kind), batch(side)
    for one, right in zip(found(model, "hw4", given), found(model, "eager", given), strict=True):
        torch.testing.assert_close(one, right, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_model_generates_the_same_tokens_for_a_batch_that_is_padded_on_the_left(kind):
    model, given, tokens = model_of(kind), batch("left"), []
    for implementation in ("hw4", "eager"):
        model.set_attn_implementation(implementation)
        tokens.append(model.generate(**given, max_new_tokens=8, do_sample=False))
    assert torch.equal(*tokens)


def test_the_layers_of_a_model_read_a_mask_once(monkeypatch):
    model, given, read = model_of("llama"), batch("right"), []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: read.append(tuple(x.shape)) or tolist(x))
    model.set_attn_implementation("hw4")
    model(**given)
    assert read.count((3,)) == 1, read


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"softcap": 30.0}, "the model asks for softcap"),
        ({"dropout": 0.1}, "there is no dropout here"),
    ],
)
def test_what_models_ask_for_and_hw4_has_not_is_refused(options, words):
    q = torch.zeros(3, 2, 12, 16)
    with pytest.raises(ValueError, match=words):
        attention_of_model(torch.nn.Module(), q, q, q, None, **options)


def test_a_mask_with_gaps_is_refused():
    q = torch.zeros(1, 2, 12, 16)
    with pytest.raises(ValueError, match="the mask hides keys between others"):
        attention_of_model(torch.nn.Module(), q, q, q, torch.tensor([[1, 0, 1] * 4]))
    with pytest.raises(ValueError, match=r"the mask is \(1, 1, 12, 12\)"):
        attention_of_model(torch.nn.Module(), q, q, q, torch.ones(1, 1, 12, 12))
