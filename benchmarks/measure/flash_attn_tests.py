"""FlashAttention's own tests on hw4: a random sample of the parameters of its tests/test_flash_attn.py, or, with
--hopper, of its hopper/test_flash_attn.py.

    python -m benchmarks.measure.flash_attn_tests CHECKOUT --sample 3000 --jobs 16 --output found.json

CHECKOUT is a clone of FlashAttention's repository, of which nothing is installed: what its tests import is
hw4cli.torch.attention here, by the few lines of `package` and `hopper_package`. Drawn are tests with parameters that
ask for none of what hw4 refuses (`refusal`, `hopper_refusal`). Tolerances are the tests' own. Needs a GPU, PyTorch and
einops. With --device cpu the tests' tensors are the CPU's: the same calls of the same adapter, of few rows (--longest).
"""

import argparse
import contextlib
import importlib.util
import itertools
import math
import multiprocessing
import queue
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.measure.scripts import at_least_one, end_with, new_file, say, write_record
from hw4cli.errors import InputError, MachineError
from hw4cli.lab.record import heading
from hw4cli.problem.workload import WIDEST
from hw4cli.system.machine import machine

Drawn = tuple[str, dict[str, Any]]
MOST_TRIES, PAUSE_SECONDS = 20, 3  # of a test for which the GPU's memory is too small beside the others
NOT_BEGUN = "not begun"
WHOLE = 1 << 15  # more than a test with chunks of keys has rows or keys
# Arguments of FlashAttention that are hw4's by the same names, by others, and that change no result.
SAME = "softcap", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k", "lengths", "q_lengths", "keep", "arrays"
NAMED = "causal", "window_size", "softmax_scale", "return_attn_probs"
HINTS = "deterministic", "num_splits", "pack_gqa", "sm_margin"


def attention(q: Any, k: Any, v: Any, causal: bool, window: Any, extra: dict[str, Any]) -> Any:
    """O of tensors (..., N, heads, d), by hw4: `window` as FlashAttention has it, `extra` by the names of
    hw4's arguments. Raises NotImplementedError for what hw4 has not."""
    for name, value in extra.items():
        if value is not None and name not in (*SAME, *NAMED, *HINTS):
            raise NotImplementedError(name)
    import torch

    import hw4cli.torch

    if v.shape[-1] > WIDEST:  # as parts: O's columns are those of V
        return torch.cat([attention(q, k, part, causal, window, extra) for part in v.split(WIDEST, -1)], -1)
    left, right = (int(side) for side in window)
    asked: dict[str, Any] = {"align": "bottom-right", "enable_gqa": True, "is_causal": causal}
    if (left, right) != (-1, -1):
        asked["window"] = (left, right)
    given = {name: extra[name] for name in SAME if extra.get(name) is not None}
    asked |= {name: value for name, value in given.items() if name != "softcap" or value}
    rows = [x.transpose(-3, -2) for x in (q, k, v)]
    query, key, value = rows
    o = hw4cli.torch.attention(query, key, value, scale=extra.get("softmax_scale"), **asked).transpose(-3, -2)
    if not extra.get("return_attn_probs"):
        return o
    del asked["enable_gqa"], asked["is_causal"]
    given = {"q": rows[0], "k": rows[1], "v": rows[2], **asked}
    given = {name: _of_array(x) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    _, lse = hw4cli.attention(causal=causal, scale=extra.get("softmax_scale"), return_lse=True, **given)
    return o, torch.as_tensor(lse), None


def _of_array(x: Any) -> Any:
    """A tensor as `hw4cli.attention` takes it: of the CPU's memory as NumPy's array, which has no bfloat16."""
    x = x.detach()
    return x if x.is_cuda else (x.float() if x.is_floating_point() else x).numpy()


def chunks(size: int, device: Any, pad: str = "") -> dict[str, Any]:
    """What lets a row see the chunk of so many keys that its own lies in, and no others, where keys are counted behind
    `pad`."""
    import torch

    numbers = torch.arange(-WHOLE, 2 * WHOLE, device=device).div(size, rounding_mode="floor").to(torch.int32)
    keep = f"chunk[i + Nk - Nq{pad} + {WHOLE}] == chunk[j{pad} + {WHOLE}]"
    return {"arrays": {"chunk": numbers}, "keep": keep}


def cache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    *,
    qv: Any = None,
    rotary_cos: Any = None,
    page_table: Any = None,
    block_table: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    cu_seqlens_q: Any = None,
    causal: bool = False,
    window_size: Any = (-1, -1),
    attention_chunk: int = 0,
    return_softmax_lse: bool = False,
    **how: Any,
) -> Any:
    """O with a cache of keys: of each batch the first ones, but for those that pad it on the left. They become packed
    sequences with padding of their own."""
    import torch

    if not k is v is qv is rotary_cos is page_table is block_table is None:
        raise NotImplementedError("a cache that is paged, or grows")
    if cache_batch_idx is not None:
        k_cache, v_cache = (x[cache_batch_idx.long()] for x in (k_cache, v_cache))
    (batch, room), rows = k_cache.shape[:2], q.flatten(0, -3)
    pad = "" if cache_leftpad is None else " - pad[b]"
    more: dict[str, Any] = {"arrays": {}, "keep": ""}
    if attention_chunk:
        more = chunks(attention_chunk, q.device, pad)
    if pad:
        more["arrays"]["pad"] = cache_leftpad
        more["keep"] = " and ".join(filter(None, (more["keep"], "j >= pad[b]")))
    starts = torch.arange(batch + 1)
    extra = {
        "softmax_scale": how.get("softmax_scale"),
        "alibi_slopes": how.get("alibi_slopes"),
        "cu_seqlens_q": starts * q.shape[1] if cu_seqlens_q is None else cu_seqlens_q,
        "cu_seqlens_k": starts * room,
        "lengths": cache_seqlens,
        **(more if more["keep"] else {}),
    }
    o = attention(rows, k_cache.flatten(0, 1), v_cache.flatten(0, 1), causal, window_size, extra).reshape(
        *q.shape[:-1], v_cache.shape[-1]
    )
    return (o, None) if return_softmax_lse else o


