"""The four tools of compute-sanitizer find nothing in any kernel; each tool has a process for each part of them."""

import shutil
import subprocess
import sys

import pytest
from helpers import ROOT

pytestmark = [
    pytest.mark.usefixtures("gpu"),
    pytest.mark.skipif(not shutil.which("compute-sanitizer"), reason="compute-sanitizer is not installed"),
    pytest.mark.timeout(1200),
]

TOOLS = ("racecheck", "memcheck", "initcheck", "synccheck")  # the first takes longest
BEGINNING = """
from dataclasses import replace
from itertools import product
import cupy
import numpy as np
import hw4cli
from hw4cli.plans.ladder import VARIANTS
from hw4cli.device.gpu import Gpu
gpu = Gpu()
random = np.random.default_rng(0)
kernels = [name for name, variant in VARIANTS.items() if variant.least_cc <= gpu.props.cc]
shared_out = [name for name in kernels if name in ("flash", "split", "split8", "exact")]  # those that share out keys
rungs = [name for name in kernels if name not in shared_out]
def right(*arrays):
    assert all(np.isfinite(array.astype(np.float32)).all() for array in arrays)
"""
RUNGS = """
for name in {}:
    for shape in [(1, 1, 4), (2, 129, 32), (1, 200, 64), (3, 33, 100), (1, 130, 128)]:
        right(gpu.attention(random.uniform(-3, 3, (shape[0], 3, *shape[1:])).astype(np.float32), name))
"""
PARTS = {  # those that take longest first
    "gradients": """
from hw4cli.plans.gradients import GRADIENTS, takes
from hw4cli.problem.workload import Workload
def gradients(name, heads, kv_heads, rows, keys, d, causal, dtype="float16"):
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.zeros(1 << 26, np.uint8)  # initcheck misses what the copy engine writes: memory that was written before
    q, do = cupy.asarray(random.normal(size=(2, 1, heads, rows, d)).astype(dtype))
    k, v = cupy.asarray(random.normal(size=(2, 1, kv_heads, keys, d)).astype(dtype))
    o, lse = hw4cli.attention(q, k, v, causal=causal, return_lse=True)
    right(*hw4cli.attention_backward(do, q, k, v, o, lse, causal=causal, kernel=name))
cases = [(300, 300, 64, True), (129, 257, 128, False), (129, 300, 40, True), (70, 130, 256, True)]
for name, dtype, (rows, keys, d, causal) in product(GRADIENTS, ("float32", "float16"), cases):
    if takes(name, Workload(dtype, 1, 4, 2, rows, keys, d, causal, keys - rows), gpu.props):
        gradients(name, 4, 2, rows, keys, d, causal, dtype)
several = [("backward_once", 64), ("backward_once", 128), *(("backward_wgmma", d) for d in (64, 128, 192, 256))]
for name, d in several * gpu.props.warpgroups:
    gradients(name, 140, 140, 130, 130, d, True)  # more tasks than multiprocessors: blocks take several
""",
    "first rungs": RUNGS.format("rungs[:8]"),
    "later rungs": RUNGS.format("rungs[8:]"),
    "causal files": """
for name in kernels:
    for shape in [(2, 129, 32), (1, 600 if name in shared_out else 200, 64)]:
        right(gpu.attention(random.uniform(-3, 3, (shape[0], 3, *shape[1:])).astype(np.float32), name, causal=True))
""",
    "long files": """
# Split's sums that are promoted, and its tasks that blocks share.
for shape in [(1, 2200, 32), (1, 2200, 64), (34, 600, 64), (45, 600, 32)]:
    for name in {"split", "split8"} & {*kernels}:
        right(gpu.attention(random.uniform(-3, 3, (shape[0], 3, *shape[1:])).astype(np.float32), name))
# Blocks that convert for others; so few that it does not take many batches.
gpu.props = replace(gpu.props, sms=6)
for name, d in [("split8", 64), ("split", 64), ("split", 32)] * gpu.props.warpgroups:
    right(gpu.attention(random.uniform(-3, 3, (16, 3, 600, d)).astype(np.float32), name))
""",
    "16-bit arrays": """
cupy.zeros(1 << 26, np.uint8)  # initcheck misses that the copy engine writes O
for name in ["half"] * gpu.props.warpgroups + ["half_mma", "half_split", "half_cores"]:
    for rows, keys, d, causal in [(300, 300, 64, 1), (129, 257, 128, 0), (129, 1100, 32, 1), (5, 2100, 40, 0)]:
        q = cupy.asarray(random.normal(size=(1, 4, rows, d)).astype(np.float16))
        k, v = cupy.asarray(random.normal(size=(2, 1, 2, keys, d)).astype(np.float16))
        right(hw4cli.attention(q, k, v, causal=bool(causal), kernel=name))
for d in [64, 128] * gpu.props.warpgroups:  # more tiles than multiprocessors: blocks take them as they come
    q, k, v = cupy.asarray(random.normal(size=(3, 1, 140, 130, d)).astype(np.float16))
    right(hw4cli.attention(q, k, v, causal=True, kernel="half"))
for d in [32, 64, 128] * gpu.props.warpgroups:  # the same of short rows, of all of which a tile holds the keys
    q, k, v = cupy.asarray(random.normal(size=(3, 1, 300, 120, d)).astype(np.float16))
    right(hw4cli.attention(q, k, v, kernel="half"))
""",
    "sequences": """
rows = [0, 1, 127, 128, 129, 200, 200]  # of 16 bits in one launch of each kernel; gradients by runs of equal lengths
starts = np.cumsum([0, *rows]).tolist()
asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "layout": "BNHD"}
for name in ["half"] * gpu.props.warpgroups + ["half_mma", "half_cores"]:
    for d, causal in [(64, True), (128, False)]:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.zeros(1 << 24, np.uint8)
        q, do = cupy.asarray(random.normal(size=(2, starts[-1], 4, d)).astype(np.float16))
        k, v = cupy.asarray(random.normal(size=(2, starts[-1], 2, d)).astype(np.float16))
        o, lse = hw4cli.attention(q, k, v, causal=causal, kernel=name, return_lse=True, **asked)
        right(o, *hw4cli.attention_backward(do, q, k, v, o, lse, causal=causal, **asked))
""",
    "files": """
shapes = [(1, 1, 4), (2, 129, 32), (1, 200, 64), (3, 33, 100), (1, 300, 128), (1, 600, 64), (1, 1100, 32)]
for name in shared_out:
    for shape in shapes:
        block = random.uniform(-3, 3, (shape[0], 3, *shape[1:])).astype(np.float32)
        for factor in (1, 30):  # the second takes the path of large scores
            right(gpu.attention(block * np.float32(factor), name))
gpu.absmax(gpu.upload(np.ones((3, 3, 129, 20), np.float32)), gpu.empty((5,)))
""",
}


def in_chains():
    """Each tool with each part, in as many chains as there are parts, which take about the same time: with a part under
    the first tool goes another under the other tools."""
    for tool in TOOLS:
        for place, part in enumerate(PARTS):
            chain = place if tool == TOOLS[0] else len(PARTS) - 1 - place
            yield pytest.param(tool, part, marks=pytest.mark.chain(f"sanitizer {chain}"))


@pytest.mark.parametrize(("tool", "part"), list(in_chains()))
def test_compute_sanitizer_finds_nothing(tool, part):
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    command += [sys.executable, "-c", BEGINNING + PARTS[part]]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
