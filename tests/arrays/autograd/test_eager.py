"""Repeated calls of hw4cli.torch.attention in eager torch, by launches that NumPy executes where tensors lie."""

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torchmodes import Seen, SeenFunctions  # noqa: E402

import hw4cli  # noqa: E402
from hw4cli.arrays import operand, repeated  # noqa: E402
from hw4cli.arrays.autograd import eager  # noqa: E402
from hw4cli.torch import attention  # noqa: E402

SHAPE, ROWS = (2, 3, 10, 8), 60
OPTIONS = eager.options_of(True, False, "top-left", None, None, None, 0.0)


def array(address, shape):
    memory = (ctypes.c_float * int(np.prod(shape))).from_address(address)
    return np.ctypeslib.as_array(memory).reshape(shape)


class Filling:
    """As a driver does."""

    def fill(self, address, size, word, stream):
        (ctypes.c_uint * (size // 4)).from_address(address)[:] = [word] * (size // 4)


class Forward(Filling):
    """Writes O, and the LSE if there is a place for it."""

    is_filled, scratch = True, 0

    def __init__(self):
        self.calls = 0

    def enqueue(self, addresses, stream, table=b""):
        self.calls += 1
        q, k, v, o = (array(address, SHAPE) for address in addresses[:4])
        found, lse = hw4cli.attention(q, k, v, causal=True, align="top-left", return_lse=True)
        o[...] = found
        if addresses[4]:
            array(addresses[4], SHAPE[:3])[...] = lse


class Backward(Forward):
    """Writes dQ, dK and dV."""

    def enqueue(self, addresses, stream, table=b""):
        self.calls += 1
        q, k, v, o, do, *made = (array(address, SHAPE) for address in addresses[:8])
        lse = array(addresses[8], SHAPE[:3])
        found = hw4cli.attention_backward(do, q, k, v, o, lse, causal=True, align="top-left")
        for to, one in zip(made, found, strict=True):
            to[...] = one


class Library(repeated.Torch):
    """torch, where GPU 0 is the current one, whose memory is the host's."""

    def __init__(self):
        super().__init__()
        self.device, self.stream = lambda: 0, lambda device: 0
        self.new, self.made = self._new, []

    def _new(self, *model):
        """By what torch has beside that for the memory of a GPU."""
        found = torch._C._dynamo.guards._empty_strided_cpu(*model)
        self.made.append(tuple(found.shape))
        return found


def tensors(seed=0, wanting=False):
    torch.manual_seed(seed)
    return [torch.randn(SHAPE).requires_grad_(wanting) for _ in "qkv"]


@pytest.fixture
def launches(monkeypatch):
    """Calls are remembered as if they had been made on a GPU: without a gradient, with one, and the backward pass."""
    library = Library()
    monkeypatch.setattr(repeated, "LIBRARIES", dict.fromkeys((torch.Tensor, torch.nn.Parameter), library))
    forward, backward, model = Forward(), Backward(), library.model(SHAPE, torch.float32, 0)
    kept = eager.FORWARD, eager.BACKWARD
    for table in kept:
        table.clear()
    plain = repeated.Call(library, 0, forward, (model,), None, None)
    kept[0].put(OPTIONS, tuple(tensors()), plain)
    kept[0].put(OPTIONS, tuple(tensors(wanting=True)), plain._replace(lse=library.model((ROWS,), torch.float32, 0)))
    with torch.no_grad():
        of_backward = (torch.empty(SHAPE), *tensors(), torch.empty(SHAPE), torch.empty(ROWS))
        kept[1].put(OPTIONS, of_backward, repeated.Call(library, 0, backward, (model,) * 3, None, None))
    yield forward, backward
    for table in kept:
        table.clear()


def both(x, function=attention, **options):
    x = [t.detach().requires_grad_() for t in x]
    o = function(*x, **({"is_causal": True} | options))
    return [o.detach(), *torch.autograd.grad(o, x, torch.ones_like(o) * 0.5)]


def checked(x):
    """By the operator: torch's own scale is an option that is never remembered here."""
    return both(x, scale=SHAPE[3] ** -0.5)


def close(found, right):
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, right, strict=True))


def test_a_repeated_call_goes_to_the_launches_and_gives_what_the_operator_gives(launches):
    forward, backward = launches
    for seed in range(3):
        x = tensors(seed)
        right = checked(x)
        assert close(both(x), right) and close([attention(*x, is_causal=True)], right[:1])
    assert (forward.calls, backward.calls) == (6, 3)


