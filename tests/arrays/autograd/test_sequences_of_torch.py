"""hw4cli.torch.attention of padded and packed sequences on the CPU, beside torch's own attention of each by itself."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import hw4cli.torch  # noqa: E402

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


def test_a_compiled_model_computes_sequences_between_its_graphs():
    pytest.importorskip("torch._dynamo")
    inputs = tensors()

    def layer(q, k, v):
        return 2 * hw4cli.torch.attention(q + 1, k, v, lengths=LENGTHS, enable_gqa=True)

    torch.testing.assert_close(torch.compile(layer, backend="eager")(*inputs), layer(*inputs))


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
