"""Which kernel runs where, for docs/which-kernel.md: tables made from the dispatch itself, by `make results`.

A table stands between `<!-- chosen: WHAT -->` and `<!-- end -->`; WHAT is `files`, `arrays` or `gradients`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from hw4cli.plans.dispatch import AUTO, Choice, candidates
from hw4cli.plans.gradients import fastest
from hw4cli.plans.kernels16 import kernel16
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, DeviceProperties
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload
from hw4cli.text.tables import markdown

MARKED = re.compile(r"(<!-- chosen: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MOST_KEYS = 32768
HEAD_SIZES = (32, 64, 128)
# GPUs as people call them, with the name that the driver has for them.
GPUS: dict[str, tuple[DeviceProperties, str]] = {
    "H100, H200": (DEVICES[90], "NVIDIA H200"),
    "B200": (DEVICES[100], "NVIDIA B200"),
    "RTX PRO 6000 (Blackwell)": (DEVICES[120], "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    "L40S": (DEVICES[89], "NVIDIA L40S"),
    "A40": (DEVICES[86], "NVIDIA A40"),
    "A100": (DEVICES[80], "NVIDIA A100-SXM4-80GB"),
    "GeForce RTX 5090": (DEVICES[120], "NVIDIA GeForce RTX 5090"),
    "GeForce RTX 4090": (DEVICES[89], "NVIDIA GeForce RTX 4090"),
    "GeForce RTX 3090": (DEVICES[86], "NVIDIA GeForce RTX 3090"),
    "T4": (DEVICES[75], "Tesla T4"),
    "GTX 1080": (DEVICES[61], "NVIDIA GeForce GTX 1080"),
    "MI210": (AMD_DEVICES["gfx90a"], "AMD Instinct MI210"),
}


def segments(kernel_at: Callable[[int], str]) -> Iterator[tuple[int, str]]:
    """From how many keys on, which kernel: the first segment begins at 1. Between two neighbouring powers of two the
    kernel changes once at most."""
    last = kernel_at(1)
    yield 1, last
    for power in range(MOST_KEYS.bit_length() - 1):
        few, many = 2**power, 2 ** (power + 1)
        if (found := kernel_at(many)) != last:
            while many - few > 1:
                middle = (few + many) // 2
                few, many = (middle, many) if kernel_at(middle) == last else (few, middle)
            last = found
            yield many, found


def in_words(parts: list[tuple[int, str]]) -> str:
    """`split` to N = 1,199, then `split8`."""
    words = "".join(f"`{kernel}` to N = {following - 1:,}, then " for (_, kernel), (following, _) in pairwise(parts))
    return f"{words}`{parts[-1][1]}`"


def answering(props: DeviceProperties, gpu: str, d: int, causal: bool = False) -> str:
    """The kernels that answer files of the assignment's values, by the number of keys."""

    def kernel_at(N: int) -> str:
        return Choice(*candidates(AUTO, props, gpu, d, N, causal), d, N, props).first

    return in_words(list(segments(kernel_at)))


def grouped(rows: dict[str, list[str]]) -> list[list[str]]:
    """The rows, those of the same cells as one, with their names before one another."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, cells in rows.items():
        names.setdefault(tuple(cells), []).append(name)
    return [[", ".join(alike), *cells] for cells, alike in names.items()]


def files() -> str:
    """A line for each kind of GPU: what answers files, for values in [-3, 3), and how that is known."""
    rows = {}
    for name, (props, gpu) in GPUS.items():
        how = candidates(AUTO, props, gpu, 64, 1024)[1].split()[0].rstrip(",")
        rows[name] = [*(answering(props, gpu, d) for d in HEAD_SIZES), how]
        masked = [*(answering(props, gpu, d, True) for d in HEAD_SIZES), how]
        if masked != rows[name]:
            rows[f"{name}, with a mask"] = masked
    return markdown(["GPU", *(f"d = {d}" for d in HEAD_SIZES), "how it is known"], grouped(rows))


def arrays() -> str:
    """A line for each kind of GPU: what answers 16-bit arrays of many rows, of short rows, and of few rows."""
    shapes = {
        "many rows": Workload.square(FLOAT16, 2, 16, 8192, 128),
        "at most 128 rows and keys, d = 64": Workload.square(FLOAT16, 1, 9600, 128, 64),
        "decoding": Workload(FLOAT16, 4, 32, 8, 1, 16384, 128),
    }
    rows = {}
    for name, (props, _) in GPUS.items():
        cells = []
        for work in shapes.values():
            found = [kernel16(replace(work, dtype=dtype), props) for dtype in (FLOAT16, BFLOAT16)]
            cells.append(f"`{found[0]}`" if found[0] == found[1] else f"fp16 `{found[0]}`, bf16 `{found[1]}`")
        rows[name] = cells
    return markdown(["GPU", *shapes], grouped(rows))


def gradients() -> str:
    """A line for each kind of GPU: what computes gradients."""
    rows = {
        name: [f"`{fastest(Workload.square(dtype, 2, 16, 8192, 128), props)}`" for dtype in (FLOAT16, FLOAT32)]
        for name, (props, _) in GPUS.items()
    }
    return markdown(["GPU", "16 bits", "float32"], grouped(rows))


TABLES: dict[str, Callable[[], str]] = {"files": files, "arrays": arrays, "gradients": gradients}


def with_chosen(text: str) -> str:
    """A page's text with its tables of kernels made anew."""
    return MARKED.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[3]}", text)
