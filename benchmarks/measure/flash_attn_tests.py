"""FlashAttention's own tests on hw4: a random sample of the parameters of its tests/test_flash_attn.py.

    python -m benchmarks.measure.flash_attn_tests CHECKOUT --sample 3000 --jobs 16 --output found.json

CHECKOUT is a clone of FlashAttention's repository, of which nothing is installed: what its tests import as flash_attn
is hw4cli.torch.attention here, by the few lines of `package`. Drawn are tests with parameters that ask for none of what
hw4 refuses (dropout, caches of keys, slopes for each packed sequence). Tolerances are the tests' own. Needs a GPU,
PyTorch and einops.
"""

import argparse
import contextlib
import importlib.util
import itertools
import multiprocessing
import queue
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.measure.scripts import end_with, new_file, say, write_record
from hw4cli.errors import MachineError
from hw4cli.lab.record import heading

REFUSED = ("kvcache", "splitkv", "paged", "generator")  # in a test's name: caches, and the package's own arguments
Drawn = tuple[str, dict[str, Any]]


def package(checkout: Path) -> None:
    """The modules that FlashAttention's tests import, by hw4."""
    import hw4cli.torch

    def attention(q: Any, k: Any, v: Any, causal: bool, window: Any, extra: dict[str, Any]) -> Any:
        left, right = (int(side) for side in window)
        asked: dict[str, Any] = {"align": "bottom-right", "enable_gqa": True, "is_causal": causal}
        if (left, right) != (-1, -1):
            asked["window"] = (left, right)
        if extra.get("softcap"):
            asked["softcap"] = extra["softcap"]
        if extra.get("alibi_slopes") is not None:
            asked["alibi_slopes"] = extra["alibi_slopes"]
        packed = {name: extra[name] for name in ("cu_seqlens_q", "cu_seqlens_k") if name in extra}
        rows = [x.transpose(-3, -2) for x in (q, k, v)]
        o = hw4cli.torch.attention(*rows, scale=extra.get("softmax_scale"), **asked, **packed).transpose(-3, -2)
        if not extra.get("return_attn_probs"):
            return o
        del asked["enable_gqa"], asked["is_causal"]
        detached = [x.detach() for x in rows]
        found = hw4cli.attention(
            *detached, causal=causal, scale=extra.get("softmax_scale"), return_lse=True, **asked, **packed
        )
        return o, found[1], None

    def func(q: Any, k: Any, v: Any, dropout_p: float = 0.0, **how: Any) -> Any:
        if dropout_p:
            raise NotImplementedError("dropout")
        return attention(q, k, v, how.get("causal", False), how.get("window_size", (-1, -1)), how)

    def varlen(
        q: Any,
        k: Any,
        v: Any,
        starts_q: Any,
        starts_k: Any,
        most_q: int,
        most_k: int,
        dropout_p: float = 0.0,
        **how: Any,
    ) -> Any:
        return func(q, k, v, dropout_p, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, **how)

    def module(name: str, **members: Any) -> None:
        sys.modules[name] = made = ModuleType(name)
        vars(made).update(members)

    module(
        "flash_attn",
        flash_attn_func=func,
        flash_attn_kvpacked_func=lambda q, kv, *rest, **how: func(q, *kv.unbind(-3), *rest, **how),
        flash_attn_qkvpacked_func=lambda qkv, *rest, **how: func(*qkv.unbind(-3), *rest, **how),
        flash_attn_varlen_func=varlen,
        flash_attn_varlen_kvpacked_func=lambda q, kv, *rest, **how: varlen(q, *kv.unbind(-3), *rest, **how),
        flash_attn_varlen_qkvpacked_func=lambda qkv, starts, most, *rest, **how: varlen(
            *qkv.unbind(-3), starts, starts, most, most, *rest, **how
        ),
        flash_attn_with_kvcache=None,
    )
    module("flash_attn.flash_attn_interface", _get_block_size_n=None, USE_TRITON_ROCM=False)
    module("flash_attn.layers")
    module("flash_attn.layers.rotary", apply_rotary_emb=None)
    loaded("flash_attn.bert_padding", checkout / "flash_attn/bert_padding.py")


