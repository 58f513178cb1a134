"""Every head size from 1 to 128 on a GPU, in files, arrays and gradients: rows get the zero columns that they lack."""

import numpy as np
import pytest
from gpuexact import exact_attention
from helpers import random_block, read_output, write_case

from hw4cli import attention, attention_backward
from hw4cli.lab.contender import compile_side_by_side
from hw4cli.plans import columns
from hw4cli.plans import gradients as choice
from hw4cli.plans.bounds import SAFE
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import Shape, Workload
from hw4cli.stream import pipeline, work
from hw4cli.stream.kernels import choice_for
from hw4cli.stream.timeline import Timeline

cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")

ALL = range(1, 129)
SOME = (1, 7, 59, 63, 111)
FILE, LONG = (3, 67), (2, 700)  # batches and rows
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
ALLOWED = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5}
OF_GRADIENTS = {"float16": 2e-2, "bfloat16": 0.15, "float32": 2e-4}


def kernel_of_file(props, shape, name=""):
    return choice_for("auto", None, shape, props, name).first


def heads(d, dtype="float16", causal=False, rows=67):
    return Workload(dtype, 2, 3, 3, rows, rows, d, causal)


def plans(props):
    """What these tests need, so that it can be compiled beforehand."""
    yield columns.CODE
    for d in ALL:
        yield VARIANTS[kernel_of_file(props, Shape(*FILE, d))].plan(Shape(*FILE, d), props)
        yield from (plan16(heads(d, causal=causal), props) for causal in (False, True))
    for d in SOME:
        yield VARIANTS[kernel_of_file(props, Shape(*LONG, d))].plan(Shape(*LONG, d), props)
        yield VARIANTS["flash"].plan(Shape(6, 67, d), props)
        yield VARIANTS["flash"].plan(Shape(2, 90, d, True, 67), props)
        yield VARIANTS["split"].plan(Shape(2, 90, d, False, 3 * 67), props)
        for dtype in ALLOWED:
            yield choice.plan(heads(d, dtype), props)
            if dtype != "float32":
                yield plan16(heads(d, dtype, rows=300), props)


@pytest.fixture(scope="module")
def compiled(gpu):
    compile_side_by_side(gpu, plans(gpu.props))
    return gpu


def poisoned(shape, beside=64):
    """An array on the GPU full of NaN, and what lies before and behind it."""
    size = int(np.prod(shape))
    whole = cupy.full(size + 2 * beside, np.nan, np.float32)
    return whole[beside : beside + size].reshape(shape), whole


def computed(gpu, block, kernel):
    shape = Shape(len(block), *block.shape[2:])
    outputs, whole = poisoned((shape.B, shape.N, shape.d))
    gpu.compute(gpu.plan(kernel, shape), cupy.asarray(block), outputs)
    assert bool(cupy.isnan(whole[:64]).all() and cupy.isnan(whole[-64:]).all()), "written beside O"
    return outputs.get()


def test_files_of_every_head_size_are_right(compiled):
    for d in ALL:
        block = random_block(*FILE, d, seed=d)
        kernel = kernel_of_file(compiled.props, Shape(*FILE, d), compiled.name)
        assert np.abs(computed(compiled, block, kernel) - exact_attention(block)).max() < SAFE, (d, kernel)


@pytest.mark.parametrize("d", SOME)
def test_longer_rows_too_and_float64_has_the_scale_of_the_true_head_size(compiled, d):
    block = random_block(*LONG, d)
    expected = exact_attention(block)
    kernel = kernel_of_file(compiled.props, Shape(*LONG, d), compiled.name)
    assert np.abs(computed(compiled, block, kernel) - expected).max() < SAFE
    if d in (7, 59):
        assert np.abs(computed(compiled, block, "float64") - expected).max() < 1e-6


def test_what_a_kernel_finds_in_rows_with_zero_columns_is_what_is_in_the_others(compiled):
    for kernel in ("flash", "split"):
        block = random_block(*LONG, 59)
        block[1, 0, 5, 58], block[0, 1, -1, 0] = -7, 8
        shape = Shape(*LONG, 59)
        plan, outputs = compiled.plan(kernel, shape), compiled.empty((*LONG, 59))
        inputs = compiled.upload(block)
        found = compiled.absmax_of(plan, compiled.compute(plan, inputs, outputs), inputs).get().view(np.float32)
        assert [*found[[0, 2, 4]]] == [7, 8, np.abs(block[:, 2]).max()]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kernel", "d"), [("flash", 59), ("flash", 7), ("split", 59)])
def test_ranges_of_rows_of_a_large_batch_are_right(compiled, tmp_path, monkeypatch, kernel, d, causal):
    block = random_block(2, 2600, d)
    source = write_case(tmp_path / "in", block)
    monkeypatch.setattr(work, "WHOLE_BYTES", 10_000)
    monkeypatch.setattr(work, "ROW_BYTES", 4 * d * 1024)
    assert len(work.parts_of(Shape(2, 2600, d), 1, work.rows_of_a_part(Shape(2, 2600, d)))) == 6
    job = pipeline.Job(pipeline.alone(pipeline.cuda(kernel, None)), 2, causal)
    shape, _ = pipeline.run(source, tmp_path / "out", job, Timeline(), lambda sentence: None)
    error = np.abs(read_output(tmp_path / "out", shape) - exact_attention(block, causal)).max()
    assert error < (2e-5 if kernel == "flash" else SAFE)