def test_a_repeated_call_takes_few_steps_of_python(launches, monkeypatch):
    """Each takes a tenth of a microsecond or more, and so does each tensor that is made."""
    for number in (0, 1):
        monkeypatch.setattr(launches[number], "enqueue", lambda *_: None)
    x, steps, made = tensors(wanting=True), [], repeated.LIBRARIES[torch.Tensor].made
    folder = str(Path(hw4cli.__file__).parent)

    def seen(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            steps.append(frame.f_code.co_name)

    do = torch.ones(SHAPE)
    for _ in range(repeated.EACH):  # from which on guards find the call
        torch.autograd.grad(attention(*x, is_causal=True), x, do)
    made.clear()
    for _ in range(2):
        sys.setprofile(seen)
        o = attention(*x, is_causal=True)
        sys.setprofile(None)
        assert steps == ["attention", "options_of", "repeated", "find", "forward", "run"]
        assert made == [SHAPE, (ROWS,)]
        made.clear(), steps.clear()
        sys.setprofile(seen)
        torch.autograd.grad(o, x, do)
        sys.setprofile(None)
        assert steps == ["backward", "find", "run"] and made == [SHAPE] * 3
        made.clear(), steps.clear()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)], ids=["by heads", "by rows"])
@pytest.mark.parametrize("has_own", [True, False])
def test_what_is_made_has_shape_strides_and_type_whether_torch_makes_it_by_sizes_or_like_another(
    monkeypatch, has_own, order
):
    """What torch.compile takes for memory is no part of torch's documented interface."""
    guards = torch._C._dynamo.guards
    if has_own:
        monkeypatch.setattr(guards, "_empty_strided_cuda", guards._empty_strided_cpu)
    else:
        monkeypatch.delattr(guards, "_empty_strided_cuda")
        monkeypatch.setattr(torch, "device", lambda *_: "cpu")
    library = repeated.Torch()
    assert (library.new is torch.empty_like) != has_own
    like = torch.empty([SHAPE[n] for n in order], dtype=torch.bfloat16).permute(order)
    for strides in (like.stride(), None):
        for grad in (True, False):
            with torch.set_grad_enabled(grad), torch.inference_mode(not grad):
                made = library.new(*library.model(SHAPE, torch.bfloat16, 0, strides))
                assert made.is_inference() != grad
            assert (made.shape, made.dtype) == (like.shape, like.dtype) and not made.requires_grad
            assert made.stride() == (strides or torch.empty(SHAPE).stride())
    lse = library.new(*library.model((ROWS,), "float32", 0))
    assert (lse.shape, lse.dtype, lse.stride()) == ((ROWS,), torch.float32, (1,))


def test_torchs_guards_let_the_number_of_keys_and_strides_differ_and_nothing_else():
    library, cache = repeated.Torch(), torch.zeros(2, 2, 20, 8)
    q, k, v = torch.zeros(SHAPE), cache[:, :, :7], cache[:, :, 7:14]
    is_alike = library.guard((q, k, v), 2)
    for keys in (1, 8, 20):
        assert is_alike(q, cache[:, :, :keys], cache.clone()[:, :, :keys])
        assert is_alike(q, torch.zeros(2, 2, keys, 8), torch.zeros(2, keys, 2, 8).transpose(1, 2))
    for other in (cache[:, :1], cache[:1], cache[..., :4], cache[0], cache.half(), cache.clone().requires_grad_()):
        assert not is_alike(q, other, v) and not is_alike(q, k, other)
    for other in (q[:, :, :9], torch.zeros(2, 10, 3, 8).transpose(1, 2)):
        assert not is_alike(other, k, v)
    with Seen():
        assert not is_alike(q, k, v)


def test_other_options_shapes_or_an_address_between_two_chunks_go_by_the_operator(launches):
    x = tensors()
    attention(*x), attention(*(t[:1] for t in x), is_causal=True), attention(*x, is_causal=True, scale=0.5)
    memory = torch.randn(x[0].numel() + 1)
    between = memory[1:].view(SHAPE) if memory.data_ptr() % 16 == 0 else memory[:-1].view(SHAPE)
    assert between.data_ptr() % 16
    found = both([between, *x[1:]])
    assert not launches[0].calls
    assert close(found, checked([between, *x[1:]]))


