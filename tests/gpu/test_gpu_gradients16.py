"""Gradients of 16-bit numbers by warpgroups, in two passes and in one, against float64: the same bits each time."""

import pytest
from test_gpu_gradients import ALLOWED, definition, operands

from hw4cli import attention, attention_backward
from hw4cli.plans import backwardmma as mma
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans import gradients as choice
from hw4cli.plans.gradients import ATOMIC, ONCE
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload

CANCELLED = 1e-5  # for elements around 1
KERNELS = [ONCE.name, hopper.NAME]
WORKLOADS = [  # of few types and widths, each of which is compiled
    Workload(FLOAT16, 1, 4, 4, 1024, 1024, 64),
    Workload(FLOAT16, 3, 2, 2, 130, 1, 64),
    Workload(BFLOAT16, 1, 4, 4, 1024, 1024, 64, True),
    Workload(BFLOAT16, 2, 4, 2, 1000, 1333, 64, True, 333),
    Workload(BFLOAT16, 1, 1, 1, 4096, 8192, 64, True, 4096),
    Workload(BFLOAT16, 1, 4, 4, 1024, 1024, 128),
    Workload(BFLOAT16, 1, 2, 1, 1, 3000, 128),
    Workload(FLOAT16, 1, 4, 4, 1024, 1024, 128, True),
    Workload(FLOAT16, 2, 8, 2, 1333, 1000, 128, True, -333),
    Workload(FLOAT16, 1, 6, 2, 777, 500, 40, True, 0),
    Workload(BFLOAT16, 1, 3, 3, 500, 777, 104),
    Workload(FLOAT16, 1, 2, 2, 1, 5000, 80),
    Workload(BFLOAT16, 3, 4, 1, 129, 4097, 96, True, 3968),
]


@pytest.fixture(scope="module")
def torch(gpu):
    if not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    return pytest.importorskip("torch")


def exact(torch, work, do, q, k, v):
    """dQ, dK and dV by the formulas, in float64, on the GPU."""
    group = work.heads // work.kv_heads
    do, q, k, v = do.double(), q.double(), *(x.double().repeat_interleave(group, dim=1) for x in (k, v))
    s = q @ k.transpose(2, 3) * work.scale
    if work.causal:
        s = s.masked_fill(~torch.ones(work.Nq, work.Nk, dtype=torch.bool, device="cuda").tril(work.offset), -torch.inf)
    p = torch.nan_to_num(s.softmax(3))
    dp = do @ v.transpose(2, 3)
    ds = p * (dp - (p * dp).sum(3, keepdim=True)) * work.scale
    shared = [x.unflatten(1, (work.kv_heads, group)).sum(2) for x in (ds.transpose(2, 3) @ q, p.transpose(2, 3) @ do)]
    return ds @ k, *shared


def prepared(torch, work, factor=1.0):
    do, q, k, v = operands(torch, work, factor)
    o, lse = (x.to(y) for x, y in zip(definition(torch, q, k, v, work), (q.dtype, torch.float32), strict=True))
    return do, q, k, v, o, lse


def aligned(work):
    return "bottom-right" if work.offset == work.Nk - work.Nq else "top-left"


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("work", WORKLOADS, ids=str)
def test_gradients_by_warpgroups_are_right_and_have_the_same_bits_again(torch, work, kernel):
    arrays = prepared(torch, work)
    how = {"causal": work.causal, "align": aligned(work), "kernel": kernel}
    got, again = attention_backward(*arrays, **how), attention_backward(*arrays, **how)
    for one, other, right in zip(got, again, exact(torch, work, *arrays[:4]), strict=True):
        assert torch.equal(one, other)
        # Where one key has the whole weight, dS is 0: the difference of two sums, of which fp32's rounding remains.
        assert (one.double() - right).abs().max() <= ALLOWED[work.dtype] * float(right.abs().max()) + CANCELLED


@pytest.mark.parametrize(
    "work",
    [
        Workload(BFLOAT16, 2, 16, 1, 1024, 1024, 64, True),  # one head of K and V
        Workload(BFLOAT16, 1, 8, 2, 1000, 700, 128, True, -300),
        Workload(FLOAT16, 1, 2, 2, 4096, 77, 64),  # few keys
        Workload(BFLOAT16, 1, 2, 2, 100, 8192, 128),  # few rows
    ],
    ids=str,
)
def test_parts_and_chains_of_few_tasks_are_right_and_have_the_same_bits_in_a_hundred_runs(torch, gpu, work):
    assert choice.plan(work, gpu.props).cut[1:4] != (1, 1, 1)
    arrays = prepared(torch, work)
    first, *others = (attention_backward(*arrays, causal=work.causal) for _ in range(100))
    assert all(torch.equal(one, other) for run in others for one, other in zip(first, run, strict=True))
    for one, right in zip(first, exact(torch, work, *arrays[:4]), strict=True):
        assert (one.double() - right).abs().max() <= ALLOWED[work.dtype] * float(right.abs().max()) + CANCELLED


