"""Workloads of arrays as text: "B=4 H=64 N=8192 d=128 dtype=fp16 causal", or a name of testcases/workloads.toml."""

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hw4cli.errors import InputError
from hw4cli.problem.workload import (
    BFLOAT16,
    BOTTOM_RIGHT,
    FLOAT16,
    FLOAT32,
    TOP_LEFT,
    Workload,
    scale_problem,
    size_problem,
)
from hw4cli.resources import data_path
from hw4cli.system.reading import read_regular

DTYPES = {
    **dict.fromkeys(("fp16", "f16", FLOAT16), FLOAT16),
    **dict.fromkeys(("bf16", BFLOAT16), BFLOAT16),
    **dict.fromkeys(("fp32", "f32", FLOAT32), FLOAT32),
}
PACKED = "packed"  # Q, K and V in one array (batch, N, heads of all three, d)
LAYOUTS = ("BHND", "BNHD", PACKED)
NORMAL, UNIFORM = "normal", "uniform"
SIZES = ("B", "H", "KVH", "N", "Nk", "d", "dv")
CHOICES = {"layout": LAYOUTS, "dist": (NORMAL, UNIFORM), "align": (BOTTOM_RIGHT, TOP_LEFT), "dtype": tuple(DTYPES)}
WORDS = (*SIZES, "dtype", "causal", "align", "scale", "layout", "dist", "seed")


@dataclass(frozen=True)
class NamedWorkload:
    """What to compute, how it lies in memory, and of which numbers: normal, or uniform in [-3, 3)."""

    name: str
    work: Workload
    layout: str = "BHND"
    distribution: str = NORMAL
    seed: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    def test_line(self) -> str:
        """As leaderboards of GPU kernels print what they test: its seed and sizes."""
        work = self.work
        sizes = {"seq_len": work.Nq, "head_dim": work.d, "num_heads": work.heads, "batch_size": work.batch}
        return "; ".join(f"{name}: {value}" for name, value in {"seed": self.seed, **sizes}.items())


@cache
def named() -> dict[str, str]:
    """The workloads that have a name, as text. InputError if their file is damaged."""
    path = data_path("testcases/workloads.toml")
    return read_named(path)


def read_named(path: Path) -> dict[str, str]:
    """The workloads of a file, as text. InputError if the file cannot be read, or is not one of workloads."""
    try:
        table = tomllib.loads(read_regular(path).decode())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    rows = table.get("workloads")
    if not isinstance(rows, dict) or not all(isinstance(text, str) for text in rows.values()):
        raise InputError(f'{path} must have a table of workloads, as in name = "B=1 H=16 N=4096 d=64 dtype=fp16"')
    return dict(rows)


def workload(text: str) -> NamedWorkload:
    """The workload of a name, or of words such as "B=4 H=64 KVH=8 N=8192 Nk=4096 d=128 dtype=fp16 causal".

    B and H are 1, KVH is H, Nk is N, and dv, V's columns, is d, where they are not given. Raises InputError, with the
    word that is wrong.
    """
    name = " ".join(text.split())
    if re.fullmatch(r"[A-Za-z][\w.-]*", name) and name != "causal":
        if name not in named():
            raise InputError(f"there is no workload {name!r}: give {', '.join(named())}, or sizes, as in N=4096 d=64")
        return replace(_parsed(named()[name]), name=name)
    return _parsed(name)


def _parsed(text: str) -> NamedWorkload:
    where = f"workload {text!r}"
    given: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if key not in WORDS or bool(equals) == (key == "causal"):
            raise InputError(f"{where}: {word!r} is none of {', '.join(WORDS)}, as in N=4096 or causal")
        if key in given:
            raise InputError(f"{where}: {key} is given twice")
        if key in CHOICES and value not in CHOICES[key]:
            raise InputError(f"{where}: {key} is {value!r}, but must be one of {', '.join(CHOICES[key])}")
        given[key] = value
    sizes = {key: _whole(where, key, given[key], 1) for key in SIZES if key in given}
    for key in ("N", "d"):
        if key not in sizes:
            raise InputError(f"{where}: {key} is missing")
    B, H, N, d = (sizes.get(key, 1) for key in ("B", "H", "N", "d"))
    causal, Nk = "causal" in given, sizes.get("Nk", N)
    offset = Nk - N if causal and given.get("align", BOTTOM_RIGHT) == BOTTOM_RIGHT else 0
    work = Workload(DTYPES[given.get("dtype", "fp16")], B, H, sizes.get("KVH", H), N, Nk, d, causal, offset)
    work = replace(work, dv=sizes.get("dv", 0))
    if problem := size_problem(work):
        raise InputError(f"{where}: {problem}")
    layout = given.get("layout", "BHND")
    if layout == PACKED and Nk != N:
        raise InputError(f"{where}: Q, K and V in one array need as many keys as rows")
    if layout == PACKED and work.dv:
        raise InputError(f"{where}: Q, K and V in one array need as many columns each")
    if "scale" in given:
        work = replace(work, scale=_scale(where, given["scale"]))
    seed = _whole(where, "seed", given.get("seed", "0"), 0)
    name = described(work) + f" {TOP_LEFT}" * (causal and offset != Nk - N)  # which computes other pairs
    return NamedWorkload(name, work, layout, given.get("dist", NORMAL), seed)


def _whole(where: str, key: str, value: str, least: int) -> int:
    if not re.fullmatch(r"\d{1,10}", value) or not least <= int(value) < 2**31:
        raise InputError(f"{where}: {key} is {value!r}, but must be an integer from {least} to 2147483647")
    return int(value)


def _scale(where: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise InputError(f"{where}: scale is {value!r}, but must be a number") from None
    if problem := scale_problem(number):
        raise InputError(f"{where}: {problem}")
    return number


def described(work: Workload) -> str:
    """A workload in few words: "(4, 64, 8192, 128) fp16 causal", "(1, 32/8, 512/8192, 128) bf16"; of V with its own
    columns "(1, 8, 8192, 192/128) bf16"."""
    heads = f"{work.heads}/{work.kv_heads}" if work.heads != work.kv_heads else f"{work.heads}"
    rows = f"{work.Nq}/{work.Nk}" if work.Nq != work.Nk else f"{work.Nq}"
    short = {FLOAT16: "fp16", BFLOAT16: "bf16", FLOAT32: "fp32"}[work.dtype]
    columns = f"{work.d}/{work.dv}" if work.dv else f"{work.d}"
    return f"({work.batch}, {heads}, {rows}, {columns}) {short}{' causal' if work.causal else ''}"
