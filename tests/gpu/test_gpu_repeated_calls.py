"""Repeated calls on a GPU: the bits of checked ones, whatever addresses, strides, threads, streams and graphs do."""

import gc
import math
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from torchmodes import Seen, SeenFunctions  # noqa: E402

import hw4cli  # noqa: E402
from hw4cli.arrays import repeated  # noqa: E402
from hw4cli.arrays.autograd import eager  # noqa: E402
from hw4cli.torch import attention  # noqa: E402

pytestmark = pytest.mark.usefixtures("gpu")
FLOAT32, FLOAT16, BFLOAT16 = torch.float32, torch.float16, torch.bfloat16
TABLES = (repeated.FORWARD, repeated.BACKWARD, eager.FORWARD, eager.BACKWARD)


@pytest.fixture(autouse=True)
def _nothing_is_remembered():
    clear()


def clear():
    for table in TABLES:
        table.clear()


def tensors(seed=0, b=1, h=8, n=64, d=64, dtype=BFLOAT16, kv=None, nk=None, layout="BHND") -> tuple[Any, Any, Any]:
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def one(heads, rows):
        shape = (b, heads, rows, d) if layout == "BHND" else (b, rows, heads, d)
        x = torch.randn(shape, device="cuda", generator=generator).to(dtype)
        return x if layout == "BHND" else x.transpose(1, 2)

    return one(h, n), one(kv or h, nk or n), one(kv or h, nk or n)


def wanting(tensors):
    return [x.detach().requires_grad_() for x in tensors]


def both(x, do=None, function=attention, **options):
    """O and the gradients."""
    x = wanting(x)
    o = function(*x, **options)
    return [o.detach(), *torch.autograd.grad(o, x, torch.ones_like(o) * 0.5 if do is None else do)]


def apart(compute):
    """What is computed where no call is remembered; those that are stay so."""
    kept = [(table, table._all, table._recent, table._growing) for table in TABLES]
    clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated.Calls, "put", lambda *_: None)
        made = compute()
    for table, every, recent, growing in kept:
        table._all, table._recent, table._growing = every, recent, growing
    return made


def checked(x, do=None, **options):
    """O and the gradients by calls that are no repeated ones."""
    return apart(lambda: both(x, do, **options))


def same(found, right):
    """Equal bits, and strides where they say anything."""
    for x, y in zip(found, right, strict=True):
        steps = zip(x.stride(), y.stride(), x.shape, strict=True)
        if not torch.equal(x, y) or not all(s == t for s, t, n in steps if n > 1):
            return False
    return True


SHAPES = {
    "few rows": {},
    "a model's layer": {"b": 2, "h": 12, "n": 1024},
    "short": {"b": 2, "h": 4, "n": 100},
    "decoding": {"b": 4, "h": 32, "kv": 8, "n": 1, "nk": 4096, "d": 128},
    "shared heads": {"b": 2, "h": 8, "kv": 2, "n": 300, "d": 128, "dtype": FLOAT16},
    "float32": {"b": 2, "h": 4, "n": 256, "dtype": FLOAT32},
    "float32, shared heads": {"b": 2, "h": 4, "kv": 2, "n": 130, "d": 32, "dtype": FLOAT32},
    "d = 72": {"h": 3, "n": 200, "d": 72},
    "copied rows": {"h": 2, "n": 90, "d": 60},
}


def is_prepared(name, layout):
    """Whether O and the LSE are made by launches alone: float32's kernels want rows that follow one another, and give
    the LSE of shared heads in another order."""
    float32 = SHAPES[name].get("dtype") == FLOAT32
    return name != "copied rows" and not (float32 and (layout == "BNHD" or "kv" in SHAPES[name]))


