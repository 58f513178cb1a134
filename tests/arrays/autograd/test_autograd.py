"""hw4cli.torch on the CPU, where torch is installed: beside torch's own attention, as torch's machinery uses it."""

import doctest
import sys

import numpy as np
import pytest
from helpers import ROOT

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import hw4cli.torch  # noqa: E402
from hw4cli.arrays.autograd.operators import operator  # noqa: E402

EPSILON = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def tensors(dtype=torch.float32, heads=4, kv_heads=4, Nq=33, Nk=33, d=16, layout="BHND", seed=0):
    """Q, K and V that want gradients; of heads side by side with layout="BNHD"."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for count, N in ((heads, Nq), (kv_heads, Nk), (kv_heads, Nk)):
        shape = (2, count, N, d) if layout == "BHND" else (2, N, count, d)
        x = torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)
        found.append((x if layout == "BHND" else x.transpose(1, 2)).requires_grad_())
    return found


def gradients(function, inputs, **options):
    """O, and the gradients of the inputs, of a loss that weighs each element of O otherwise."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = function(*inputs, **options)
    weights = torch.arange(o.numel(), dtype=torch.float64).reshape(o.shape).sin()
    return [o.detach(), *torch.autograd.grad((o * weights).sum(), inputs)]


def assert_like(got, expected, dtype):
    for one, right in zip(got, expected, strict=True):
        assert one.dtype == dtype and one.shape == right.shape
        largest = max(1.0, float(right.abs().max()))
        assert float((one.double() - right.double()).abs().max()) <= EPSILON[dtype] * largest


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({}, {}),
        ({"layout": "BNHD"}, {"is_causal": True, "scale": 0.5}),
        ({"kv_heads": 2, "Nq": 20}, {"is_causal": True, "enable_gqa": True}),
        ({"Nq": 40, "Nk": 20}, {"is_causal": True}),
    ],
    ids=str,
)
def test_it_gives_what_torch_gives_and_its_gradients(dtype, sizes, options):
    inputs = tensors(dtype, **sizes)
    wide = [x.detach().double() for x in inputs]
    expected = gradients(scaled_dot_product_attention, wide, **options)
    assert_like(gradients(hw4cli.torch.attention, inputs, **options), expected, dtype)


def test_tensors_of_two_to_five_dimensions_are_taken_as_torch_takes_them():
    q, k, v = tensors()
    for shape in ((33, 16), (4, 33, 16), (2, 1, 4, 33, 16)):
        parts = [x[0, 0] if len(shape) == 2 else x[0] if len(shape) == 3 else x.unsqueeze(1) for x in (q, k, v)]
        got, right = (function(*parts) for function in (hw4cli.torch.attention, scaled_dot_product_attention))
        assert got.shape == shape
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((4, 5, 16), (2, 4, 7, 16), (2, 4, 7, 16)), {}),
        (((2, 4, 5, 16), (4, 7, 16), (7, 16)), {"is_causal": True}),
        (((2, 4, 5, 16), (1, 4, 7, 16), (2, 1, 7, 16)), {}),
        (((2, 1, 5, 16), (2, 4, 7, 16), (1, 1, 7, 16)), {"scale": 0.3}),
        (((2, 4, 5, 16), (2, 1, 7, 16), (2, 1, 7, 16)), {}),
        (((3, 1, 4, 5, 16), (2, 4, 7, 16), (2, 4, 7, 16)), {"is_causal": True}),
        (((5, 16), (2, 4, 7, 16), (4, 7, 16)), {}),
        (((2, 4, 5, 16), (1, 2, 7, 16), (1, 2, 7, 16)), {"enable_gqa": True}),
        (((2, 4, 5, 16), (2, 2, 7, 16), (2, 1, 7, 16)), {"enable_gqa": True, "is_causal": True}),
        (((2, 1, 1, 16), (2, 1, 1, 16), (2, 1, 1, 16)), {}),
    ],
    ids=str,
)
def test_dimensions_before_the_rows_broadcast_as_in_torch_and_gradients_are_summed(dtype, shapes, options):
    random = torch.Generator().manual_seed(3)
    inputs = [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]
    expected = gradients(scaled_dot_product_attention, [x.double() for x in inputs], **options)
    assert_like(gradients(hw4cli.torch.attention, inputs, **options), expected, dtype)


