"""GPUs that CUDA 13 no longer knows, the GTX 1080 (6.1) and the V100 (7.0): what NVRTC 12 makes of the kernels."""

import re

import pytest

from hw4cli.compute.launch import ABSMAX_CHUNK
from hw4cli.compute.plan import DEVICES, DeviceProperties
from hw4cli.compute.variants import VARIANTS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.problem.shape import Shape
from hw4cli.resources import kernel_source

LIBRARY = find(12000, 61)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs NVRTC 12 (pip install 'hw4cli[dev]')")

GPUS = {"6.1": DEVICES[61], "7.0": DeviceProperties(70, 80, 96 << 10, 96 << 10)}
FLOAT32 = [name for name, variant in VARIANTS.items() if variant.least_cc < 75]
# Every width that flash's rows are padded to, with padding and without.
HEAD_SIZES = (4, 32, 36, 64, 68, 100, 128)
FIGURES = re.compile(
    r"Function properties for (\w+)\n[^\n]* (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


def compiled(name, cc, macros):
    """Of each kernel in a file: registers, and bytes spilled."""
    options = ("-std=c++17", "-ftz=true", "--ptxas-options=-v", *macros)
    code, log = Compiler(LIBRARY, 12000, cc).build(kernel_source(name), f"{name}.cu", options, cc)
    assert code[:4] == b"\x7fELF"
    return {symbol: (int(used), int(out) + int(back)) for symbol, out, back, used in FIGURES.findall(log)}


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("name", FLOAT32)
def test_a_kernel_compiles_without_spills_and_its_blocks_fit(name, gpu):
    props = GPUS[gpu]
    for d in HEAD_SIZES:
        plan = VARIANTS[name].plan(Shape(1, 32768, d), props)
        assert max(launch.shared for launch in plan.launches) <= props.shared_limit
        kernels = compiled(name, props.cc, plan.options)
        for launch in plan.launches:
            registers, spilled = kernels[launch.symbol]
            assert spilled == 0, f"{launch.symbol} spills {spilled} bytes at d={d}"
            assert registers * launch.block <= 65536


@pytest.mark.parametrize("gpu", GPUS)
def test_the_range_check_compiles_without_spills(gpu):
    assert compiled("absmax", GPUS[gpu].cc, [f"-DABSMAX_CHUNK={ABSMAX_CHUNK}"])["absmax"][1] == 0


def test_a_gtx_1080_needs_no_more_shared_memory_than_any_block_may_have():
    assert DEVICES[61].shared_limit == 48 << 10
    shapes = [Shape(B, N, d) for B, N in ((1, 1), (3, 129), (2, 32768)) for d in range(4, 129, 4)]
    for name in FLOAT32:
        plans = [VARIANTS[name].plan(shape, DEVICES[61]) for shape in shapes]
        assert max(launch.shared for plan in plans for launch in plan.launches) <= 48 << 10
