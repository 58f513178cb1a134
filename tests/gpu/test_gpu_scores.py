"""Changed scores and masks on a GPU against float64: kernels, types, sequences, gradients, the same bits again."""

import itertools
from typing import Any

import numpy as np
import pytest
from scoredcases import NAMES, cases, exact
from test_gpu_gradients import ALLOWED
from test_gpu_sequences import ERROR, KERNEL
from test_gpu_windows import tensors

from hw4cli import attention, attention_backward
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16, KERNELS16
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32

pytestmark = pytest.mark.usefixtures("gpu")
TYPES = [(BFLOAT16, 128), (FLOAT16, 40), (BFLOAT16, 20), (FLOAT32, 64)]
TOGETHER, HOLES = "all together", "an additive mask with holes"
# Each is compiled: all kinds of one type, and a few of the others.
EACH = [(FLOAT16, 64, name) for name in NAMES]
EACH += [(*kind, name) for kind in TYPES for name in (TOGETHER, HOLES, "softcap")]
WIDER = 3  # by which changes may widen the rounding of scores
SUMS = {FLOAT16: 2e-3, BFLOAT16: 8e-3, FLOAT32: 1e-3}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def on_gpu(torch, asked):
    """The arguments, with their arrays there."""

    def moved(x):
        if isinstance(x, dict):
            return {name: moved(value) for name, value in x.items()}
        return torch.from_numpy(np.array(x)).cuda() if isinstance(x, np.ndarray) else x

    return {name: moved(x) for name, x in asked.items()}


def is_additive(asked):
    return "attn_mask" in asked and asked["attn_mask"].dtype.kind == "f"


def summed(dscore, shape):
    for axis, size in enumerate((1,) * (4 - len(shape)) + tuple(shape)):
        dscore = dscore if size > 1 else dscore.sum(axis=axis, keepdims=True)
    return dscore.reshape(shape)


def visible(Nq, Nk, causal=False, window=None):
    """Which keys a row sees of what is no score's."""
    own, key = np.arange(Nq)[:, None] + Nk - Nq, np.arange(Nk)
    left, right = window or (Nq + Nk, Nq + Nk)
    return (key >= own - left) & (key <= own + (0 if causal else right))


def right_of(case, arrays, mask=None, seen=None):
    """O, the LSE, the gradients and those of the scores, in float64."""
    wide = [x.double().cpu().numpy() for x in arrays]
    Nq, Nk = wide[1].shape[2], wide[2].shape[2]
    return exact(*wide, *case.formulas(Nq, Nk, seen))


def assert_right(found, right, dtype):
    """O, the LSE, the gradients, and, if there is one, that of the mask."""
    o, lse, *made = (x.double().cpu().numpy() for x in found)
    there = np.isfinite(right[1])
    assert (lse[~there] == -np.inf).all()
    np.testing.assert_allclose(lse[there], right[1][there], atol=SUMS[dtype], rtol=1e-5)
    assert np.abs(o - right[0]).max() <= WIDER * ERROR[dtype]
    for name, got, one in zip(("dQ", "dK", "dV"), made, right[2:], strict=False):
        assert np.abs(got - one).max() <= WIDER * ALLOWED[dtype] * max(1, np.abs(one).max()), name
    if len(made) == 4:
        wanted = summed(right[5], made[3].shape)
        summed_up = right[5].size / made[3].size  # whose rounding adds up as a walk of so many steps does
        allowed = WIDER * ALLOWED[dtype] * max(1, np.abs(wanted).max(), np.sqrt(summed_up) / 100)
        assert np.abs(made[3] - wanted).max() <= allowed, "the mask's"


def computed(arrays, asked, masked=False, kernel="auto", of_gradients="auto", **mask):
    do, q, k, v = arrays
    poisoned = q.new_full(q.shape, float("nan"))
    o, lse = attention(q, k, v, return_lse=True, out=poisoned, kernel=kernel, **asked, **mask)
    wanted: dict[str, Any] = {"mask_gradient": True} if masked else {}
    return o, lse, *attention_backward(do, q, k, v, o, lse, kernel=of_gradients, **asked, **mask, **wanted)


