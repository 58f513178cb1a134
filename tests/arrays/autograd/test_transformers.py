"""Models of Hugging Face's transformers with hw4's attention, beside their own, on the CPU: masks, generation."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from slow import few, slow  # noqa: E402

import hw4cli.torch  # noqa: E402
from hw4cli.arrays.autograd.transformers import attention_of_model  # noqa: E402

LENGTHS = [12, 7, 1]
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}

BIGBIRD = {"layers": 1, "attention_heads": 4, "ffn_dim": 64}


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
    if kind == "gemma2":  # capped scores, and every other layer a window
        config = transformers.Gemma2Config(
            **SMALL, num_key_value_heads=2, head_dim=16, sliding_window=5, attn_logit_softcapping=2.0, pad_token_id=0
        )
        return transformers.Gemma2ForCausalLM(config).eval()
    if kind == "t5":  # a bias of positions, and a second sequence
        config = transformers.T5Config(
            d_model=64, d_kv=16, d_ff=64, num_layers=2, num_heads=4, vocab_size=50, dropout_rate=0.0, pad_token_id=0
        )
        config.decoder_start_token_id = 0
        return transformers.T5ForConditionalGeneration(config).eval()
    if kind == "bart":
        config = transformers.BartConfig(
            d_model=64,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            vocab_size=50,
            dropout=0.0,
            max_position_embeddings=32,
        )
        return transformers.BartForConditionalGeneration(config).eval()
    if kind.startswith("bigbird_pegasus"):
        small = {f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in BIGBIRD.items()}
        config = transformers.BigBirdPegasusConfig(**small, d_model=64, vocab_size=50, dropout=0.0)
        if "encoder" in kind:  # which has an attention of its own, and adds masks there
            return transformers.BigBirdPegasusForConditionalGeneration(config).eval()
        return transformers.BigBirdPegasusForCausalLM(config).eval()  # whose layers do not say that they are causal
    if kind == "doge":  # which computes a mask from the one that it is given
        config = transformers.DogeConfig(**SMALL, num_key_value_heads=2, pad_token_id=0)
        return transformers.DogeForCausalLM(config).eval()
    if kind == "beit":
        config = transformers.BeitConfig(
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            use_relative_position_bias=True,
        )
        model = transformers.BeitModel(config).eval()
        for name, parameter in model.named_parameters():
            if name.endswith("relative_position_bias_table"):  # which begin as 0
                torch.nn.init.normal_(parameter)
        return model
    return transformers.BertModel(transformers.BertConfig(**SMALL)).eval()


def batch(side):
    """Tokens of several lengths, with padding on a side."""
    tokens, mask = torch.zeros(3, 12, dtype=torch.long), torch.zeros(3, 12, dtype=torch.long)
    random = torch.Generator().manual_seed(1)
    for n, length in enumerate(LENGTHS):
        some = slice(0, length) if side == "right" else slice(12 - length, 12)
        tokens[n, some], mask[n, some] = torch.randint(1, 49, (length,), generator=random), 1
    return {"input_ids": tokens, "attention_mask": mask}


def found(model, implementation, given, read=None):
    """The output of the tokens of `read`, and the parameters' gradients of a loss of them."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    out = model(**given)
    out = (out.logits if hasattr(out, "logits") else out.last_hidden_state)[read]
    out.square().mean().backward()
    return out.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad.clone() for x in model.parameters())


def assert_like_eager(model, given, read=slice(None)):
    for one, right in zip(*(found(model, name, given, read) for name in ("hw4", "eager")), strict=True):
        torch.testing.assert_close(one, right, atol=2e-5, rtol=1e-3)


@pytest.fixture(autouse=True)
def registered():
    hw4cli.torch.register_in_transformers()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["llama", "bert", "mistral", "gemma2", "bigbird_pegasus", "doge"])
def test_a_padded_batch_is_computed_and_learnt_from_as_by_the_models_own_attention(kind, side):
    model, given = model_of(kind), batch(side)
    assert_like_eager(model, given, given["attention_mask"].bool())


@pytest.mark.parametrize("side", few(["right", "left"], 1))
@pytest.mark.parametrize("kind", few(["llama", "bert", "mistral", "gemma2", "t5"], 1))
def test_a_compiled_model_is_one_graph_for_a_padded_batch_and_learns_the_same(kind, side):
    model, given = model_of(kind), batch(side)
    read = given["attention_mask"].bool()
    if kind == "t5":
        given["decoder_input_ids"], read = batch("right")["input_ids"], slice(None)
    right = found(model, "eager", given, read)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    own = found(compiled, "hw4", given, read)
    for one, other in zip(own, right, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("tokens", [12, 5])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["t5", "bart", "bigbird_pegasus with an encoder"])
def test_a_decoder_reads_a_padded_sequence_of_an_encoder_with_all_of_its_own_tokens(kind, side, tokens):
    given = batch(side)
    given["decoder_input_ids"] = torch.randint(1, 49, (3, tokens), generator=torch.Generator().manual_seed(2))
    assert_like_eager(model_of(kind), given)


def test_a_bias_of_positions_between_patches_is_added_and_learnt():
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert_like_eager(model_of("beit"), {"pixel_values": pixels})