def prepared(table):
    return sum(call is not None for call, _ in table._all.values())


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_bits_and_strides_are_those_of_a_checked_call(name, layout):
    sizes = SHAPES[name]
    for causal in (False, True):
        options: dict[str, Any] = {"is_causal": causal, "enable_gqa": bool(sizes.get("kv"))}
        right = checked(tensors(1, layout=layout, **sizes), **options)
        for _ in range(3):
            assert same(both(tensors(1, layout=layout, **sizes), **options), right)
            assert same([attention(*tensors(1, layout=layout, **sizes), **options)], right[:1])
        if is_prepared(name, layout):
            assert (prepared(eager.FORWARD), prepared(eager.BACKWARD)) == (2 + 2 * causal, 1 + causal)


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
@pytest.mark.parametrize("name", SHAPES)
def test_so_are_those_of_arrays(name, layout):
    sizes = SHAPES[name]
    kernel: dict[str, Any] = {"kernel": "flash"} if sizes.get("dtype") == FLOAT32 else {}
    for causal in (False, True):
        options = {"causal": causal, "layout": layout}
        found = []
        for _ in range(3):
            x = tensors(1, layout=layout, **sizes)
            q, k, v = (t if layout == "BHND" else t.transpose(1, 2) for t in x)
            o, lse = hw4cli.attention(q, k, v, return_lse=True, **kernel, **options)
            found.append([o, lse, *hw4cli.attention_backward(torch.ones_like(o), q, k, v, o, lse, **options)])
        assert same(found[1], found[0]) and same(found[2], found[0])
    if is_prepared(name, layout):
        assert prepared(repeated.FORWARD) == prepared(repeated.BACKWARD) == 2


def test_float32s_kernel_is_chosen_by_what_is_in_the_arrays_each_time():
    """Without bounds: small elements, large ones, and one that is no number, in arrays of one kind."""
    answers = []
    for factor in (1.0, 1.0, 30.0, math.nan, 1.0):
        x = tensors(3, b=2, h=4, n=512, dtype=FLOAT32)
        x[2][0, 0, 0, 0] *= factor
        x[0].mul_(factor if factor > 1 else 1)
        found = hw4cli.attention(*x)
        kept, repeated.FORWARD._all, repeated.FORWARD._recent = repeated.FORWARD._all, {}, {}
        assert torch.equal(found.nan_to_num(7.0), hw4cli.attention(*x).nan_to_num(7.0))
        repeated.FORWARD._all = kept
        answers.append(found)
    assert torch.equal(answers[0], answers[1]) and torch.equal(answers[0], answers[4])


@pytest.mark.parametrize("new", [False, True])
def test_steps_of_decoding_have_the_bits_of_checked_calls(new):
    """Keys of a cache, or arrays that are made anew."""
    q, *whole = tensors(4, b=4, h=8, kv=2, n=1, nk=600, d=128)
    for rows in (2, 3, 4, 127, 128, 129, 130, 300, 301, 599, 600, 5):
        k, v = (x[:, :, :rows].contiguous() if new else x[:, :, :rows] for x in whole)
        o, of_arrays = attention(q, k, v, enable_gqa=True), hw4cli.attention(q, k, v)
        assert torch.equal(o, apart(lambda: attention(q, k, v, enable_gqa=True)))  # noqa: B023
        assert torch.equal(of_arrays, apart(lambda: hw4cli.attention(q, k, v)))  # noqa: B023
        assert torch.equal(o, of_arrays)


@pytest.mark.parametrize("longest", [200, 1000])
def test_steps_of_a_padded_batch_have_the_bits_of_checked_calls(longest):
    """Lengths that are new in each step, one sequence empty; the longest is split, and is not."""
    q, *whole = tensors(5, b=4, h=8, kv=2, n=1, nk=3000, d=128)
    for step in (0, 1, 2, 23, 24, 25, 63, 64, 65, 700, 1500, 3):
        lengths = [longest + step, 17 + step, 0, 100 + step]
        for k, v in (whole, [x[:, :, : longest + step] for x in whole]):
            o = attention(q, k, v, enable_gqa=True, lengths=lengths)
            of_arrays = hw4cli.attention(q, k, v, lengths=lengths)
            assert torch.equal(o, apart(lambda: attention(q, k, v, enable_gqa=True, lengths=lengths)))  # noqa: B023
            assert torch.equal(of_arrays, apart(lambda: hw4cli.attention(q, k, v, lengths=lengths)))  # noqa: B023
            assert torch.equal(o, of_arrays) and not o[2].any()