def test_what_watches_or_transforms_calls_sees_the_operator(launches):
    x = tensors()
    with Seen() as seen:
        attention(*x, is_causal=True)
    torch.vmap(lambda *t: attention(*t, is_causal=True))(*(t[None] for t in x))
    torch.func.vjp(lambda q: attention(q, *x[1:], is_causal=True), x[0])
    torch.jit.trace(lambda q, k, v: attention(q, k, v, is_causal=True), x, check_trace=False)
    with torch.autocast("cpu", torch.bfloat16), Seen():
        attention(*x, is_causal=True)
    assert any("hw4cli" in name for name in seen.names) and not launches[0].calls
    attention(*x, is_causal=True)
    assert launches[0].calls == 1


def test_a_mode_of_functions_sees_the_call_and_what_it_calls_itself_may_be_a_repeated_one(launches):
    x = tensors()
    with SeenFunctions() as functions:
        attention(*x, is_causal=True)
    assert functions.names == ["attention"] and launches[0].calls == 1


def test_derivatives_that_there_are_not_are_refused_after_repeated_calls_too(launches):
    x = tensors(wanting=True)
    o = attention(*x, is_causal=True)
    (first,) = torch.autograd.grad(o, x[0], torch.ones_like(o).requires_grad_(), create_graph=True)
    with pytest.raises(NotImplementedError, match="second"):
        first.sum().backward()
    assert (launches[0].calls, launches[1].calls) == (1, 0)
    q, k, v = tensors()
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        attention(forward_ad.make_dual(q, torch.ones_like(q)), k, v, is_causal=True)


def test_a_call_that_kept_nothing_is_not_repeated_where_a_gradient_is_wanted(launches):
    """An evaluation of what is trained: the tensors are the same ones."""
    x = tensors(wanting=True)
    with torch.no_grad():
        for _ in range(repeated.EACH + 1):  # from which on guards find the call
            assert not attention(*x, is_causal=True).requires_grad
    o = attention(*x, is_causal=True)
    assert close(torch.autograd.grad(o, x, torch.ones_like(o) * 0.5), checked(x)[1:])
    with torch.no_grad():
        assert not attention(*x, is_causal=True).requires_grad


def test_second_derivatives_are_refused_however_often_the_first_ones_were_taken(launches):
    x, do = tensors(wanting=True), torch.ones(SHAPE)
    for _ in range(repeated.EACH + 1):
        torch.autograd.grad(attention(*x, is_causal=True), x, do)
    (first,) = torch.autograd.grad(attention(*x, is_causal=True), x[0], do, create_graph=True)
    with pytest.raises(NotImplementedError, match="second"):
        first.sum().backward()


def test_gradients_of_a_sum_and_of_many_at_once_go_by_the_operator(launches):
    """dO that torch has expanded from a number, and one that stands for many."""
    x = tensors(wanting=True)
    right = checked(x)
    o = attention(*x, is_causal=True)
    sums = torch.autograd.grad(o.sum(), x, retain_graph=True)
    assert close([0.5 * one for one in sums], right[1:])
    half = torch.ones(SHAPE) * 0.5
    many = torch.autograd.grad(o, x, torch.stack([half, 2 * half]), is_grads_batched=True)
    assert close([one[0] for one in many], right[1:]) and close([0.5 * one[1] for one in many], right[1:])
    assert launches[1].calls == 0


def test_a_function_that_is_compiled_has_the_operator_in_one_graph(launches):
    x = tensors()
    right = checked(x)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        assert close(both(x, compiled), right)
    assert not launches[0].calls


@pytest.mark.parametrize(
    "options",
    [
        (1, False, "top-left", None, None, None, 0.0),
        (True, 1, "top-left", None, None, None, 0.0),
        (True, False, ["top-left"], None, None, None, 0.0),
        (True, False, "top-left", torch.tensor(0.5), None, None, 0.0),
        (True, False, "top-left", "0.5", None, None, 0.0),
        (True, False, "top-left", None, None, ["flash"], 0.0),
        (True, False, "top-left", None, None, None, 0.1),
        (True, False, "top-left", None, None, None, torch.tensor(0.0)),
    ],
    ids=str,
)
def test_options_that_may_change_or_are_wrong_are_part_of_no_key(options):
    assert eager.options_of(*options) is None


# ---- Changed scores, and sequences of several lengths