@pytest.mark.parametrize("kind", ["llama", "bert", "gemma2"])
def test_padding_may_lie_between_tokens_and_on_other_sides_of_other_batches(kind):
    given = batch("right")
    given["attention_mask"][0, 3:6] = 0
    given["attention_mask"][2] = torch.tensor([0] * 11 + [1])
    assert_like_eager(model_of(kind), given, given["attention_mask"].bool())


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_sequences_that_are_packed_by_their_positions_do_not_see_one_another(kind):
    given = {"input_ids": batch("right")["input_ids"][:1], "use_cache": False}
    given["position_ids"] = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]])
    model = model_of(kind)
    assert_like_eager(model, given)
    model.set_attn_implementation("hw4")
    alone = model(given["input_ids"][:, 5:8]).logits
    torch.testing.assert_close(model(**given).logits[:, 5:8], alone, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("added", [False, True])
def test_a_mask_of_ones_own_is_all_that_there_is(added):
    seen = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(3)) < 0.6
    seen |= torch.eye(12, dtype=torch.bool)
    mask = torch.zeros(3, 1, 12, 12).masked_fill(~seen, torch.finfo(torch.float32).min)
    model, given = model_of("llama"), {"input_ids": batch("right")["input_ids"]}
    right = found(model, "eager", given | {"attention_mask": mask}, slice(None))
    own = found(model, "hw4", given | {"attention_mask": mask if added else seen}, slice(None))
    for one, other in zip(own, right, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-3)


def test_a_bias_with_a_mask_of_four_dimensions_is_as_torchs_attention_has_it():
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    random = torch.Generator().manual_seed(4)
    q, k, v = torch.randn(3, 3, 2, 12, 16, generator=random)
    bias = torch.randn(1, 2, 12, 12, generator=random)
    seen = torch.rand(3, 1, 12, 12, generator=random) < 0.7
    for mask in (seen, torch.where(seen, 0.0, -1e30), seen.any(2, keepdim=True), None):
        module = torch.nn.Module()
        module.is_causal = mask is None
        one, other = (
            function(module, q, k, v, mask, position_bias=bias)[0]
            for function in (attention_of_model, sdpa_attention_forward)
        )
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
def test_a_model_generates_the_same_tokens_for_a_batch_that_is_padded_on_the_left(kind):
    model, given, tokens = model_of(kind), batch("left"), []
    for implementation in ("hw4", "eager"):
        model.set_attn_implementation(implementation)
        tokens.append(model.generate(**given, max_new_tokens=8, do_sample=False))
    assert torch.equal(*tokens)


def test_a_cache_with_room_for_more_is_read_as_far_as_it_is_filled():
    model, given, tokens = model_of("llama"), batch("left"), []
    for implementation in ("hw4", "eager"):
        model.set_attn_implementation(implementation)
        options = {"cache_implementation": "static", "disable_compile": True}
        tokens.append(model.generate(**given, max_new_tokens=8, do_sample=False, **options))
    assert torch.equal(*tokens)


@pytest.mark.parametrize("kind", few(["llama", "mistral", "gemma2"], 1))
def test_inference_mode_whose_tensors_count_no_changes_gives_the_same_numbers_and_tokens(kind):
    model, found = model_of(kind), []
    for implementation in ("hw4", "eager"):
        model.set_attn_implementation(implementation)
        with torch.inference_mode():
            given = batch("left")  # made there
            tokens = model.generate(**given, max_new_tokens=4, do_sample=False)
            found.append((model(**given).logits[given["attention_mask"].bool()], tokens))
    (one, its_tokens), (other, right) = found
    assert torch.equal(its_tokens, right)
    torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-3)


def test_a_mask_that_is_changed_where_changes_are_not_counted_is_read_again():
    q = torch.randn(2, 2, 12, 16)
    with torch.inference_mode():
        mask = torch.ones(2, 12)
        first = attention_of_model(torch.nn.Module(), q, q, q, mask)[0]
        mask[1, 7:] = 0
        second = attention_of_model(torch.nn.Module(), q, q, q, mask)[0]
    assert second[0].equal(first[0]) and not second[1, 7:].any() and first[1, 7:].any()


@slow
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
def test_a_compiled_model_generates_the_same_tokens(kind, cache):
    """A static cache's masks are made before the graph."""
    model, given = model_of(kind), batch("left")
    options = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    model.set_attn_implementation("eager")
    right = model.generate(**given, max_new_tokens=8, do_sample=False, **options)
    model.set_attn_implementation("hw4")
    model.forward = torch.compile(model.forward, backend="eager", fullgraph=True)
    assert torch.equal(model.generate(**given, max_new_tokens=8, do_sample=False, **options), right)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_the_layers_of_a_model_read_a_mask_once(monkeypatch, mode):
    model, read = model_of("llama"), []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: read.append(tuple(x.shape)) or tolist(x))
    model.set_attn_implementation("hw4")
    with mode():
        model(**batch("right"))
    assert read.count((3,)) == 1, read


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"s_aux": torch.zeros(2)}, "the model asks for attention sinks"),
        ({"dropout": 0.1}, "there is no dropout here"),
    ],
)
def test_what_models_ask_for_and_hw4_has_not_is_refused(options, words):
    q = torch.zeros(3, 2, 12, 16)
    with pytest.raises(ValueError, match=words):
        attention_of_model(torch.nn.Module(), q, q, q, None, **options)


def test_a_mask_of_another_shape_is_refused():
    q = torch.zeros(1, 2, 12, 16)
    with pytest.raises(ValueError, match=r"the mask is \(1, 12, 12\): give one of padding, \(batch, keys\)"):
        attention_of_model(torch.nn.Module(), q, q, q, torch.ones(1, 12, 12))
