"""hw4cli.torch on the GPU: gradients beside float64 and torch's, and everything by which torch calls an operator."""

import importlib.util
import shutil
import sys

import pytest
from helpers import ROOT

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import hw4cli.torch  # noqa: E402
from hw4cli.arrays.autograd.operators import operator  # noqa: E402

pytestmark = pytest.mark.usefixtures("gpu")
FLOAT32, FLOAT16, BFLOAT16 = torch.float32, torch.float16, torch.bfloat16
ALLOWED = {FLOAT32: 2e-5, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}  # of a gradient's largest element


def tensors(dtype, batch=2, heads=4, kv_heads=4, Nq=300, Nk=300, d=64, layout="BHND", factor=1.0):
    torch.manual_seed(0)
    found = []
    for count, N in ((heads, Nq), (kv_heads, Nk), (kv_heads, Nk)):
        shape = (batch, count, N, d) if layout == "BHND" else (batch, N, count, d)
        x = (factor * torch.randn(shape, device="cuda")).to(dtype)
        found.append(x if layout == "BHND" else x.transpose(1, 2))
    return found


def packed(dtype, heads=4, N=300, d=64):
    """Parts of one array, as a linear layer makes them."""
    torch.manual_seed(0)
    return list(torch.randn(2, N, 3, heads, d, device="cuda").to(dtype).permute(2, 0, 3, 1, 4))


def gradients(function, inputs, **options):
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = function(*inputs, **options)
    torch.manual_seed(1)
    do = torch.randn(o.shape, device="cuda", dtype=torch.float32).to(inputs[0].dtype)
    return [o.detach(), *torch.autograd.grad(o, inputs, do.to(o.dtype))]


def formula(q, k, v, is_causal=False, enable_gqa=False, scale=None):
    """Attention in float64."""
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    s = q.double() @ k.double().transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    if is_causal:
        s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), -torch.inf)
    return s.softmax(3) @ v.double()


def errors(got, right):
    """The largest difference of O and of each gradient, of its largest element."""
    return [float((x.double() - y.double()).abs().max() / y.abs().max().clamp_min(1e-3)) for x, y in zip(got, right)]  # noqa: B905


@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({}, {}),
        ({"layout": "BNHD", "d": 128}, {"is_causal": True, "scale": 0.2}),
        ({"heads": 6, "kv_heads": 2, "Nq": 257}, {"is_causal": True, "enable_gqa": True}),
        ({"Nq": 1, "Nk": 1000, "d": 32}, {}),
        ({"heads": 1, "kv_heads": 1, "Nq": 700, "d": 96}, {"is_causal": True}),
    ],
    ids=str,
)
def test_it_gives_the_formula_and_its_gradients_and_the_same_bits_again(dtype, sizes, options):
    inputs = tensors(dtype, **sizes)
    got, again = (gradients(hw4cli.torch.attention, inputs, **options) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(got, again, strict=True))
    right = gradients(formula, [x.double() for x in inputs], **options)
    assert all(x.dtype == dtype and x.shape == y.shape for x, y in zip(got, right, strict=True))
    assert max(errors(got, right)) <= ALLOWED[dtype]


def peers(inputs, **options):
    """O and the gradients of those of torch's backends that take the inputs."""
    found = {}
    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                found[name] = gradients(scaled_dot_product_attention, inputs, **options)
        except RuntimeError:
            continue
    return found


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_as_exact_as_torchs_backends(dtype, causal):
    """The norm of each error; theirs differ by less than a third, too."""
    inputs = tensors(dtype, 1, 4, 4, 2048, 2048, 64)
    right = gradients(formula, [x.double() for x in inputs], is_causal=causal)

    def norms(found):
        return [float((x.double() - y).norm() / y.norm()) for x, y in zip(found, right, strict=True)]

    ours = norms(gradients(hw4cli.torch.attention, inputs, is_causal=causal))
    theirs = {name: norms(found) for name, found in peers(inputs, is_causal=causal).items()}
    for place in range(4):
        assert ours[place] <= 1.5 * min(one[place] for one in theirs.values()), (ours, theirs)


HOSTILE = {  # and how much more than usual their errors may be: float32 knows a score of 128 to 2^-17
    "zeros": (lambda q, k, v: (q * 0, k * 0, v), 1),
    "all alike": (lambda q, k, v: (q * 0 + 1, k * 0 + 1, v * 0 + 1), 1),
    "one key has all weight": (lambda q, k, v: (q * 0 + 4, torch.where(row(k) == 7, 4, -4).to(k), v), 8),
    "tiny": (lambda q, k, v: (q * 1e-3, k * 1e-3, v * 1e-3), 1),
    "scores of a hundred": (lambda q, k, v: (q * 4, k * 4, v), 8),
    "large values": (lambda q, k, v: (q, k, v * 100), 1),
}


def row(x):
    return torch.arange(x.shape[2], device="cuda")[:, None].expand_as(x)


