"""What a call that is repeated need not do again, and what it must: by a driver and tensors that are made up."""

import math
import random
import sys
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import faketorch
import numpy as np
import pytest
from faketorch import Tensor

import hw4cli
from hw4cli.arrays import attention, ongpu, repeated, sequences
from hw4cli.arrays.float32 import Float32OnGpu, as_batches
from hw4cli.arrays.gradients import backward
from hw4cli.arrays.gradients.ongpu import BackwardOnGpu
from hw4cli.arrays.ongpu import HalfOnGpu, encode
from hw4cli.arrays.operand import operand
from hw4cli.device import gpu as device
from hw4cli.device import launcher
from hw4cli.errors import MachineError
from hw4cli.plans import gradients
from hw4cli.plans.backward import Arrays as BackwardArrays
from hw4cli.plans.half import Arrays
from hw4cli.plans.kernels16 import KERNELS16, arguments16, key_step, plan16
from hw4cli.plans.launch import Matrix, arguments
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Magnitudes, Workload


class Gpu:
    """One whose kernels are not executed."""

    name, cupy = "NVIDIA H100", faketorch.cupy

    def __init__(self, driver, cc=90):
        self.props, self._driver, self.planned = DEVICES[cc], driver, []

    def is_compiled(self, plan):
        return True

    def prepare(self, plans):
        """There is nothing to compile."""

    def functions(self, plan):
        self.planned.append(plan.variant)
        return [self._driver.function(step.symbol) for step in plan.launches]


@pytest.fixture
def driver(monkeypatch):
    """A driver; hw4cli.attention and its gradients find torch's tensors, cupy and a GPU, which are made up."""
    found = faketorch.install(monkeypatch).driver
    gpu = Gpu(found)
    kernels = HalfOnGpu(gpu), Float32OnGpu(gpu)
    monkeypatch.setattr(attention, "_open", lambda device: kernels)
    monkeypatch.setattr(backward, "import_cupy", lambda: faketorch.cupy)
    gradients_of = BackwardOnGpu(gpu)
    monkeypatch.setattr(backward, "_open", lambda device: gradients_of)
    monkeypatch.setattr(faketorch.torch, "current", 0)
    monkeypatch.setattr(faketorch.torch, "watched", 0)
    return found


# ---- The bytes


def workloads(seed, count, dtypes=("bfloat16", "float16")):
    draw = random.Random(seed)
    for _ in range(count):
        kv_heads = draw.choice([1, 2, 3])
        Nq, Nk = draw.choice([1, 7, 64, 128, 300, 1024]), draw.choice([1, 64, 100, 128, 700, 4096])
        causal = draw.random() < 0.5
        sizes = (
            draw.randrange(1, 4),
            kv_heads * draw.choice([1, 1, 4]),
            kv_heads,
            Nq,
            Nk,
            draw.choice([8, 32, 64, 96, 128]),
        )
        yield Workload(draw.choice(dtypes), *sizes, causal, Nk - Nq if causal else 0), draw


def placed(draw, work, count):
    """So many matrices, q and those of its heads first where they stand in turn, rows or heads side by side."""
    found = []
    for n in range(count):
        heads, rows = (work.heads, work.Nq) if n in (0, 3, 4, 5) else (work.kv_heads, work.Nk)
        step = work.d + 8 * draw.choice([0, 0, 3])
        by_head, by_row = draw.choice([(rows * step, step), (step, heads * step)])
        found.append((heads * rows * step, by_head, by_row))
    return tuple(found)


def addresses(draw, count):
    return tuple(draw.randrange(1 << 20, 1 << 43) * 16 for _ in range(count))


@pytest.mark.parametrize("cc", [75, 80, 90])
@pytest.mark.parametrize("kernel", KERNELS16)
def test_prepared_launches_pass_the_bytes_that_the_kernels_entry_packs(driver, kernel, cc):
    kernels = HalfOnGpu(Gpu(driver, cc))
    for work, draw in workloads(f"{kernel}{cc}", 25):
        try:
            planned = plan16(work, DEVICES[cc], kernel)
        except MachineError:
            continue
        steps, work = placed(draw, work, 4), replace(work, scale=draw.choice([work.scale, 0.3]))
        prepared = kernels.prepared(work, steps, kernel)
        assert prepared.is_filled
        for stream in (0, 7):
            driver.launched.clear()
            at = addresses(draw, 6)
            matrices = [Matrix(first, *step) for first, step in zip(at, steps, strict=False)]
            expected = arguments16(work, planned, Arrays(*matrices, *at[4:]), encode)
            prepared.enqueue(at, stream)
            early = [step.early and cc >= 90 for step in planned.launches]
            symbols = [step.symbol for step in planned.launches]
            assert driver.launched == [(s, stream, expected, e) for s, e in zip(symbols, early, strict=True)]


@pytest.mark.parametrize("kernel", list(gradients.GRADIENTS))
def test_prepared_gradients_pass_the_bytes_that_the_kernels_entry_packs(driver, kernel):
    kernels = BackwardOnGpu(Gpu(driver))
    for work, draw in workloads(kernel, 25, ("bfloat16", "float16", "float32")):
        if not gradients.takes(kernel, work, DEVICES[90]):
            continue
        steps, whole = placed(draw, work, 8), draw.random() < 0.5
        prepared = kernels.prepared(work, steps, kernel, whole)
        assert prepared.is_filled
        for _ in range(2):
            driver.launched.clear()
            at = addresses(draw, 10)
            matrices = tuple(Matrix(first, *step) for first, step in zip(at, steps, strict=False))
            planned = kernels.planned(work, kernel)
            expected = gradients.arguments(planned, work, BackwardArrays(matrices, *at[8:], whole), encode)
            prepared.enqueue(at, 3)
            assert driver.launched == [(step.symbol, 3, expected, False) for step in planned.launches]