def layouts():
    """Q, K and V as they may lie in memory."""
    q, k, v = (x.detach() for x in tensors())
    yield "every second row", [x.repeat_interleave(2, 2)[:, :, ::2] for x in (q, k, v)]
    yield "columns apart", [x.repeat_interleave(3, 3)[..., ::3] for x in (q, k, v)]
    yield "rows and columns exchanged", [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)]
    yield "parts of one array", list(torch.cat((q, k, v), 3).split(16, 3))
    yield "one head for all", [q, k[:, :1].expand_as(k), v[:, :1].expand_as(v)]
    yield "one row for all", [q[:, :, :1].expand_as(q), k, v[:, :, :1].expand_as(v)]
    yield "one number for all", [x[:1, :1, :1, :1].expand_as(x) for x in (q, k, v)]
    yield "negative views", [torch._neg_view(x) for x in (q, k, v)]


@pytest.mark.parametrize(("how", "inputs"), list(layouts()), ids=lambda x: x if isinstance(x, str) else "")
def test_tensors_may_lie_in_memory_in_any_way(how, inputs):
    expected = gradients(scaled_dot_product_attention, [x.double() for x in inputs], is_causal=True)
    leaves = [x.requires_grad_() for x in inputs]  # not detached, which may copy
    o = hw4cli.torch.attention(*leaves, is_causal=True)
    weights = torch.arange(o.numel(), dtype=torch.float64).reshape(o.shape).sin()
    found = torch.autograd.grad((o * weights).sum(), leaves)
    assert_like([o.detach(), *found], expected, torch.float32)


@pytest.mark.parametrize("asked", [{}, {"softcap": 2.0}, {"lengths": [9]}, {"attn_mask": None}], ids=str)
def test_negative_views_are_read_and_derived_with_whatever_is_asked_for(asked):
    """torch has such views of gradients of complex numbers."""
    x, mask, do = torch.randn(3, 1, 2, 9, 8), torch.randn(9, 9), torch.randn(1, 2, 9, 8)

    def of(turned):
        leaves = [turned(one).requires_grad_() for one in x]
        words = asked if "attn_mask" not in asked else {"attn_mask": turned(mask).requires_grad_()}
        wanted = [*leaves, *(one for one in words.values() if isinstance(one, torch.Tensor))]
        o = hw4cli.torch.attention(*leaves, **words)
        return [o, *torch.autograd.grad(o, wanted, turned(do))]

    for found, right in zip(of(torch._neg_view), of(torch.neg), strict=True):
        assert torch.equal(found, right)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=str)
def test_gradients_of_some_of_the_tensors_are_those_of_all(wanted):
    every = gradients(hw4cli.torch.attention, tensors(), is_causal=True)
    inputs = [x.detach().requires_grad_(place in wanted) for place, x in enumerate(tensors())]
    o = hw4cli.torch.attention(*inputs, is_causal=True)
    weights = torch.arange(o.numel(), dtype=torch.float64).reshape(o.shape).sin()
    found = torch.autograd.grad((o * weights).sum(), [inputs[place] for place in wanted])
    for place, one in zip(wanted, found, strict=True):
        assert torch.equal(one, every[1 + place])


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 4, 5, 8), (2, 4, 0, 8), (2, 4, 7, 8)),
        ((2, 4, 5, 8), (2, 4, 0, 4), (2, 4, 0, 8)),
        ((2, 4, 0, 8), (2, 4, 5, 4), (2, 4, 5, 8)),
        ((0, 4, 5, 8), (0, 3, 5, 8), (0, 3, 5, 8)),
        ((0, 4, 5, 8), (3, 4, 5, 8), (3, 4, 5, 8)),
        ((2, 4, 5, 0), (2, 4, 5, 0), (2, 4, 5, 8)),
    ],
    ids=str,
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_of_nothing_shapes_must_fit_as_well(shapes, device):
    with pytest.raises(ValueError, match=r"differ in|give enable_gqa=True"):
        hw4cli.torch.attention(*(torch.zeros(shape, device=device) for shape in shapes))


