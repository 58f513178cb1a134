"""The kernels compiled by HIP for AMD's GPUs, without one: registers and spills as the compiler tells them."""

import re
import shutil
import subprocess

import pytest

from hw4cli.compute.plan import DeviceProperties
from hw4cli.compute.variants import VARIANTS
from hw4cli.problem.shape import Shape
from hw4cli.resources import data_path, kernel_path, spliced

pytestmark = pytest.mark.skipif(not shutil.which("hipcc"), reason="needs hipcc (Debian, Ubuntu: hipcc)")

# An MI210: no asynchronous copies, so planned as NVIDIA's GPUs before 8.0; 64 KB of LDS (shared memory).
MI210 = DeviceProperties(61, 104, 64 << 10, 64 << 10)
TARGETS = ("gfx90a", "gfx908", "gfx1030")  # MI200, MI100 (wavefronts of 64 lanes), RX 6000 (32)
FLOAT32 = [name for name, variant in VARIANTS.items() if variant.least_cc < 80]
# 1024 threads would leave a thread 128 registers, of which float4 spills seven.
TILES = {"float4": {"BR": 64, "BC": 32}}
FLAGS = ("--genco", "-O3", "-std=c++17", "-fgpu-flush-denormals-to-zero", "-include", "hip/hip_runtime.h")
FIGURES = re.compile(r"Function Name: (\w+).*?VGPRs: (\d+).*?ScratchSize \[bytes/lane\]: (\d+)", re.DOTALL)


def compiled(name, d, folder):
    """Of each target and kernel in a file: registers of a lane, and bytes of it that lie in memory."""
    path = kernel_path(name)
    plan = VARIANTS[name].plan(Shape(1, 32768, d), MI210, TILES.get(name))
    source = folder / f"{name}.hip"
    source.write_text(spliced(path, (data_path("kernels/hip"), path.parent)))
    macros = [f"-D{macro}={value}" for macro, value in plan.macros.items()]
    command = [
        "hipcc",
        *FLAGS,
        *macros,
        "-Rpass-analysis=kernel-resource-usage",
        str(source),
        "-o",
        str(folder / "code"),
    ]
    figures = {}
    for target in TARGETS:
        done = subprocess.run([*command, f"--offload-arch={target}"], capture_output=True, text=True, check=False)
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        assert done.returncode == 0, errors
        figures[target] = {symbol: (int(used), int(spilled)) for symbol, used, spilled in FIGURES.findall(done.stderr)}
        assert {launch.symbol for launch in plan.launches} <= set(figures[target])
    return figures


@pytest.mark.parametrize(("name", "d"), [*((name, 64) for name in FLOAT32), ("flash", 36)])
def test_a_kernel_compiles_for_amds_gpus_without_spills(name, d, tmp_path):
    for target, kernels in compiled(name, d, tmp_path).items():
        for symbol, (registers, spilled) in kernels.items():
            assert registers > 0
            assert spilled == 0, f"{symbol} keeps {spilled} bytes of a lane in memory on {target}"