@pytest.mark.parametrize("kernel", ["naive", "flash", "exact", "split", "float64"])
def test_float32_calls_pass_the_bytes_of_each_batch_of_rows(driver, kernel):
    for work, _ in workloads(kernel, 12, ("float32",)):
        driver.launched.clear()
        q, k, v = (
            Tensor(np.zeros((work.batch, heads, rows, work.d), np.float32))
            for heads, rows in ((work.heads, work.Nq), (work.kv_heads, work.Nk), (work.kv_heads, work.Nk))
        )
        for _ in range(2):
            o = hw4cli.attention(q, k, v, causal=work.causal, kernel=kernel)
        each = [argument for symbol, _, argument, _ in driver.launched if symbol != "memset"]
        first, second = each[: len(each) // 2], each[len(each) // 2 :]
        operands = [operand(name, x, "BHND") for name, x in (("q", q), ("k", k), ("v", v), ("o", o))]
        masked = work.causal and work.offset + 1 < work.Nk
        calls = as_batches(replace(work, causal=masked, offset=work.offset if masked else 0), operands).each
        plan = attention._open(0)[1]._planned(kernel, calls[0].shape)
        assert len(second) == len(calls) * len(plan.launches) == len(first)
        scratch = np.frombuffer(second[0], "<u8")[17]
        for n, call in enumerate(calls):
            expected = arguments(plan, call.shape, call.matrices, int(scratch), 0, call.offset)
            assert set(second[n * len(plan.launches) : (n + 1) * len(plan.launches)]) == {expected}
        assert ("memset" in {symbol for symbol, *_ in driver.launched}) == plan.finds_absmax


def test_a_tensor_map_is_encoded_for_a_shape_and_not_for_an_address(driver):
    """128 bytes of which a launch needs nine, and which take the driver ten microseconds each."""
    kernels = BackwardOnGpu(Gpu(driver))
    work = Workload("bfloat16", 2, 4, 2, 256, 256, 64, True)
    steps = placed(random.Random(0), work, 8)
    for n in range(5):
        kernels.prepared(work, steps).enqueue(tuple(range(n << 8, (n << 8) + 160, 16)), 0)
        if not n:
            encoded = len(driver.encoded)
    assert len(driver.encoded) == encoded == 18  # to find where addresses stand, it is packed twice


# ---- Which calls are repeated ones


def tensors(shape=(2, 4, 64, 64), dtype=np.float16, count=3):
    return [faketorch.empty(shape, np.dtype(dtype).name, None) for _ in range(count)]


@pytest.fixture
def checks(monkeypatch):
    """How often arrays were checked."""
    counted = []
    for module in (attention, backward, sequences):
        real = module.operand
        monkeypatch.setattr(module, "operand", lambda *given, real=real: counted.append(given[0]) or real(*given))
    return counted


def is_checked(checks, call):
    checks.clear()
    call()
    return bool(checks)


def test_arrays_of_the_same_kind_are_not_checked_again_wherever_they_lie(driver, checks):
    for _ in range(3):
        for options in ({}, {"causal": True}, {"return_lse": True}, {"scale": 0.5, "layout": "BNHD"}):
            q, k, v = tensors()
            found = hw4cli.attention(q, k, v, **options)
            o, _ = found if "return_lse" in options else (found, None)
            assert o.shape == q.shape and o.stride() == q.stride()
            assert hex(q.data_ptr()) and driver.launched[-1][2].find(o.data_ptr().to_bytes(8, "little")) >= 0
    assert len(repeated.FORWARD) == 4
    assert not is_checked(checks, lambda: hw4cli.attention(*tensors()))


def test_gradients_of_the_same_kinds_are_not_checked_again(driver, checks):
    shape = (2, 4, 64, 64)
    for again in (False, True):
        do, q, k, v, o = tensors(shape, count=5)
        (lse,) = tensors(shape[:3], np.float32, 1)
        assert is_checked(checks, lambda: hw4cli.attention_backward(do, q, k, v, o, lse)) != again  # noqa: B023
        for x in (do, q, k, v, o, lse):
            assert x.data_ptr().to_bytes(8, "little") in driver.launched[-1][2]
    assert is_checked(
        checks, lambda: backward.gradients_of_some_keys(do, q, k, v, o, lse, causal=False, align="top-left", scale=None)
    )


def strided(shape, order):
    made = faketorch.empty(tuple(shape[n] for n in order), "float16", None)
    return made.permute(*(order.index(n) for n in range(len(shape))))


def test_another_stride_type_or_shape_at_the_same_address_is_another_kind(driver, checks):
    memory = faketorch.empty((2 * 64 * 64 * 64,), "float16", None).array
    whole = Tensor(memory.reshape(2, 64, 64, 64))
    turned, short, other = whole.permute(0, 2, 1, 3), whole[:1], Tensor(memory.view(np.float32).reshape(2, 32, 64, 64))
    assert len({x.data_ptr() for x in (whole, turned, short, other)}) == 1
    for x in (whole, turned, short):
        assert is_checked(checks, lambda x=x: hw4cli.attention(x, x, x))
    assert is_checked(checks, lambda: hw4cli.attention(other, other, other, kernel="flash"))
    assert len(repeated.FORWARD) == 4
    for x in (whole, turned, short):
        assert not is_checked(checks, lambda x=x: hw4cli.attention(x, x, x))

    def passed():  # but addresses
        o = hw4cli.attention(whole, turned, whole)
        return driver.launched[-1][2].replace(o.data_ptr().to_bytes(8, "little"), b"")

    found = passed()
    repeated.FORWARD.clear()
    assert found == passed()


def test_what_the_kind_does_not_say_is_looked_at_each_time(driver, checks, monkeypatch):
    """Where a tensor begins, and which GPU is the current one."""
    (x,) = tensors((1, 2, 64, 64), count=1)
    memory = faketorch.empty((x.array.size + 8,), "float16", None).array
    shifted = Tensor(memory[4:-4].reshape(x.shape))
    for _ in range(2):
        hw4cli.attention(x, x, x)
    for _ in range(2):
        with pytest.raises(ValueError, match="k does not begin at a multiple of 16 bytes"):
            hw4cli.attention(x, shifted, x)
    monkeypatch.setattr(faketorch.torch, "current", 1)
    assert is_checked(checks, lambda: hw4cli.attention(x, x, x))
    monkeypatch.setattr(faketorch.torch, "current", 0)
    assert not is_checked(checks, lambda: hw4cli.attention(x, x, x))


def test_a_call_that_is_wrong_is_refused_after_one_that_was_right(driver):
    q, k, v = tensors()
    for _ in range(2):
        hw4cli.attention(q, k, v, causal=True)
    for wrong in (
        {"causal": 1},
        {"causal": "yes"},
        {"scale": -1.0},
        {"kernel": "none"},
        {"align": "left"},
        {"window": 3},
    ):
        with pytest.raises((TypeError, ValueError)):
            hw4cli.attention(q, k, v, **{"causal": True, **wrong})
    wants = Tensor(q.array)
    wants.requires_grad = True
    negative = Tensor(q.array)
    negative.negative = True
    for bad in (wants, negative, Tensor(q.array[0]), Tensor(q.array.astype(np.float32)), q.array):
        with pytest.raises((TypeError, ValueError)):
            hw4cli.attention(bad, k, v, causal=True)
        with pytest.raises((TypeError, ValueError)):
            hw4cli.attention(q, bad, v, causal=True)


class Named(dict):
    """Arrays that may be others the next time."""


class Changing(float):
    """A number that may be another one the next time."""


def test_options_that_may_change_are_never_remembered(driver, checks):
    q, k, v = tensors()
    number = np.array(0.5)  # an array of no dimension
    for options in ({"scale": Changing(0.5)}, {"scale": number}, {"bounds": [1.0, 1.0, 1.0]}, {"causal": np.True_}):
        for _ in range(2):
            assert is_checked(checks, lambda options=options: hw4cli.attention(q, k, v, **options))
    assert not len(repeated.FORWARD)


def test_what_depends_on_the_elements_is_never_remembered(driver, checks, monkeypatch):
    """An error of 16 bits that is allowed, without bounds."""
    monkeypatch.setattr(attention, "absmax", lambda operands: (1.0, 1.0, 1.0))
    half, full = tensors(), tensors(dtype=np.float32)
    for _ in range(2):
        assert is_checked(checks, lambda: hw4cli.attention(*half, max_error=0.1))
        assert is_checked(checks, lambda: hw4cli.attention(*half, out=half[0]))
    for x, options in ((half, {"max_error": 0.1, "bounds": (1.0, 1, 1)}), (full, {"bounds": (1.0, 1.0, 1.0)})):
        found = [is_checked(checks, lambda x=x, options=options: hw4cli.attention(*x, **options)) for _ in range(2)]
        assert found == [True, False]


@pytest.mark.parametrize("options", [{"max_error": 1e-3}, {"kernel": "split", "max_error": 1e-4}], ids=str)
def test_float32s_kernel_is_chosen_by_what_is_in_the_arrays_in_repeated_calls_too(driver, checks, monkeypatch, options):
    """With an error that is allowed, nothing but the range is read again; the launches are those of a checked call."""
    found = []
    monkeypatch.setattr(Float32OnGpu, "_range", lambda *_: found[-1])
    shape, kernels = (2, 2, 512, 64), set()
    large, small, none = (Magnitudes(x, x, x, 8 * x, 8 * x) for x in (40.0, 1.0, math.nan))
    for again, largest in enumerate((small, large, none, small, small, Magnitudes(3.0, 3.0, 300.0, 24.0, 24.0))):
        found.append(largest)
        driver.launched.clear()
        x = tensors(shape, np.float32)
        assert is_checked(checks, lambda: hw4cli.attention(*x, **options)) == (not again)  # noqa: B023
        symbols = [symbol for symbol, *_ in driver.launched]
        kept, repeated.FORWARD._all = repeated.FORWARD._all, {}
        recent, repeated.FORWARD._recent = repeated.FORWARD._recent, {}
        driver.launched.clear()
        assert is_checked(checks, lambda: hw4cli.attention(*x, **options))  # noqa: B023
        assert [symbol for symbol, *_ in driver.launched] == symbols
        repeated.FORWARD._all, repeated.FORWARD._recent = kept, recent
        kernels.add(tuple(symbols))
    assert len(kernels) > 1


@pytest.mark.parametrize("shape", [(2, 2, 512, 64), (1, 3, 4096, 64), (2, 2, 70, 32)])
@pytest.mark.parametrize("options", [{}, {"return_lse": True}, {"causal": True}, {"scale": 0.5}], ids=str)
def test_the_gpu_chooses_float32s_kernel_without_being_waited_for(driver, checks, monkeypatch, shape, options):
    """A repeated call enqueues what a checked one does: the range check, the choice, and all kernels to choose from."""
    monkeypatch.setattr(Float32OnGpu, "_range", lambda *_: pytest.fail("the range is read"))
    launched = []
    for again in range(3):
        driver.launched.clear()
        x = tensors(shape, np.float32)
        assert is_checked(checks, lambda: hw4cli.attention(*x, **options)) == (not again)  # noqa: B023
        launched.append([symbol for symbol, *_ in driver.launched])
    assert launched[0] == launched[1] == launched[2]
    assert launched[0][:5] == ["memset", "absmax", "absmax", "absmax", "choice"]
    usual = {"float64"} if "scale" not in options else set()
    integers = {"split8"} if usual and shape[2] == 4096 else set()
    assert {"split", "exact", "flash", *usual, *integers} <= {*launched[0]}
    assert not {"float64", "split8"} & {*launched[0]} - usual - integers


@pytest.mark.parametrize("options", [{}, {"causal": True, "window": (8, 0)}], ids=str)
def test_what_the_gpu_chooses_by_is_cleared_and_no_byte_that_is_not_scratch(driver, options):
    """Kernels that split no keys and convert none have no scratch themselves."""
    for n in range(3):
        driver.launched.clear(), faketorch.torch.allocated.clear()
        hw4cli.attention(*tensors((1, 2, 40, 32), np.float32), **options)
        dtype, shape = faketorch.torch.allocated[-1]
        (_, _, (_, byte, size), _), *others = driver.launched
        assert (byte, [symbol for symbol, *_ in others].count("memset")) == (0, 0)
        assert 20 <= size <= math.prod(shape) * np.dtype(dtype).itemsize, n


def test_a_range_is_not_read_while_a_graph_is_captured(driver, monkeypatch):
    monkeypatch.setattr(Float32OnGpu, "_range", lambda *_: Magnitudes(1.0, 1.0, 1.0))
    x = tensors(dtype=np.float32)
    for _ in range(2):
        hw4cli.attention(*x, max_error=1e-3)
    monkeypatch.setattr(faketorch.torch, "capturing", True)
    with pytest.raises(ValueError, match="a CUDA graph cannot wait for: give bounds="):
        hw4cli.attention(*x, max_error=1e-3)


# ---- Decoding


def cache(rows, heads=2, d=64, layout="BHND"):
    shape = (2, heads, rows, d) if layout == "BHND" else (2, rows, heads, d)
    return faketorch.empty(shape, "float16", None)


def first(x, rows, layout):
    return x[:, :, :rows] if layout == "BHND" else x[:, :rows]


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"window": (100, 0)},
        {"kernel": "half_mma"},
        {"return_lse": True},
        {"softcap": 20.0, "keep": "j % 7 != i", "causal": True},
    ],
    ids=str,
)
def test_a_step_of_decoding_passes_what_a_checked_call_of_so_many_keys_passes(driver, checks, options, layout):
    """Of views of a cache, and of arrays that are made anew, whose strides change, too."""
    K, V = cache(3000, layout=layout), cache(3000, layout=layout)

    def step(rows, new, clear):
        q = cache(1, heads=8, layout=layout)
        k, v = (cache(rows, layout=layout) for _ in "kv") if new else (first(x, rows, layout) for x in (K, V))
        if clear:
            repeated.FORWARD.clear()
            attention._open(0)[0].prepared.cache_clear()
        driver.launched.clear()
        checks.clear()
        found = hw4cli.attention(q, k, v, layout=layout, **options)
        o, *lse = found if "return_lse" in options else (found,)
        arrays = [q, k, v, o, *lse]
        known = {x.data_ptr(): n for n, x in enumerate(arrays)}
        return [
            (symbol, early, [known.get(int(word), int(word)) for word in np.frombuffer(bytes_, "<u8")])
            for symbol, _, bytes_, early in driver.launched
        ], list(checks)

    def but_scratch(launches):
        """Scratch lies wherever the library puts it."""
        return [(s, e, [w if w < 1 << 32 else "scratch" for w in words]) for s, e, words in launches]

    for rows in (1, 100, 101, 2000, 2001, 2002, 777, 3000):
        for new in (False, True):
            step(rows - 1 or 2, new, True)
            found, seen = step(rows, new, False)
            again, none = step(rows, new, False)
            assert seen == none == [] and len(again) == len(found)
            right, all_of_them = step(rows, new, True)
            assert len(all_of_them) > 2
            assert but_scratch(found) == but_scratch(right)


