"""What attention of arrays computes, for docs/api.md: tables made by `make results` from the dispatch and by calls.

A table stands between `<!-- features: WHAT -->` and `<!-- end -->`; WHAT is `computed` or `refused`.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from hw4cli import attention, attention_backward
from hw4cli.plans.dispatch import AUTO, candidates
from hw4cli.plans.flash import FLASH
from hw4cli.plans.gradients import GRADIENTS, as_computed, fastest
from hw4cli.plans.kernels16 import ENTRIES16, kernel16, takes_values
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.scores import Named, Score
from hw4cli.problem.workload import FLOAT16, FLOAT32, Span, Workload
from hw4cli.text.tables import markdown

MARKED = re.compile(r"(<!-- features: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
GPUS = {"9.0": DEVICES[90], "8.0 on": DEVICES[80], "older": DEVICES[61]}  # by compute capability
N, LENGTHS = 4096, (4096, 1000, 300)
SEQUENCES = tuple(Span(n, 0, length, 0, length) for n, length in enumerate(LENGTHS))
PACKED = tuple(Span(0, end - length, length, end - length, length) for end, length in ((4096, 4096), (5096, 1000)))
PLAIN = Workload(FLOAT16, 3, 16, 16, N, N, 64)
EACH = ": a launch for each run of equal lengths"
PADDED = ", with zero columns"
ADDED = Score("s + bias[i, j]", arrays=(Named("bias", "float32", (N, N), (N, 1)),))
KEPT = Score(keep="doc[i] == doc[j]", arrays=(Named("doc", "int32", (N,), (1,)),))
SLOPED = Score("s - slopes[h] * abs(i - j)", arrays=(Named("slopes", "float32", (16,), (1,)),))
MASK, SLOPES, DOC = np.ones((6, 6), np.float32), np.ones(2, np.float32), np.array([0, 0, 1, 1, 1, 2])

# Of each feature, a workload that has it, and how a small call asks for it.
FEATURES: dict[str, tuple[Workload, dict[str, Any]]] = {
    "no mask": (PLAIN, {}),
    "`causal`, with each `align`": (replace(PLAIN, causal=True), {"causal": True, "align": "top-left"}),
    "`window`, causal or not": (replace(PLAIN, causal=True, window=1024), {"window": (2, 1)}),
    "heads that share K and V": (replace(PLAIN, kv_heads=4), {"kv_heads": 1}),
    "a d that is no multiple of 8": (replace(PLAIN, d=59), {"d": 59}),
    "d above 128, to 256": (replace(PLAIN, d=256), {"d": 256}),
    "V of another d (192, 128)": (replace(PLAIN, d=192, dv=128), {"d": 192, "dv": 128}),
    "`lengths`, `cu_seqlens`": (replace(PLAIN, sequences=SEQUENCES), {"lengths": [5, 3]}),
    "`lengths` and `window`": (
        replace(PLAIN, causal=True, window=1024, sequences=SEQUENCES),
        {"lengths": [5, 3], "window": (2, 1)},
    ),
    "few rows, many keys (decoding)": (replace(PLAIN, Nq=1), {"Nq": 1}),
    "`softcap`": (replace(PLAIN, score=Score("30 * tanh(s / 30)")), {"softcap": 30}),
    "`alibi_slopes`": (replace(PLAIN, score=SLOPED), {"alibi_slopes": SLOPES}),
    "`attn_mask`, boolean or added": (replace(PLAIN, score=ADDED), {"attn_mask": MASK}),
    "its gradient (`mask_gradient`)": (
        replace(PLAIN, score=replace(ADDED, gradient=True)),
        {"attn_mask": MASK, "mask_gradient": True},
    ),
    "`score`, `keep`: expressions": (
        replace(PLAIN, score=KEPT),
        {"score": "s * abs(s)", "keep": "doc[i] == doc[j]", "arrays": {"doc": DOC}},
    ),
    "all of these with `window`": (
        replace(PLAIN, causal=True, window=1024, score=ADDED),
        {"attn_mask": MASK, "softcap": 30, "window": (2, 1)},
    ),
    "all of these with `lengths`": (
        replace(PLAIN, sequences=SEQUENCES, score=ADDED),
        {"attn_mask": MASK, "softcap": 30, "lengths": [5, 3]},
    ),
    "masks and slopes of packed sequences": (
        replace(PLAIN, batch=1, sequences=PACKED, score=ADDED),
        {
            **{"packed": True, "cu_seqlens_q": [0, 4, 6], "cu_seqlens_k": [0, 4, 6], "lengths": [3, 2]},
            **{"attn_mask": np.ones((2, 1, 4, 4), np.float32), "alibi_slopes": np.ones((2, 2), np.float32)},
        },
    ),
    "`mask_gradient` with lengths": (
        replace(PLAIN, sequences=SEQUENCES, score=replace(ADDED, gradient=True)),
        {"attn_mask": MASK, "mask_gradient": True, "lengths": [5, 3]},
    ),
}
# What is asked for elsewhere, and refused.
REFUSED: dict[str, dict[str, Any]] = {
    "dropout": {"dropout_p": 0.1},
    "paged keys": {"block_table": None},
    "d above 256": {"d": 264},
    "a score that is no expression": {"score": "sin(s)"},
}


def arrays(Nq: int = 6, d: int = 16, dv: int | None = None, kv_heads: int = 2, packed: bool = False) -> list[Any]:
    """Q, K and V of a small call; of one batch without that dimension where they are packed."""
    rng = np.random.default_rng(0)
    shapes = (2, 2, Nq, d), (2, kv_heads, 6, d), (2, kv_heads, 6, dv or d)
    made = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [x[0] for x in made] if packed else made


def split(asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizes of arrays, and arguments of attention."""
    sizes: dict[str, Any] = {name: asked[name] for name in ("Nq", "d", "dv", "kv_heads", "packed") if name in asked}
    return sizes, {name: value for name, value in asked.items() if name not in sizes}