def test_the_command_answers_such_a_file_on_one_gpu_of_several(hw4, compiled, tmp_path):
    block = random_block(300, 130, 59)
    source = write_case(tmp_path / "in", block)
    for options in (("--kernel", "split", "--causal"), ("--gpus", "count:1", "--kernel", "flash")):
        result = hw4(source, tmp_path / "out", *options)
        assert result.returncode == 0, result.stderr
        got = read_output(tmp_path / "out", Shape(300, 130, 59))
        assert np.abs(got - exact_attention(block, causal="--causal" in options)).max() < SAFE


def tensors(d, dtype, rows=67, keys=67, kv_heads=3):
    make = torch.Generator("cuda").manual_seed(d)
    shapes = (2, 3, rows, d), (2, kv_heads, keys, d), (2, kv_heads, keys, d)
    return [torch.randn(shape, generator=make, device="cuda").to(getattr(torch, dtype)) for shape in shapes]


def definition(q, k, v, causal=False):
    """O in float64; causal: the last row sees the last key."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q @ k.mT * q.shape[3] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1 + s.shape[3] - s.shape[2]), -torch.inf)
    return s.softmax(3) @ v, s.logsumexp(3)


@pytest.mark.parametrize("causal", [False, True])
def test_arrays_of_16_bits_of_every_head_size_are_right(compiled, causal):
    for d in ALL:
        q, k, v = tensors(d, "float16")
        whole = torch.full((2, 3, 67, 3 * d), torch.nan, device="cuda", dtype=torch.float16)
        out = whole[..., d : 2 * d]
        o, lse = attention(q, k, v, causal=causal, return_lse=True, out=out)
        expected, sums = definition(q, k, v, causal)
        assert o is out
        assert float((o - expected).abs().max()) < ALLOWED["float16"], d
        assert float((lse - sums).abs().max()) < 2e-3, d
        assert bool(whole[..., :d].isnan().all() and whole[..., 2 * d :].isnan().all()), "written beside O"


@pytest.mark.parametrize("d", SOME)
@pytest.mark.parametrize("dtype", HALF)
def test_other_kernels_of_16_bits_take_them_too(compiled, dtype, d):
    for rows, keys, kv_heads in ((300, 300, 3), (1, 2000, 1), (5, 5, 3)):
        q, k, v = tensors(d, dtype, rows, keys, kv_heads)
        assert float((attention(q, k, v) - definition(q, k, v)[0]).abs().max()) < ALLOWED[dtype], (rows, keys)


@pytest.mark.parametrize("d", SOME)
def test_arrays_of_float32_are_right_by_any_kernel_and_in_any_layout(compiled, d):
    q, k, v = tensors(d, "float32", 67, 90, 1)
    expected, sums = definition(q, k, v, causal=True)
    o, lse = attention(q, k, v, causal=True, kernel="flash", return_lse=True)
    assert float((o - expected).abs().max()) < ALLOWED["float32"]
    assert float((lse - sums).abs().max()) < 1e-4
    turned = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    assert torch.equal(attention(*turned, causal=True, kernel="flash", layout="BNHD").transpose(1, 2), o)
    assert float((attention(q, k, v) - definition(q, k, v)[0]).abs().max()) < SAFE
    arrays = [cupy.asarray(x) for x in (q, k, v)]
    assert bool((attention(*arrays, causal=True, kernel="flash") == cupy.asarray(o)).all())


@pytest.mark.parametrize("d", SOME)
@pytest.mark.parametrize("dtype", ALLOWED)
def test_gradients_are_those_of_the_definition_the_same_in_every_run(compiled, dtype, d):
    import hw4cli.torch

    given = [x.requires_grad_() for x in tensors(d, dtype)]
    row = torch.randn(d, device="cuda").to(given[0].dtype)
    o = hw4cli.torch.attention(*given)
    found = torch.autograd.grad(o, given, row.expand(o.shape), retain_graph=True)
    again = torch.autograd.grad(o, given, row.expand(o.shape))
    assert all(map(torch.equal, found, again))
    wide = [x.detach().double().requires_grad_() for x in given]
    right = torch.autograd.grad(definition(*wide)[0], wide, row.double().expand(o.shape))
    for one, other in zip(found, right, strict=True):
        assert float((one - other).abs().max()) < OF_GRADIENTS[dtype] * max(1, float(other.abs().max()))
    q, k, v = (x.detach() for x in given)
    o, lse = attention(q, k, v, return_lse=True, kernel="flash" if dtype == "float32" else AUTO)
    direct = attention_backward(row.expand(o.shape), q, k, v, o, lse)
    assert all(map(torch.equal, direct, found))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_graph_captures_the_copies_as_well(compiled, dtype):
    q, k, v = tensors(59, dtype)
    kernel = "flash" if dtype == "float32" else AUTO
    expected = attention(q, k, v, kernel=kernel)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attention(q, k, v, kernel=kernel)
    o.zero_()
    graph.replay()
    assert torch.equal(o, expected)
    q.mul_(2)
    graph.replay()
    assert torch.equal(o, attention(q, k, v, kernel=kernel))