def test_keys_that_kernels_cannot_read_are_refused_in_the_middle_of_decoding(driver):
    K, V, q = cache(400), cache(400), cache(1, heads=8)
    for rows in (100, 101):
        hw4cli.attention(q, K[:, :, :rows], V[:, :, :rows])
    shifted = Tensor(faketorch.empty((2 * 2 * 102 * 64 + 4,), "float16", None).array[4:].reshape(2, 2, 102, 64))
    for k, v, message in (
        (K[:, :, :102], V[:, :, :103], "k and v differ in batch, heads or N"),
        (K[:, :, :102][:, :, ::-1], V[:, :, :102], "give positive multiples of 8"),
        (shifted, V[:, :, :102], "k does not begin at a multiple of 16 bytes"),
        (K[:, :, :0], V[:, :, :0], "there is nothing to compute"),
        (cache(102, heads=3), cache(102, heads=3), "heads"),
        (cache(102, d=72), cache(102, d=72), "q and k differ in batch or d"),
    ):
        with pytest.raises(ValueError, match=message):
            hw4cli.attention(q, k, v)
    hw4cli.attention(q, K[:, :, :102], V[:, :, :102])


def test_keys_that_are_not_like_the_last_ones_are_checked_in_the_middle_of_decoding(driver, monkeypatch):
    """hw4cli.torch copies keys that kernels cannot read, and says itself whether heads may be shared. Where another GPU
    is the current one, it stays that."""
    q, K, V = cache(1, heads=8), cache(400), cache(400)
    hw4cli.attention(q, K[:, :, :100], V[:, :, :100])
    ((call, _),) = repeated.FORWARD._growing.values()
    shifted = Tensor(faketorch.empty((2 * 2 * 102 * 64 + 4,), "float16", None).array[4:].reshape(2, 2, 102, 64))
    once = Tensor(np.broadcast_to(cache(102, heads=1).array, (2, 2, 102, 64)))
    fewer = cache(102, heads=1)
    assert call.run(q, K[:, :, :102], V[:, :, :102]) is not None
    for k, v in ((shifted, V[:, :, :102]), (once, once), (fewer, fewer), (K[:, :, :102], V[:, :, :103])):
        assert call.run(q, k, v) is None
    monkeypatch.setattr(faketorch.torch, "current", 1)
    before = len(faketorch.has_context)
    assert call.run(q, K[:, :, :300], V[:, :, :300]) is None
    assert len(faketorch.has_context) == before