def loaded(name: str, path: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not there")
    sys.modules[name] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def tests_of(checkout: Path) -> ModuleType:
    """FlashAttention's tests, which call hw4."""
    package(checkout)
    return loaded("test_flash_attn", checkout / "tests/test_flash_attn.py")


def choices(test: Callable[..., Any]) -> list[list[dict[str, Any]]]:
    """A test's parameters: of each mark the sets of values of its names."""
    found = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = [name.strip() for name in mark.args[0].split(",")]
            values = (value if len(names) > 1 else (value,) for value in mark.args[1])
            found.append([dict(zip(names, value, strict=True)) for value in values])
    return found


def is_computed(name: str, given: dict[str, Any]) -> bool:
    """Whether hw4 computes what a test asks for."""
    slopes = given.get("alibi") and "varlen" in name
    return not (given.get("dropout_p") or given.get("paged_kv_block_size") or slopes)


def drawn(module: ModuleType, count: int, seed: int) -> Iterator[Drawn]:
    """So many tests with parameters, each of all there are as likely as another."""
    draw, tests = random.Random(seed), {}
    for name, test in vars(module).items():
        if name.startswith("test_") and not any(word in name for word in REFUSED):
            tests[name] = choices(test)
    weights = [max(1, len([*itertools.product(*map(range, map(len, one)))])) for one in tests.values()]
    while count:
        name = draw.choices([*tests], weights)[0]
        given = {key: value for one in tests[name] for key, value in draw.choice(one).items()}
        if is_computed(name, given):
            count -= 1
            yield name, given


def words(one: Drawn) -> str:
    """A test and its parameters in a line."""
    name, given = one
    return f"{name}({', '.join(f'{key}={value}' for key, value in given.items())})"


def worker(checkout: Path, mine: list[Drawn], until: float, found: Any) -> None:
    """Runs tests until the time is over, and reports of each whether it passed."""
    import pytest

    module = tests_of(checkout)
    for one in mine:
        if time.time() > until:
            found.put((words(one), "not begun", ""))
            continue
        try:
            with contextlib.redirect_stdout(None):
                getattr(module, one[0])(**one[1])
            found.put((words(one), "passed", ""))
        except pytest.skip.Exception as skip:
            found.put((words(one), "skipped", str(skip)))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.put((words(one), "failed", f"{type(error).__name__}: {error} ({where.name}:{where.lineno})"[:400]))


def summary(ends: dict[str, list[tuple[str, str]]]) -> list[dict[str, Any]]:
    """A row for each test, with how many of its parameters ended in which way; and one for each that did not pass."""
    counts: dict[str, dict[str, int]] = {}
    for end, those in ends.items():
        for name, _ in those:
            of_test = counts.setdefault(name.partition("(")[0], {})
            of_test[end] = of_test.get(end, 0) + 1
    rows: list[dict[str, Any]] = [{"test": name, **counts[name]} for name in sorted(counts)]
    return rows + [
        {"test": name, "end": end, "why": why} for end, those in ends.items() if end != "passed" for name, why in those
    ]


def main() -> int:
    """Draws tests, runs them side by side, and writes how they ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--sample", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no test after so many")
    parser.add_argument("--output", type=new_file)
    given = parser.parse_args()
    for file in ("tests/test_flash_attn.py", "flash_attn/bert_padding.py"):
        if not (given.checkout / file).is_file():
            parser.error(f"{given.checkout} has no {file}: give a clone of FlashAttention's repository")
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("einops") is None:
        raise MachineError("FlashAttention's tests need PyTorch and einops, and a GPU")
    tests = [*drawn(tests_of(given.checkout), given.sample, given.seed)]
    tests.sort(key=lambda one: str(sorted(one[1].items(), key=str)))  # those of one kernel side by side
    context, until = multiprocessing.get_context("spawn"), time.time() + given.seconds
    found: Any = context.Queue()
    parts = [tests[n * len(tests) // given.jobs : (n + 1) * len(tests) // given.jobs] for n in range(given.jobs)]
    workers = [context.Process(target=worker, args=(given.checkout, part, until, found)) for part in parts]
    for process in workers:
        process.start()
    ends: dict[str, list[tuple[str, str]]] = {}
    while sum(map(len, ends.values())) < len(tests):
        try:
            name, end, why = found.get(timeout=5)
        except queue.Empty:
            if any(process.is_alive() for process in workers):
                continue
            break  # one died
        ends.setdefault(end, []).append((name, why))
        if end == "failed":
            say(f"{name}: {why}")
    for process in workers:
        process.join()
    ended = sum(map(len, ends.values()))
    say(", ".join([*(f"{len(those)} {end}" for end, those in ends.items()), f"{len(tests) - ended} without an end"]))
    if given.output:
        import torch

        heads = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        drawing = {"seed": given.seed, "sample": len(tests)}
        write_record(given.output, {**heading("flash-attn tests"), **heads, **drawing, "rows": summary(ends)})
    return 1 if "failed" in ends or ended < len(tests) else 0


if __name__ == "__main__":
    end_with(main)