@pytest.mark.parametrize(
    ("of_query", "of_keys"),
    [((0, 4, 5, 8), (0, 4, 5, 8)), ((2, 4, 0, 8), (2, 4, 5, 8)), ((2, 4, 5, 8), (2, 4, 0, 8)), ((4, 0, 8), (4, 0, 8))],
    ids=str,
)
def test_of_nothing_there_is_what_torch_gives_and_its_gradients(of_query, of_keys):
    inputs = [torch.full(shape, torch.inf, dtype=torch.float16) for shape in (of_query, of_keys, of_keys)]
    got, right = (gradients(function, inputs) for function in (hw4cli.torch.attention, scaled_dot_product_attention))
    for one, expected in zip(got, right, strict=True):
        assert one.dtype == torch.float16
        assert torch.equal(one, torch.zeros_like(expected))


def test_the_mask_can_be_aligned_at_the_bottom_right():
    q, k, v = tensors(Nq=5, Nk=12)
    mask = torch.ones(5, 12, dtype=torch.bool).tril(7)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(hw4cli.torch.attention(q, k, v, is_causal=True, align="bottom-right"), expected)


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
@pytest.mark.parametrize(("causal", "window"), [(False, (3, 2)), (True, (6, None)), (False, (None, 1)), (True, (0, 9))])
def test_a_window_is_torchs_attention_with_a_mask_of_it(causal, window, align):
    inputs = tensors(Nq=20, Nk=33)
    own = torch.arange(20)[:, None] + (13 if align == "bottom-right" else 0)
    left, right = (100 if side is None else side for side in window)
    mask = (torch.arange(33) >= own - left) & (torch.arange(33) <= own + (0 if causal else right))
    expected = gradients(scaled_dot_product_attention, inputs, attn_mask=mask)
    options = {"is_causal": causal, "window": window, "align": align}
    assert_like(gradients(hw4cli.torch.attention, inputs, **options), expected, torch.float32)
    compiled = torch.compile(hw4cli.torch.attention, fullgraph=True, backend="aot_eager")
    assert_like(gradients(compiled, inputs, **options), expected, torch.float32)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"is_causal": True, "align": "bottom-right"},
        {"window": (2, 1), "align": "bottom-right"},
    ],
    ids=str,
)
def test_gradcheck_passes(options):
    inputs = tensors(torch.float64, heads=4, kv_heads=2, Nq=5, Nk=7, d=4)
    assert torch.autograd.gradcheck(lambda *x: hw4cli.torch.attention(*x, enable_gqa=True, **options), inputs)