class Arrays(Filling):
    """Launches that compute what hw4cli.attention, or its gradients, are asked for, where tensors and what is beside
    them lie; these are float32 on a GPU that there is not."""

    is_filled, scratch = True, 0

    def __init__(self, count, shapes, options):
        self.count, self.shapes, self.options, self.calls = count, shapes, options, 0

    def enqueue(self, addresses, stream, table=b""):
        self.calls += 1
        first, beside = addresses[: self.count], addresses[self.count : -2]
        arrays = [array(at, SHAPE) for at in first]
        lse = array(addresses[-2], SHAPE[:3]) if addresses[-2] else None
        options = dict(self.options)
        for (name, shape), at in zip(self.shapes.items(), beside, strict=True):
            options[name] = array(at, shape)
        if self.count == 4:
            *given, o = arrays
            o[...], sums = hw4cli.attention(*given, align="top-left", return_lse=True, **options)
            if lse is not None:
                lse[...] = sums
        else:
            q, k, v, o, do, *made = arrays
            for to, one in zip(
                made, hw4cli.attention_backward(do, q, k, v, o, lse, align="top-left", **options), strict=True
            ):
                to[...] = one


# Options, and the shapes of the arrays among them.
CHANGES = {
    "softcap": ({"softcap": 2.0}, {}),
    "a mask": ({}, {"attn_mask": (2, 1, 10, 10)}),
    "slopes and more": ({"keep": "i != j + 1", "score": "s * 2"}, {"alibi_slopes": (3,), "attn_mask": (10, 10)}),
    "lengths": ({"lengths": [10, 4]}, {}),
    "lengths and a mask": ({"lengths": [10, 4]}, {"attn_mask": (10, 10)}),
}


@pytest.fixture
def planned(monkeypatch):
    """Calls that are remembered as on a GPU, by launches that are put here for what is asked for."""
    library, made = Library(), []
    monkeypatch.setattr(repeated, "LIBRARIES", dict.fromkeys((torch.Tensor, torch.nn.Parameter), library))
    monkeypatch.setattr(eager, "_is_on_gpu", lambda x: True)
    monkeypatch.setattr(eager, "_is_at_once", lambda work, kernel: bool(work.sequences))
    monkeypatch.setattr(operand, "_check_tensor", lambda *_: None)

    def of(options, shapes):
        made[:] = [Arrays(4, shapes, options), Arrays(8, shapes, options)]
        monkeypatch.setattr(eager.arrays, "launches_for", lambda *_: made[0])
        monkeypatch.setattr(eager.gradients, "launches_for", lambda *_: made[1])
        return made

    for table in (eager.FORWARD, eager.BACKWARD):
        table.clear()
    yield of
    for table in (eager.FORWARD, eager.BACKWARD):
        table.clear()


@pytest.mark.parametrize("name", CHANGES)
def test_changed_scores_and_lengths_go_to_the_launches_too(planned, name):
    options, shapes = CHANGES[name]
    forward, backward = planned(options, shapes)
    for again in range(3):
        x, beside = tensors(again), {name: torch.randn(shape) for name, shape in shapes.items()}
        asked = {"is_causal": False, **options, **beside}
        right = both(x, scale=torch.tensor(SHAPE[3] ** -0.5), **asked)  # which is never remembered
        found = both(x, **asked)
        assert close(found, right), again
        assert close([attention(*x, **asked)], right[:1])
        assert forward.calls == 1 + 2 * again  # the first one with a gradient is made once more
        assert backward.calls == again


@pytest.mark.parametrize(("name", "is_reentrant"), [(None, True), *((name, False) for name in (None, *CHANGES))])
def test_what_a_checkpoint_makes_again_keeps_what_the_first_call_of_its_kind_kept(planned, name, is_reentrant):
    """torch compares the tensors that are kept; a second layer's call is a repeated one anyway."""
    options, shapes = CHANGES[name] if name else ({}, {})
    planned(options, shapes)
    beside = {name: torch.randn(shape) for name, shape in shapes.items()}

    def layers(q, k, v, scale=None):
        for _ in range(2):
            q = attention(q, k, v, scale=scale, **options, **beside)
        return q

    def found(**more):
        x = tensors(wanting=True)
        o = checkpoint(layers, *x, use_reentrant=is_reentrant, **more)
        o.sum().backward()
        return [o.detach(), *(one.grad for one in x)]

    right = tensors(wanting=True)
    o = layers(*right, torch.tensor(SHAPE[3] ** -0.5))
    o.sum().backward()
    for _ in range(2):
        assert close(found(), [o.detach(), *(one.grad for one in right)])


