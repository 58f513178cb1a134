"""Every architecture of Hugging Face's transformers that is easily made small, with hw4's attention beside its own:
which are right or refused.

    python -m benchmarks.measure.architectures --output architectures.json

Models of random weights on the CPU, with a head for a task: the output without padding and with it on either side, the
gradients of all parameters of a loss of it, and tokens that are generated after padding. Left out, with the reason, are
architectures whose small configuration, or whose own attention, does not work here. Needs PyTorch and transformers;
takes ten minutes. `models` compares fewer models, and timm's, more closely.
"""

import argparse
import importlib.util
import inspect
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.measure.models import ALLOWED
from benchmarks.measure.scripts import end_with, new_file, say, write_record
from hw4cli.errors import InputError, MachineError

BATCH, TOKENS, OTHER_TOKENS, VOCABULARY, SAMPLES, FRAMES, MADE = 3, 12, 5, 99, 4000, 50, 6
LENGTHS = [12, 7, 2]
SIZE, LARGEST = 32, 30_000_000  # pixels; parameters
SECONDS = 40  # for what is made and computed by one attention
# By the names that configurations have in common.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("ffn_hidden_size", "d_ff", "max_position_embeddings"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "n_routed_experts"), 4),
    **dict.fromkeys(("num_local_experts", "num_experts", "num_key_value_heads"), 2),
    **dict.fromkeys(("encoder_layers", "num_experts_per_tok", "n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"), 32),
    **dict.fromkeys(("qk_rope_head_dim", "d_kv"), 16),
    **{"image_size": SIZE, "patch_size": 8, "num_labels": 5, "num_mel_bins": 80, "sliding_window": 5},
    **{"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    **dict.fromkeys(("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "hidden_dropout_prob"), 0.0),
    **dict.fromkeys(("dropout", "embd_pdrop", "resid_pdrop", "hidden_dropout"), 0.0),
}


class Task(NamedTuple):
    """A head that models have: transformers' table of them, and what such models read."""

    table: str
    reads: str