def drawn(*shape, dtype=BFLOAT16, seed=9):
    return torch.randn(shape, device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed)).to(dtype)


SCORES = {
    "softcap": lambda: {"softcap": 5.0},
    "slopes": lambda: {"alibi_slopes": drawn(8, dtype=FLOAT32).abs()},
    "a boolean mask": lambda: {"attn_mask": drawn(2, 1, 130, 130) > 0},
    "an added mask": lambda: {"attn_mask": drawn(130, 130)},
    "a mask of another type": lambda: {"attn_mask": drawn(2, 8, 130, 130, dtype=torch.float64)},
    "expressions": lambda: {
        "score": "s - w[h] * abs(i - j)",
        "keep": "i // 40 == j // 40",
        "arrays": {"w": drawn(8, dtype=FLOAT32).abs()},
    },
    "lengths": lambda: {"lengths": [130, 77]},
    "lengths and a mask": lambda: {"lengths": [130, 77], "attn_mask": drawn(130, 130)},
    "no keys": lambda: {"lengths": [130, 0]},
}


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("name", SCORES)
def test_changed_scores_and_lengths_have_the_bits_of_checked_calls(name, dtype):
    sizes = {"b": 2, "h": 8, "n": 130, "dtype": dtype}
    right = checked(tensors(1, **sizes), **SCORES[name]())
    for seed in (1, 2, 1):
        expected = right if seed == 1 else checked(tensors(seed, **sizes), **SCORES[name]())
        assert same(both(tensors(seed, **sizes), **SCORES[name]()), expected)
        assert same([attention(*tensors(seed, **sizes), **SCORES[name]())], expected[:1])
    if not (dtype == FLOAT32 and "lengths" in SCORES[name]()):  # whose forward pass is a launch for each length
        assert (prepared(eager.FORWARD), prepared(eager.BACKWARD)) == (2, 1)


@pytest.mark.parametrize("shape", [(130, 130), (2, 1, 130, 130), (1, 8, 130, 130)], ids=str)
def test_a_mask_that_learns_gets_the_bits_of_a_checked_calls_gradient(shape):
    def of(seed):
        x = wanting([*tensors(seed, b=2, n=130), drawn(*shape, seed=seed)])
        o = attention(*x, softcap=20.0)
        return [o.detach(), *torch.autograd.grad(o, x, torch.ones_like(o) * 0.5)]

    for seed in (1, 2, 3, 1):
        found = of(seed)
        if seed > 2:
            assert prepared(eager.BACKWARD) == 1
        kept = [(table, table._all, table._recent) for table in TABLES]
        clear()
        assert same(found, of(seed))
        for table, every, recent in kept:
            table._all, table._recent = every, recent


def test_a_mask_is_read_by_each_call_and_each_replay_of_a_graph():
    x, mask = tensors(b=2, n=130), drawn(130, 130)
    for _ in range(3):
        attention(*x, mask)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attention(*x, mask)
    for seed in range(3):
        mask.copy_(drawn(130, 130, seed=seed))
        expected = checked(x, attn_mask=mask)[0]
        assert torch.equal(attention(*x, mask), expected)
        graph.replay()
        assert torch.equal(o, expected)


def test_memory_that_is_freed_and_taken_again_does_not_matter():
    for seed in range(40):
        x = tensors(seed)
        assert same(both(x, is_causal=seed % 2 == 0), checked(x, is_causal=seed % 2 == 0))
        del x


