"""Compute workloads with the hw4cli that Python finds, and print a digest of each answer, as a line of JSON.

    PYTHONPATH=CHECKOUT python -P bits.py WORKLOADS.json --seconds 60 --share 0/4

equal_bits.py starts it for each of two checkouts, one of which may be older: it uses hw4cli's public functions alone.
Each workload is computed twice; a digest that differs then is no answer's.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cupy
import numpy as np

import hw4cli


def computed(work: dict[str, Any]) -> list[Any]:
    """The answer to a workload, of numbers that its seed draws."""
    rng = np.random.default_rng(work["seed"])
    batch, heads, kv_heads, rows, keys, d = work["sizes"]
    if work["kind"] in ("file", "ladder"):
        block = rng.uniform(-3, 3, (batch, 3, keys, d)).astype(np.float32)
        if work["kind"] == "file":
            return [from_file_to_file(block, work)]
        return [gpu().attention(block, work["kernel"], work["causal"])]
    shapes = [(heads, rows), (kv_heads, keys), (kv_heads, keys), (heads, rows)]
    q, k, v, do = (on_gpu(rng.standard_normal((batch, h, n, d)).astype(np.float32), work["dtype"]) for h, n in shapes)
    options = {"causal": work["causal"]}
    forward = {"kernel": work["kernel"]} if work["kind"] == "arrays" else {"kernel": work["forward"]}
    found = hw4cli.attention(q, k, v, **options, **forward, return_lse=work["lse"])
    o, lse = found if work["lse"] else (found, None)
    if work["kind"] == "gradients":
        return [on_host(x) for x in hw4cli.attention_backward(do, q, k, v, o, lse, **options, kernel=work["kernel"])]
    return [on_host(x) for x in (o, lse) if x is not None]


@functools.cache
def gpu() -> Any:
    """The GPU, opened once."""
    return hw4cli.Gpu()


def from_file_to_file(block: Any, work: dict[str, Any]) -> Any:
    """The bytes that the command writes."""
    with tempfile.TemporaryDirectory(prefix="hw4-bits-") as name:
        source, output = Path(name, "in"), Path(name, "out")
        hw4cli.write_input(source, block)
        command = [sys.executable, "-P", "-m", "hw4cli", str(source), str(output), "--kernel", work["kernel"]]
        done = subprocess.run(
            [*command, *(["--causal"] if work["causal"] else [])], capture_output=True, text=True, cwd=name
        )
        if done.returncode:
            raise ValueError(done.stderr.strip())
        return np.frombuffer(output.read_bytes(), np.uint8)


def on_gpu(array: Any, dtype: str) -> Any:
    """An array of CuPy's; of torch's for bfloat16, which CuPy has not. ModuleNotFoundError where there is no torch."""
    if dtype == "bfloat16":
        import torch

        return torch.from_numpy(array).to("cuda", torch.bfloat16)
    return cupy.asarray(array.astype(dtype))


def on_host(array: Any) -> Any:
    """A copy in NumPy; of bfloat16 in float32, which holds the same numbers."""
    return array.float().cpu().numpy() if hasattr(array, "cpu") else cupy.asnumpy(array)


def digest(work: dict[str, Any]) -> dict[str, Any]:
    """What is said of a workload: the digest of its answer, or why there is none."""
    found = []
    for _ in range(2):
        try:
            arrays = computed(work)
        except (ValueError, TypeError, KeyError, ModuleNotFoundError, hw4cli.Hw4Error) as error:
            return {"refused": str(error).splitlines()[0]}
        found.append(hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)).hexdigest())
    return {"digest": found[0]} if found[0] == found[1] else {"varies": True}


def main() -> None:
    """Compute this process's share until the time is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--share", default="0/1", help="this process's number, and of how many")
    given = parser.parse_args()
    number, count = map(int, given.share.split("/"))
    end = time.monotonic() + given.seconds
    for place, work in list(enumerate(json.loads(given.workloads.read_text())))[number::count]:
        if time.monotonic() > end:
            break
        with contextlib.redirect_stdout(sys.stderr):
            said = digest(work)
        print(json.dumps({"place": place, **said}), flush=True)


if __name__ == "__main__":
    main()