@pytest.mark.parametrize(("dtype", "d", "name"), EACH)
def test_scores_and_their_gradients_are_right_and_the_same_bits_again(torch, dtype, d, name):
    Nq, Nk = 333, 410
    arrays, case = tensors(torch, dtype, Nq, Nk, d), cases(2, 4, Nq, Nk)[name]
    asked, masked = on_gpu(torch, case.asked), is_additive(case.asked)
    found = computed(arrays, asked, masked, KERNEL[dtype])
    assert_right(found, right_of(case, arrays), dtype)
    again = computed(arrays, asked, masked, KERNEL[dtype])
    assert all(torch.equal(x, y) for x, y in zip(found, again, strict=True))


SLOPES = {
    "as ALiBi has them": 2.0 ** -np.arange(1, 9),
    "tiny": np.full(8, 1e-6),
    "of both signs, up to steep": np.linspace(-3, 1000, 8),
    "none, and what 16 bits do not hold": np.array([0, -0.0, 1e-30, 0.123456789, -0.0371, 3e4, 0.5, 1]),
}


@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES)
@pytest.mark.parametrize(
    ("Nq", "Nk", "causal"), [(2048, 2048, False), (2047, 2047, True), (300, 4001, True), (1, 999, False)]
)
@pytest.mark.parametrize(
    ("dtype", "d"), [(BFLOAT16, 128), (FLOAT16, 128), (BFLOAT16, 64), (FLOAT16, 64), (FLOAT16, 32)]
)
def test_long_rows_along_lines_of_any_slope_are_right(torch, dtype, d, Nq, Nk, causal, slopes):
    """Tiles of keys without weights are passed by, and others come in another order: rows of all tiles are compared."""
    torch.manual_seed(0)
    draw = {"device": "cuda", "dtype": getattr(torch, dtype)}
    q, k, v = (torch.randn(2, 8, n, d, **draw) for n in (Nq, Nk, Nk))
    slopes = torch.tensor(slopes, device="cuda", dtype=torch.float32)
    o = attention(q, k, v, causal=causal, alibi_slopes=slopes)
    assert torch.equal(o, attention(q, k, v, causal=causal, alibi_slopes=slopes))
    own, key = torch.arange(Nq, device="cuda")[:, None] + Nk - Nq, torch.arange(Nk, device="cuda")
    for head in range(8):
        s = q[1, head].double() @ k[1, head].double().T / d**0.5 - slopes[head].double() * (own - key).abs()
        right = (s.masked_fill(key > own, -np.inf) if causal else s).softmax(1) @ v[1, head].double()
        rounding = {FLOAT16: 2**-10, BFLOAT16: 2**-7}[dtype] * right.abs().max().item()
        assert (o[1, head].double() - right).abs().max().item() <= rounding, head


@pytest.mark.parametrize("name", [TOGETHER, "a mask with an empty row"])
@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, (100, 0)), (False, (30, 70))])
@pytest.mark.parametrize(("dtype", "d"), [(FLOAT16, 64), (FLOAT32, 64)])
def test_causal_masks_and_windows_go_with_them(torch, dtype, d, causal, window, name):
    for Nq, Nk in ((500, 700), (3, 900)):
        arrays, case = tensors(torch, dtype, Nq, Nk, d), cases(2, 4, Nq, Nk)[name]
        found = computed(
            arrays,
            on_gpu(torch, case.asked),
            is_additive(case.asked),
            KERNEL[dtype],
            causal=causal,
            window=window,
        )
        assert_right(found, right_of(case, arrays, seen=visible(Nq, Nk, causal, window)), dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "d"), [(BFLOAT16, 128), (FLOAT16, 64)])