def cache_refusal(given: dict[str, Any]) -> str:
    """What a test of caches asks for that hw4 does not compute; "" for nothing."""
    if given.get("new_kv") or given.get("append_knew"):
        return "caches that grow"
    if given.get("page_size") or given.get("paged_kv_block_size") or "rotary_fraction" not in given:
        return "paged caches"
    return "nothing: the test skips itself" if given["rotary_fraction"] else ""


def module(name: str, **members: Any) -> None:
    """A module to import, of what is given."""
    sys.modules[name] = made = ModuleType(name)
    vars(made).update(members)


def package(checkout: Path) -> None:
    """The modules that tests/test_flash_attn.py imports, by hw4."""

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

    packed: Callable[..., Any] = varlen  # mypy cannot count what a star unpacks
    module(
        "flash_attn",
        flash_attn_func=func,
        flash_attn_kvpacked_func=lambda q, kv, *rest, **how: func(q, *kv.unbind(-3), *rest, **how),
        flash_attn_qkvpacked_func=lambda qkv, *rest, **how: func(*qkv.unbind(-3), *rest, **how),
        flash_attn_varlen_func=varlen,
        flash_attn_varlen_kvpacked_func=lambda q, kv, *rest, **how: varlen(q, *kv.unbind(-3), *rest, **how),
        flash_attn_varlen_qkvpacked_func=lambda qkv, starts, most, *rest, **how: packed(
            *qkv.unbind(-3), starts, starts, most, most, *rest, **how
        ),
        flash_attn_with_kvcache=cache,
    )
    module("flash_attn.flash_attn_interface", _get_block_size_n=None, USE_TRITON_ROCM=False)
    module("flash_attn.layers")
    module("flash_attn.layers.rotary", apply_rotary_emb=None)
    loaded("flash_attn.bert_padding", checkout / "flash_attn/bert_padding.py")


def refusal(name: str, given: dict[str, Any]) -> str:
    """What a test of tests/test_flash_attn.py asks for that hw4 does not compute; "" for nothing."""
    if "kvcache" in name or "paged" in name:
        return cache_refusal(given)
    if "generator" in name:
        return "the package's own arguments"
    if given.get("paged_kv_block_size"):
        return "paged caches"
    return "dropout" if given.get("dropout_p") else ""


