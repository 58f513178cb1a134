"""hw4cli.torch.attention of padded and packed sequences on the CPU, beside torch's own attention of each by itself."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from slow import few  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import hw4cli.torch  # noqa: E402

attention = hw4cli.torch.attention
EPSILON = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
LENGTHS = [33, 1, 0, 20]


def tensors(dtype=torch.float32, N=33, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(4, heads, N, 16, generator=random).to(dtype) for heads in (4, 2, 2)]


def derived(function, inputs):
    """O, and the gradients of the inputs, of a loss that weighs each element of O otherwise."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = function(*inputs)
    weights = torch.arange(o.numel(), dtype=torch.float64).reshape(o.shape).sin()
    return [o.detach(), *torch.autograd.grad((o * weights).sum(), inputs)]


def each_alone(causal, side):
    """torch's attention of each sequence; zeros elsewhere."""

    def function(q, k, v):
        found = torch.zeros_like(q)
        for n, length in enumerate(LENGTHS):
            some = slice(0, length) if side == "right" else slice(33 - length, 33)
            parts = (x[n : n + 1, :, some] for x in (q, k, v))
            if length:
                found[n : n + 1, :, some] = scaled_dot_product_attention(*parts, is_causal=causal, enable_gqa=True)
        return found

    return function


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize(("causal", "side"), [(False, "right"), (True, "left")])
def test_padded_tensors_and_their_gradients_are_those_of_each_sequence_alone(dtype, causal, side):
    def ours(q, k, v):
        asked = {"lengths": torch.tensor(LENGTHS), "q_lengths": LENGTHS, "padding": side}
        return hw4cli.torch.attention(q, k, v, is_causal=causal, enable_gqa=True, **asked)

    inputs = tensors(dtype)
    for one, right in zip(derived(ours, inputs), derived(each_alone(causal, side), inputs), strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.float(), right.float(), atol=EPSILON[dtype] * 4, rtol=0)


def test_packed_tensors_of_rows_before_heads_are_what_padded_ones_are():
    def pack(x):
        return torch.cat([x[n, :, :length] for n, length in enumerate(LENGTHS)], dim=1)

    inputs = tensors()
    starts = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "is_causal": True, "enable_gqa": True}
    packed = [
        pack(x).transpose(0, 1).contiguous().transpose(0, 1) for x in inputs
    ]  # as flash-attn has them, seen turned
    found = derived(lambda *x: hw4cli.torch.attention(*x, **asked), packed)
    q = inputs[0].requires_grad_()
    o = hw4cli.torch.attention(*inputs, is_causal=True, enable_gqa=True, lengths=LENGTHS, q_lengths=LENGTHS)
    torch.testing.assert_close(found[0], pack(o.detach()), atol=0, rtol=0)
    weights = torch.arange(found[0].numel(), dtype=torch.float64).reshape(found[0].shape).sin()
    (pack(o) * weights).sum().backward()
    torch.testing.assert_close(found[1], pack(q.grad), atol=1e-6, rtol=0)


def packed(dtype=torch.float32, N=54):
    """Q, K and V of packed sequences, whose heads lie side by side, as flash-attn has them."""
    return [x[0].transpose(0, 1).contiguous().transpose(0, 1) for x in tensors(dtype, N=N)]


@pytest.mark.parametrize("without", ["keys", "rows"])
def test_packed_sequences_none_of_which_has_keys_or_rows_are_zeros_with_zero_gradients(without):
    q, k, v = (x.requires_grad_() for x in packed(torch.float16))
    some, none = [0, 33, 34, 34, 54], [0] * 5
    if without == "keys":
        o = attention(q, k[:, :0], v[:, :0], cu_seqlens_q=some, cu_seqlens_k=torch.tensor(none), enable_gqa=True)
    else:
        o = attention(q[:, :0], k, v, cu_seqlens_q=none, cu_seqlens_k=some, enable_gqa=True)
    assert torch.equal(o, torch.zeros_like(q if without == "keys" else q[:, :0]))
    for x, gradient in zip((q, k, v), torch.autograd.grad(o.sum(), (q, k, v)), strict=True):
        assert torch.equal(gradient, torch.zeros_like(x))


def test_without_any_keys_the_numbers_must_fit_as_well():
    q, k, v = packed()
    with pytest.raises(ValueError, match="cu_seqlens_k ends at 20, and the arrays have 0 rows"):
        attention(q, k[:, :0], v[:, :0], cu_seqlens_q=[0, 54], cu_seqlens_k=[0, 20], enable_gqa=True)
    with pytest.raises(ValueError, match=r"lengths\[1\] is 2: it must be between 0 and 0"):
        attention(*(x[:, :, :0] for x in tensors()), lengths=[0, 2, 0, 0], enable_gqa=True)


def starts(N=54):
    return torch.tensor([0, 33, 34, 34, N], dtype=torch.int32)


def of_tensors(q, k, v, lengths):
    return 2 * attention(q + 1, k, v, lengths=lengths, enable_gqa=True)


