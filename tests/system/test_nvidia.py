"""The GPU that a program will see, in all the ways in which an environment can name it."""

import os
import subprocess
import sys

import pytest
from fakenvml import FakeNvml
from needs import needs

from hw4cli.sandbox.gpu import first_gpu
from hw4cli.system import nvidia
from hw4cli.system.nvidia import first_visible

SAME = """GPU 0: NVIDIA H200 (UUID: GPU-aaa00000-0000-0000-0000-000000000000)
GPU 1: NVIDIA H200 (UUID: GPU-abb00000-0000-0000-0000-000000000000)
"""
MIXED = """GPU 0: NVIDIA T1000 (UUID: GPU-aaa00000-0000-0000-0000-000000000000)
GPU 1: NVIDIA H200 (UUID: GPU-abb00000-0000-0000-0000-000000000000)
"""
PARTED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaa00000-0000-0000-0000-000000000000)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-0000-0000-0000-000000000000)
  MIG 1g.5gb      Device  1: (UUID: MIG-d7d4f1ef-0000-0000-0000-000000000000)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-abb00000-0000-0000-0000-000000000000)
"""
A, B = (f"GPU-{head}00000-0000-0000-0000-000000000000" for head in ("aaa", "abb"))
FIRST, SECOND = (f"MIG-{head}-0000-0000-0000-000000000000" for head in ("c6d4f1ef", "d7d4f1ef"))


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    caches = (nvidia.nvml, nvidia.table, nvidia._first_for_cuda)
    for known in caches:
        known.cache_clear()
    yield
    for known in caches:
        known.cache_clear()


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Makes this a host whose nvidia-smi lists these GPUs."""

    def make(listed):
        (tmp_path / "list").write_text(listed)
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f'#!/bin/sh\n[ "$*" = -L ] && cat {tmp_path}/list\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        nvidia.table.cache_clear()

    return make


def seen(visible=None, order=None):
    env = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    gpu = first_visible({name: value for name, value in env.items() if value is not None})
    return gpu and gpu.uuid


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        (None, A),
        ("0", A),
        ("1", B),
        ("1,0", B),
        (" 1 , 0", B),
        ("1,99", B),
        (A, A),
        (f"{B},{A}", B),
        ("GPU-abb", B),
        ("GPU-aa", A),
        ("GPU-a", None),
        ("GPU-", None),
        ("GPU-zzz", None),
        ("", None),
        (" ", None),
        ("-1", None),
        ("-1,0", None),
        ("2", None),
        ("NoDevFiles", None),
        ("none", None),
        ("../x", None),
    ],
)
def test_each_form_of_the_variable_names_the_gpu_that_cuda_takes(host, visible, uuid):
    host(SAME)
    assert seen(visible) == uuid


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        (None, FIRST),
        ("0", FIRST),
        ("1", B),
        (FIRST, FIRST),
        (SECOND, SECOND),
        ("MIG-d7", SECOND),
        (A, FIRST),
        (f"MIG-{A}/1/0", f"MIG-{A}/1/0"),
        ("MIG-GPU-ccc/1/0", None),
    ],
)
def test_parts_of_a_gpu_are_gpus(host, visible, uuid):
    host(PARTED)
    assert seen(visible) == uuid
    if uuid and uuid.startswith("MIG"):
        assert first_visible({"CUDA_VISIBLE_DEVICES": visible or "0"}).whole == A


def test_where_gpus_are_of_several_kinds_a_number_is_what_cuda_takes_it_for(host, monkeypatch):
    """CUDA's first is the fastest, the driver's the one on the lowest bus; PCI_BUS_ID makes them the same."""
    asked = []

    def said(*command, env=None, real=nvidia._output_of):
        if command[0] != sys.executable:
            return real(*command, env=env)
        asked.append((env.get("CUDA_VISIBLE_DEVICES"), env.get("CUDA_DEVICE_ORDER")))
        return ("abb" if env.get("CUDA_VISIBLE_DEVICES", "0")[0] == "0" else "aaa") + "0" * 29 + "\n"

    monkeypatch.setattr(nvidia, "_output_of", said)
    host(MIXED)
    assert (seen(), seen("0"), seen("1")) == (B, B, A)
    assert (seen("0", "FASTEST_FIRST"), seen("0", "PCI_BUS_ID"), seen("1", "PCI_BUS_ID")) == (B, A, B)
    assert asked == [(None, None), ("0", None), ("1", None), ("0", "FASTEST_FIRST")]
    assert seen("GPU-aaa") == A
    host(SAME)
    assert (seen("0"), len(asked)) == (A, 4)


CUDA = """
#include <string.h>
int cuInit(unsigned f) { return 0; }
int cuDeviceGet(int *d, int n) { *d = n; return 0; }
int cuDeviceGetUuid(unsigned char *u, int d) { memset(u, 0, 16); u[0] = 0xab; u[1] = 0xb0; return 0; }
"""


@needs("cc")
def test_cuda_is_asked_in_a_process_of_its_own(host, tmp_path, monkeypatch):
    (tmp_path / "cuda.c").write_text(CUDA)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "cuda.c"], check=True)
    host(MIXED)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert seen("0") == B
    assert str(library) not in open(f"/proc/{os.getpid()}/maps").read()  # noqa: PTH123, SIM115
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    nvidia._first_for_cuda.cache_clear()
    assert seen("0") == A, "without CUDA, the driver's number will have to do"


def test_the_driver_is_asked_first_and_the_tool_if_it_is_silent(host, monkeypatch):
    host(SAME)
    assert first_gpu() == {"name": "NVIDIA H200", "uuid": A}
    nvidia.table.cache_clear()
    nvidia.nvml.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert first_gpu() == {"name": "NVIDIA H200", "uuid": "GPU-12-ab"}


def test_without_a_driver_there_is_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert first_gpu() is None
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    tool.chmod(0o755)
    nvidia.table.cache_clear()
    assert first_gpu() is None