def test_a_graph_captures_steps_whose_plan_is_known_and_others_are_checked(driver, checks, monkeypatch):
    """Nothing is compiled while a graph is captured."""
    K, V, q = cache(400), cache(400), cache(1, heads=8)
    for rows in (100, 101):
        hw4cli.attention(q, K[:, :, :rows], V[:, :, :rows])
    monkeypatch.setattr(faketorch.torch, "capturing", True)
    for rows, checked in ((102, False), (300, True), (301, False)):
        if rows == 301:
            monkeypatch.setattr(faketorch.torch, "capturing", False)
        driver.launched.clear()
        k, v = K[:, :, :rows], V[:, :, :rows]
        assert is_checked(checks, lambda: hw4cli.attention(q, k, v)) == checked  # noqa: B023
        assert driver.launched and driver.launched[0][0] == "half_split"


def test_an_error_that_is_allowed_chooses_the_kernel_for_each_number_of_keys(driver, checks):
    K, V, q = cache(3000), cache(3000), cache(1, heads=8)
    options = {"max_error": 1e-3, "bounds": (1.0, 1.0, 1.0)}
    for rows in (2000, 2001):
        driver.launched.clear()
        assert is_checked(checks, lambda: hw4cli.attention(q, K[:, :, :rows], V[:, :, :rows], **options))  # noqa: B023
        assert {symbol for symbol, *_ in driver.launched} == {"half_cores"}


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (1000, 0)}], ids=str)
def test_steps_of_decoding_are_planned_once_for_all_keys_that_warps_take_together(driver, monkeypatch, options):
    """And what is planned, compiled and found about it is shared: a step fills in a struct, and launches."""
    gpu = attention._open(0)[0].gpu
    K, V, q = cache(2300), cache(2300), cache(1, heads=8)
    packed, planned, configured = [], [], []

    def counting(module, name, counted):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: counted.append(given) or function(*given))

    hw4cli.attention(q, K[:, :, :1999], V[:, :, :1999], **options)
    step = key_step(Workload("float16", 2, 8, 2, 1, 1999, 64), gpu.props)
    assert step == 128
    attention._open(0)[0].planned = lambda *given: planned.append(given) or plan16(given[0], gpu.props)
    counting(ongpu, "arguments16", packed), counting(launcher, "_config", configured)
    driver.launched.clear()
    for rows in range(2000, 2300):
        hw4cli.attention(q, K[:, :, :rows], V[:, :, :rows], **options)
    plans, splits = len({-(-rows // step) for rows in range(2000, 2300)}), 2
    assert len(planned) == plans and len(configured) == splits * plans
    assert plans <= len(packed) <= 2 * plans
    assert [symbol for symbol, *_ in driver.launched] == 300 * ["half_split", "half_split_combine"]
    assert not driver.encoded and len(gpu.planned) <= 3


def test_threads_that_decode_share_plans_and_each_passes_its_own_numbers(driver):
    """Caches of several capacities, so that K and V of each thread have other strides."""
    q = cache(1, heads=8)
    hw4cli.attention(q, cache(1100), cache(1100), causal=True)
    found = {}

    def decode(capacity):
        K, V = cache(capacity), cache(capacity)
        for rows in range(1100, 1300):
            o = hw4cli.attention(q, K[:, :, :rows], V[:, :, :rows], causal=True)
            found[o.data_ptr()] = o, K, V, rows

    threads = [threading.Thread(target=decode, args=(capacity,)) for capacity in (1300, 1400, 1500, 1600)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = {}
    for symbol, _, words, _ in driver.launched:
        if symbol == "half_split":
            passed.update({at: words for at in found if at.to_bytes(8, "little") in words})
    assert len(found) == len(passed) == 800
    for at, (o, K, V, rows) in found.items():
        work = Workload("float16", 2, 8, 2, 1, rows, 64, True, rows - 1)
        planned = plan16(work, DEVICES[90])
        scratch = int.from_bytes(passed[at][-16:-8], "little") - planned.layout.partial_o
        matrices = [
            Matrix(x.data_ptr(), *(s if n > 1 else 0 for s, n in zip(x.stride(), x.shape[:3], strict=False)))
            for x in (q, K, V, o)
        ]
        assert passed[at] == arguments16(work, planned, Arrays(*matrices, 0, scratch), encode)


LENGTHS = [[17, 1030], [18, 1031], [900, 0], [1023, 5], [1024, 6], [1025, 1026], [64, 64], [1900, 2000], [2000, 1900]]


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True, "padding": "left"},
        {"window": (100, 0)},
        {"kernel": "half_split", "return_lse": True},
        {"kernel": "half_mma"},
    ],
    ids=str,
)
def test_a_step_of_other_lengths_passes_what_a_checked_call_of_them_passes(driver, checks, options, layout):
    """Of a cache with room for all, and of the part that the longest one fills: launches, their tables and what is
    cleared. The next layer, of other arrays, passes the same."""
    K, V, q = cache(2048, layout=layout), cache(2048, layout=layout), cache(1, heads=8, layout=layout)

    def step(lengths, grows):
        k, v = (first(x, max(lengths), layout) if grows else x for x in (K, V))
        driver.launched.clear()
        checks.clear()
        found = hw4cli.attention(q, k, v, layout=layout, lengths=lengths, **options)
        made = found if "return_lse" in options else (found,)
        known = {x.data_ptr(): n for n, x in enumerate((q, k, v, *made))}
        return [passed(known, *launch) for launch in driver.launched], list(checks)

    def passed(known, symbol, _, given, early):
        """But for where scratch lies."""
        if symbol in ("memset", "copy"):
            return symbol, given[1:]
        words = np.frombuffer(given, "<u8").tolist()
        return symbol, early, [known.get(w, "scratch" if 0x50 <= w >> 40 <= 0x7F else w) for w in words]

    for grows in (False, True):
        for n, lengths in enumerate(LENGTHS):
            step(LENGTHS[n - 1], grows)
            found, seen = step(lengths, grows)
            again, also = step(lengths, grows)
            repeated.FORWARD.clear()
            attention._open(0)[0].prepared.cache_clear()
            right, all_of_them = step(lengths, grows)
            assert seen == also == [] and len(all_of_them) > 2, lengths
            of_none = [launch for launch in found if launch[0] == "memset"]  # else NumPy clears these rows
            assert found == again and bool(of_none) == (0 in lengths)
            assert [launch for launch in found if launch not in of_none] == right and right[0][0] == "copy"


def test_lengths_of_packed_keys_grow_without_checks_and_a_step_plans_once(driver, checks):
    """Each sequence has one key more, so all but the first begin elsewhere; steps of 128 keys share a plan."""
    kernels, planned = attention._open(0)[0], []
    real = kernels.planned
    kernels.planned = lambda *given: planned.append(given) or real(*given)
    q = faketorch.empty((2, 8, 64), "float16", None)
    for n in range(100):
        ends = [0, 1100 + n, 2250 + 2 * n]
        k = faketorch.empty((ends[-1], 2, 64), "float16", None)
        driver.launched.clear()
        call = partial(hw4cli.attention, q, k, k, layout="BNHD", cu_seqlens_q=[0, 1, 2], cu_seqlens_k=ends)
        assert is_checked(checks, call) == (not n)
        (table,) = [given[1] for symbol, _, given, _ in driver.launched if symbol == "copy"]
        spans = {tuple(row) for row in np.frombuffer(table, np.int32).reshape(-1, 9)[:, [1, 3, 4]].tolist()}
        assert spans == {(0, 0, ends[1]), (1, ends[1], ends[2] - ends[1])}
    assert len({work.sequences[0].keys for work, *_ in planned}) <= 3


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1200, 2049], r"lengths\[1\] is 2049"),
        ([1200, -1], r"lengths\[1\] is -1"),
        ([1200], "give one for each of 2"),
        ([1200, 1.5], "give a list, or an array, of integers"),
    ],
    ids=str,
)
def test_lengths_that_are_wrong_are_refused_in_the_middle_of_decoding(driver, lengths, message):
    K, V, q = cache(2048), cache(2048), cache(1, heads=8)
    for n in range(3):
        hw4cli.attention(q, K, V, lengths=[1100 + n, 1200 + n])
    driver.launched.clear()
    with pytest.raises((TypeError, ValueError), match=message):
        hw4cli.attention(q, K, V, lengths=lengths)
    assert not driver.launched