def test_masks_that_many_heads_share_are_right(torch, dtype, d, causal):
    """`half` finds once which pairs have a score; of one size a mask for each batch, which fewer heads share."""
    torch.manual_seed(0)
    for Nq, Nk, masks in ((600, 777, 1), (1000, 1100, 2)):
        draw = {"device": "cuda", "dtype": getattr(torch, dtype)}
        q, k, v = (torch.randn(2, 12, n, d, **draw) for n in (Nq, Nk, Nk))
        mask = torch.rand(masks, 1, Nq, Nk, device="cuda") < 0.5
        mask[..., 128:320] = True  # tiles of which no pair is left out
        mask[:, :, 7] = False  # a row that sees no key
        for cap in (None, 20.0):
            asked = {"causal": causal, "attn_mask": mask, **({"softcap": cap} if cap else {})}
            o = attention(q, k, v, **asked)
            assert torch.equal(o, attention(q, k, v, **asked))
            seen = torch.arange(Nk, device="cuda") <= torch.arange(Nq, device="cuda")[:, None] + Nk - Nq
            for b, h in ((0, 0), (1, 5), (1, 11)):
                s = q[b, h].double() @ k[b, h].double().T / d**0.5
                s = (cap * (s / cap).tanh() if cap else s).masked_fill(~mask[b % masks, 0], -np.inf)
                right = (s.masked_fill(~seen, -np.inf) if causal else s).softmax(1).nan_to_num() @ v[b, h].double()
                allowed = {FLOAT16: 2**-9, BFLOAT16: 2**-6}[dtype] * right.abs().max().item()
                assert (o[b, h].double() - right).abs().max().item() <= allowed, (b, h, cap)


@pytest.mark.parametrize("kernel", [name for name in KERNELS16 if ENTRIES16[name].scores])
def test_each_kernel_of_16_bits_changes_scores(torch, gpu, kernel):
    if kernel == "half" and not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    for Nq, Nk in ((600, 777), (100, 90), (2, 3000)):
        for name in (TOGETHER, "a mask with an empty row", "softcap"):
            arrays, case = tensors(torch, FLOAT16, Nq, Nk, 128), cases(2, 4, Nq, Nk)[name]
            _, q, k, v = arrays
            o, lse = attention(q, k, v, kernel=kernel, causal=True, return_lse=True, **on_gpu(torch, case.asked))
            right = right_of(case, arrays, seen=visible(Nq, Nk, True))
            assert_right((o, lse), right[:2], FLOAT16)


@pytest.mark.parametrize("kernel", [name for name in GRADIENTS if GRADIENTS[name].scores])
def test_each_kernel_of_gradients_derives_them(torch, gpu, kernel):
    if kernel not in ("backward", "backward_mma") and not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    Nq, Nk = 600, 777
    for name in (TOGETHER, HOLES, "a mask with an empty row"):
        arrays, case = tensors(torch, FLOAT16, Nq, Nk, 64), cases(2, 4, Nq, Nk)[name]
        masked = is_additive(case.asked) and GRADIENTS[kernel].score_gradients
        found = computed(arrays, on_gpu(torch, case.asked), masked, of_gradients=kernel, causal=True)
        assert_right(found, right_of(case, arrays, seen=visible(Nq, Nk, True)), FLOAT16)


@pytest.mark.parametrize("name", [TOGETHER, "ALiBi of each batch"])
@pytest.mark.parametrize(("dtype", "d"), [(FLOAT16, 64), (BFLOAT16, 128), (FLOAT32, 64)])
def test_each_padded_sequence_counts_its_rows_and_keys_and_keeps_its_batch(torch, dtype, d, name):
    rows, keys, N = [300, 1, 128], [200, 333, 128], 333
    arrays, case = three(torch, dtype, N, d), cases(3, 4, N, N)[name]
    masked, mask = is_additive(case.asked), case.asked.get("attn_mask")
    found = computed(
        arrays, on_gpu(torch, case.asked), masked, KERNEL[dtype], causal=True, lengths=keys, q_lengths=rows
    )
    whole = np.zeros((3, 4, N, N))
    for b, (count, length) in enumerate(zip(rows, keys, strict=True)):
        do, q, k, v = (
            x[b : b + 1, :, :n].double().cpu().numpy()
            for x, n in zip(arrays, (count, count, length, length), strict=True)
        )
        change, keep = case.formulas(count, length, visible(count, length, True))

        def change_of(s, at, *rest, b=b, by=change):
            return by(s, at + b, *rest)

        right = exact(do, q, k, v, change_of, lambda at, *rest, b=b, by=keep: by(at + b, *rest))
        lengths = count, count, count, length, length
        assert_right([x[b : b + 1, :, :n] for x, n in zip(found, lengths, strict=False)], right, dtype)
        whole[b, :, :count, :length] = right[5][0]
    if masked:
        wanted = summed(whole, mask.shape)
        error = np.abs(found[5].double().cpu().numpy() - wanted).max()
        assert error <= WIDER * ALLOWED[dtype] * max(1, np.abs(wanted).max())


