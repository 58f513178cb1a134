"""Blocks that convert K and V of later batches before they attend: right, the same bits every time, the same range."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from gpuexact import exact_attention
from helpers import ROOT, random_block, read_output, write_case

from hw4cli.plans.bounds import SAFE
from hw4cli.plans.common import converters_of
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import Shape

pytestmark = pytest.mark.usefixtures("gpu")
SHAPES = [
    *(("split8", shape) for shape in [(240, 1001, 64), (335, 577, 36), (340, 700, 48)]),
    *(("split", shape) for shape in [(240, 1000, 64), (320, 650, 40), (360, 700, 32), (260, 1025, 20), (380, 513, 8)]),
]


# What plans are made for; where there are more blocks than the GPU holds, some start when others have ended.
BLOCKS = {
    "few blocks": lambda sms: 6,
    "as usual": lambda sms: sms,
    "more blocks than multiprocessors": lambda sms: sms + 48,
}


def plans(props):
    """What these tests compile."""
    if props.warpgroups:
        for (name, size), blocks in product(SHAPES, BLOCKS.values()):
            shape, many = Shape(*size), replace(props, sms=blocks(props.sms))
            yield VARIANTS[name].plan(shape, many)
            yield without_converters(name, shape, many)


def without_converters(name, shape, props):
    variant = VARIANTS[name]
    return variant.plan(shape, props, {**variant.tile(shape, props), "CONVERTING": 0})


@pytest.fixture(params=BLOCKS)
def props(request, gpu):
    if not gpu.props.warpgroups:
        pytest.skip("this GPU has no warp groups")
    return replace(gpu.props, sms=BLOCKS[request.param](gpu.props.sms))


def compute(gpu, plan, block):
    """O, in an array that was NaN before, and the numbers that are left of the range."""
    inputs, outputs = gpu.upload(block), gpu.empty((len(block), *block.shape[2:]))
    outputs.data.memset(0xFF, outputs.nbytes)
    largest = gpu.absmax_of(plan, gpu.compute(plan, inputs, outputs), inputs)
    return outputs.get(), largest.get().view(np.float32)


@pytest.mark.parametrize(("name", "size"), SHAPES, ids=str)
def test_answers_are_right_the_same_every_time_and_so_is_the_range(gpu, props, name, size):
    shape, variant = Shape(*size), VARIANTS[name]
    plan = variant.plan(shape, props)
    if not converters_of(shape, plan.macros, plan.splits).blocks:
        pytest.skip("too few batches for this GPU")
    block = random_block(*size)
    block[-1, :, -1, -1] = 5, 6, 7  # in a batch that a block converts
    first, found = compute(gpu, plan, block)
    assert np.abs(first[:-1] - exact_attention(block[:-1])).max() <= variant.error_bound
    for _ in range(5):
        assert np.array_equal(first, compute(gpu, plan, block)[0])
    by_a_pass = without_converters(name, shape, props)
    assert np.array_equal(found, compute(gpu, by_a_pass, block)[1])
    norms = [np.square(block[:, part].astype(float)).sum(-1).max() for part in range(2)]
    assert (found[[1, 3]] >= norms).all()


def test_a_range_that_a_converter_finds_sends_the_group_to_another_kernel(gpu, tmp_path):
    """In one group: those of a file are of fewer batches than would pay."""
    shape = Shape(260, 1001, 64)
    plan = VARIANTS["split"].plan(shape, gpu.props)
    assert not gpu.props.warpgroups or converters_of(shape, plan.macros, plan.splits).blocks
    block = random_block(shape.B, shape.N, shape.d)
    block[-1, :2] *= 20
    script = (
        "import sys; from hw4cli.stream import layout; layout.GROUP_BYTES = 1 << 28\n"
        "from hw4cli.cli import run_command; sys.exit(run_command(['--device', 'cuda', '--timing', *sys.argv[1:]]))"
    )
    words = [sys.executable, "-c", script, write_case(tmp_path / "in", block), tmp_path / "out"]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    got = read_output(tmp_path / "out", shape)
    assert np.abs(got[-20:] - exact_attention(block[-20:])).max() <= SAFE
    assert re.search(r"\b260 batches by ", result.stderr)
    assert not re.search(r"\b260 batches by split8?\b", result.stderr)