def kernels(found: list[str]) -> str:
    """The kernels for 9.0, for 8.0 on, and for older GPUs, each once."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(found))


def padded(work: Workload, own: list[str]) -> str:
    """What is said of rows of one width, which all but some kernels need."""
    return PADDED * bool(work.dv) + f" but for {kernels(own)}" * bool(own)


def forward16(work: Workload) -> str:
    """What answers a workload of 16 bits on each kind of GPU."""
    if work.score:
        work = replace(work, score=replace(work.score, gradient=False))
    own = [kernel16(work, props) for props in GPUS.values() if takes_values(work, props, AUTO)]
    names = [kernel16(work if takes_values(work, props, AUTO) else work.of_one_width, props) for props in GPUS.values()]
    assert all(ENTRIES16[name].sequences for name in names) or not work.sequences
    return kernels(names) + padded(work, own)


def forward32(work: Workload) -> str:
    """What answers float32 of the assignment's range on each kind of GPU, of the longest sequence."""
    if work.score:
        return kernels([FLASH.name]) + EACH * bool(work.sequences)
    listed = (candidates(AUTO, props, "", work.d, work.Nk, work.causal)[0] for props in GPUS.values())
    names = [next(name for name in some if VARIANTS[name].windows or not work.window) for some in listed]
    return kernels(names) + EACH * bool(work.sequences) + PADDED * bool(work.dv)


def gradients(work: Workload) -> str:
    """What computes the gradients on each kind of GPU."""
    alone = work.alone(work.sequences[0]) if work.sequences else work
    names = [fastest(as_computed(alone, props), props) for props in GPUS.values()]
    own = [fastest(alone, props) for props in GPUS.values() if as_computed(alone, props).dv]
    if not work.sequences:
        return kernels(names) + padded(work, own)
    apart = [name for name in names if not GRADIENTS[name].sequences]
    return f"{kernels([name for name in names if name not in apart])}; {kernels(apart)}{EACH}"


def on_cpu(asked: dict[str, Any]) -> str:
    """Whether NumPy's arrays are answered, forward and backward: they are computed."""
    sizes, options = split(asked)
    q, k, v = arrays(**sizes)
    forward = {name: value for name, value in options.items() if name != "mask_gradient"}
    o, lse = attention(q, k, v, return_lse=True, **forward)
    made = attention_backward(o, q, k, v, o, lse, **options)
    assert all(np.isfinite(x).all() for x in (o, *made))
    return "both"


def computed() -> str:
    """A line for each feature."""
    lines = []
    for name, (work, asked) in FEATURES.items():
        wide = replace(work, dtype=FLOAT32)
        by_16_bits = forward16(work), gradients(work)
        lines.append([name, *by_16_bits, forward32(wide), gradients(wide), on_cpu(asked)])
    header = ["", "fp16, bf16", "their gradients", "float32", "its gradients", "NumPy, on the CPU"]
    return markdown(header, lines)


def sentence(asked: dict[str, Any]) -> str:
    """What a call that asks for it says."""
    sizes, options = split(asked)
    try:
        attention(*arrays(**sizes), **options)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{asked} is computed now: it belongs to FEATURES")


def refused() -> str:
    """A line for each thing that is not computed."""
    return markdown(["", "what a call says"], [[name, sentence(asked)] for name, asked in REFUSED.items()])


TABLES = {"computed": computed, "refused": refused}


def with_features(text: str) -> str:
    """A page's text with its tables of features made anew."""
    return MARKED.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[3]}", text)
