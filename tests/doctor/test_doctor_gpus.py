"""What `hw4 doctor` finds of GPUs, their drivers, cupy and the compiler."""

import os
import re
import time

import pytest
from doctors import command_line, fake, installed
from helpers import ROOT
from slow import slow

from hw4cli.device import gpu, nvrtc
from hw4cli.doctor.checks import compiler
from hw4cli.doctor.drivers import NvidiaGpu, amd, counters, cupy_fit
from hw4cli.doctor.probe import probe
from hw4cli.errors import MachineError

GTX_1080 = NvidiaGpu("NVIDIA GeForce GTX 1080", "535.183.01", "8192", 6.1)
H200 = NvidiaGpu("NVIDIA H200", "580.159.04", "143771", 9.0)


def test_a_hanging_nvidia_smi_hangs_nobody_and_is_ended(examined, bin_folder, tmp_path):
    fake(bin_folder, "nvidia-smi", f"sleep 600 & echo $! > {tmp_path}/pid\nwait")
    started = time.monotonic()
    line = examined()["lines"]["NVIDIA driver"]
    assert time.monotonic() - started < 60
    assert (line["state"], line["found"]) == ("warning", "nvidia-smi does not answer within 5 s")
    pid = int((tmp_path / "pid").read_text())
    assert "sleep" not in command_line(pid)


@slow
def test_a_driver_that_does_not_answer_is_quoted(examined, bin_folder):
    fake(bin_folder, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert examined()["lines"]["NVIDIA driver"]["found"] == "NVIDIA-SMI has failed"


@slow
def test_gpus_are_listed_with_what_they_are(examined, bin_folder):
    fake(
        bin_folder, "nvidia-smi", "echo 'NVIDIA H200, 580.159.04, 143771, 9.0'\necho 'Tesla T4, 580.159.04, 15360, 7.5'"
    )
    lines = examined()["lines"]
    assert lines["NVIDIA driver"]["found"] == "580.159.04"
    assert lines["GPU 0"]["found"] == "NVIDIA H200, compute capability 9.0, 143771 MiB"
    assert lines["GPU 1"]["found"] == "Tesla T4, compute capability 7.5, 15360 MiB"


@slow
def test_an_old_nvidia_smi_is_asked_for_what_it_knows(examined, bin_folder):
    fake(
        bin_folder,
        "nvidia-smi",
        """case $1 in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;; esac
        echo 'GeForce GTX 1080, 430.40, 8119'""",
    )
    found = examined()["lines"]["GPU 0"]["found"]
    assert found == "GeForce GTX 1080, compute capability unknown, 8119 MiB"


@slow
def test_two_cupys_clash_and_the_advice_removes_both(examined, tmp_path):
    line = examined(**installed(tmp_path / "site", "cupy-cuda12x", "cupy-rocm-7-0"))["lines"]["cupy"]
    assert line["state"] == "warning"
    assert "clash" in line["found"]
    assert re.match(r"pip uninstall -y .*cupy-cuda12x.* cupy-rocm-7-0 && pip install", line["advice"])


@pytest.mark.parametrize(
    ("packages", "gpus", "state", "words"),
    [
        (["cupy-cuda12x"], [GTX_1080], "ok", "cupy-cuda12x"),
        (["cupy-cuda12x"], [H200], "ok", "cupy-cuda12x"),
        (["cupy-cuda13x"], [H200], "ok", "cupy-cuda13x"),
        (["cupy-cuda13x"], [], "ok", "cupy-cuda13x"),
        (["cupy-cuda13x"], [GTX_1080], "warning", "cuda12"),
        (["cupy-cuda13x"], [NvidiaGpu("GTX 1080", "580.1", "8192", 6.1)], "warning", "compute capability 6.1"),
        (["cupy-cuda13x"], [H200, NvidiaGpu("GTX 1080", "580.1", "8192", 6.1)], "warning", "cuda12"),
        (["cupy-cuda12x"], [NvidiaGpu("GTX 1080", "470.1", "8192", 6.1)], "warning", "525"),
        (["cupy-rocm-7-0"], [H200], "warning", "cuda13"),
        (["cupy-rocm-7-0"], [], "warning", "AMD GPUs, and there is none here pip uninstall -y cupy-rocm-7-0"),
        ([], [GTX_1080], "warning", "cuda12"),
        ([], [H200], "warning", "cuda13"),
        ([], [], "missing", "only needed with a GPU"),
    ],
)
def test_the_cupy_is_held_against_the_driver_and_every_gpu(packages, gpus, state, words):
    (line,) = cupy_fit(dict.fromkeys(packages, "14.2.0"), gpus)
    assert line.state == state
    assert words in f"{line.found} {line.advice}"


@slow
def test_a_cupy_that_crashes_takes_only_itself_down(examined, tmp_path):
    (tmp_path / "site" / "cupy").mkdir(parents=True)
    (tmp_path / "site" / "cupy" / "__init__.py").write_text("import os\nos.abort()\n")
    document = examined(code=3, PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path / "site")]))
    assert document["runs"]["on"] is None
    assert "SIGABRT" in document["runs"]["because"]
    assert "SIGABRT" in document["lines"]["kernel"]["found"]