@pytest.mark.parametrize("widths", [(192, 128), (256, 256), (5, 9)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_wide_rows_and_values_of_another_width_are_what_torch_gives(dtype, widths):
    (d, dv), random = widths, torch.Generator().manual_seed(1)
    shapes = (2, 4, 9, d), (2, 4, 13, d), (2, 4, 13, dv)
    inputs = [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]
    for layout in (False, True):
        given = [x.transpose(1, 2).contiguous().transpose(1, 2) if layout else x for x in inputs]
        got, right = (gradients(function, given) for function in (hw4cli.torch.attention, scaled_dot_product_attention))
        for one, expected in zip(got, right, strict=True):
            assert one.shape == expected.shape
            torch.testing.assert_close(one, expected, atol=1e-2 if dtype == torch.float16 else 1e-4, rtol=1e-2)
    compiled = torch.compile(hw4cli.torch.attention, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs), hw4cli.torch.attention(*inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_torch_finds_nothing_wrong_with_the_operator(dtype, layout):
    """Schema, fake operator (shapes, types, strides), and its autograd and its traces with dynamic shapes."""
    inputs = tensors(dtype, Nq=9, Nk=12, d=8, layout=layout)
    torch.library.opcheck(operator, (*inputs, True, "top-left", None, 3, -1, "auto"))


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_a_compiled_function_is_one_graph_and_gives_the_same_bits(layout):
    def function(q, k, v):
        return hw4cli.torch.attention(2 * q, k, v, is_causal=True).transpose(1, 2).flatten(2) + 1

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    inputs = tensors(layout=layout)
    for got, right in zip(gradients(compiled, inputs), gradients(function, inputs), strict=True):
        assert torch.equal(got, right) and got.stride() == right.stride()


def test_o_of_one_batch_has_the_strides_of_q_which_gradients_are_remembered_by():
    q, k, v = (torch.randn(1, 9, 4, 8, dtype=torch.bfloat16).transpose(1, 2) for _ in "qkv")
    assert hw4cli.torch.attention(q, k, v).stride() == q.stride() == (9 * 4 * 8, 8, 4 * 8, 1)


def test_what_torch_has_expanded_is_read_like_everything_else():
    q, k, v = tensors()
    hw4cli.torch.attention(q, k, v).sum().backward()  # dO is one number, expanded
    right = torch.autograd.grad(scaled_dot_product_attention(q, k, v).sum(), (q, k, v))
    for x, y in zip((q, k, v), right, strict=True):
        torch.testing.assert_close(x.grad, y, atol=1e-5, rtol=1e-4)


def test_autocast_chooses_the_type():
    q, k, v = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        o = hw4cli.torch.attention(q, k.bfloat16(), v)
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert q.grad.dtype == torch.float32
    assert torch.equal(o, hw4cli.torch.attention(q.bfloat16(), k.bfloat16(), v.bfloat16()))


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_autocast_leaves_float64_and_what_then_differs_is_refused(name):
    inputs = dict(zip(("query", "key", "value"), torch.randn(3, 1, 2, 5, 8), strict=True))
    inputs[name] = inputs[name].double()
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match=r"float64.*: give one element type"):
        hw4cli.torch.attention(**inputs)
    with torch.autocast("cpu", torch.bfloat16):
        o = hw4cli.torch.attention(*(x.double() for x in inputs.values()))
    assert o.dtype == torch.float64


def test_without_gradients_nothing_is_kept():
    q, k, v = tensors()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert hw4cli.torch.attention(q, k, v).grad_fn is None
    assert hw4cli.torch.attention(q.detach(), k.detach(), v.detach()).grad_fn is None


def test_one_gradient_alone_and_checkpoints_work():
    q, k, v = (x.detach() for x in tensors())
    right = gradients(hw4cli.torch.attention, (q, k, v))
    weights = torch.arange(right[0].numel(), dtype=torch.float64).reshape(q.shape).sin()
    for function in (
        lambda k: hw4cli.torch.attention(q, k, v),
        lambda k: torch.utils.checkpoint.checkpoint(hw4cli.torch.attention, q, k, v, use_reentrant=False),
    ):
        alone = k.clone().requires_grad_()
        (function(alone) * weights).sum().backward()
        assert torch.equal(alone.grad, right[2])


def test_a_meta_tensor_meets_the_checks_of_real_ones():
    assert hw4cli.torch.attention(*torch.empty(3, 2, 4, 5, 8, device="meta")).shape == (2, 4, 5, 8)
    for device in ("cpu", "meta"):
        for dtype in EPSILON:
            with pytest.raises(ValueError, match="d is 264: it must be between 1 and 256"):
                hw4cli.torch.attention(*torch.zeros(3, 1, 2, 5, 264, device=device, dtype=dtype))
        with pytest.raises(TypeError, match="q is int32: give float16, bfloat16, float32 or float64"):
            hw4cli.torch.attention(*torch.zeros(3, 1, 2, 5, 8, device=device, dtype=torch.int32))
        with pytest.raises(ValueError, match="scale is 0: it must be a positive number"):
            hw4cli.torch.attention(*torch.zeros(3, 1, 2, 5, 8, device=device), scale=0)


TANGENTS = {  # what asks for a derivative in forward mode, of a function of q alone
    "jvp": lambda f, q: torch.func.jvp(f, (q,), (torch.ones_like(q),)),
    "linearize": lambda f, q: torch.func.linearize(f, q),
    "jacfwd": lambda f, q: torch.func.jacfwd(f)(q),
    "jvp of vmap": lambda f, q: torch.func.jvp(torch.vmap(f), (q[None],), (torch.ones_like(q)[None],)),
    "vmap of jvp": lambda f, q: torch.vmap(lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),)))(q[None]),
    "hessian": lambda f, q: torch.func.hessian(lambda x: f(x).square().sum())(q),
    "jvp of grad": lambda f, q: torch.func.jvp(
        torch.func.grad(lambda x: f(x).square().sum()), (q,), (torch.ones_like(q),)
    ),
    "dual number": lambda f, q: dual(f, q),
    "dual number that wants a gradient": lambda f, q: dual(f, q.clone().requires_grad_()),
}


