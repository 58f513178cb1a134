"""Errors of gradients against float64, ours beside those of torch's backends: a record, for docs/accuracy.md.

    python -m benchmarks.measure.gradient_errors --output benchmarks/errors/GPU.json [--rows N]

Of dQ, dK and dV the norm of the error, of the gradient's norm, and whether a second run had the same bits: of normal
numbers, and of such as cost digits. `make results` makes the table.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import torch
except ModuleNotFoundError:
    print("gradient_errors.py needs PyTorch (docs/torch.md)", file=sys.stderr)
    sys.exit(3)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import hw4cli.torch
from benchmarks.measure.scripts import end_with, new_file, write_record
from hw4cli.lab.record import heading
from hw4cli.system.machine import machine

# What becomes of normally distributed q, k, v and dO.
INPUTS: dict[str, Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any]]] = {
    "normal": lambda q, k, v, do: (q, k, v, do),
    "scores of 30": lambda q, k, v, do: (4 * q, 2 * k, v, do),
    "scores of hundreds": lambda q, k, v, do: (10 * q, 8 * k, v, do),
    "one key has most weight": lambda q, k, v, do: (q + 2, torch.where(_row(k) == 7, k + 1.5, k), v, do),
    "V far from 0": lambda q, k, v, do: (q, k, v + 20, do),
    "V of hundreds": lambda q, k, v, do: (q, k, 100 * v, do),
    "dO of 1e-3": lambda q, k, v, do: (q, k, v, 1e-3 * do),
    "rows of dO from 1e-2 to 1e2": lambda q, k, v, do: (q, k, v, do * 10.0 ** (_row(do) % 5 - 2)),
}
PEERS = {"cuDNN": "CUDNN_ATTENTION", "FA2": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
BATCH, HEADS, D = 1, 4, 64


def _row(x: Any) -> Any:
    return torch.arange(x.shape[2], device=x.device)[:, None].expand_as(x)


def exact(q: Any, k: Any, v: Any) -> Any:
    """Causal attention in float64."""
    s = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    return s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), -torch.inf).softmax(3) @ v


def backend(name: str) -> Callable[..., Any]:
    """One of torch's backends."""

    def compute(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(getattr(SDPBackend, name)):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    return compute


def gradients(function: Callable[..., Any], inputs: list[Any], do: Any) -> tuple[Any, ...]:
    """dQ, dK and dV."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    return tuple(torch.autograd.grad(function(*inputs), inputs, do))


def measured(function: Callable[..., Any], inputs: list[Any], do: Any, right: tuple[Any, ...]) -> dict[str, Any] | None:
    """The errors of dQ, dK and dV, and whether they repeat; None where the implementation does not take the inputs."""
    try:
        got, again = (gradients(function, inputs, do) for _ in range(2))
    except RuntimeError:
        return None
    norms = [float((x.double() - y).norm() / y.norm()) for x, y in zip(got, right, strict=True)]
    return {"errors": norms, "repeats": all(torch.equal(x, y) for x, y in zip(got, again, strict=True))}


def main() -> None:
    """The record, and a line for each type, kind of numbers and implementation as it comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=new_file, required=True)
    parser.add_argument("--rows", type=int, default=4096)
    given = parser.parse_args()
    by: dict[str, Callable[..., Any]] = {"hw4": partial(hw4cli.torch.attention, is_causal=True)}
    by.update((name, backend(word)) for name, word in PEERS.items())
    rows = []
    for short, dtype in TYPES.items():
        for kind, spoil in INPUTS.items():
            torch.manual_seed(0)
            parts = torch.randn(4, BATCH, HEADS, given.rows, D, device="cuda")
            *inputs, do = (x.to(dtype) for x in spoil(*parts))
            right = gradients(exact, [x.double() for x in inputs], do.double())
            for name, function in by.items():
                if found := measured(function, inputs, do, right):
                    rows.append({"dtype": short, "numbers": kind, "by": name, **found})
                    errors = ", ".join(f"{x:.1e}" for x in found["errors"])
                    print(f"{short}, {kind}, {name}: {errors}{'' if found['repeats'] else '*'}", flush=True)
    record = {
        **heading("gradient-errors"),
        "machine": machine(others=True),
        "shape": [BATCH, HEADS, given.rows, D],
        "rows": rows,
    }
    write_record(given.output, record)


if __name__ == "__main__":
    end_with(main)