def three(torch, dtype, N, d):
    """dO, Q, K and V of three batches."""
    random = torch.Generator("cuda").manual_seed(0)
    made = (torch.randn(3, heads, N, d, generator=random, device="cuda") for heads in (4, 4, 2, 2))
    return [x.to(getattr(torch, dtype)) for x in made]


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32])
def test_packed_sequences_have_rows_keys_and_slopes_of_their_own(torch, dtype):
    lengths = [0, 1, 300, 129, 700]
    starts, case = np.cumsum([0, *lengths]).tolist(), cases(1, 4, 700, 700)["a table of buckets"]
    case = cases(1, 4, 700, 700)["documents"] if dtype == FLOAT32 else case
    arrays = [x[0] for x in tensors(torch, dtype, sum(lengths), sum(lengths), 64)]
    slopes = np.array([[0.5, 0.2, 0.1, 0.0]], np.float32) / np.array([[1], [2], [3], [1], [4]], np.float32)
    asked = on_gpu(torch, case.asked) | {"alibi_slopes": torch.from_numpy(slopes).cuda()}
    found = computed(arrays, asked, kernel=KERNEL[dtype], causal=True, cu_seqlens_q=starts, cu_seqlens_k=starts)
    for n, (first, end) in enumerate(itertools.pairwise(starts)):
        if first == end:
            continue
        count = end - first
        do, q, k, v = (x[None, :, first:end].double().cpu().numpy() for x in arrays)
        change, keep = case.formulas(count, count, visible(count, count, True))

        def sloped(s, b, h, i, j, by=change, n=n):
            return by(s - slopes[n, h] * abs(i - j), b, h, i, j)

        right = exact(do, q, k, v, sloped, keep)
        assert_right([x[None, :, first:end] for x in found], right, dtype)


def test_an_expression_that_names_the_batch_is_that_of_the_arrays(torch):
    for dtype in (FLOAT16, FLOAT32):
        arrays = three(torch, dtype, 200, 64)
        steps = torch.tensor([1.0, 2.0, 3.0], device="cuda")
        asked = {"score": "s * (b + 1) / 2 + step[b // 2]", "arrays": {"step": steps}}
        lengths = [200, 77, 130]
        found = computed(arrays, asked, kernel=KERNEL[dtype], lengths=lengths, q_lengths=lengths)
        for b, length in enumerate(lengths):
            do, q, k, v = (x[b : b + 1, :, :length].double().cpu().numpy() for x in arrays)

            def stepped(s, *_, b=b):
                return s * (b + 1) / 2 + 1 + b // 2, (b + 1) / 2

            right = exact(do, q, k, v, stepped, lambda *_: True)
            assert_right([x[b : b + 1, :, :length] for x in found], right, dtype)


def test_masks_of_any_strides_and_types_are_read_where_they_lie(torch):
    Nq, Nk = 200, 310
    arrays = tensors(torch, FLOAT16, Nq, Nk, 64)
    wide = torch.randn(2, Nk, 2 * Nq, device="cuda")
    for mask in (
        wide.transpose(1, 2)[:, None, ::2],
        wide[:1, :, :Nq].transpose(1, 2).expand(2, 4, Nq, Nk),
        wide[0, :, :Nq].t().half(),
        wide[0, :, :Nq].t().bfloat16(),
        wide[0, :, :Nq].t().double(),
        (wide[0, :, :Nq] > 0).t(),
        torch.full((1, 1), 2.5, device="cuda"),
    ):
        added = mask.dtype != torch.bool
        found = computed(arrays, {"attn_mask": mask}, masked=added)
        values = np.broadcast_to(mask.double().cpu().numpy(), (2, 4, Nq, Nk))
        do, q, k, v = (x.double().cpu().numpy() for x in arrays)
        right = exact(
            do,
            q,
            k,
            v,
            lambda s, *_, m=values, added=added: (s + m if added else s, 1),
            lambda *_, m=values, added=added: True if added else m > 0,
        )
        assert_right(found, right, FLOAT16)
        assert not added or found[5].dtype == mask.dtype