@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_inputs_have_right_gradients(dtype, name):
    spoil, factor = HOSTILE[name]
    inputs = [x.to(dtype) for x in spoil(*tensors(dtype, 1, 2, 2, 500, 500, 64))]
    got = gradients(hw4cli.torch.attention, inputs, is_causal=True)
    right = gradients(formula, [x.double() for x in inputs], is_causal=True)
    scale = max(float(x.abs().max()) for x in right[1:])  # where a gradient is 0, rounding alone is left
    for x, y in zip(got[1:], right[1:], strict=True):
        assert float((x.double() - y).abs().max()) <= factor * ALLOWED[dtype] * max(float(y.abs().max()), 1e-1 * scale)


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
def test_a_nan_or_an_infinity_stays_in_its_head(dtype):
    for value in (torch.nan, torch.inf):
        q, k, v = tensors(dtype)
        v[0, 1, 3, 2] = value
        for x in gradients(hw4cli.torch.attention, (q, k, v)):
            assert torch.isfinite(x[1]).all() and torch.isfinite(x[0, [0, 2, 3]]).all()
        assert not torch.isfinite(gradients(hw4cli.torch.attention, (q, k, v))[1][0, 1]).all()


def test_a_hundred_steps_give_the_same_bits():
    inputs = tensors(BFLOAT16, 2, 8, 8, 1024, 1024, 64)
    first = gradients(hw4cli.torch.attention, inputs, is_causal=True)
    for _ in range(99):
        again = gradients(hw4cli.torch.attention, inputs, is_causal=True)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


def test_another_gpu_of_the_kind_gives_the_same_bits():
    if torch.cuda.device_count() < 2:
        pytest.skip("this takes two GPUs")
    for dtype in ALLOWED:
        inputs = tensors(dtype)
        first = gradients(hw4cli.torch.attention, inputs, is_causal=True)
        q, k, v = (x.to("cuda:1").requires_grad_() for x in inputs)  # the current GPU is still the first
        torch.manual_seed(1)
        do = torch.randn(q.shape, device="cuda").to(dtype).to("cuda:1")
        o = hw4cli.torch.attention(q, k, v, is_causal=True)
        for x, y in zip(first, [o.detach(), *torch.autograd.grad(o, (q, k, v), do)], strict=True):
            assert y.device.index == 1 and torch.equal(x, y.to("cuda:0"))