def test_a_list_is_read_again_where_its_numbers_or_their_types_have_changed(driver, checks):
    """A call is held beside the lists of the calls before it; only what equals these to the type is not read."""
    x, starts = faketorch.empty((300, 2, 64), "float16", None), [0, 100, 300]
    call = partial(hw4cli.attention, x, x, x, layout="BNHD")

    def spans():
        driver.launched.clear()
        call(cu_seqlens_q=starts, cu_seqlens_k=starts)
        (table,) = [given[1] for symbol, _, given, _ in driver.launched if symbol == "copy"]
        return {tuple(row) for row in np.frombuffer(table, np.int32).reshape(-1, 9)[:, [1, 2]].tolist()}

    assert spans() == {(0, 100), (100, 200)}
    assert not is_checked(checks, spans)
    starts[1] = 120
    assert spans() == {(0, 120), (120, 180)}
    assert not is_checked(checks, partial(call, cu_seqlens_q=(0, 120, 300), cu_seqlens_k=[0, 120, 300]))
    for keys in ((), [0, 300]):
        with pytest.raises(ValueError, match="cu_seqlens"):
            call(cu_seqlens_q=starts, cu_seqlens_k=keys)
    for wrong in (120.0, np.array([120, 120])):
        starts[1] = wrong
        with pytest.raises(TypeError, match="cu_seqlens_q is a list: give a list, or an array, of integers"):
            spans()


