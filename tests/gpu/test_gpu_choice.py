"""`hw4` choosing its kernel on a GPU: the fast one where its bound holds, a more exact one where not, always right."""

import re

import numpy as np
import pytest
from emulation import adversaries, largest_numbers, one_and_many
from gpuexact import exact_attention
from helpers import fails, random_block, read_output, write_case

from hw4cli.plans.bounds import SAFE, bound, uniform
from hw4cli.plans.dispatch import AUTO, candidates
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.workload import Shape

pytestmark = pytest.mark.usefixtures("gpu")
TENSOR = [name for name in ("split", "exact") if name in VARIANTS]


@pytest.fixture
def run(hw4, prepared, tmp_path):
    """The answer for a block, and what was said on stderr (with --timing: the last line names the kernels)."""

    def run(block, *options):
        shape = Shape(len(block), *block.shape[2:])
        prepared(shape)
        result = hw4("--device", "cuda", *options, write_case(tmp_path / "in", block), tmp_path / "out")
        assert result.returncode == 0, result.stderr
        return read_output(tmp_path / "out", shape), result.stderr

    return run


def largest(*parts):
    return magnitudes_of(np.stack(parts)[None])


def test_auto_takes_the_preferred_kernel_for_the_assignments_range_and_tells_why(gpu, run):
    for d in (32, 64):
        block = random_block(20, 512, d)
        kernels, why = candidates(AUTO, gpu.props, gpu.name, d, 512)
        got, said = run(block, "--timing")
        assert np.abs(got - exact_attention(block)).max() <= SAFE
        expected = next(name for name in kernels if bound(name, uniform(d), d, 512, gpu.props) <= SAFE)
        last = said.splitlines()[-1]
        assert last.startswith(f"kernel: 20 batches by {expected}, error at most ")
        assert last.endswith(f"allowed 0.004; preferred {kernels[0]}: {why}")
        assert not re.search("^hw4: ", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("reach", "tolerance"),
    [
        ((3, 3, 6), SAFE),  # V beyond split's bound
        ((12, 12, 3), SAFE),  # scores in the hundreds
        ((60, 60, 3), SAFE),  # scores in the thousands
        ((1e4, 1e4, 3), SAFE),
        ((1e4, 1e4, 1e4), 1e4 * 2e-7),
        ((1e-3, 7e4, 1), SAFE),  # beyond fp16
        ((1e-4, 1e-6, 1e-8), 1e-13),  # fp16's subnormal numbers
    ],
)
@pytest.mark.parametrize("kernel", [AUTO, *TENSOR, "flash"])
def test_ranges_that_a_kernel_cannot_be_trusted_with_are_right_through_another(run, kernel, reach, tolerance):
    block = random_block(3, 300, 64) / 3 * np.array(reach, np.float32)[None, :, None, None]
    got, _ = run(block, "--kernel", kernel)
    assert np.abs(got - exact_attention(block)).max() <= tolerance


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_what_is_no_number_is_refused_and_placed(hw4, tmp_path, bad, part):
    block = random_block(5, 130, 64)
    block[4, part, 129, 63] = bad
    (tmp_path / "out").write_bytes(b"old")
    result = hw4("--device", "cuda", write_case(tmp_path / "in", block), tmp_path / "out")
    fails(result, 2, f"holds {np.float32(bad)} in {'QKV'[part]} of batch 4, row 129, column 63")
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.mark.parametrize("allowed", [1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("shape", [(20, 128, 32), (4, 2048, 64), (2, 1000, 128)])
def test_a_smaller_error_is_kept(run, shape, allowed):
    block = random_block(*shape)
    got, said = run(block, "--max-error", allowed, "--timing")
    assert np.abs(got - exact_attention(block)).max() <= allowed
    assert "by split" not in said
    assert ("by float64" in said) == (allowed == 1e-6)


def test_an_error_that_no_kernel_keeps_is_refused(hw4, tmp_path):
    source = write_case(tmp_path / "in", random_block(2, 128, 32))
    result = hw4("--device", "cuda", "--max-error", "1e-9", source, tmp_path / "out")
    fails(result, 2, "--max-error 1e-09 is less than any kernel can keep", "float64")
    assert not (tmp_path / "out").exists()


def test_one_batch_out_of_range_changes_its_own_group_and_no_other_byte(run):
    block = random_block(300, 512, 64)  # groups of 85 batches
    plain, _ = run(block)
    block[100, :2] *= 30
    mixed, said = run(block)
    assert said.startswith("hw4: 85 batches had values too large for ")
    assert len(said.splitlines()) == 1
    others = [*range(85), *range(170, 300)]
    assert np.array_equal(plain[others], mixed[others])
    assert np.abs(mixed[85:170] - exact_attention(block[85:170])).max() <= 1e-5


def test_the_same_file_gives_the_same_bytes_whatever_its_groups_need(run):
    block = random_block(850, 512, 64)  # ten groups
    for group, factor in enumerate((1, 2.7, 2.7, 2.7, 1, 40, 1, 1, 2.7, 1)):
        block[85 * group, :2] *= factor
    first, _ = run(block)
    for _ in range(4):
        assert np.array_equal(first, run(block)[0])
    assert np.abs(first - exact_attention(block)).max() <= SAFE


@pytest.mark.parametrize("kernel", TENSOR)
@pytest.mark.parametrize(
    "shape", [(1, 1, 4), (3, 129, 20), (2, 5000, 36), (700, 16, 64), (1, 4097, 128), (30, 128, 64)]
)
def test_a_kernel_that_finds_the_range_finds_what_the_range_check_finds(gpu, kernel, shape):
    block = random_block(*shape)
    plan = gpu.plan(kernel, Shape(*shape))
    outputs = gpu.empty(shape)

    def found():
        inputs = gpu.upload(block)
        return gpu.absmax_of(plan, gpu.compute(plan, inputs, outputs), inputs).get().view(np.float32).tolist()

    block[-1, 0, -1, -1], block[0, 1, 0, 0], block[-1, 2, 0, -1] = -7, 8, -9.5
    assert found() == found() == largest_numbers(block)
    block[-1, 2, -1, 0], block[0, 1, -1, -1] = np.inf, -np.nan
    q, _, k, _, v = found()
    assert q == 7
    assert np.isnan(k)
    assert v == np.inf


@pytest.mark.parametrize("kernel", [*TENSOR, "flash"])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_no_adversary_gets_past_the_bound(gpu, kernel, d):
    for name, q, k, v in adversaries(512, d):
        rows = np.resize(q, k.shape)
        block = np.stack([rows, k, v])[None]
        limit = bound(kernel, largest(*block[0]), d, 512, gpu.props)
        assert np.abs(gpu.attention(block, kernel) - exact_attention(block)).max() <= limit, name


@pytest.mark.parametrize("kernel", [*TENSOR, "flash"])
@pytest.mark.parametrize("log2", [-24, -25])
def test_thousands_of_tiny_weights_stay_within_the_bound(gpu, kernel, log2):
    _, k, v = one_and_many(np.random.default_rng(0), 32768, 32, log2)
    block = np.stack([np.full_like(k, 3), k, v])[None]
    limit = bound(kernel, (3, 3, 3), 32, 32768, gpu.props)
    assert np.abs(gpu.attention(block, kernel) - exact_attention(block)).max() <= limit


ONE_MMA = r"""
// D = A B + 1 for one 16x8x16 product: all of A is a; of B, columns 0 and 8 of the inner dimension hold `first`, the
// others `others`. All arguments are pairs of fp16. The least bit of D's 24 is 2^-23.
extern "C" __global__ void one_mma(float* d, unsigned a, unsigned first, unsigned others) {
    const unsigned b = threadIdx.x % 4 == 0 ? first : others;
    float x = 1, y = 1, z = 1, w = 1;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, "
                 "{%0, %1, %2, %3};" : "+f"(x), "+f"(y), "+f"(z), "+f"(w) : "r"(a), "r"(b));
    d[threadIdx.x] = x;
}
"""


def pair(low, high):
    return np.array([low, high], np.float16).view(np.uint32)[0]


ONE_WGMMA = r"""
// The same by a warp group: 64x8x16. Each row of B's 8x8 matrices is the same, so it does not matter where which lies.
extern "C" __global__ void one_wgmma(float* d, unsigned a, unsigned first, unsigned others) {
    __shared__ __align__(128) unsigned b[128];
    b[threadIdx.x] = threadIdx.x % 4 == 0 ? first : others;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned long long address = __cvta_generic_to_shared(b);
    const unsigned long long matrix = (address & 0x3ffff) >> 4 | 128ull >> 4 << 16 | 256ull >> 4 << 32;
    float x = 1, y = 1, z = 1, w = 1;
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.fence.sync.aligned; "
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %4, %4, %4}, %5, p, 1, "
                 "1, 0; "
                 "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;}"
                 : "+f"(x), "+f"(y), "+f"(z), "+f"(w) : "r"(a), "l"(matrix) : "memory");
    d[threadIdx.x] = x;
}
"""


@pytest.mark.parametrize("source", [ONE_MMA, ONE_WGMMA], ids=["mma.sync", "wgmma"])
def test_tensor_cores_keep_the_bits_that_the_proof_counts_on(gpu, source):
    import cupy

    if gpu.props.cc < 80:
        pytest.skip("needs mma.sync of 16x8x16: compute capability 8.0")
    by_group = source is ONE_WGMMA
    if by_group and not gpu.props.warpgroups:
        pytest.skip("this GPU has no warp groups")
    options = ("-std=c++17", "-arch=sm_90a") if by_group else ("-std=c++17",)
    kernel = cupy.RawModule(code=source, options=options).get_function("one_wgmma" if by_group else "one_mma")
    threads = 128 if by_group else 32
    result = gpu.empty((threads,))

    def one_plus(a, first, others):
        kernel((1,), (threads,), (result, pair(a, a), first, others))
        return set(((result.get() - 1) * 2**23).tolist())

    modern = gpu.props.cc in (90, 100)
    extra = 2 if modern else 1
    # 16 products beside a 1, each of the last bit that is kept: none is lost.
    least = pair(2.0**-12, 2.0**-12) if extra == 1 else pair(2.0**-13, 2.0**-13)
    assert one_plus(2.0**-12, least, least) == {16 * 2.0**-extra}
    # Two products of 1.5 units in the last place, 8 columns apart: 3 in one block of 16, 1 + 1 in two blocks of 8.
    found = one_plus(2.0**-12, pair(1.5 * 2.0**-11, 0), pair(0, 0))
    assert found == ({3.0} if modern else found & {2.0, 3.0})
