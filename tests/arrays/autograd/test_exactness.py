"""Gradients of float32 and of 16 bits on the CPU, beside torch's own: as exact, whatever the shapes and the scores."""

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from test_autograd import gradients  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import hw4cli.torch  # noqa: E402

ROUNDED = {torch.float32: 5e-7, torch.float16: 1e-3, torch.bfloat16: 8e-3}  # of the largest: a few roundings


def shapes(count, rows=(1, 17, 65, 130, 300, 700), keys=(1, 33, 65, 200, 500)):
    """(heads, rows, keys, d) and whether there is a mask; of all kinds."""
    draw = random.Random(7)
    for _ in range(count):
        N, Nk = draw.choice(rows), draw.choice(keys)
        yield draw.randint(1, 3), N, Nk, draw.choice((8, 32, 64, 128)), draw.random() < 0.5


@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
@pytest.mark.parametrize("factor", [1, 5, 20])
def test_gradients_are_as_exact_as_torchs(dtype, factor):
    for heads, rows, keys, d, causal in shapes(10):
        generator = torch.Generator().manual_seed(rows + keys)
        sizes = (1, heads, rows, d), (1, heads, keys, d), (1, heads, keys, d)
        inputs = [(factor * torch.randn(size, generator=generator)).to(dtype) for size in sizes]
        right = gradients(scaled_dot_product_attention, [x.double() for x in inputs], is_causal=causal)
        ours, theirs = (
            gradients(function, inputs, is_causal=causal)
            for function in (hw4cli.torch.attention, scaled_dot_product_attention)
        )
        for name, one, other, exact in zip(("O", "dQ", "dK", "dV"), ours, theirs, right, strict=True):
            for size in (lambda x: float(x.abs().max()), lambda x: float(x.norm())):
                error, torchs = (size(x.double() - exact) for x in (one, other))
                where = name, heads, rows, keys, d, causal, error / size(exact), torchs / size(exact)
                assert error <= max(1.5 * torchs, ROUNDED[dtype] * size(exact)), where


@pytest.mark.parametrize("factor", [1, 5, 20])
def test_float32_gradients_are_as_exact_as_torchs_in_each_of_forty_shapes(factor):
    """However lucky torch was with the roundings of scores: large ones are computed in float64."""
    for number, (heads, rows, keys, d, causal) in enumerate(shapes(40, (17, 65, 130, 300), (33, 65, 200))):
        generator = torch.Generator().manual_seed(number)
        inputs = [factor * torch.randn(1, heads, N, d, generator=generator) for N in (rows, keys, keys)]
        right = gradients(scaled_dot_product_attention, [x.double() for x in inputs], is_causal=causal)
        ours, theirs = (
            gradients(function, inputs, is_causal=causal)
            for function in (hw4cli.torch.attention, scaled_dot_product_attention)
        )
        for name, one, other, exact in zip(("dQ", "dK", "dV"), ours[1:], theirs[1:], right[1:], strict=True):
            error, torchs = (float((x.double() - exact).norm()) for x in (one, other))
            assert error <= 1.5 * torchs, (name, heads, rows, keys, d, causal, error / torchs)
