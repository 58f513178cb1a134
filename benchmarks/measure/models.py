"""Models of Hugging Face's transformers and of timm with hw4's attention beside their own: which are right or refused.

    python -m benchmarks.measure.models --output models.json

Small configurations with random weights, on the CPU: outputs, and the gradients of all parameters of a loss. Models of
transformers take the implementation "hw4" in the place of "eager"; timm's call torch's scaled_dot_product_attention,
for which hw4cli.torch.attention stands. Needs PyTorch, transformers and timm, which needs torchvision.
"""

import argparse
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from benchmarks.measure.scripts import end_with, new_file, say, write_record
from hw4cli.errors import MachineError

BATCH, TOKENS, VOCABULARY = 3, 24, 50
LENGTHS = [24, 11, 3]
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
SMALL = {**LAYERS, "intermediate_size": 64, "vocab_size": VOCABULARY}
GROUPED = {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0}
PADDED = {"padding": "right"}
ALLOWED = 1e-4  # of outputs and gradients, beside the largest


class Model(NamedTuple):
    """A model, by the class of transformers that has its head or timm's name of it, and its configuration."""

    name: str
    config: str = ""
    options: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    training: bool = False


MODELS = (
    Model("LlamaForCausalLM", "LlamaConfig", GROUPED),
    Model("LlamaForCausalLM", "LlamaConfig", GROUPED, PADDED),
    Model("LlamaForCausalLM", "LlamaConfig", GROUPED, {"padding": "left"}),
    Model("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 5}, PADDED),
    Model("MixtralForCausalLM", "MixtralConfig", {**GROUPED, "num_local_experts": 2, "sliding_window": 7}),
    Model("GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 256}),
    Model("Gemma2ForCausalLM", "Gemma2Config", {**GROUPED, "head_dim": 32, "sliding_window": 5}, PADDED),
    Model("Gemma3ForCausalLM", "Gemma3TextConfig", {**GROUPED, "head_dim": 32, "sliding_window": 5}),
    Model("Qwen2ForCausalLM", "Qwen2Config", GROUPED, PADDED),
    Model("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 32}),
    Model("PhiForCausalLM", "PhiConfig", GROUPED),
    Model(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **SMALL,
            **{"num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 32, "first_k_dense_replace": 2},
            **{"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "pad_token_id": 0},
        },
    ),
    Model("GPT2LMHeadModel", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY}, PADDED),
    Model("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
    Model("OPTForCausalLM", "OPTConfig", {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 64}, PADDED),
    Model("BertModel", "BertConfig", SMALL, PADDED),
    Model("RobertaModel", "RobertaConfig", SMALL),
    Model("ModernBertModel", "ModernBertConfig", {**SMALL, "pad_token_id": 0, "local_attention": 8}, PADDED),
    Model(
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY},
        {**PADDED, "decoder": 9},
    ),
    Model(
        "BartForConditionalGeneration",
        "BartConfig",
        {
            **{"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": VOCABULARY},
            **{"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_attention_heads": 4},
            **{"decoder_attention_heads": 4, "max_position_embeddings": 32},
        },
        {**PADDED, "decoder": 9},
    ),
    Model(
        "WhisperModel",
        "WhisperConfig",
        {
            **{"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": VOCABULARY, "pad_token_id": 0},
            **{"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_attention_heads": 4, "bos_token_id": 1},
            **{"decoder_attention_heads": 4, "max_source_positions": 20, "eos_token_id": 2, "num_mel_bins": 8},
            **{"decoder_start_token_id": 1},
        },
        {"sounds": 40, "decoder": 9},
    ),
    Model(
        "BeitModel",
        "BeitConfig",
        {**LAYERS, "intermediate_size": 64, "image_size": 32, "patch_size": 8, "use_relative_position_bias": True},
        {"pixels": 32},
    ),
    Model("vit_tiny_patch16_224", options={"img_size": 48, "depth": 2}, inputs={"pixels": 48}),
    Model(
        "swin_tiny_patch4_window7_224",
        options={"img_size": 56, "depths": (2, 2), "num_heads": (2, 4)},
        inputs={"pixels": 56},
    ),
    Model("BertModel", "BertConfig", SMALL, training=True),
)


def inputs_of(model: Model, torch: Any) -> dict[str, Any]:
    """What a model reads, the same each time; tokens that are padding have a mask."""
    random = torch.Generator().manual_seed(1)
    asked = model.inputs

    def tokens(count: int) -> Any:
        return torch.randint(1, VOCABULARY - 1, (BATCH, count), generator=random)

    def numbers(*shape: int) -> Any:
        return torch.randn(BATCH, *shape, generator=random)

    if "pixels" in asked:
        return {"pixel_values": numbers(3, asked["pixels"], asked["pixels"])}
    found = {"input_features": numbers(8, asked["sounds"])} if "sounds" in asked else {"input_ids": tokens(TOKENS)}
    if "padding" in asked:
        place = torch.arange(TOKENS)
        place = place if asked["padding"] == "right" else place.flip(0)
        mask = place[None] < torch.tensor(LENGTHS)[:, None]
        found |= {"input_ids": found["input_ids"] * mask, "attention_mask": mask.long()}
    return found | ({"decoder_input_ids": tokens(asked["decoder"])} if "decoder" in asked else {})


def made(model: Model, torch: Any) -> Any:
    """The model, with weights that are random, and none of which are 0."""
    torch.manual_seed(0)
    if model.config:
        import transformers

        found = getattr(transformers, model.name)(getattr(transformers, model.config)(**model.options))
    else:
        import timm

        timm.layers.set_fused_attn(True, experimental=True)  # Swin's, too, calls torch's function
        found = timm.create_model(model.name, num_classes=10, **model.options)
    for name, parameter in found.named_parameters():
        if "bias_table" in name:
            torch.nn.init.normal_(parameter)
    return found.train(model.training)


@contextmanager
def own_attention(torch: Any) -> Iterator[None]:
    """Let torch's scaled_dot_product_attention be hw4's, which a model must call then."""
    import hw4cli.torch

    functions, calls = torch.nn.functional, []

    def attention(*arguments: Any, **options: Any) -> Any:
        calls.append(options)
        return hw4cli.torch.attention(*arguments, **options)

    before, functions.scaled_dot_product_attention = functions.scaled_dot_product_attention, attention
    try:
        yield
        assert calls, "the model has computed attention by itself"
    finally:
        functions.scaled_dot_product_attention = before


def computed(model: Model, found: Any, by_hw4: bool, torch: Any) -> list[Any]:
    """The outputs of what is no padding, and the gradients of a loss of them."""
    given = inputs_of(model, torch)
    found.zero_grad()
    if model.config:
        found.set_attn_implementation("hw4" if by_hw4 else "eager")
        out = found(**given)
        out = out.logits if hasattr(out, "logits") else out.last_hidden_state
    else:
        with own_attention(torch) if by_hw4 else nullcontext():
            out = found(given["pixel_values"])
    if "attention_mask" in given and "decoder_input_ids" not in given:
        out = out[given["attention_mask"].bool()]
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    (out * weights).mean().backward()
    return [out.detach(), *(x.grad.clone() for x in found.parameters() if x.grad is not None)]


def row_of(model: Model, torch: Any) -> dict[str, Any]:
    """How a model's output and gradients differ at most, of the largest of either, or what refuses it."""
    words = [*(f"{name} {value}" for name, value in model.inputs.items() if name == "padding")]
    words += ["training, dropout 0.1"] * model.training
    row: dict[str, Any] = {"model": model.name, "of": "transformers" if model.config else "timm"}
    row |= {"case": ", ".join(words)} if words else {}
    found = made(model, torch)
    right = computed(model, found, False, torch)
    try:
        ours = computed(model, found, True, torch)
    except (ValueError, TypeError, NotImplementedError) as error:
        return {**row, "status": "refused", "why": f"{type(error).__name__}: {error}"}
    assert len(ours) == len(right)
    output, *gradients = ((one - other).abs().max().item() for one, other in zip(ours, right, strict=True))
    output, gradient = (
        output / right[0].abs().max().item(),
        max(gradients) / max(x.abs().max().item() for x in right[1:]),
    )
    status = "ok" if max(output, gradient) <= ALLOWED else "wrong"
    return {**row, "status": status, "output": output, "gradients": gradient}


def main() -> int:
    """All models, a line each; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file)
    given = parser.parse_args()
    for name in ("torch", "torchvision", "transformers", "timm"):  # torchvision is timm's
        if importlib.util.find_spec(name) is None:
            raise MachineError(f"the models need PyTorch, transformers and timm, and {name} is not installed")
    import timm
    import torch
    import transformers

    import hw4cli.torch
    from hw4cli.lab.record import heading

    hw4cli.torch.register_in_transformers()
    rows = []
    for model in MODELS:
        rows.append(row := row_of(model, torch))
        what = row.get("why") or f"output {row['output']:.1e}, gradients {row['gradients']:.1e}"
        say(f"{row['model']} ({row.get('case', '')}): {row['status']}: {what}")
    if given.output:
        versions = {one.__name__: one.__version__ for one in (torch, transformers, timm)}
        write_record(given.output, {**heading("models"), "versions": versions, "rows": rows})
    return 1 if any(row["status"] == "wrong" for row in rows) else 0


if __name__ == "__main__":
    end_with(main)