def hopper_package(checkout: Path) -> None:
    """The modules that hopper/test_flash_attn.py imports, by hw4. How work is split over a GPU (num_splits, pack_gqa)
    is a hint there, which changes no result."""

    def func(q: Any, k: Any, v: Any, qv: Any = None, attention_chunk: int = 0, **how: Any) -> Any:
        if qv is not None:
            raise NotImplementedError("qv")
        if attention_chunk:
            how |= chunks(attention_chunk, q.device)
        return attention(q, k, v, how.get("causal", False), how.get("window_size", (-1, -1)), how)

    def varlen(q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, most_q: int, most_k: int, **how: Any) -> Any:
        used = {"q_lengths": how.pop("seqused_q", None), "lengths": how.pop("seqused_k", None)}
        return func(q, k, v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, **used, **how)

    sys.modules["flash_attn"] = None  # type: ignore[assignment]  # the tests do without its rotary embedding
    module(
        "flash_attn_interface",
        flash_attn_func=func,
        flash_attn_varlen_func=varlen,
        flash_attn_with_kvcache=cache,
        get_scheduler_metadata=lambda *given, **how: None,
        flash_attn_combine=None,
    )
    loaded("padding", checkout / "hopper/padding.py")
    loaded("test_util", checkout / "hopper/test_util.py")


def hopper_refusal(name: str, given: dict[str, Any]) -> str:
    """What a test of hopper/test_flash_attn.py asks for that hw4 does not compute; "" for nothing."""
    if "float8" in str(given.get("dtype")):
        return "fp8"
    if "kvcache" in name:
        return cache_refusal(given)
    if given.get("has_qv"):
        return "a second product of queries, with V (qv)" if given["d"] == 64 else "nothing: the test skips itself"
    if name == "test_flash_attn_combine":
        return "a sum of partial results that are given"
    if "compatibility" in name:
        return "the package's own operators"
    return "70 GiB of memory beside" if "race" in name else ""


class Suite(NamedTuple):
    """A file of tests, what of the repository it needs beside, and what stands for what it imports."""

    file: str
    beside: tuple[str, ...]
    package: Callable[[Path], None]
    refusal: Callable[[str, dict[str, Any]], str]


SUITES = {
    False: Suite("tests/test_flash_attn.py", ("flash_attn/bert_padding.py",), package, refusal),
    True: Suite(
        "hopper/test_flash_attn.py", ("hopper/padding.py", "hopper/test_util.py"), hopper_package, hopper_refusal
    ),
}


def loaded(name: str, path: Path, device: str = "cuda") -> ModuleType:
    """A file as a module, whose tensors are of a device."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not there")
    sys.modules[name] = made = importlib.util.module_from_spec(spec)
    exec(compile(path.read_text().replace('"cuda"', f'"{device}"'), str(path), "exec"), vars(made))
    return made


def tests_of(suite: Suite, checkout: Path, device: str) -> ModuleType:
    """FlashAttention's tests, which call hw4."""
    if device == "cpu":
        import torch

        torch.cuda.get_device_capability = lambda *_: (9, 0)  # which decides what there is to draw from
    suite.package(checkout)
    return loaded("test_flash_attn", checkout / suite.file, device)


def choices(test: Callable[..., Any]) -> list[list[dict[str, Any]]]:
    """A test's parameters: of each mark the sets of values of its names."""
    found = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = [name.strip() for name in mark.args[0].split(",")]
            values = (value if len(names) > 1 else (value,) for value in mark.args[1])
            found.append([dict(zip(names, value, strict=True)) for value in values])
    return found