def test_a_mask_whose_values_change_is_read_each_time(planned):
    forward, _ = planned({}, {"attn_mask": (10, 10)})
    x, mask = tensors(), torch.zeros(10, 10)
    attention(*x, mask)
    for value in range(3):
        mask[:, 3:] = -value
        assert close([attention(*x, mask)], [attention(*x, mask, scale=torch.tensor(SHAPE[3] ** -0.5))])
    assert forward.calls == 3


@pytest.mark.parametrize("which", range(4))
def test_negative_views_are_never_read_where_they_lie(planned, which):
    forward, backward = planned({}, {"attn_mask": (10, 10)})
    x = [*tensors(), torch.randn(10, 10)]
    right = both(
        [-one if n == which else one for n, one in enumerate(x)], is_causal=False, scale=torch.tensor(SHAPE[3] ** -0.5)
    )
    for _ in range(3):
        leaves = [torch._neg_view(one) if n == which else one for n, one in enumerate(x)]
        leaves = [one.requires_grad_(n < 3) for n, one in enumerate(leaves)]
        o = attention(*leaves)
        found = torch.autograd.grad(o, leaves[:3], torch.ones_like(o) * 0.5)
        assert close([o.detach(), *found], right[:4])
    assert not forward.calls and not backward.calls


def test_a_mask_that_is_changed_before_the_backward_pass_is_refused(planned):
    forward, _ = planned({}, {"attn_mask": (10, 10)})
    x, mask = tensors(wanting=True), torch.zeros(10, 10)
    for again in range(2):
        o = attention(*x, mask)
        mask += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            o.sum().backward()
        assert forward.calls == 1 + again


@pytest.mark.parametrize("shape", [(10, 10), (2, 1, 10, 10), (2, 3, 10, 10)], ids=str)
def test_a_mask_that_learns_gets_its_gradient_from_the_launches_too(planned, monkeypatch, shape):
    forward, backward = planned({"softcap": 2.0}, {"attn_mask": shape})
    asked = []
    scored = eager.scored
    monkeypatch.setattr(eager, "scored", lambda *a, **more: asked.append(more["gradient"]) or scored(*a, **more))

    def enqueue(addresses, stream):
        """With the gradients of all scores behind the mask, which are zeros before."""
        if len(addresses) == 11:
            Arrays.enqueue(backward, addresses, stream)
            return
        backward.calls += 1
        q, k, v, o, do, *made = (array(at, SHAPE) for at in addresses[:8])
        scores, lse = array(addresses[9], (2, 3, 10, 10)), array(addresses[10], SHAPE[:3])
        assert not scores.any()
        mask = np.broadcast_to(array(addresses[8], shape), scores.shape)
        options = {"softcap": 2.0, "attn_mask": mask, "mask_gradient": True, "align": "top-left"}
        found = hw4cli.attention_backward(do, q, k, v, o, lse, **options)
        for to, one in zip((*made, scores), found, strict=True):
            to[...] = one

    monkeypatch.setattr(backward, "enqueue", enqueue)
    never = torch.tensor(SHAPE[3] ** -0.5)
    for again in range(4):
        x, mask = tensors(again), torch.randn(shape)

        def of(x, scale=None, mask=mask):
            return both([*x, mask], lambda q, k, v, m, is_causal: attention(q, k, v, m, softcap=2.0, scale=scale))

        assert close(of(x), of(x, never))
        assert (forward.calls, backward.calls) == (1 + again, again)
        attention(*x, mask, softcap=2.0)  # of one that does not learn: another kind
        forward.calls = 1 + again
    assert asked == [False, True, False]


def test_gradients_of_changed_scores_have_no_derivative(planned):
    planned({"softcap": 2.0}, {})
    x = tensors(wanting=True)
    for _ in range(3):
        o = attention(*x, softcap=2.0)
        (first,) = torch.autograd.grad(o, x[0], torch.ones_like(o).requires_grad_(), create_graph=True)
        with pytest.raises(NotImplementedError, match="second"):
            first.sum().backward()


def test_lengths_of_no_sequence_are_computed_by_the_checked_call(planned):
    forward, backward = planned({"lengths": [0, 0]}, {})
    x = tensors(wanting=True)
    for _ in range(3):
        o = attention(*x, lengths=[0, 0])
        assert not o.any()
        o.sum().backward()
        assert not x[0].grad.any()
    assert not forward.calls and not backward.calls