def of_rows_too(q, k, v, lengths):
    more = {"q_lengths": LENGTHS, "padding": "left", "is_causal": True, "window": (5, None)}
    return attention(q, k, v, lengths=lengths, enable_gqa=True, **more)


def of_packed(q, k, v, starts):
    slopes = torch.full((4, 4), 0.25)
    more = {"alibi_slopes": slopes, "score": "s - w[h] * abs(i - j)", "arrays": {"w": slopes[0]}}
    return attention(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, is_causal=True, enable_gqa=True, **more)


GRAPHS = {
    "of int64": (of_tensors, tensors, lambda: torch.tensor(LENGTHS)),
    "a list": (of_tensors, tensors, lambda: LENGTHS),
    "of int32, and a tuple for rows": (of_rows_too, tensors, lambda: torch.tensor(LENGTHS, dtype=torch.int32)),
    "packed": (of_packed, packed, starts),
    "an array of NumPy": (of_tensors, tensors, lambda: np.array(LENGTHS)),
    "packed, a list": (of_packed, packed, lambda: starts().tolist()),
}


@pytest.mark.parametrize("dtype", few([torch.float32, torch.bfloat16], 1), ids=str)
@pytest.mark.parametrize("name", few(GRAPHS, 4))
def test_a_compiled_model_has_sequences_in_its_graph_and_gives_the_same_bits(name, dtype):
    pytest.importorskip("torch._dynamo")
    function, inputs, numbers = GRAPHS[name]
    given, compiled = inputs(dtype), torch.compile(function, fullgraph=True, backend="aot_eager")
    found = [derived(lambda *x, one=one: one(*x, numbers()), given) for one in (function, compiled)]
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("listed", [False, True])
def test_one_graph_is_for_other_lengths_and_for_tensors_of_other_sizes(listed):
    """What changes from batch to batch is left open: a model is not compiled for each."""
    testing = pytest.importorskip("torch._dynamo.testing")
    counter = testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(of_packed, fullgraph=True, backend=counter)
    counts = []
    for n, N in enumerate((54, 60, 77, 81, 95)):
        numbers = torch.tensor([0, 3 + n, 9 + 2 * n, 20 + n, N])
        given = *packed(N=N), numbers.tolist() if listed else numbers
        torch.testing.assert_close(compiled(*given), of_packed(*given), atol=0, rtol=0)
        counts.append(counter.frame_count)
    assert counts[-1] == counts[2] <= 3


def test_a_mask_of_packed_sequences_learns_in_a_graph():
    pytest.importorskip("torch._dynamo")
    mask = torch.randn(4, 1, 40, 40, generator=torch.Generator().manual_seed(5))

    def layer(q, k, v, mask):
        return attention(q, k, v, mask, enable_gqa=True, softcap=3.0, cu_seqlens_q=starts(), cu_seqlens_k=starts())

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, derived(layer, (*packed(), mask)), derived(compiled, (*packed(), mask))))


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_model_has_them_too(strict):
    pytest.importorskip("torch.export")

    class Model(torch.nn.Module):
        def forward(self, q, k, v, lengths):
            return attention(q, k, v, lengths=lengths, q_lengths=LENGTHS, enable_gqa=True)

    lengths, rows = torch.tensor(LENGTHS), {2: torch.export.Dim.AUTO}
    shapes = rows, rows, rows, None
    exported = torch.export.export(Model(), (*tensors(), lengths), strict=strict, dynamic_shapes=shapes).module()
    for N in (33, 50):
        given = *tensors(N=N), lengths - (lengths > 0).long()
        assert torch.equal(exported(*given), Model()(*given))


def operands(name):
    """Arguments of the operator of sequences: padded or packed, with all that may go with them."""
    numbers = torch.tensor(LENGTHS) // 4
    options, score = (True, "top-left", None, 3, -1, "auto"), (None, "i >= j", 5.0, "", True)
    if name == "padded":
        given = [x.requires_grad_() for x in tensors(N=9)]
        return *given, None, [torch.ones(4), numbers], *options, *score, "lengths", "left"
    mask = torch.randn(4, 1, 9, 9).requires_grad_()
    given = [x.requires_grad_() for x in packed(N=13)]
    ends = torch.cat([torch.zeros(1, dtype=torch.long), numbers.cumsum(0)])
    return *given, mask, [torch.ones(4), ends, ends], *options, *score, "cu_seqlens_q cu_seqlens_k", "right"


@pytest.mark.parametrize("name", ["padded", "packed"])
def test_torch_finds_nothing_wrong_with_the_operator_of_sequences(name):
    """Schema, fake operator, its autograd and its traces with dynamic shapes."""
    torch.library.opcheck(torch.ops.hw4cli.attention_sequences.default, operands(name))