def test_a_graph_writes_the_table_of_the_lengths_that_it_captured(driver, checks):
    """By launches, as the host's memory may be another's when it is replayed; other steps copy theirs."""
    K, V, q = cache(2048), cache(2048), cache(1, heads=8)

    def symbols(n):
        driver.launched.clear()
        call = partial(hw4cli.attention, q, K, V, lengths=[1100 + n, 1200 + n])
        assert is_checked(checks, call) == (not n)
        return [(symbol, given) for symbol, _, given, _ in driver.launched]

    symbols(0)
    (_, (_, copied)), *_ = symbols(2)
    driver.capturing = True
    (name, written), *_ = symbols(2)
    driver.capturing = False
    assert name == "tablewriter" and copied in written
    assert symbols(3)[0][0] == "copy"


def test_calls_that_grow_are_bounded_in_number_and_go_on_growing(driver, checks, monkeypatch):
    monkeypatch.setattr(repeated, "MOST", 16)
    K, V, q = cache(200), cache(200), cache(1, heads=8)
    hw4cli.attention(q, K[:, :, :1], V[:, :, :1])
    for rows in range(2, 200):
        assert not is_checked(checks, lambda: hw4cli.attention(q, K[:, :, :rows], V[:, :, :rows]))  # noqa: B023
        assert len(repeated.FORWARD) <= 16


def test_calls_that_grow_in_turn_with_new_ones_leave_no_table_without_bound(driver, monkeypatch):
    monkeypatch.setattr(repeated, "MOST", 16)
    K, V, q, calls = cache(60), cache(60), cache(1, heads=8), repeated.FORWARD
    for n in range(1, 60):
        for rows in (1, n, 60 - n):
            hw4cli.attention(q, K[:, :, :rows], V[:, :, :rows], scale=float(n))
        assert max(len(calls), len(calls._growing), len(calls._recent)) <= 16


def test_strides_of_cupys_arrays_are_counted_in_elements():
    """As torch's are; of a step of decoding these are all that is looked at."""
    x = np.zeros((2, 3, 50, 64), np.float16)
    for view in (x, x[:, :, :7], x.transpose(0, 2, 1, 3)):
        assert repeated.CuPy.strides(None, view) == Tensor(view).stride()


# ---- Scores


def one(shape, dtype="float32"):
    return faketorch.empty(shape, dtype, None)


