"""The kernels compiled by HIP's compiler for AMD's GPUs, without one: what their code objects say of themselves."""

import re
import subprocess

import pytest
from needs import skip_without
from slow import quick_of_each, slow, slow_of_each

from hw4cli.device.compilerlog import first_error
from hw4cli.device.hip.codeobject import kernels_of
from hw4cli.device.hip.hiprtc import OPTIONS, HipCompiler
from hw4cli.device.kernelcheck import check, compiler_for
from hw4cli.errors import CompileError, MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import AMD_DEVICES, HIP_VOTES
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)

try:
    COMPILERS = {gfx: compiler_for(props) for gfx, props in AMD_DEVICES.items()}
except MachineError as reason:
    COMPILERS = {}
    pytestmark = pytest.mark.skip(reason=f"needs hiprtc: {reason}")
LOCAL = {"halfwarp_local"}  # in which arrays are to lie in memory
FLOAT32 = [
    name for name, variant in VARIANTS.items() if not variant.least_cc
]  # no instructions of NVIDIA's tensor cores


@slow_of_each(19)
@pytest.mark.parametrize("gfx", COMPILERS)
@pytest.mark.parametrize(("name", "d"), [*((name, 64) for name in FLOAT32), ("flash", 36)])
def test_a_kernel_compiles_for_amds_gpus_without_spills_and_its_blocks_fit(name, d, gfx):
    props = AMD_DEVICES[gfx]
    rows = list(check(VARIANTS[name], props, Shape(1, 32768, d), COMPILERS[gfx]))
    assert len(rows) == len(VARIANTS[name].plan(Shape(1, 32768, d), props).launches)
    for row in rows:
        assert row.problem is None
        assert row.registers > 0
        assert row.blocks >= 1
        in_memory = row.spilled_bytes > 0  # of a lane
        assert in_memory == (name in LOCAL), f"{row.symbol} keeps {row.spilled_bytes} bytes of a lane in memory"


@slow
def test_a_block_leaves_shared_memory_for_the_vote_of_hips_own():
    """__syncthreads_or takes some: flash's tiles of 64 KB would fit without it, and no block could start."""
    props, shape = AMD_DEVICES["gfx90a"], Shape(1, 32768, 64)
    plan = VARIANTS["flash"].plan(shape, props)
    code = COMPILERS["gfx90a"].compile(kernel_source("flash", hip=True), "flash.hip", (*OPTIONS, *plan.options))
    used = kernels_of(code)["flash"]
    assert used.shared == HIP_VOTES
    assert used.shared + plan.launches[0].shared <= 64 << 10
    assert used.lanes == 64
    for length in (0, 4, 64, 300, len(code) // 2):  # where the headers of sections are gone
        with pytest.raises(MachineError, match="not a code object"):
            kernels_of(code[:length])


@slow
def test_the_figures_are_those_that_hipcc_reports(tmp_path):
    skip_without("hipcc")
    plan = VARIANTS["naive"].plan(Shape(1, 128, 64), AMD_DEVICES["gfx90a"])
    (tmp_path / "naive.hip").write_text(kernel_source("naive", hip=True))
    own = ["--genco", "--no-gpu-bundle-output", "--offload-arch=gfx90a", "-include", "hip/hip_runtime.h"]
    remarks = "-Rpass-analysis=kernel-resource-usage"
    command = ["hipcc", *own, *OPTIONS, *plan.options, remarks, "naive.hip", "-o", "code"]
    log = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    figures = re.compile(
        r"Function Name: (\w+).*? VGPRs: (\d+).*?AGPRs: (\d+).*?ScratchSize \[bytes/lane\]: (\d+)", re.DOTALL
    )
    (code,) = [path for path in tmp_path.glob("code*") if path.read_bytes()[:4] == b"\x7fELF"]
    used = kernels_of(code.read_bytes())
    assert figures.findall(log) == [
        (name, str(one.registers - one.accumulation), str(one.accumulation), str(one.spilled))
        for name, one in used.items()
    ]
    assert len(used) == 3


def test_what_does_not_compile_is_the_compilers_message():
    with pytest.raises(CompileError) as error:
        COMPILERS["gfx908"].compile('#line 1 "mine.cu"\n\nint x = nothing;\n', "mine.hip", OPTIONS)
    assert (
        first_error(str(error.value), "mine") == "mine.cu:2: use of undeclared identifier 'nothing': `int x = nothing;`"
    )


def test_without_rocm_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr("hw4cli.device.hip.hiprtc.NAMES", ("libhiprtc-none.so",))
    with pytest.raises(MachineError, match="install ROCm"):
        HipCompiler(None, "gfx90a")