TASKS = {
    "the next token": Task("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "tokens"),
    "masked tokens": Task("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "masked"),
    "a second sequence": Task("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "sequences"),
    "classes of images": Task("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "pixels"),
    "classes of sounds": Task("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES", "sounds"),
    "letters of sounds": Task("MODEL_FOR_CTC_MAPPING_NAMES", "sounds"),
}


class TooLongError(Exception):
    """Something has taken longer than SECONDS."""


@contextmanager
def limited() -> Iterator[None]:
    """A block that may take so long. Raises TooLongError."""

    def end(*_: Any) -> None:
        raise TooLongError(f"takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def small(kind: str) -> Any:
    """A small configuration of an architecture, of its text where it has several parts."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    usual = CONFIG_MAPPING[kind]().get_text_config()
    known = usual.to_dict()
    options = {name: n for name, n in SMALL.items() if name in known or name in type(usual).attribute_map}
    latent = known.get("qk_rope_head_dim")  # compressed K and V (DeepSeek), whose heads are not shared
    if latent:
        options["num_key_value_heads"] = options["num_attention_heads"]
    if known.get("head_dim"):
        options["head_dim"] = SMALL["qk_rope_head_dim"] if latent else 2 * SMALL["d_kv"]
    options = {name: n for name, n in options.items() if known.get(name, n) is not None}
    if known.get("layer_types"):
        options["layer_types"] = (sorted(set(known["layer_types"])) * 2)[: SMALL["num_hidden_layers"]]
    return type(usual)(**options)


def made(kind: str, name: str) -> Any:
    """A small model."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, name)(small(kind)).eval()
    count = sum(x.numel() for x in model.parameters())
    if count > LARGEST:
        raise ValueError(f"has {count:,} parameters")
    return model


def given(model: Any, task: Task) -> Iterator[dict[str, Any]]:
    """What a model reads, one batch after the other, the same each time; with padding, tokens have a mask."""
    import torch

    random = torch.Generator().manual_seed(1)
    if task.reads == "pixels":
        yield {"pixel_values": torch.randn(BATCH, 3, SIZE, SIZE, generator=random)}
        return
    if task.reads == "sounds":
        if "input_features" in inspect.signature(model.forward).parameters:
            bins = getattr(model.config, "num_mel_bins", None) or model.config.feature_projection_input_dim
            yield {"input_features": torch.randn(BATCH, FRAMES, bins, generator=random)}
        else:
            yield {"input_values": torch.randn(BATCH, SAMPLES, generator=random)}
        return
    tokens = torch.randint(3, VOCABULARY - 1, (BATCH, TOKENS), generator=random)
    place, lengths = torch.arange(TOKENS), torch.tensor(LENGTHS)[:, None]
    for seen in (place[None] < lengths.new_full((BATCH, 1), TOKENS), place < lengths, place.flip(0) < lengths):
        found = {"input_ids": tokens * seen, "attention_mask": seen.long()}
        yield found | ({"decoder_input_ids": tokens[:, :OTHER_TOKENS]} if task.reads == "sequences" else {})


def computed(model: Any, task: Task, attention: str) -> list[Any]:
    """Outputs of what is no padding, gradients of a loss of them, and tokens that follow."""
    import torch

    model.set_attn_implementation(attention)
    found = []
    for batch in given(model, task):
        model.zero_grad()
        out = model(**batch).logits
        if task.reads in ("tokens", "masked"):
            out = out[batch["attention_mask"].bool()]
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).mean().backward()
        found += [out.detach(), torch.cat([x.grad.flatten() for x in model.parameters() if x.grad is not None])]
    if task.reads in ("tokens", "sequences"):
        asked = {"max_new_tokens": MADE, "min_new_tokens": MADE, "do_sample": False}
        found.append(model.generate(**{**batch, "decoder_input_ids": None}, **asked).float())
    return found


def row_of(kind: str, name: str, task: Task) -> dict[str, Any]:
    """How what a model gives differs at most, beside the largest number, or what refuses it or why it is left out."""
    try:
        with limited():
            model = made(kind, name)
            right = computed(model, task, "eager")
    except Exception as error:  # whatever a configuration does not allow
        return {"status": "left out", "why": _words(error)}
    try:
        with limited():
            ours = computed(model, task, "hw4")
    except (ValueError, NotImplementedError) as error:
        return {"status": "refused", "why": _words(error)}
    except Exception as error:
        return {"status": "wrong", "why": _words(error)}
    worst = max(((one - other).abs().max() / other.abs().max()).item() for one, other in zip(ours, right, strict=True))
    return {"status": "ok" if worst <= ALLOWED else "wrong", "worst": worst}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def main() -> int:
    """All architectures of all tasks, a line each; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--task", choices=TASKS, help="of this head alone")
    parser.add_argument("--only", metavar="ARCHITECTURE", nargs="+", help="these alone, by transformers' names")
    parser.add_argument("--output", type=new_file)
    asked = parser.parse_args()
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise MachineError(f"the architectures need PyTorch and transformers, and {name} is not installed")
    import torch
    import transformers
    from transformers.models.auto import modeling_auto

    import hw4cli.torch
    from hw4cli.lab.record import heading

    known = {words: getattr(modeling_auto, task.table) for words, task in TASKS.items() if asked.task in (None, words)}
    if unknown := [kind for kind in asked.only or () if not any(kind in kinds for kinds in known.values())]:
        raise InputError(f"{', '.join(unknown)}: transformers {transformers.__version__} has no such architecture here")
    transformers.logging.set_verbosity_error()
    hw4cli.torch.register_in_transformers()
    rows: list[dict[str, Any]] = []
    for words, kinds in known.items():
        for kind, names in kinds.items():
            if asked.only and kind not in asked.only:
                continue
            name = names if isinstance(names, str) else names[0]
            rows.append({"architecture": kind, "task": words, **row_of(kind, name, TASKS[words])})
            say(f"{words}, {kind}: {rows[-1]['status']} {rows[-1].get('why') or format(rows[-1]['worst'], '.1e')}")
    counts = Counter(row["status"] for row in rows)
    say(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    if asked.output:
        versions = {one.__name__: one.__version__ for one in (torch, transformers)}
        write_record(asked.output, {**heading("architectures"), "versions": versions, "rows": rows})
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    end_with(main)