def test_strides_and_types_at_one_address():
    memory = torch.randn(2, 64, 8, 64, device="cuda").bfloat16()
    views = [memory.transpose(1, 2), memory.view(2, 8, 64, 64), memory[:1].transpose(1, 2)]
    views.append(memory[:, :, :4].transpose(1, 2))
    right = [checked((x, x, x)) for x in views]
    for _ in range(3):
        for x, expected in zip(views, right, strict=True):
            assert same(both((x, x, x)), expected) and torch.equal(hw4cli.attention(x, x, x), expected[0])
    words = torch.empty(1, 8, 64, 64, dtype=torch.int16, device="cuda")
    for dtype in (BFLOAT16, FLOAT16) * 2:
        x = words.view(dtype).copy_(torch.randn(1, 8, 64, 64, device="cuda"))
        assert torch.equal(attention(x, x, x), checked([x.clone() for _ in "qkv"])[0])


def test_addresses_that_are_no_multiples_of_16_bytes():
    size = 8 * 64 * 64
    memory = torch.randn(size + 8, device="cuda").bfloat16()
    x, shifted = (memory[first : first + size].view(1, 8, 64, 64) for first in (0, 4))
    for _ in range(3):
        both((x, x.clone(), x.clone()))
        hw4cli.attention(x, x, x)
        assert same(both((shifted, shifted, shifted)), checked([shifted.clone() for _ in "qkv"]))
        with pytest.raises(ValueError, match="multiple of 16 bytes"):
            hw4cli.attention(shifted, shifted, shifted)


def test_what_is_wrong_is_refused_after_what_was_right():
    q, k, v = x = tensors()
    for _ in range(2):
        attention(*x)
        hw4cli.attention(*x)
    wrong: dict[str, Any]
    for wrong in ({"causal": 1}, {"scale": -1}, {"scale": [1]}, {"kernel": "none"}, {"align": "left"}, {"window": 1}):
        with pytest.raises((TypeError, ValueError)):
            hw4cli.attention(*x, **wrong)
    for wrong in ({"is_causal": 1}, {"enable_gqa": 1}, {"scale": "x"}, {"kernel": "none"}, {"dropout_p": 0.1}):
        with pytest.raises((TypeError, ValueError)):
            attention(*x, **wrong)
    with pytest.raises(ValueError, match="attn_mask"):
        attention(*x, q[..., :3])
    for bad in (q.cpu(), q.float(), q[0], torch._neg_view(q), None, q.detach().requires_grad_()):
        with pytest.raises((TypeError, ValueError)):
            hw4cli.attention(bad, k, v)
    scale = torch.tensor(0.5)
    before = attention(*x, scale=scale)
    scale.fill_(0.1)
    assert not torch.equal(attention(*x, scale=scale), before)


