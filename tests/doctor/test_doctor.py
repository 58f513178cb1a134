"""`hw4 doctor` on machines of every kind: fake programs on PATH, real processes, and nothing that stops it."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ROOT, fails, on_a_terminal

from hw4cli.device import gpu, nvrtc
from hw4cli.doctor.checks import compiler
from hw4cli.doctor.drivers import NvidiaGpu, amd, counters, cupy_fit
from hw4cli.doctor.finding import UnansweredError, output_of
from hw4cli.doctor.probe import probe
from hw4cli.errors import MachineError

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
GTX_1080 = NvidiaGpu("NVIDIA GeForce GTX 1080", "535.183.01", "8192", 6.1)
H200 = NvidiaGpu("NVIDIA H200", "580.159.04", "143771", 9.0)


@pytest.fixture
def bin_folder(tmp_path):
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.fixture
def examined(hw4, bin_folder):
    """Run doctor with nothing but the fakes on PATH; the JSON document, with its lines by name."""

    def run(code=0, **env):
        result = hw4("doctor", "--json", env={**NO_GPU, "PATH": str(bin_folder), **env})
        assert result.returncode == code, result.stderr
        assert result.stderr == ""
        document = json.loads(result.stdout)
        document["lines"] = {line["name"]: line for line in document["findings"]}
        return document

    return run


def fake(folder, name, script):
    (folder / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    (folder / name).chmod(0o755)


def installed(folder, *packages):
    """Distributions that Python finds in a folder."""
    for package in packages:
        info = folder / f"{package.replace('-', '_')}-14.2.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 14.2.0\n")
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}


def documented_fields():
    return set(re.findall(r"^\| `([\w.\[\]]+)` \|", (ROOT / "docs/doctor.md").read_text(), re.MULTILINE))


def test_a_machine_with_nothing_runs_hw4_on_its_cpu_and_says_why(examined):
    document = examined()
    assert document["runs"]["on"] == "cpu"
    assert re.fullmatch(r"the CPU, \d+ cores?", document["runs"]["device"])
    assert "no GPU can be used" in document["runs"]["because"]
    lines = document["lines"]
    for name in ("NVIDIA driver", "nvcc", "ncu", "nsys", "nvprof", "rocprofv3", "compute-sanitizer", "Slurm", "bwrap"):
        assert lines[name]["state"] == "missing", name
    for name in ("Python", "processor", "process control"):
        assert lines[name]["state"] == "ok", name


def test_the_json_document_has_the_documented_fields_and_no_others(examined):
    document = examined()
    del document["lines"]
    assert document["schema"] == 1
    names = {"schema", *(f"runs.{key}" for key in document["runs"])}
    names |= {f"findings[].{key}" for line in document["findings"] for key in line}
    assert names == documented_fields()
    assert set(document) == {"schema", "runs", "findings"}
    assert {line["state"] for line in document["findings"]} <= {"ok", "warning", "missing"}


def test_a_hanging_nvidia_smi_hangs_nobody_and_is_ended(examined, bin_folder, tmp_path):
    fake(bin_folder, "nvidia-smi", f"sleep 600 & echo $! > {tmp_path}/pid\nwait")
    started = time.monotonic()
    line = examined()["lines"]["NVIDIA driver"]
    assert time.monotonic() - started < 60
    assert (line["state"], line["found"]) == ("warning", "nvidia-smi does not answer within 5 s")
    pid = int((tmp_path / "pid").read_text())
    assert "sleep" not in command_line(pid)


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_driver_that_does_not_answer_is_quoted(examined, bin_folder):
    fake(bin_folder, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert examined()["lines"]["NVIDIA driver"]["found"] == "NVIDIA-SMI has failed"


def test_gpus_are_listed_with_what_they_are(examined, bin_folder):
    fake(
        bin_folder, "nvidia-smi", "echo 'NVIDIA H200, 580.159.04, 143771, 9.0'\necho 'Tesla T4, 580.159.04, 15360, 7.5'"
    )
    lines = examined()["lines"]
    assert lines["NVIDIA driver"]["found"] == "580.159.04"
    assert lines["GPU 0"]["found"] == "NVIDIA H200, compute capability 9.0, 143771 MiB"
    assert lines["GPU 1"]["found"] == "Tesla T4, compute capability 7.5, 15360 MiB"


def test_an_old_nvidia_smi_is_asked_for_what_it_knows(examined, bin_folder):
    fake(
        bin_folder,
        "nvidia-smi",
        """case $1 in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;; esac
        echo 'GeForce GTX 1080, 430.40, 8119'""",
    )
    found = examined()["lines"]["GPU 0"]["found"]
    assert found == "GeForce GTX 1080, compute capability unknown, 8119 MiB"


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


def test_where_nothing_can_be_written_hw4_will_not_run_and_doctor_says_so(hw4):
    def no_file_grows():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    result = hw4("doctor", env={**NO_GPU, "PATH": ""}, preexec_fn=no_file_grows)
    assert result.returncode == 3
    assert "Python" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("hw4 will not run: No usable temporary directory")


def test_slurm_tells_its_partitions_and_whether_the_job_has_a_gpu(examined, bin_folder):
    fake(bin_folder, "sinfo", 'case $1 in --version) echo "slurm-wlm 22.05.8";; *) echo "nvidia*   gpu:2";; esac')
    fake(bin_folder, "srun", "exit 1")
    lines = examined()["lines"]
    assert lines["Slurm"]["found"] == "slurm-wlm 22.05.8; partitions: nvidia* gpu:2"
    assert "srun" not in lines
    assert lines["allocation"]["found"].startswith("outside")
    inside = examined(SLURM_JOB_ID="7", SLURM_JOB_GPUS="0")["lines"]["allocation"]
    assert (inside["state"], inside["found"]) == ("ok", "inside job 7, GPU 0")
    assert examined(SLURM_JOB_ID="7")["lines"]["allocation"]["state"] == "warning"


def test_a_slurm_whose_controller_is_away_is_quoted(examined, bin_folder):
    words = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    fake(bin_folder, "sinfo", f'[ $1 = --version ] && echo slurm 23 && exit\necho "{words}" >&2; exit 1')
    assert examined()["lines"]["Slurm"]["found"] == words


def test_a_bwrap_without_namespaces_is_not_ok(examined, bin_folder):
    fake(bin_folder, "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    line = examined()["lines"]["bwrap"]
    assert line["state"] == "warning"
    assert "No permissions to create new namespace" in line["found"]


def test_tools_tell_their_versions(examined, bin_folder):
    fake(bin_folder, "ncu", "echo 'NVIDIA (R) Nsight Compute'; echo 'Version 2025.3.1.0 (build 1) (public-release)'")
    fake(bin_folder, "nvcc", "echo 'Built on Wed_Aug_20'; echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    fake(bin_folder, "nsys", "kill -SEGV $$")
    lines = examined()["lines"]
    assert lines["ncu"]["found"] == f"2025.3.1.0 {bin_folder}/ncu"
    assert lines["nvcc"]["found"] == f"13.0 {bin_folder}/nvcc"
    assert (lines["nsys"]["state"], lines["nsys"]["found"]) == ("warning", "nsys is ended by SIGSEGV")


def test_a_home_that_cannot_be_written_is_no_obstacle(hw4, tmp_path):
    env = {**NO_GPU, "HOME": "/proc", "TMPDIR": str(tmp_path)}
    result = hw4("doctor", "--json", env=env, prefix=["env", "-u", "CUPY_CACHE_DIR"])
    assert result.returncode == 0, result.stderr
    cache = next(line for line in json.loads(result.stdout)["findings"] if line["name"] == "kernel cache")
    assert cache["state"] == "ok"
    assert f"{tmp_path}/hw4-kernels-" in cache["found"]
    assert not list(tmp_path.glob("hw4-doctor-*"))


def test_a_cache_that_cannot_be_written_is_reported(examined):
    line = examined(CUPY_CACHE_DIR="/proc/cache")["lines"]["kernel cache"]
    assert line["state"] == "warning"
    assert "CUPY_CACHE_DIR=/proc/cache cannot be written: using " in line["found"]
    assert "CUPY_CACHE_DIR" in line["advice"]


def test_a_cache_with_folders_and_broken_links_is_measured(examined, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "a.cubin").write_bytes(bytes(3_000_000))
    line = examined(CUPY_CACHE_DIR=str(tmp_path))["lines"]["kernel cache"]
    assert (line["state"], line["found"]) == ("ok", f"{tmp_path}, 1 file, 3.0 MB")


def test_the_cases_folder_may_be_missing(hw4, tmp_path):
    result = hw4("doctor", "--json", "--dir", tmp_path / "none", env=NO_GPU)
    line = next(line for line in json.loads(result.stdout)["findings"] if line["name"] == "cases")
    assert line["state"] == "missing"
    assert result.returncode == 0


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


def test_a_pipe_gets_plain_whole_lines(hw4):
    result = hw4("doctor", env={**NO_GPU, "PATH": ""})
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert re.match(r"  ok       Python +\d", lines[1])
    assert lines[-1].startswith("hw4 will run on: the CPU")
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("extra", [{}, {"NO_COLOR": "1"}])
def test_a_terminal_gets_80_columns_and_colour_unless_it_wants_none(extra):
    code, shown = on_a_terminal(80, "doctor", env={**NO_GPU, "TERM": "xterm", **extra})
    assert code == 0
    assert ("\x1b[32m" in shown) == (not extra)
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "hw4 will run on" in plain
    assert "  ok       Python" in plain
    whole = [word for line in plain.splitlines() if len(line) > 80 for word in line.split() if len(word) > 40]
    assert all(len(line) <= 80 or whole for line in plain.splitlines())


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


def test_ctrl_c_ends_what_was_asked_and_leaves_no_file(bin_folder, tmp_path):
    fake(bin_folder, "nvidia-smi", f"sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid\nwait")
    env = {**os.environ, **NO_GPU, "PATH": str(bin_folder), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", "hw4cli", "doctor"], env=env, stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "pid").exists)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1].strip() == "hw4: interrupted"
    assert process.returncode == 130
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: "sleep" not in command_line(pid))
    assert not list(tmp_path.glob("hw4-doctor-*"))


def wait_until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_wrong_option_is_one_sentence(hw4):
    fails(hw4("doctor", "--jsno"), 2, "--jsno")


def test_asking_tells_missing_from_failing(bin_folder, monkeypatch):
    monkeypatch.setenv("PATH", str(bin_folder))
    assert output_of(["nothing"]) is None
    (bin_folder / "torn").write_bytes(b"\x7fELF")
    (bin_folder / "torn").chmod(0o755)
    with pytest.raises(UnansweredError, match="cannot be started: Exec format error"):
        output_of(["torn"])
