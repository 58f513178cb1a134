"""Errors of gradients against float64, ours beside those of torch's backends: a table for docs/accuracy.md.

    python -m benchmarks.gradient_errors [--rows N]

Of dQ, dK and dV the norm of the error, of the gradient's norm; a star: a second run had other bits.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import hw4cli.torch

INPUTS: dict[str, Callable[[Any, Any, Any], tuple[Any, Any, Any]]] = {
    "normal": lambda q, k, v: (q, k, v),
    "scores of 30": lambda q, k, v: (4 * q, 2 * k, v),
    "one key has most weight": lambda q, k, v: (q + 2, torch.where(_row(k) == 7, k + 1.5, k), v),
    "V far from 0": lambda q, k, v: (q, k, v + 20),
}
PEERS = {"cuDNN": "CUDNN_ATTENTION", "FA2": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


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
    return torch.autograd.grad(function(*inputs), inputs, do)


def cell(function: Callable[..., Any], inputs: list[Any], do: Any, right: tuple[Any, ...]) -> str:
    """The errors of dQ, dK and dV."""
    try:
        got, again = (gradients(function, inputs, do) for _ in range(2))
    except RuntimeError:
        return "-"
    star = "" if all(torch.equal(x, y) for x, y in zip(got, again, strict=True)) else "*"
    norms = (float((x.double() - y).norm() / y.norm()) for x, y in zip(got, right, strict=True))
    return ", ".join(f"{x:.1e}" for x in norms) + star


def main() -> None:
    """The table, a line for each type, kind of numbers and implementation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    N = parser.parse_args().rows
    by = {"hw4": partial(hw4cli.torch.attention, is_causal=True)}
    by.update((name, backend(word)) for name, word in PEERS.items())
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, (1, 4, {N}, 64) causal\n")
    print(f"| type | numbers | {' | '.join(by)} |\n|{(2 + len(by)) * ' --- |'}")
    for short, dtype in TYPES.items():
        for kind, spoil in INPUTS.items():
            torch.manual_seed(0)
            parts = torch.randn(4, 1, 4, N, 64, device="cuda")
            inputs, do = [x.to(dtype) for x in spoil(*parts[:3])], parts[3].to(dtype)
            right = gradients(exact, [x.double() for x in inputs], do.double())
            errors = (cell(function, inputs, do, right) for function in by.values())
            print(f"| {short} | {kind} | {' | '.join(errors)} |", flush=True)


if __name__ == "__main__":
    main()
