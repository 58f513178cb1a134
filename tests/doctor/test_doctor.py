"""`hw4 doctor` on machines of every kind: fake programs on PATH, real processes, and nothing that stops it."""

import json
import os
import re
import resource
import signal
import subprocess
import sys

import pytest
from doctors import NO_GPU, command_line, fake
from helpers import ROOT, fails, on_a_terminal, wait_until
from slow import quick_of_each, slow

from hw4cli.doctor.finding import UnansweredError, output_of


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


@slow
def test_the_json_document_has_the_documented_fields_and_no_others(examined):
    document = examined()
    del document["lines"]
    assert document["schema"] == 1
    names = {"schema", *(f"runs.{key}" for key in document["runs"])}
    names |= {f"findings[].{key}" for line in document["findings"] for key in line}
    assert names == documented_fields()
    assert set(document) == {"schema", "runs", "findings"}
    assert {line["state"] for line in document["findings"]} <= {"ok", "warning", "missing"}


def test_where_nothing_can_be_written_hw4_will_not_run_and_doctor_says_so(hw4):
    def no_file_grows():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    result = hw4("doctor", env={**NO_GPU, "PATH": ""}, preexec_fn=no_file_grows)
    assert result.returncode == 3
    assert "Python" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("hw4 will not run: No usable temporary directory")


@slow
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


@slow
def test_a_slurm_whose_controller_is_away_is_quoted(examined, bin_folder):
    words = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    fake(bin_folder, "sinfo", f'[ $1 = --version ] && echo slurm 23 && exit\necho "{words}" >&2; exit 1')
    assert examined()["lines"]["Slurm"]["found"] == words


@slow
def test_a_bwrap_without_namespaces_is_not_ok(examined, bin_folder):
    fake(bin_folder, "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    line = examined()["lines"]["bwrap"]
    assert line["state"] == "warning"
    assert "No permissions to create new namespace" in line["found"]


@slow
def test_tools_tell_their_versions(examined, bin_folder):
    fake(bin_folder, "ncu", "echo 'NVIDIA (R) Nsight Compute'; echo 'Version 2025.3.1.0 (build 1) (public-release)'")
    fake(bin_folder, "nvcc", "echo 'Built on Wed_Aug_20'; echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    fake(bin_folder, "nsys", "kill -SEGV $$")
    lines = examined()["lines"]
    assert lines["ncu"]["found"] == f"2025.3.1.0 {bin_folder}/ncu"
    assert lines["nvcc"]["found"] == f"13.0 {bin_folder}/nvcc"
    assert (lines["nsys"]["state"], lines["nsys"]["found"]) == ("warning", "nsys is ended by SIGSEGV")


@slow
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


@slow
def test_a_cache_with_folders_and_broken_links_is_measured(examined, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "a.cubin").write_bytes(bytes(3_000_000))
    line = examined(CUPY_CACHE_DIR=str(tmp_path))["lines"]["kernel cache"]
    assert (line["state"], line["found"]) == ("ok", f"{tmp_path}, 1 file, 3.0 MB")


@slow
def test_the_cases_folder_may_be_missing(hw4, tmp_path):
    result = hw4("doctor", "--json", "--dir", tmp_path / "none", env=NO_GPU)
    line = next(line for line in json.loads(result.stdout)["findings"] if line["name"] == "cases")
    assert line["state"] == "missing"
    assert result.returncode == 0


@slow
def test_a_pipe_gets_plain_whole_lines(hw4):
    result = hw4("doctor", env={**NO_GPU, "PATH": ""})
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert re.match(r"  ok       Python +\d", lines[1])
    assert lines[-1].startswith("hw4 will run on: the CPU")
    assert all(line == line.rstrip() for line in lines)


@quick_of_each(1)
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


def test_a_wrong_option_is_one_sentence(hw4):
    fails(hw4("doctor", "--jsno"), 2, "--jsno")


def test_asking_tells_missing_from_failing(bin_folder, monkeypatch):
    monkeypatch.setenv("PATH", str(bin_folder))
    assert output_of(["nothing"]) is None
    (bin_folder / "torn").write_bytes(b"\x7fELF")
    (bin_folder / "torn").chmod(0o755)
    with pytest.raises(UnansweredError, match="cannot be started: Exec format error"):
        output_of(["torn"])