@pytest.mark.parametrize("kernel", [*KERNELS, ATOMIC.name])
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_keys_that_are_not_there_weigh_nothing_however_small_the_scores(torch, dtype, kernel):
    """A tile's missing keys have scores of 0: beside ones of -500 their weights are infinite."""
    work = Workload(dtype, 1, 2, 2, 300, 200, 64)
    do, q, k, v = operands(torch, work)
    q, k = 0.3 * q + 8, 0.3 * k - 8
    o, lse = (x.to(y) for x, y in zip(definition(torch, q, k, v, work), (q.dtype, torch.float32), strict=True))
    for one in attention_backward(do, q, k, v, o, lse, kernel=kernel):
        assert one.isfinite().all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_hundred_runs_give_the_same_bits_even_beside_other_work(torch, kernel):
    """Blocks that wait for others do so whatever else runs: another stream has the same kernel."""
    arrays = prepared(torch, Workload(FLOAT16, 2, 16, 16, 2048, 2048, 128, True))
    first = attention_backward(*arrays, causal=True, kernel=kernel)
    torch.cuda.synchronize()
    side, beside = torch.cuda.Stream(), []
    for _ in range(100):
        with torch.cuda.stream(side):
            beside.append(attention_backward(*arrays, causal=True, kernel=kernel))
        again = attention_backward(*arrays, causal=True, kernel=kernel)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    torch.cuda.synchronize()
    assert all(torch.equal(one, other) for found in beside for one, other in zip(first, found, strict=True))


@pytest.mark.parametrize("kernel", [*KERNELS, mma.NAME])
def test_another_gpu_of_the_kind_gives_the_same_bits(torch, kernel):
    if torch.cuda.device_count() < 2:
        pytest.skip("this takes two GPUs")
    arrays = prepared(torch, Workload(BFLOAT16, 2, 8, 4, 2048, 2048, 64, True))
    here = attention_backward(*arrays, causal=True, kernel=kernel)
    there = attention_backward(*(x.to("cuda:1") for x in arrays), causal=True, kernel=kernel)
    for one, other in zip(here, there, strict=True):
        assert other.device.index == 1 and torch.equal(one, other.to("cuda:0"))


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_lie_apart_and_large_scores_are_right(torch, kernel):
    work = Workload(BFLOAT16, 2, 3, 3, 300, 300, 64, True)
    arrays = prepared(torch, work, factor=4.0)
    apart = [torch.stack([x, x], dim=2)[:, :, 0] if x.ndim == 4 else x for x in arrays]  # every head twice
    expected = attention_backward(*arrays, causal=True, kernel=kernel)
    got = attention_backward(*apart, causal=True, kernel=kernel)
    for one, other, right in zip(got, expected, exact(torch, work, *arrays[:4]), strict=True):
        assert torch.equal(one, other)
        assert (one.double() - right).abs().max() <= 2 * ALLOWED[BFLOAT16] * right.abs().max()


@pytest.mark.parametrize("work", WORKLOADS[::3], ids=str)
def test_additions_as_they_come_are_as_exact(torch, work):
    arrays = prepared(torch, work)
    got = attention_backward(*arrays, causal=work.causal, align=aligned(work), kernel=ATOMIC.name)
    for one, right in zip(got, exact(torch, work, *arrays[:4]), strict=True):
        assert (one.double() - right).abs().max() <= ALLOWED[work.dtype] * max(float(right.abs().max()), 1e-3)


def test_additions_as_they_come_give_dq_other_bits_and_additions_in_order_do_not(torch):
    """The counter-example: what each of 64 tiles of keys adds to a number of dQ is added by whoever comes first."""
    q, k, v, do = torch.randn(4, 1, 16, 8192, 64, device="cuda", dtype=torch.bfloat16)
    o, lse = attention(q, k, v, causal=True, return_lse=True)
    found = {
        kernel: [attention_backward(do, q, k, v, o, lse, causal=True, kernel=kernel) for _ in range(20)]
        for kernel in (ATOMIC.name, ONCE.name)
    }
    differ = {
        kernel: [sum(not torch.equal(runs[0][i], run[i]) for run in runs) for i in range(3)]
        for kernel, runs in found.items()
    }
    assert differ[ONCE.name] == [0, 0, 0]
    assert differ[ATOMIC.name][0] > 0 and differ[ATOMIC.name][1:] == [0, 0]
    largest = found[ONCE.name][0][0].abs().max()
    assert (found[ATOMIC.name][0][0] - found[ONCE.name][0][0]).abs().max() <= ALLOWED[BFLOAT16] * largest


def fastest(torch, work, kernel):
    """Milliseconds, the least of eight runs, each behind another one: while that runs, the host makes the launches."""
    do, q, k, v = operands(torch, work)
    o, lse = attention(q, k, v, causal=work.causal, return_lse=True)
    times = []

    def run():
        attention_backward(do, q, k, v, o, lse, causal=work.causal, kernel=kernel)

    for _ in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        run(), begin.record(), run(), end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)


@pytest.mark.alone
def test_one_head_of_keys_takes_less_than_half_the_time_in_parts(torch):
    work = Workload(BFLOAT16, 4, 32, 1, 2048, 2048, 64, True)
    assert fastest(torch, work, ONCE.name) < 0.5 * fastest(torch, work, hopper.NAME)


@pytest.mark.alone
@pytest.mark.parametrize(
    "work",
    [
        Workload(BFLOAT16, 1, 32, 8, 8192, 8192, 64, True),
        Workload(BFLOAT16, 2, 32, 8, 4096, 4096, 128, True),
        Workload(BFLOAT16, 1, 32, 8, 4096, 4096, 128),
    ],
    ids=str,
)
def test_the_kernel_chosen_for_shared_heads_takes_less_time_than_the_other_that_repeats(torch, gpu, work):
    took = {kernel: fastest(torch, work, kernel) for kernel in KERNELS}
    assert took[choice.fastest(work, gpu.props)] <= 1.02 * min(took.values()), took