def test_cupys_arrays_are_changed_too(torch):
    cupy = pytest.importorskip("cupy")
    arrays, case = tensors(torch, FLOAT16, 200, 300, 64), cases(2, 4, 200, 300)[TOGETHER]

    def moved(x):
        return (
            {n: moved(y) for n, y in x.items()}
            if isinstance(x, dict)
            else cupy.asarray(x)
            if hasattr(x, "shape")
            else x
        )

    do, q, k, v = (cupy.asarray(x) for x in arrays)
    asked = moved(case.asked)
    o, lse = attention(q, k, v, return_lse=True, **asked)
    made = attention_backward(do, q, k, v, o, lse, mask_gradient=True, **asked)
    found = [torch.from_numpy(cupy.asnumpy(x)) for x in (o, lse, *made)]
    assert_right(found, right_of(case, arrays), FLOAT16)


def test_the_gradient_of_a_mask_is_the_same_by_batches(torch, monkeypatch):
    arrays, case = tensors(torch, BFLOAT16, 200, 300, 64), cases(2, 4, 200, 300)[TOGETHER]
    asked = on_gpu(torch, case.asked)
    whole = computed(arrays, asked, masked=True)
    monkeypatch.setattr("hw4cli.arrays.gradients.backward.SCORES_BYTES", 1)
    assert_right(computed(arrays, asked, masked=True), right_of(case, arrays), BFLOAT16)
    assert_right(whole, right_of(case, arrays), BFLOAT16)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32])
def test_torchs_autograd_gets_the_gradient_of_a_mask(torch, dtype):
    from torch.nn.functional import scaled_dot_product_attention

    import hw4cli.torch

    kind = getattr(torch, dtype)
    q, k, v = torch.randn(3, 2, 4, 150, 64, device="cuda").to(kind).unbind()
    for shape in ((2, 4, 150, 150), (150, 150), (2, 1, 1, 150)):
        mask = torch.randn(shape, device="cuda").to(kind)
        answers = []
        for function, wide in ((hw4cli.torch.attention, kind), (scaled_dot_product_attention, torch.float64)):
            leaves = [x.detach().to(wide).requires_grad_() for x in (q, k, v, mask)]
            o = function(*leaves)
            weights = torch.arange(o.numel(), device="cuda", dtype=torch.float64).reshape(o.shape).sin()
            answers.append([o, *torch.autograd.grad((o * weights).sum(), leaves)])
        for one, right in zip(*answers, strict=True):
            assert one.dtype == kind and one.shape == right.shape
            assert float((one.double() - right).abs().max()) <= WIDER * ERROR[dtype] * max(1, float(right.abs().max()))


def test_arrays_elsewhere_are_refused_before_anything_is_computed(torch):
    _, q, k, v = tensors(torch, FLOAT16, 100, 100, 64)
    out = torch.full_like(q, 7)
    for asked, words in (
        ({"attn_mask": torch.ones(100, 100)}, "attn_mask is on cpu"),
        ({"alibi_slopes": np.ones(4)}, "q is an array of torch, alibi_slopes of numpy: give all of one"),
        ({"score": "s + a[i]", "arrays": {"a": torch.ones(4, device="cuda", requires_grad=True)}}, "requires a grad"),
        ({"attn_mask": torch.ones(100, 99, device="cuda")}, "attn_mask has the shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            attention(q, k, v, out=out, **asked)
    assert bool((out == 7).all())


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("size", [0.3, 1, 4, 30])  # of scores: where tanh is a polynomial, and where it is not
def test_the_gradient_weighs_capped_scores_as_the_forward_pass_did(torch, dtype, size):
    """A single key has the weight 1, whatever its score: dV shows what weight the gradient gives it, row by row."""
    random = torch.Generator().manual_seed(5)
    q, do = torch.randn(2, 32, 64, 64, generator=random) * size, torch.eye(64).expand(2, 32, 64, 64)
    k = v = torch.randn(2, 32, 1, 64, generator=random)
    q, k, v, do = (x.to(getattr(torch, dtype)).cuda() for x in (q, k, v, do))
    o, lse = attention(q, k, v, softcap=15, return_lse=True)
    assert torch.equal(o, v.expand_as(o))
    weights = attention_backward(do, q, k, v, o, lse, softcap=15)[2].double()
    assert (weights - 1).abs().max() <= (5e-4 if dtype == FLOAT16 else 4e-3)  # at most one fp16 number below 1