def test_a_cupy_that_does_not_load_leaves_the_cpu(examined, tmp_path):
    (tmp_path / "site" / "cupy").mkdir(parents=True)
    (tmp_path / "site" / "cupy" / "__init__.py").write_text("raise ImportError('libcupy is broken')\n")
    document = examined(PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path / "site")]))
    assert document["runs"]["on"] == "cpu"
    assert "libcupy is broken" in document["runs"]["because"]


def test_the_counters_permission_is_read_from_the_driver(tmp_path):
    params = tmp_path / "params"
    params.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    assert counters(params)[0].found == "open to everyone"
    params.write_text("RmProfilingAdminOnly: 1\n")
    (line,) = counters(params)
    assert (line.state, "ERR_NVGPUCTRPERM" in line.found) in {("warning", True), ("ok", False)}


def test_amd_gpus_are_identified_by_their_architecture(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    for node, version in enumerate((0, 90010, 110501)):
        folder = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}"
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"simd_count 8\ngfx_target_version {version}\n")
    gpus = amd(tmp_path)
    assert [(line.state, line.found) for line in gpus] == [("ok", "gfx90a"), ("ok", "gfx1151")]
    assert amd(tmp_path / "nowhere")[0].state == "missing"


def test_an_amd_gpu_wants_cupy_for_rocm(monkeypatch, tmp_path):
    monkeypatch.setattr("hw4cli.doctor.drivers.amd_gpu_is_here", lambda: True)
    (none,) = cupy_fit({}, [])
    assert (none.state, none.advice.split("   ")[0]) == ("warning", "pip install '.[rocm7]'")
    (wrong,) = cupy_fit({"cupy-cuda13x": "14.2.0"}, [])
    assert wrong.advice.startswith("pip uninstall -y cupy-cuda13x && pip install '.[rocm7]'")
    (right,) = cupy_fit({"cupy-rocm-7-0": "14.2.0"}, [])
    assert right.state == "ok"


FACTS = {
    **{"cupy": "14.2.0", "nvrtc": "13.2", "headers": "/cuda/include", "hip": False},
    **{"gpu": "NVIDIA H200", "architecture": "compute capability 9.0", "choice": "split, measured fastest"},
}


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        ({**FACTS, "kernel error": 3e-7}, "ok", "right within 3.0e-07"),
        ({**FACTS, "kernel error": 0.5}, "warning", "wrong by 5.0e-01"),
        ({**FACTS, "kernel error": float("nan")}, "warning", "wrong by nan"),
        ({**FACTS, "no kernel": "kernel flash does not compile"}, "warning", "flash does not compile"),
        ({**FACTS, "no GPU": "no GPU can be used: none"}, "missing", "no GPU can be used: none"),
        ({"no cupy": "cupy is not installed"}, "missing", "cupy is not installed"),
        ({"failed": "python is ended by SIGSEGV"}, "warning", "SIGSEGV"),
    ],
)
def test_the_kernel_is_ok_only_when_its_answer_is_right(facts, state, words):
    line = compiler(facts)[-1]
    assert (line.name, line.state) == ("kernel", state)
    assert words in line.found


def test_without_cupy_the_line_on_nvrtc_is_that_of_the_library_by_which_kernels_are_checked(monkeypatch):
    def missing(*arguments):
        raise MachineError("not found")

    monkeypatch.setattr(gpu, "import_cupy", missing)
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")  # which probe sets
    line = compiler(probe())[0]
    assert (line.name, line.state) == ("NVRTC", "ok")
    monkeypatch.setattr(nvrtc, "_loaded", missing)
    line = compiler(probe())[0]
    assert (line.name, line.state, line.advice) == ("NVRTC", "missing", "pip install nvidia-cuda-nvrtc")