def test_threads_without_a_context_and_with_streams_of_their_own():
    sizes = [(n, causal) for n in (64, 128, 192, 256) for causal in (False, True)]
    right = {(n, causal): checked(tensors(3, n=n), is_causal=causal) for n, causal in sizes}
    for n, causal in sizes:
        both(tensors(3, n=n), is_causal=causal)
        attention(*tensors(3, n=n), is_causal=causal)
    wrong: list[Any] = []
    x = tensors(3)

    def plain():
        found = attention(*x), hw4cli.attention(*x)
        if not all(torch.equal(o, right[64, False][0]) for o in found):
            wrong.append("a fresh thread")

    def busy(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(40):
                n, causal = sizes[(seed + i) % len(sizes)]
                if not same(both(tensors(3, n=n), is_causal=causal), right[n, causal]):
                    wrong.append((seed, i))
        stream.synchronize()

    for _ in range(3):
        thread = threading.Thread(target=plain)
        thread.start()
        thread.join()
    threads = [threading.Thread(target=busy, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_work_waits_for_what_is_before_it_on_the_stream():
    x = tensors(4, n=256)
    right = checked(x)[0]
    attention(*x), hw4cli.attention(*x)
    stream, late = torch.cuda.Stream(), [torch.zeros_like(t) for t in x]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        for to, source in zip(late, x, strict=True):
            to.copy_(source)
        found = attention(*late), hw4cli.attention(*late)
    stream.synchronize()
    assert all(torch.equal(o, right) for o in found)


@pytest.mark.parametrize("n", [128, 1024])
def test_a_graph_of_repeated_calls_computes_with_other_numbers(n):
    x = q, k, v = wanting(tensors(1, n=n))
    do = torch.randn_like(x[0])

    def step():
        o = attention(q, k, v, is_causal=True)
        return o, *torch.autograd.grad(o, x, do)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = step()
    for seed in (5, 6):
        with torch.no_grad():
            for to, numbers in zip(x, tensors(seed, n=n), strict=True):
                to.copy_(numbers)
        others = [torch.randn(1 << 20, device="cuda") for _ in range(8)]
        graph.replay()
        torch.cuda.synchronize()
        assert same([one.detach() for one in made], checked(x, do, is_causal=True))
        del others


def test_graphs_of_torchs_autograd_in_all_their_forms():
    """An expanded gradient, one input alone, O used twice, checkpoints, hooks, batched gradients, parameters."""
    x = wanting(tensors(5))
    right = checked(x)
    half = torch.ones_like(right[0]) * 0.5

    def grad(o, inputs=x):
        return [o.detach(), *torch.autograd.grad(o, inputs, half)]

    for _ in range(3):  # the first one's call is the first of its kind
        assert same(grad(checkpoint(attention, *x, use_reentrant=False)), right)
    o = checkpoint(attention, *x, use_reentrant=True)
    o.backward(half)
    assert same([o.detach(), *(t.grad for t in x)], right)
    with torch.autograd.graph.save_on_cpu():
        o = attention(*x)
    assert same(grad(o), right)
    many = torch.stack([half, 2 * half])
    batched = torch.autograd.grad(attention(*x), x, many, is_grads_batched=True)
    assert all(torch.equal(one[0], y) for one, y in zip(batched, right[1:], strict=True))
    parameters = [torch.nn.Parameter(t.detach()) for t in x]
    for _ in range(3):
        assert same(grad(attention(*parameters), parameters), right)
    sums = [torch.autograd.grad(attention(*x).sum(), x) for _ in range(3)]
    assert same(sums[1], sums[0]) and same(sums[2], sums[0])
    q, k, v = (t.detach() for t in x)
    k.requires_grad_()
    found = []
    for _ in range(3):
        o = attention(q, k, v)
        for keep in (True, False):
            found.append(torch.autograd.grad((o * o).sum() + o.sum(), k, retain_graph=keep)[0])
    assert all(torch.equal(one, found[0]) for one in found)


def test_no_grad_inference_and_autocast():
    x = wanting(tensors(5))
    right = checked(x)[0]
    both(x)
    with torch.no_grad():
        assert not any(attention(*x).requires_grad for _ in range(3))
    with torch.inference_mode():
        y = [t.detach().clone() for t in x]
        assert all(torch.equal(attention(*y), right) for _ in range(3))
    assert attention(*x).requires_grad
    full = [t.detach().float() for t in x]
    assert {attention(*full).dtype for _ in range(3)} == {FLOAT32}
    with torch.autocast("cuda", BFLOAT16):
        assert {attention(*full).dtype for _ in range(3)} == {BFLOAT16}
    assert attention(*full).dtype == FLOAT32


def test_derivatives_that_there_are_not_are_refused():
    x = wanting(tensors(4))
    both(x), attention(*x)
    o = attention(*x)
    (first,) = torch.autograd.grad(o, x[0], torch.ones_like(o).requires_grad_(), create_graph=True)
    with pytest.raises(NotImplementedError, match="second"):
        first.sum().backward()
    q, k, v = tensors(4)
    attention(q, k, v), attention(q, k, v)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        attention(forward_ad.make_dual(q, torch.ones_like(q)), k, v)


def test_modes_see_the_operator_and_transformations_go_by_it():
    x = tensors()
    right = checked(x)[0]
    for _ in range(3):
        assert torch.equal(attention(*x), right)
        with Seen() as seen:
            attention(*x)
        with SeenFunctions() as functions:
            attention(*x)
        assert any("hw4cli" in name for name in seen.names) and "attention" in functions.names
        with FlopCounterMode(display=False) as flops:
            attention(*x)
        assert flops.get_total_flops()
        with torch.device("cuda"):
            assert torch.equal(attention(*x), right)
    assert torch.equal(torch.vmap(attention)(*(t[None] for t in x))[0], right)
    assert torch.equal(torch.func.vjp(lambda q: attention(q, *x[1:]), x[0])[0], right)


def test_a_function_that_is_compiled_after_eager_calls_gives_the_same():
    x = wanting(tensors(6))

    def function(q, k, v):
        return attention(2 * q, k, v, is_causal=True) + 1

    right = [both(x, function=function) for _ in range(3)][-1]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for one in (compiled, compiled, function):
        assert same(both(x, function=one), right)


def test_a_growing_number_of_keys_and_more_shapes_than_are_recent():
    keys, values = torch.randn(2, 2, 8, 1200, 128, device="cuda").bfloat16()
    q = torch.randn(2, 32, 1, 128, device="cuda").bfloat16()
    for n in range(1000, 1030):
        found = [hw4cli.attention(q, keys[:, :, :n], values[:, :, :n]) for _ in range(2)]
        whole = hw4cli.attention(q, keys[:, :, :n].clone(), values[:, :, :n].clone())
        assert all(torch.equal(o, whole) for o in found)
    some = [tensors(n, n=16 * n) for n in range(1, 21)]
    right = [checked(x)[0] for x in some]
    for _ in range(4):
        assert all(torch.equal(attention(*x), o) for x, o in zip(some, right, strict=True))


def test_twenty_thousand_steps_take_no_more_memory():
    psutil = pytest.importorskip("psutil")
    x, process = wanting(tensors(9)), psutil.Process()

    def steps(count):
        for _ in range(count):
            o = attention(*x)
            torch.autograd.grad(o, x, o)
        torch.cuda.synchronize()
        gc.collect()
        return process.memory_info().rss, torch.cuda.memory_allocated()

    steps(1000)
    (rss, allocated), (more, still) = steps(1000), steps(20_000)
    assert more - rss < 4e6 and still <= allocated


def test_arrays_of_cupy_are_computed_on_its_stream():
    cupy = pytest.importorskip("cupy")
    q, k, v = (cupy.asarray(t) for t in tensors(7, dtype=FLOAT16))

    def step():
        o, lse = hw4cli.attention(q, k, v, causal=True, return_lse=True)
        return [o, lse, *hw4cli.attention_backward(cupy.ones_like(o), q, k, v, o, lse, causal=True)]

    right, again = step(), step()
    stream, threads = cupy.cuda.Stream(non_blocking=True), []
    with stream:
        found = step()
    stream.synchronize()
    thread = threading.Thread(target=lambda: threads.append(step()))
    thread.start()
    thread.join()
    for one in (again, found, threads[0]):
        assert all(bool((a == b).all()) for a, b in zip(one, right, strict=True))
    assert len(repeated.FORWARD) == len(repeated.BACKWARD) == 1


def test_another_gpu_is_another_kind():
    if torch.cuda.device_count() < 2:
        pytest.skip("this takes two GPUs")
    x = tensors()
    right = checked(x)
    for place in ("cuda:0", "cuda:1") * 3:
        there = [t.to(place) for t in x]
        assert same([t.to("cuda:0") for t in both(there)], right)
        with torch.cuda.device(place):
            assert same([t.to("cuda:0") for t in both(there)], right)