def test_meta_tensors_meet_the_same_checks():
    whole, rows = ([x.to("meta") for x in made()] for made in (tensors, packed))
    assert attention(*whole, lengths=LENGTHS, enable_gqa=True).shape == (4, 4, 33, 16)
    assert attention(*rows, cu_seqlens_q=starts(), cu_seqlens_k=starts(), enable_gqa=True).shape == (4, 54, 16)
    assert attention(*whole, lengths=torch.tensor(LENGTHS, device="meta"), enable_gqa=True).shape == (4, 4, 33, 16)
    assert attention(*whole, softcap=3.0, enable_gqa=True).shape == (4, 4, 33, 16)
    with pytest.raises(TypeError, match="lengths is a list: give a list, or an array, of integers"):
        attention(*whole, lengths=[0.5] * 4, enable_gqa=True)
    with pytest.raises(ValueError, match="q has 3 dimensions: give four"):
        attention(*rows, lengths=LENGTHS, enable_gqa=True)


def test_no_cuda_graph_captures_the_operator_which_reads_lengths():
    if not hasattr(torch.Tag, "cudagraph_unsafe"):
        pytest.skip("torch has no such tag")
    for operator in (torch.ops.hw4cli.attention_sequences, torch.ops.hw4cli.attention_sequences_backward):
        assert torch.Tag.cudagraph_unsafe in operator.default.tags


def test_functions_of_sequences_are_differentiated_and_not_mapped_over():
    (q, k, v), (_, *others) = tensors(), operands("padded")

    def loss(q):
        return attention(q, k, v, lengths=LENGTHS, enable_gqa=True).square().sum()

    (right,) = torch.autograd.grad(loss(q.requires_grad_()), q)
    torch.testing.assert_close(torch.func.grad(loss)(q.detach()), right)
    with pytest.raises(NotImplementedError, match="is not mapped over by vmap"):
        torch.vmap(lambda x: torch.ops.hw4cli.attention_sequences(x, *others))(q.detach()[None])


IN_A_GRAPH = {
    "lengths[0] is 34: it must be between 0 and 33": {"lengths": torch.tensor([34, 1, 0, 20])},
    "lengths has 2 numbers: give one for each of 4 batches": {"lengths": [1, 2]},
    "lengths is an array (4,) of torch.float32: give integers": {"lengths": torch.ones(4)},
    "lengths is a list: give a list, or an array, of integers": {"lengths": [0.5] * 4},
    "padding is 'middle': give 'left' or 'right'": {"lengths": LENGTHS, "padding": "middle"},
    "padding is 'left', and how long it is": {"padding": "left"},
    "q has 4 dimensions: packed arrays have three": {"cu_seqlens_q": [0, 33], "cu_seqlens_k": [0, 33]},
}


@pytest.mark.parametrize("sentence", few(IN_A_GRAPH, 3))
def test_a_graph_refuses_what_does_not_fit_in_the_same_sentences(sentence):
    pytest.importorskip("torch._dynamo")
    asked = IN_A_GRAPH[sentence]
    try:
        for function in (attention, torch.compile(attention, backend="eager")):
            with pytest.raises(Exception, match=re.escape(sentence)):
                function(*tensors(), enable_gqa=True, **asked)
    finally:
        torch._dynamo.reset()  # which does not compile again what could not be


def test_what_does_not_fit_is_refused():
    q, k, v = tensors()
    with pytest.raises(ValueError, match=r"lengths\[0\] is 34: it must be between 0 and 33"):
        hw4cli.torch.attention(q, k, v, lengths=[34, 1, 0, 20], enable_gqa=True)
    with pytest.raises(ValueError, match="give enable_gqa=True"):
        hw4cli.torch.attention(q, k, v, lengths=LENGTHS)
    for asked in ({}, {"softcap": 3.0}):
        with pytest.raises(ValueError, match="padding is 'middle': give 'left' or 'right'"):
            hw4cli.torch.attention(q, q, q, padding="middle", **asked)
        with pytest.raises(ValueError, match="padding is 'left', and how long it is, lengths or q_lengths say"):
            hw4cli.torch.attention(q, q, q, padding="left", **asked)
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jvp(lambda x: hw4cli.torch.attention(x, q, q, lengths=LENGTHS), (q,), (q,))


def test_packed_sequences_learn_a_mask_of_their_own():
    """Of the longest sequence's rows and keys, or more; what a sequence does not have gets no gradient."""
    q, k, v = (x[0] for x in tensors(N=54))
    mask = torch.randn(4, 1, 40, 40, generator=torch.Generator().manual_seed(5))
    starts = [0, 33, 34, 34, 54]

    def each(q, k, v, mask):
        found = []
        for n, length in enumerate(LENGTHS):
            some = slice(starts[n], starts[n + 1])
            asked = {"attn_mask": mask[n : n + 1, :, :length, :length], "enable_gqa": True}
            parts = (x[None, :, some] for x in (q, k, v))
            found.append(scaled_dot_product_attention(*parts, **asked)[0] if length else q[:, :0])
        return torch.cat(found, dim=1)

    def ours(q, k, v, mask):
        return hw4cli.torch.attention(q, k, v, mask, enable_gqa=True, cu_seqlens_q=starts, cu_seqlens_k=starts)

    for found, right in zip(*(derived(one, (q, k, v, mask)) for one in (ours, each)), strict=True):
        torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-4)