def test_parts_of_one_array_are_read_where_they_are():
    """What is allocated for O, the LSE, and of gradients dQ, dK, dV, delta, on Hopper dQ in float32 for each of two
    chains of additions; nothing else."""
    inputs = q, k, v = [x.requires_grad_() for x in packed(BFLOAT16, 16, 2048)]
    size = inputs[0].numel() * 2
    rows = inputs[0].numel() // 64 * 4
    hw4cli.torch.attention(q, k, v, is_causal=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    o = hw4cli.torch.attention(q, k, v, is_causal=True)
    assert o.transpose(1, 2).is_contiguous()  # as the packed array: a linear layer takes it as it is
    assert torch.cuda.max_memory_allocated() - before <= size + rows + 4096
    do = torch.randn_like(o)
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(o, inputs, do)
    assert torch.cuda.max_memory_allocated() - before <= 7 * size + 4 * rows + 4096


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_torch_finds_nothing_wrong_with_the_operator(dtype, layout):
    inputs = [x.requires_grad_() for x in tensors(dtype, Nq=100, Nk=130, layout=layout)]
    torch.library.opcheck(operator, (*inputs, True, "top-left", None, -1, -1, "auto"))


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_nor_with_that_of_changed_scores(layout, learns):
    inputs = [x.requires_grad_() for x in tensors(BFLOAT16, Nq=100, Nk=130, layout=layout)]
    heads = inputs[0].shape[1]
    mask = torch.randn(1, heads, 100, 130, device="cuda").to(BFLOAT16).requires_grad_(learns)
    beside = [torch.rand(heads, device="cuda"), torch.rand(heads, device="cuda")]
    more = "s - w[h] * abs(i - j)", None, 5.0, "w", True
    options = False, "top-left", None, -1, -1, "auto"
    arguments = (*inputs, mask, beside, *options, *more)
    torch.library.opcheck(torch.ops.hw4cli.attention_changed.default, arguments)


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_nor_with_that_of_sequences(layout):
    inputs = [x.requires_grad_() for x in tensors(BFLOAT16, Nq=100, Nk=130, layout=layout)]
    numbers, options = torch.tensor([100, 7]), (False, "top-left", None, -1, -1, "auto")
    arguments = *inputs, None, [numbers], *options, None, None, None, "", False, "lengths", "left"
    torch.library.opcheck(torch.ops.hw4cli.attention_sequences.default, arguments)


def backends():
    """Of torch.compile, and modes."""
    yield "aot_eager", None
    usable = importlib.util.find_spec("triton") and (shutil.which("gcc") or shutil.which("cc"))
    marks = [] if usable else [pytest.mark.skip(reason="torch's compiler needs triton and a C compiler")]
    yield pytest.param("inductor", None, marks=marks)
    yield pytest.param("inductor", "reduce-overhead", marks=marks)


@pytest.mark.parametrize(("backend", "mode"), list(backends()))
def test_a_compiled_function_is_one_graph_and_gives_the_same(backend, mode):
    def function(q, k, v):
        return hw4cli.torch.attention(2 * q, k, v, is_causal=True).transpose(1, 2).flatten(2) + 1

    compiled = torch.compile(function, fullgraph=True, backend=backend, **({"mode": mode} if mode else {}))
    inputs = packed(BFLOAT16)
    right = gradients(function, inputs)
    for _ in range(4):  # with mode="reduce-overhead": as it is, recorded as a CUDA graph, replayed
        for x, y in zip(gradients(compiled, inputs), right, strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize(("backend", "mode"), list(backends()))
def test_one_graph_reads_the_lengths_of_each_call(backend, mode):
    """A CUDA graph would have those that it was captured with."""

    def function(q, k, v, lengths):
        return 2 * hw4cli.torch.attention(2 * q, k, v, is_causal=True, lengths=lengths, q_lengths=lengths) + 1

    compiled = torch.compile(function, fullgraph=True, backend=backend, **({"mode": mode} if mode else {}))
    inputs = packed(BFLOAT16)
    for n in range(5):
        lengths = torch.tensor([300 - 50 * n, 7 + n], device="cuda")
        found, right = (gradients(lambda *x, one=one, n=lengths: one(*x, n), inputs) for one in (compiled, function))
        assert all(map(torch.equal, found, right))


def test_gradcheck_passes_in_float32():
    inputs = [x.requires_grad_() for x in tensors(FLOAT32, 1, 2, 1, 5, 7, 4)]
    assert torch.autograd.gradcheck(
        lambda q, k, v: hw4cli.torch.attention(q, k, v, is_causal=True, enable_gqa=True),
        inputs,
        eps=1e-2,
        atol=2e-3,
        rtol=1e-2,
        nondet_tol=0.0,
    )


def test_autocast_chooses_the_type():
    q, k, v = (x.requires_grad_() for x in tensors(FLOAT32))
    with torch.autocast("cuda", BFLOAT16):
        o = hw4cli.torch.attention(q, k, v)
    assert o.dtype == BFLOAT16
    o.float().sum().backward()  # of which torch expands one number
    assert q.grad.dtype == FLOAT32
    with torch.no_grad():
        assert torch.equal(o, hw4cli.torch.attention(q.bfloat16(), k.bfloat16(), v.bfloat16()))


def test_work_goes_to_torchs_current_stream():
    """A stream that is busy for long: what is read on it before it has come to that is not there yet."""
    q, k, v = tensors(BFLOAT16, 1, 8, 8, 1024, 1024)
    right = gradients(hw4cli.torch.attention, (q, k, v))
    stream = torch.cuda.Stream()
    late = [torch.zeros_like(x) for x in (q, k, v)]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        for x, y in zip(late, (q, k, v), strict=True):
            x.copy_(y)
        found = gradients(hw4cli.torch.attention, late)
    stream.synchronize()
    assert all(torch.equal(x, y) for x, y in zip(found, right, strict=True))


def test_a_step_becomes_a_cuda_graph():
    q, k, v = (x.requires_grad_() for x in tensors(BFLOAT16, 1, 8, 8, 1024, 1024))
    do = torch.randn_like(q)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            right = torch.autograd.grad(hw4cli.torch.attention(q, k, v), (q, k, v), do)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = torch.autograd.grad(hw4cli.torch.attention(q, k, v), (q, k, v), do)
    for _ in range(2):
        for x in found:
            x.detach().zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(x, y) for x, y in zip(found, right, strict=True))


def test_what_a_gpu_does_not_take_is_refused_in_a_sentence():
    q, k, v = tensors(FLOAT32)
    with pytest.raises(TypeError, match="q is float64: give float16, bfloat16 or float32"):
        hw4cli.torch.attention(q.double(), k.double(), v.double())
    with pytest.raises(ValueError, match="query is on cuda:0, key on cpu: bring them together"):
        hw4cli.torch.attention(q, k.cpu(), v.cpu())
    with pytest.raises(ValueError, match="d is 320: it must be between 1 and 256"):
        hw4cli.torch.attention(*(x.repeat(1, 1, 1, 5) for x in (q, k, v)))


@pytest.mark.chain("training")  # takes long
def test_a_transformer_learns_the_same_as_with_torchs_attention_and_has_the_same_bits_again():
    sys.path.append(str(ROOT / "docs"))
    import train

    try:
        losses, digest = train.train(train.Training("hw4", "cuda"))
        assert train.train(train.Training("hw4", "cuda"))[1] == digest
        theirs, _ = train.train(train.Training("torch", "cuda"))
    finally:
        torch.use_deterministic_algorithms(False)  # as for the other tests
    assert sum(losses[-50:]) / 50 < 0.5 * losses[0]
    assert sum(losses[-50:]) == pytest.approx(sum(theirs[-50:]), rel=0.05)