def dual(function, q):
    with torch.autograd.forward_ad.dual_level():
        return function(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)))


@pytest.mark.parametrize("how", TANGENTS)
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_a_forward_mode_derivative_is_refused_and_never_zero(how, name):
    inputs = dict(zip(("query", "key", "value"), torch.randn(3, 1, 2, 5, 8), strict=True))
    x = inputs.pop(name)
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        TANGENTS[how](lambda x: hw4cli.torch.attention(**inputs, **{name: x}), x)


def test_the_operators_themselves_refuse_tangents():
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    o, lse = operator(q, k, v, False, "top-left", None, -1, -1, "auto")
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            operator(dual, k, v, False, "top-left", None, -1, -1, "auto")
        with pytest.raises(NotImplementedError, match="no second derivative"):
            torch.ops.hw4cli.attention_backward(dual, q, k, v, o, lse, False, "top-left", None, -1, -1)


def test_torch_func_differentiates_backwards_and_vmap_maps():
    q, k, v = (x.detach() for x in tensors())
    weights = torch.arange(q.numel(), dtype=torch.float32).reshape(q.shape).sin()

    def loss(function):
        return lambda q, k, v, weights: (function(q, k, v, is_causal=True) * weights).sum()

    def same(transform, *arguments):
        got, right = (transform(loss(f))(*arguments) for f in (hw4cli.torch.attention, scaled_dot_product_attention))
        for one, expected in zip(got, right, strict=True):
            torch.testing.assert_close(one, expected, atol=2e-5, rtol=1e-4)

    places = (0, 1, 2)
    same(lambda f: torch.func.grad(f, places), q, k, v, weights)
    same(lambda f: torch.func.jacrev(f, places), q, k, v, weights)
    same(lambda f: torch.vmap(torch.func.grad(f, places)), q, k, v, weights)
    same(lambda f: torch.vmap(torch.func.grad(f, places), (0, None, 1, 0)), q, k[0], v.transpose(0, 1), weights)
    same(lambda f: torch.func.grad(lambda *x: torch.vmap(f, (1, 0, 0, 1))(*x).sum(), places), q, k[0], v[0], weights)
    same(lambda f: lambda *x: torch.func.vjp(f, *x)[1](torch.tensor(2.0)), q, k, v, weights)


def test_vmap_computes_all_at_once(recwarn):
    q, k, v = (x.detach() for x in tensors())
    alone = torch.stack([hw4cli.torch.attention(q[:, n], k[:, n], v[:, 0]) for n in range(4)], 1)
    mapped = torch.vmap(hw4cli.torch.attention, (1, 1, None), 1)(q, k, v[:, 0])
    torch.testing.assert_close(mapped, alone)
    assert not recwarn.list  # that a loop takes its place


@pytest.mark.parametrize(
    "asked", [{}, {"lengths": [33, 5]}, {"softcap": 3.0}, {"attn_mask": torch.zeros(20, 33)}], ids=str
)
def test_torchs_counter_sees_the_operations(asked):
    from torch.utils.flop_counter import FlopCounterMode

    inputs = tensors(kv_heads=2, Nq=20)
    align = {"align": "bottom-right"} if "lengths" in asked else {}
    with FlopCounterMode(display=False) as counter:
        hw4cli.torch.attention(*inputs, is_causal=True, enable_gqa=True, **asked, **align).sum().backward()
    forward = 4 * 2 * 4 * 20 * 33 * 16
    assert counter.get_total_flops() == forward + 5 * forward // 2
    assert [key.split(".")[0] for key in map(str, counter.get_flop_counts()["Global"])] == ["hw4cli", "hw4cli"]


def test_fake_tensors_of_a_mode_have_the_answers_shape_and_nothing_is_computed():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k, v = (torch.empty(2, 4, 1 << 20, 64, dtype=torch.float16) for _ in range(3))
        for asked in ({}, {"lengths": [7, 1 << 20]}, {"softcap": 3.0}):
            assert hw4cli.torch.attention(q, k, v, **asked).shape == q.shape


