"""hw4cli.torch.attention with masks and changed scores on the CPU, beside torch's own attention and the formulas."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from test_autograd import EPSILON, assert_like, gradients, tensors  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import hw4cli.torch  # noqa: E402
from hw4cli.arrays.autograd import changed, direct  # noqa: E402
from hw4cli.arrays.scored import Words  # noqa: E402

attention = hw4cli.torch.attention


def drawn(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MASKS = {
    "of all": lambda: drawn(2, 4, 20, 33),
    "of rows and keys": lambda: drawn(20, 33),
    "of keys of each batch": lambda: drawn(2, 1, 1, 33),
    "of heads": lambda: drawn(4, 20, 33),
    "turned": lambda: drawn(2, 4, 33, 20).transpose(-1, -2),
    "one number": lambda: drawn(1, 1),
    "of keys alone": lambda: drawn(33),
}


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_an_additive_mask_and_its_gradient_are_those_of_torch(name, dtype):
    inputs, mask = tensors(dtype, kv_heads=2, Nq=20), MASKS[name]().to(dtype)

    def with_mask(function, **more):
        return lambda q, k, v, m: function(q, k, v, m, enable_gqa=True, **more)

    given = [x.detach() for x in (*inputs, mask)]
    expected = gradients(with_mask(scaled_dot_product_attention), [x.double() for x in given])
    assert_like(gradients(with_mask(attention), given), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_boolean_mask_hides_pairs_and_a_row_of_none_is_0(dtype):
    inputs, seen = tensors(dtype), drawn(2, 1, 33, 33) > 0
    seen[:, :, 7] = False
    expected = gradients(scaled_dot_product_attention, [x.double() for x in inputs], attn_mask=seen)
    found = gradients(attention, inputs, attn_mask=seen)
    assert_like(found, expected, dtype)
    assert not found[0][:, :, 7].any()


def test_masks_of_more_dimensions_are_those_of_their_batches():
    q, k, v = (drawn(2, 3, 4, n, 8, seed=n) for n in (9, 11, 11))
    for shape in ((2, 3, 4, 9, 11), (2, 1, 1, 9, 11), (3, 4, 9, 11), (1, 1, 1, 9, 11), (9, 11)):
        mask = drawn(*shape)
        expected = gradients(scaled_dot_product_attention, [q, k, v, mask])
        assert_like(gradients(attention, [q, k, v, mask]), expected, torch.float64)
    with pytest.raises(ValueError, match=r"attn_mask has the shape \(5, 1, 1, 9, 11\), query the batches \(2, 3\)"):
        attention(q, k, v, drawn(5, 1, 1, 9, 11))


def formula(q, k, v, mask, slopes, table, causal):
    """What is asked for below."""
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = q @ k.transpose(-1, -2) * q.shape[3] ** -0.5
    s = 3 * torch.tanh(s / 3) - slopes.double()[:, None, None] * abs(i + k.shape[2] - q.shape[2] - j)
    s = s * abs(s) + table.double()[(i // 4) % 5] + mask
    seen = (j % 7 != 3) & ((j <= i + k.shape[2] - q.shape[2]) if causal else True)
    return torch.softmax(s.masked_fill(~seen, -torch.inf), -1) @ v


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_all_that_changes_scores_goes_together_and_is_derived(causal, dtype):
    inputs, mask = tensors(dtype, Nq=20), drawn(4, 20, 33).to(dtype)
    slopes, table = torch.tensor([0.5, 0.2, 0.1, 0.0]), drawn(5, seed=3).float()

    def ours(q, k, v, mask):
        return attention(
            *(q, k, v, mask),
            is_causal=causal,
            align="bottom-right",
            softcap=3,
            alibi_slopes=slopes,
            score="s * abs(s) + table[i // 4 % 5]",
            keep="j % 7 != 3",
            arrays={"table": table},
        )

    given = [x.detach() for x in (*inputs, mask)]
    expected = gradients(lambda *x: formula(*x, slopes, table, causal), [x.double() for x in given])
    assert_like(gradients(ours, given), expected, dtype)


def test_gradients_pass_torchs_check_in_float64():
    given = [drawn(1, 2, 3, 4, seed=n).requires_grad_() for n in range(3)] + [drawn(3, 3).requires_grad_()]
    asked = {"softcap": 2.0, "score": "s ** 3 / 4 + exp(min(s, 1.0))", "keep": "j != 1 or i != 1"}
    assert torch.autograd.gradcheck(lambda *x: attention(*x, **asked), given)


def test_padded_tensors_have_masks_and_changes_too():
    q, k, v = tensors(kv_heads=4)
    mask = drawn(2, 1, 33, 33).float()
    found = gradients(lambda *x: attention(*x, lengths=[33, 12], softcap=2.0), [q, k, v, mask])
    hidden = torch.zeros(2, 1, 1, 33)
    hidden[1, :, :, 12:] = -torch.inf
    expected = gradients(lambda *x: attention(*x[:3], x[3] + hidden, softcap=2.0), [q, k, v, mask])
    assert_like(found, expected, torch.float32)


def test_torchs_machinery_goes_on_around_it():
    inputs, mask = tensors(), drawn(33, 33).float().requires_grad_()
    right = gradients(scaled_dot_product_attention, [*inputs, mask])

    def layer(q, k, v, mask):
        return attention(q + 0, k, v, mask)

    def saved(*x):
        return torch.utils.checkpoint.checkpoint(layer, *x, use_reentrant=False)

    def hooked(q, k, v, mask):
        with torch.autograd.graph.save_on_cpu():
            return layer(q, k, v, mask)

    for function in (layer, saved, hooked):
        assert_like(gradients(function, [*inputs, mask]), right, torch.float32)
    with torch.no_grad():
        assert torch.equal(attention(*inputs, mask), attention(*(x.detach() for x in (*inputs, mask))))
    with torch.autocast("cpu", torch.bfloat16):
        o = attention(*inputs, mask)
    assert o.dtype == torch.bfloat16 and float((o.float() - right[0]).abs().max()) <= 3e-2
    o.float().sum().backward()
    assert mask.grad.dtype == torch.float32
    grads = torch.func.grad(lambda m: layer(*(x.detach() for x in inputs), m).square().sum())(mask.detach())
    assert grads.shape == mask.shape and bool(grads.any())


COMPILED = {
    "a mask that learns": (lambda: drawn(4, 33, 33).float().requires_grad_(), {"softcap": 3.0}),
    "a boolean mask": (lambda: drawn(2, 1, 33, 33) > -1, {}),
    "no mask": (lambda: None, {"score": "s - w[h] * abs(i - j)", "keep": "i >= j", "arrays": {"w": torch.ones(4)}}),
    "slopes": (lambda: None, {"alibi_slopes": torch.tensor([0.1, 0.2, 0.0, 1.0]), "is_causal": True}),
}


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_has_it_in_its_graph_and_gives_the_same_bits(name, layout):
    pytest.importorskip("torch._dynamo")
    make, options = COMPILED[name]

    def layer(q, k, v, mask):
        return 2 * attention(q + 1, k, v, mask, **options)

    found = []
    for function in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        inputs, mask = [x.detach().requires_grad_() for x in tensors(layout=layout)], make()
        o = function(*inputs, mask)
        wanted = [*inputs, mask] if mask is not None and mask.requires_grad else inputs
        found.append([o.detach(), *torch.autograd.grad(o.square().sum(), wanted)])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("learns", [False, True])
def test_torch_finds_nothing_wrong_with_the_operator_of_changed_scores(learns):
    """Schema, fake operator, its autograd and its traces with dynamic shapes."""
    inputs = tensors(torch.float32, Nq=9, Nk=12, d=8, layout="BNHD")
    mask = drawn(1, 4, 9, 12).float().requires_grad_(learns)
    beside = [torch.ones(4), torch.ones(4)]
    more = "s - w[h] * abs(i - j)", None, 5.0, "w", True
    options = False, "top-left", None, -1, -1, "auto"
    torch.library.opcheck(torch.ops.hw4cli.attention_changed.default, (*inputs, mask, beside, *options, *more))


def test_the_operator_is_not_mapped_over_and_refuses_what_learns_and_cannot():
    pytest.importorskip("torch._dynamo")
    q, k, v = tensors()
    with pytest.raises(NotImplementedError, match="is not mapped over by vmap"):
        torch.vmap(lambda x: torch.ops.hw4cli.attention_changed(x, k, v, *OPERATOR))(q[None])
    slopes = torch.ones(4, requires_grad=True)
    try:
        with pytest.raises(Exception, match="requires a gradient"):
            torch.compile(lambda *x: attention(*x, alibi_slopes=slopes), backend="eager")(q, k, v)
    finally:
        torch._dynamo.reset()  # which does not compile again what could not be


OPERATOR = None, [], False, "top-left", None, -1, -1, "auto", None, None, 5.0, "", False


def test_what_has_been_changed_since_is_not_derived():
    inputs, slopes = tensors(), torch.ones(4)
    o = attention(*inputs, alibi_slopes=slopes)
    slopes += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_second_and_forward_derivatives_and_maps_are_refused():
    q, k, v = tensors()
    (dq,) = torch.autograd.grad(attention(q, k, v, softcap=2.0).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="has no second derivative"):
        dq.sum().backward()
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jvp(lambda x: attention(x, k, v, softcap=2.0), (q,), (torch.ones_like(q),))
    with pytest.raises(NotImplementedError, match="is not mapped over by vmap"):
        torch.vmap(lambda x: attention(x, k[0], v[0], softcap=2.0))(q)


REFUSED = {
    "a slope that learns": (
        {"alibi_slopes": torch.ones(4, requires_grad=True)},
        ValueError,
        "alibi_slopes requires a gradient, which is that of an attn_mask alone: give alibi_slopes.detach",
    ),
    "an array that learns": (
        {"score": "s + a[i]", "arrays": {"a": torch.ones(33, requires_grad=True)}},
        ValueError,
        r"arrays\['a'\] requires a gradient",
    ),
    "a mask elsewhere": (
        {"attn_mask": torch.ones(33, 33, device="meta")},
        ValueError,
        "query is on cpu, attn_mask on meta: bring them together",
    ),
    "arrays that are no dictionary": ({"score": "s", "arrays": [1]}, TypeError, "arrays is a list"),
    "a mask of integers": ({"attn_mask": torch.ones(33, 33, dtype=torch.int32)}, TypeError, "is of whole numbers"),
    "no expression": ({"score": "s +"}, ValueError, "is no expression"),
    "dropout": ({"attn_mask": torch.ones(33, 33), "dropout_p": 0.1}, ValueError, "there is no dropout here"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(name):
    asked, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        attention(*tensors(), **asked)


@pytest.mark.parametrize("module", [direct, changed], ids=["eager", "in a graph"])
@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        ({"softcap": "x"}, TypeError, "softcap is 'x': give a number"),
        ({"score": 3}, TypeError, "score is a int: give an expression as a text, or None"),
        ({"keep": 3}, TypeError, "keep is a int: give an expression as a text, or None"),
        (
            {"score": "s + a[i]", "arrays": {"a b": torch.ones(33)}},
            ValueError,
            "arrays has the name 'a b': give a word",
        ),
        ({"score": "s + a[i]", "arrays": {3: torch.ones(33)}}, ValueError, "arrays has the name 3: give a word"),
    ],
    ids=str,
)
def test_words_that_are_none_are_refused_before_they_are_arguments_of_an_operator(module, words, kind, said):
    options = {"causal": False, "align": "top-left", "scale": None, "window": None, "kernel": "auto"}
    with pytest.raises(kind, match=said):
        module.attend(*tensors(), options, Words(**words))


def test_a_tracer_sees_one_call():
    q, k, v = tensors()

    class Model(torch.nn.Module):
        def forward(self, q, k, v, mask):
            return attention(q, k, v, mask, softcap=2.0)

    traced = torch.fx.symbolic_trace(Model())
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [attention]
    mask = drawn(33, 33).float()
    torch.testing.assert_close(traced(q, k, v, mask), attention(q, k, v, mask, softcap=2.0))
