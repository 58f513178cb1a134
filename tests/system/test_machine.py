"""The block of facts about a machine that every record has."""

import json
import platform
import subprocess
import sys
import types

import pytest

from hw4cli.system import machine as module
from hw4cli.system.machine import cudnn_version, disk, filesystem, host, machine, others_versions

WHOLE = {"cpu", "cores", "ram", "disk", "linux", "glibc", "python"}


def test_a_block_has_processor_memory_disk_kernel_glibc_and_python(tmp_path):
    found = host(tmp_path)
    assert set(found) == WHOLE
    assert found["linux"] == platform.release()
    assert found["ram"].endswith(" GiB")
    assert float(found["ram"].split()[0]) > 0
    assert found["disk"].split(", ")[0] == filesystem(tmp_path)


def test_a_gpu_that_is_open_is_named_as_it_is_and_the_host_beside_it():
    found = machine({"gpu": "G", "nvrtc": "13.0", "cupy": "14"})
    assert {"gpu": "G", "nvrtc": "13.0", "cupy": "14"}.items() <= found.items()
    assert set(found) >= WHOLE | {"numpy"}


def test_without_an_open_gpu_the_first_one_is_asked_for_and_its_absence_is_none(monkeypatch):
    monkeypatch.setattr(module.nvidia, "gpu_and_driver", lambda: ("NVIDIA H200", "580"))
    assert (machine()["gpu"], machine()["driver"]) == ("NVIDIA H200", "580")
    monkeypatch.setattr(module.nvidia, "gpu_and_driver", lambda: (None, None))
    assert machine()["gpu"] is None


def test_versions_of_others_are_those_of_packages_that_took_part(monkeypatch):
    for name in module.OTHERS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert "torch" not in machine(others=True)
    torch = types.ModuleType("torch")
    torch.__version__ = "2.9.1"
    torch.backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 91002))
    monkeypatch.setitem(sys.modules, "torch", torch)
    triton = types.ModuleType("triton")
    triton.__version__ = "3.5.1"
    monkeypatch.setitem(sys.modules, "triton", triton)
    assert others_versions() == {"torch": "2.9.1", "triton": "3.5.1", "cudnn": "9.10.2"}
    assert "torch" not in machine()


def test_flash_attention_4_is_named_by_its_package_and_what_compiles_it(monkeypatch):
    installed = {"flash-attn-4": "4.0.0b36", "nvidia-cutlass-dsl": "4.8.1"}

    def version(package):
        if package not in installed:
            raise module.metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(module.metadata, "version", version)
    for name in module.OTHERS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("flash_attn", "flash_attn.cute", "cutlass"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["flash_attn.cute"].__version__ = "0.0.0"  # as a pre-release said
    assert others_versions() == {"flash_attn_4": "4.0.0b36", "cutlass_dsl": "4.8.1"}
    sys.modules["flash_attn"].flash_attn_func = len
    sys.modules["flash_attn"].__version__ = "2.8.3"
    del installed["flash-attn-4"]
    assert others_versions() == {"flash_attn": "2.8.3", "flash_attn_4": "unknown", "cutlass_dsl": "4.8.1"}


def test_cudnns_frontend_is_named_with_the_cudnn_that_it_found_and_tlx_by_its_package(monkeypatch):
    installed = {"fbtriton": "3.7.4"}
    monkeypatch.setattr(module.metadata, "version", installed.__getitem__)
    for name in module.OTHERS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("cudnn", "triton.language.extra.tlx"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["cudnn"].__version__ = "1.32.0"
    assert others_versions() == {"cudnn_frontend": "1.32.0", "fbtriton": "3.7.4"}
    sys.modules["cudnn"].backend_version = lambda: 92801
    expected = {"cudnn_frontend": "1.32.0", "frontends_cudnn": "9.28.1", "fbtriton": "3.7.4"}
    assert others_versions() == expected


@pytest.mark.parametrize(("number", "words"), [(91002, "9.10.2"), (92100, "9.21.0"), (8902, "8.9.2"), (90100, "9.1.0")])
def test_cudnn_counts_otherwise_from_9_on(number, words):
    assert cudnn_version(number) == words


def test_a_disk_is_solid_only_where_the_kernel_says_that_it_does_not_turn(tmp_path, monkeypatch):
    mounts, devices = tmp_path / "mountinfo", tmp_path / "block"
    place = tmp_path / "a disk"
    place.mkdir()
    escaped = str(place).replace(" ", "\\040")
    mounts.write_text(
        f"36 35 8:1 / {escaped} rw master:1 - xfs /dev/nvme0n1p1 rw\n1 2 0:1 / / rw - overlay overlay rw\n"
    )
    queue = devices / "nvme0n1p1" / "queue"
    queue.mkdir(parents=True)
    (queue / "rotational").write_text("0\n")
    monkeypatch.setattr(module, "MOUNTS", mounts)
    monkeypatch.setattr(module, "BLOCK_DEVICES", devices)
    assert disk(place).startswith("xfs, ")
    assert disk(place).endswith(" GB, solid-state")
    (queue / "rotational").write_text("1\n")  # which a virtual machine's kernel says of any disk
    assert disk(place).endswith(" GB")
    assert filesystem(tmp_path) == "overlay"


def test_the_block_of_another_machine_is_printed_as_json():
    code = "from hw4cli.system.machine import main; main()"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert set(json.loads(printed)) >= WHOLE


def test_the_version_of_a_package_is_not_that_of_another_whose_name_begins_so(monkeypatch):
    installed = [types.SimpleNamespace(name=name, version=version) for name, version in INSTALLED]
    monkeypatch.setattr(module.metadata, "distributions", lambda: installed)
    found = machine({"gpu": "G"})
    assert (found["numpy"], found["cupy"]) == ("2.5.2", "14.2.0")


INSTALLED = (("numpyro", "0.21.0"), ("numpy", "2.5.2"), ("cupy-fields", "1"), ("cupy-cuda13x", "14.2.0"), (None, "1"))