SHAPE, BATCHES = (2, 4, 64, 64), (2, 1, 1, 64)
# Arguments that are made anew for each call, and how many arrays a kernel reads.
SCORES = {
    "softcap": (lambda dtype: {"softcap": 20.0}, 0),
    "slopes": (lambda dtype: {"alibi_slopes": one((4,))}, 1),
    "slopes of batches": (lambda dtype: {"alibi_slopes": one((2, 4))}, 1),
    "a boolean mask": (lambda dtype: {"attn_mask": one(BATCHES, "bool")}, 1),
    "an added mask": (lambda dtype: {"attn_mask": one((2, 4, 64, 64), dtype)}, 1),
    "a float32 mask": (lambda dtype: {"attn_mask": one((64, 64))}, 1),
    "expressions": (
        lambda dtype: {
            "score": "s - w[h] * i",
            "keep": "doc[i] == doc[j]",
            "arrays": {"w": one((4,)), "doc": one((64,), "int32")},
        },
        2,
    ),
    "all of them": (
        lambda dtype: {
            "softcap": 5.0,
            "alibi_slopes": one((4,)),
            "attn_mask": one(BATCHES),
            "keep": "i > j",
            "causal": True,
        },
        2,
    ),
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_changed_scores_are_not_checked_again_and_their_arrays_are_read_where_they_lie(driver, checks, name, dtype):
    make, count = SCORES[name]
    for again in (False, True, True):
        (q, k, v), options = tensors(SHAPE, dtype), make(np.dtype(dtype).name)
        assert is_checked(checks, lambda: hw4cli.attention(q, k, v, **options)) != again  # noqa: B023
        given = [x for value in options.values() for x in (value.values() if isinstance(value, dict) else [value])]
        arrays = [x for x in given if isinstance(x, Tensor)]
        assert len(arrays) == count
        for x in (q, k, v, *arrays):
            assert x.data_ptr().to_bytes(8, "little") in driver.launched[-1][2]
    assert len(repeated.FORWARD) == 1


@pytest.mark.parametrize("name", SCORES)
def test_gradients_of_changed_scores_are_not_checked_again(driver, checks, name):
    make, _ = SCORES[name]
    for again in (False, True, True):
        (do, q, k, v, o), (lse,), options = tensors(SHAPE, count=5), tensors(SHAPE[:3], np.float32, 1), make("float16")
        call = lambda: hw4cli.attention_backward(do, q, k, v, o, lse, **options)  # noqa: B023, E731
        assert is_checked(checks, call) != again
        for x in (do, q, k, v, o, lse, *(x for x in options.values() if isinstance(x, Tensor))):
            assert x.data_ptr().to_bytes(8, "little") in driver.launched[-1][2]
    assert len(repeated.BACKWARD) == 1


@pytest.mark.parametrize("shape", [(2, 4, 64, 64), (64, 64), (2, 1, 1, 64)], ids=str)
def test_a_masks_gradient_is_that_of_scores_which_a_repeated_call_has_written(driver, checks, monkeypatch, shape):
    """The launches get zeros of all scores; they are added up where the mask was broadcast."""
    monkeypatch.setattr(backward, "of_mask", lambda scores, mask: (scores, mask))
    asked = []
    monkeypatch.setattr(backward, "summed", lambda *given: asked.append(given))
    monkeypatch.setattr(backward._MaskGradient, "add", lambda *_: None)
    monkeypatch.setattr(backward._MaskGradient, "found", None)
    for again in (False, True, True):
        (do, q, k, v, o), (lse,) = tensors(SHAPE, count=5), tensors(SHAPE[:3], np.float32, 1)
        mask, found = one(shape), []
        arrays, more = (do, q, k, v, o, lse), {"attn_mask": mask, "mask_gradient": True}
        call = partial(
            lambda found, *x, **more: found.extend(hw4cli.attention_backward(*x, **more)), found, *arrays, **more
        )
        assert is_checked(checks, call) != again
        *made, dmask = found
        words = np.frombuffer(driver.launched[-1][2], "<u8")
        assert {x.data_ptr() for x in (do, q, k, v, o, lse, mask, *made)} <= {*words.tolist()}
        if again:
            scores, of = dmask
            assert of is mask and scores.shape == SHAPE and not scores.array.any() and scores.data_ptr() in words
            assert scores.dtype.name == "float32"
    assert len(repeated.BACKWARD) == 1


@pytest.mark.parametrize(
    ("shape", "lengths", "count", "repeats"),
    [
        ((2, 4, 64, 64), [64, 30], 1, True),
        ((1, 1, 64), [40, 30], 1, False),  # keys from 40 on are a part of the mask alone
        ((1, 1, 1, 1), [40, 30], 1, True),
        ((64, 64), [64, 30], 2, False),
    ],
    ids=str,
)
def test_a_masks_gradient_of_several_lengths_is_one_set_of_launches_where_its_scores_have_room(
    driver, checks, monkeypatch, shape, lengths, count, repeats
):
    rows = max(lengths)
    monkeypatch.setattr(backward, "SCORES_BYTES", 4 * 4 * rows * rows * (2 if count == 1 else 1))
    (do, q, k, v, o), (lse,), mask = tensors(SHAPE, count=5), tensors(SHAPE[:3], np.float32, 1), one(shape)
    asked = {"attn_mask": mask, "lengths": lengths, "q_lengths": lengths, "mask_gradient": True}
    for again in (False, repeats):
        driver.launched.clear()
        made = []
        call = partial(lambda found: found.extend(hw4cli.attention_backward(do, q, k, v, o, lse, **asked)), made)
        assert is_checked(checks, call) != again
        symbols = [symbol for symbol, *_ in driver.launched if symbol not in ("copy", "memset")]  # of tables, of zeros
        assert len(symbols) == 3 * count
        assert made[3].shape == shape and not made[3].array.any() and not made[0].array[1, :, lengths[1] :].any()


def test_another_expression_mask_or_number_is_another_kind(driver, checks):
    q, k, v = tensors(SHAPE)
    turned = one((2, 1, 64, 64)).permute(0, 1, 3, 2)
    each = (
        {"softcap": 20.0},
        {"softcap": 21.0},
        {"score": "s * 2"},
        {"score": "s * 3"},
        {"keep": "i > j"},
        {"keep": "i > j", "softcap": 20.0},
        {"attn_mask": one((2, 1, 64, 64))},
        {"attn_mask": turned},
        {"attn_mask": one((2, 1, 64, 64), "bool")},
        {"attn_mask": one((1, 4, 64, 64))},
        {"score": "s + w[j]", "arrays": {"w": one((64,))}},
        {"score": "s + u[j]", "arrays": {"u": one((64,))}},
        {"alibi_slopes": one((4,))},
        {"lengths": [64, 3], "softcap": 20.0},
        {"lengths": [64, 4], "softcap": 20.0},
    )
    for again in (False, True):
        for options in each:
            assert is_checked(checks, lambda: hw4cli.attention(q, k, v, **options)) != again, options  # noqa: B023


def test_a_mask_that_begins_between_two_chunks_is_looked_at_again(driver, checks):
    """Its kernel is another, that reads one element at a time."""
    q, k, v = tensors(SHAPE)
    memory = one((64 * 64 + 2,)).array
    aligned, shifted = Tensor(memory[:-2].reshape(64, 64)), Tensor(memory[2:].reshape(64, 64))
    for mask, checked in ((aligned, True), (aligned, False), (shifted, True), (shifted, False), (aligned, False)):
        assert is_checked(checks, lambda: hw4cli.attention(q, k, v, attn_mask=mask)) == checked  # noqa: B023
        assert mask.data_ptr().to_bytes(8, "little") in driver.launched[-1][2]


def test_a_mask_of_another_type_is_read_anew_each_time(driver, checks):
    """A copy of it in float32, of what it holds at that moment."""
    q, k, v = tensors(SHAPE)
    mask = one((2, 1, 64, 64), "float64")
    for value in (1.0, 2.0, 3.0):
        mask.array[...] = value
        hw4cli.attention(q, k, v, attn_mask=mask)
        at = np.frombuffer(driver.launched[-1][2], "<u8")
        assert mask.data_ptr() not in at


def test_scores_that_may_change_are_never_remembered(driver, checks):
    q, k, v = tensors(SHAPE)
    for options in ({"softcap": Changing(5.0)}, {"score": "s + w[j]", "arrays": Named(w=one((64,)))}):
        for _ in range(2):
            assert is_checked(checks, lambda: hw4cli.attention(q, k, v, **options))  # noqa: B023
    assert not len(repeated.FORWARD)


@pytest.mark.parametrize("d", [33, 61])
def test_arrays_that_are_copied_first_are_checked_each_time(driver, checks, monkeypatch, d):
    monkeypatch.setattr(Gpu, "copy", lambda *_: None, raising=False)
    x = tensors((1, 2, 64, d))
    for _ in range(2):
        assert is_checked(checks, lambda: hw4cli.attention(*x))


def test_while_torch_is_watched_calls_are_checked_and_none_is_remembered(driver, checks, monkeypatch):
    monkeypatch.setattr(faketorch.TensorGuards, "check", lambda *_: False)  # torch's know of modes
    for watched in (1, 0, 1):
        monkeypatch.setattr(faketorch.torch, "watched", watched)
        assert is_checked(checks, lambda: hw4cli.attention(*tensors()))
    assert len(repeated.FORWARD) == 1


@pytest.mark.parametrize("guards", [True, False])
def test_any_number_of_shapes_in_turn_are_found_again(driver, checks, monkeypatch, guards):
    if not guards:  # another torch, without
        monkeypatch.setattr(faketorch.own._dynamo.guards, "TensorGuards", None)
        monkeypatch.delattr(faketorch.own._dynamo.guards, "TensorGuards")
    shapes = [(1, 2, 16 * n, 64 if n % 2 else 32) for n in range(1, 25)]
    for again in (False, True, True):
        assert [is_checked(checks, lambda s=s: hw4cli.attention(*tensors(s))) for s in shapes] == 24 * [not again]


def test_a_tensor_that_is_given_twice_takes_no_guards_place(driver, checks):
    """torch's guards take no tensor twice: such calls are found by their key."""
    hw4cli.attention(*tensors())
    (x,) = tensors((1, 2, 64, 64), count=1)
    assert is_checked(checks, lambda: hw4cli.attention(x, x, x))
    for _ in range(100):
        assert not is_checked(checks, lambda: hw4cli.attention(x, x, x))
    assert [len(found) for found in repeated.FORWARD._recent.values()] == [1]


def test_the_tables_are_bounded(driver, monkeypatch):
    monkeypatch.setattr(repeated, "MOST", 16)
    for n in range(1, 60):
        hw4cli.attention(*tensors((1, 1, n, 64)))
    assert len(repeated.FORWARD) <= 16
    assert all(len(found) <= repeated.RECENT for found in repeated.FORWARD._recent.values())


def test_after_a_launch_that_failed_all_is_checked_and_compiled_anew(driver, checks, monkeypatch):
    """A GPU that was reset has lost the code of all kernels, too."""
    q, k, v = tensors()
    for _ in range(2):
        hw4cli.attention(q, k, v)
    driver.refusals = [400]
    with pytest.raises(MachineError, match="refuses to launch half_split"):
        hw4cli.attention(q, k, v)
    assert not len(repeated.FORWARD)
    assert is_checked(checks, lambda: hw4cli.attention(q, k, v))
    assert not is_checked(checks, lambda: hw4cli.attention(q, k, v))


def test_cupy_that_is_there_is_taken_without_a_look_at_files(monkeypatch):
    cupy = SimpleNamespace()
    monkeypatch.setattr(device, "_cupy", None)
    monkeypatch.setattr(device, "load", lambda: sys.modules.setdefault("cupy", cupy))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert device.import_cupy() is cupy
    monkeypatch.setattr(device, "kernel_cache", lambda: pytest.fail("looked at the cache's folder"))
    assert device.import_cupy() is cupy