def parameters(test: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Each set of parameters of a test."""
    for one in itertools.product(*choices(test)):
        yield {key: value for part in one for key, value in part.items()}


def all_tests(made: ModuleType) -> dict[str, Callable[..., Any]]:
    """The tests of a module."""
    return {name: test for name, test in vars(made).items() if name.startswith("test_")}


def counted(suite: Suite, made: ModuleType) -> Counter[str]:
    """How many tests with parameters there are that ask for what is refused, by what that is; "" for the others."""
    found: Counter[str] = Counter()
    for name, test in all_tests(made).items():
        found.update(suite.refusal(name, given) for given in parameters(test))
    return found


def drawn(suite: Suite, made: ModuleType, count: int, seed: int, longest: int) -> Iterator[Drawn]:
    """So many tests with parameters, each of all that are computed, and have no more rows and keys, as likely as
    another. Raises InputError if there is none."""

    def is_drawn(name: str, given: dict[str, Any]) -> bool:
        sizes = [value for key, value in given.items() if key.startswith("seqlen")]
        return not suite.refusal(name, given) and max(sizes, default=WHOLE) <= longest

    draw = random.Random(seed)
    every = all_tests(made)
    tests = {name: choices(test) for name, test in every.items() if any(is_drawn(name, x) for x in parameters(test))}
    if not tests:
        raise InputError(f"{suite.file} has no test of at most {longest:,} rows and keys: give a larger --longest")
    weights = [math.prod(map(len, one)) for one in tests.values()]
    while count:
        name = draw.choices([*tests], weights)[0]
        given = {key: value for one in tests[name] for key, value in draw.choice(one).items()}
        if is_drawn(name, given):
            count -= 1
            yield name, given


def words(one: Drawn) -> str:
    """A test and its parameters in a line."""
    name, given = one
    return f"{name}({', '.join(f'{key}={value}' for key, value in given.items())})"


def ending(test: Callable[..., Any], given: dict[str, Any]) -> tuple[str, str]:
    """How a test ends, and why. One that lacks memory, which other tests have, is tried again."""
    import pytest
    import torch

    for left in reversed(range(MOST_TRIES)):
        try:
            with contextlib.redirect_stdout(None):
                test(**given)
            return "passed", ""
        except pytest.skip.Exception as skip:
            return "skipped", str(skip)
        except Exception as error:
            if not left or not isinstance(error, torch.OutOfMemoryError):
                where = traceback.extract_tb(error.__traceback__)[-1]
                return "failed", f"{type(error).__name__}: {error} ({where.name}:{where.lineno})"[:400]
        finally:
            torch.cuda.empty_cache()
        time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last try returns")


def worker(suite: Suite, checkout: Path, device: str, n: int, mine: list[Drawn], until: float, found: Any) -> None:
    """The n-th process: runs tests until the time is over, on one of the GPUs; reports of each whether it passed."""
    if device == "cuda":
        import torch

        torch.cuda.set_device(n % torch.cuda.device_count())
    made = tests_of(suite, checkout, device)
    for one in mine:
        end = (NOT_BEGUN, "") if time.time() > until else ending(vars(made)[one[0]], one[1])
        found.put((words(one), *end))


def summary(ends: dict[str, list[tuple[str, str]]]) -> list[dict[str, Any]]:
    """A row for each test, with how many of its parameters ended in which way; and one for each that began and did not
    pass."""
    counts: dict[str, dict[str, int]] = {}
    for end, those in ends.items():
        for name, _ in those:
            of_test = counts.setdefault(name.partition("(")[0], {})
            of_test[end] = of_test.get(end, 0) + 1
    rows: list[dict[str, Any]] = [{"test": name, **counts[name]} for name in sorted(counts)]
    return rows + [
        {"test": name, "end": end, "why": why}
        for end, those in ends.items()
        if end not in ("passed", NOT_BEGUN)
        for name, why in those
    ]


def main() -> int:
    """Draws tests, runs them side by side, and writes how they ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--hopper", action="store_true", help="the tests of FlashAttention 3")
    parser.add_argument("--sample", type=at_least_one, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=at_least_one, default=8)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no test after so many")
    parser.add_argument("--longest", type=int, default=10**6, help="draw no test of more rows or keys")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--output", type=new_file)
    given = parser.parse_args()
    suite = SUITES[given.hopper]
    for file in (suite.file, *suite.beside):
        if not (given.checkout / file).is_file():
            parser.error(f"{given.checkout} has no {file}: give a clone of FlashAttention's repository")
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("einops") is None:
        raise MachineError("FlashAttention's tests need PyTorch and einops, and a GPU")
    made = tests_of(suite, given.checkout, given.device)
    refused = counted(suite, made)
    there, computed = refused.total(), refused.pop("")
    say(
        f"{there:,} in {suite.file}, {computed:,} computed; refused: "
        + ", ".join(f"{number:,} for {reason}" for reason, number in refused.most_common())
    )
    tests = [*drawn(suite, made, given.sample, given.seed, given.longest)]
    tests.sort(key=lambda one: str(sorted(one[1].items(), key=str)))  # those of one kernel side by side
    context, until = multiprocessing.get_context("spawn"), time.time() + given.seconds
    found: Any = context.Queue()
    parts = [tests[n * len(tests) // given.jobs : (n + 1) * len(tests) // given.jobs] for n in range(given.jobs)]
    workers = [
        context.Process(target=worker, args=(suite, given.checkout, given.device, n, part, until, found))
        for n, part in enumerate(parts)
    ]
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

        name = torch.cuda.get_device_name() if given.device == "cuda" else None
        of_file = {"file": suite.file, "tests": there, "computed": computed, "refused": dict(refused.most_common())}
        drawing = {"seed": given.seed, "sample": len(tests), "longest": given.longest}
        heads = {**heading("flash-attn tests"), "gpu": name, "machine": machine(), "torch": torch.__version__}
        write_record(given.output, {**heads, **of_file, **drawing, "rows": summary(ends)})
    return 1 if "failed" in ends or ended < len(tests) else 0


if __name__ == "__main__":
    end_with(main)