def test_a_symbolic_trace_has_the_call_in_its_graph():
    inputs = [x.detach() for x in tensors()]
    traced = torch.fx.symbolic_trace(lambda q, k, v: hw4cli.torch.attention(2 * q, k, v, is_causal=True) + 1)
    assert hw4cli.torch.attention in [node.target for node in traced.graph.nodes]
    assert torch.equal(traced(*inputs), hw4cli.torch.attention(2 * inputs[0], *inputs[1:], is_causal=True) + 1)


def test_a_second_derivative_is_refused_in_a_sentence():
    q, k, v = tensors()
    (first,) = torch.autograd.grad(hw4cli.torch.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="has no second derivative"):
        first.sum().backward()


def test_not_a_number_in_one_head_stays_there():
    q, k, v = tensors()
    with torch.no_grad():
        v[0, 1, 3, 2] = torch.nan
    hw4cli.torch.attention(q, k, v).sum().backward()
    for x in (q, k, v):
        assert torch.isfinite(x.grad[1]).all() and torch.isfinite(x.grad[0, [0, 2, 3]]).all()
    assert torch.isnan(q.grad[0, 1]).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"attn_mask": torch.ones(33, 32)}, ValueError, r"attn_mask has the shape \(33, 32\): give \(batch, heads"),
        ({"attn_mask": np.ones((33, 33))}, TypeError, "attn_mask is a ndarray: give a tensor of torch"),
        ({"dropout_p": 0.1}, ValueError, "dropout_p is 0.1: there is no dropout here, give 0"),
        ({"window_size": (8, 0)}, TypeError, "no argument 'window_size': here it is window="),
        ({"key": np.zeros((2, 4, 33, 16))}, TypeError, "key is a ndarray: give a tensor of torch"),
        ({"value": torch.zeros(2, 4, 33, 16).half()}, TypeError, "query is float32, value float16: give one"),
        ({"query": torch.zeros(16)}, ValueError, "query has 1 dimensions: give"),
        (
            {"key": torch.zeros(3, 4, 33, 16)},
            ValueError,
            r"query, key and value differ in batches or heads: \(2, 4, 33, ",
        ),
        (
            {"key": torch.zeros(2, 4, 7, 16)},
            ValueError,
            r"key and value differ in rows: \(2, 4, 7, 16\) and \(2, 4, 33,",
        ),
        (
            {"key": torch.zeros(2, 4, 33, 8)},
            ValueError,
            r"query and key differ in d: \(2, 4, 33, 16\) and \(2, 4, 33, 8",
        ),
        ({"key": torch.zeros(2, 4, 33, 16, device="meta")}, ValueError, "query is on cpu, key on meta: bring them tog"),
        ({"query": torch.zeros(2, 8, 33, 16)}, ValueError, "query has 8 heads, key 4: give enable_gqa=True"),
        ({"value": torch.zeros(2, 4, 32, 16)}, ValueError, "key and value differ in rows"),
        ({"query": torch.zeros(2, 4, 33, 16).to_sparse()}, TypeError, "query is a nested or sparse tensor"),
        ({"is_causal": "yes"}, TypeError, "is_causal is 'yes': give True or False"),
        ({"is_causal": 1}, TypeError, "is_causal is 1: give True or False"),
        ({"enable_gqa": None}, TypeError, "enable_gqa is None: give True or False"),
        ({"kernel": 3}, TypeError, "kernel is 3: give the name of one, or None"),
        ({"dropout_p": "none"}, TypeError, "dropout_p is 'none': give a number"),
        ({"scale": "x"}, TypeError, "scale is 'x': give a number"),
        ({"scale": -1.0}, ValueError, r"scale is -1: it must be a positive number"),
        ({"align": "left"}, ValueError, "align is 'left': give 'bottom-right' or 'top-left'"),
        ({"kernel": "half"}, ValueError, "kernel is 'half': on the CPU give 'auto'"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(change, error, words):
    q, k, v = (x.detach() for x in tensors())
    with pytest.raises(error, match=words):
        hw4cli.torch.attention(**{"query": q, "key": k, "value": v, **change})


def test_the_examples_of_the_page_hold():
    failed, tried = doctest.testfile(str(ROOT / "docs/torch.md"), module_relative=False)
    assert (failed, tried > 8) == (0, True)
    assert doctest.testmod(sys.modules["hw4cli.arrays.autograd.attention"]).failed == 0
