"""Programs for a GPU on a machine where none answers: the judging stops, and nobody is blamed."""

import json
import shutil
import subprocess

import pytest
from classes import correct, judge_class, submit
from helpers import run_hw4
from needs import needs, skip_without
from slow import slow

from hw4cli.sandbox.gpu import needs_gpu
from hw4cli.system.exits import names_missing_gpu

NO_DRIVER = "CUDA driver version is insufficient for CUDA runtime version"
SAYS_SO = f'#!/bin/sh\necho "GPUassert: {NO_DRIVER} hw4.cu 12" >&2\nexit 1\n'


@pytest.fixture(scope="module")
def built_for_gpu(tmp_path_factory):
    """A native program with a section of device code, as nvcc's programs have it, that says what theirs say."""
    skip_without("cc")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "hw4.c").write_text(
        "#include <stdio.h>\n"
        'const char kernel[] __attribute__((section(".nv_fatbin"), used)) = "code";\n'
        f'int main(void) {{ fputs("{NO_DRIVER}\\n", stderr); return 1; }}\n'
    )
    subprocess.run(["cc", "-o", "hw4", "hw4.c"], cwd=folder, check=True)
    return folder / "hw4"


def prebuilt(workdir, user, program):
    shutil.copy2(program, submit(workdir, user) / "hw4")


def test_a_class_of_programs_for_a_gpu_is_not_begun_where_none_answers(workdir, folder, built_for_gpu):
    for user in ("ann", "ben", "cid"):
        prebuilt(workdir, user, built_for_gpu)
    result = judge_class(folder)
    assert result.returncode == 3
    assert result.stderr.count("no GPU answers here") == 1
    assert "NA" not in result.stdout + result.stderr
    assert not list((workdir / "out").glob("*/journal.jsonl")), "nobody has a verdict"


def test_such_a_class_goes_on_where_the_gpu_is(workdir, folder, built_for_gpu):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    prebuilt(workdir, "ben", built_for_gpu)
    assert judge_class(folder).returncode == 3
    shutil.rmtree(workdir / "submissions" / "ben")
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    assert judge_class(folder, "--resume").returncode == 0
    assert (workdir / "runs").read_text().count("run") == 2, "ann is not judged again"


def test_one_program_for_a_gpu_is_not_run_where_none_answers(workdir, folder, built_for_gpu):
    result = run_hw4("judge", "t01", "--program", built_for_gpu, "--dir", folder)
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1
    assert "no GPU answers here" in result.stderr


def test_a_programs_own_message_of_a_missing_driver_is_the_judges_failure_here(workdir, folder):
    """A script may load anything: what it needs shows only when it runs."""
    submit(workdir, "ann", hw4=SAYS_SO)
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    result = judge_class(folder)
    assert result.returncode == 3
    found = {one["user"]: one for one in json.loads((workdir / "out" / "results.json").read_text())["standings"]}
    case = found["ann"]["results"][0]
    assert case["verdict"] == "JE"
    assert "no GPU answers here" in case["reason"]
    assert NO_DRIVER in case["reason"]
    assert found["ben"]["results"][0]["verdict"] == "AC"


def test_a_right_answer_counts_whatever_the_program_says(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs") + f"echo '{NO_DRIVER}' >&2\n")
    assert judge_class(folder).returncode == 0
    assert json.loads((workdir / "out" / "results.json").read_text())["standings"][0]["passed"] == 1


def test_a_gpu_that_falls_away_stops_a_class_which_can_be_resumed(workdir, folder, monkeypatch):
    tools = workdir / "tools"
    tools.mkdir()
    smi = tools / "nvidia-smi"  # the driver's tool still lists the GPU; CUDA, whose library is not here, has lost it
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA Fake (UUID: GPU-00000000-0000-0000-0000-000000000000)'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    submit(workdir, "ben", hw4="#!/bin/sh\necho 'cudaErrorDevicesUnavailable: GPU is lost' >&2\nexit 1\n")
    submit(workdir, "cid", hw4=correct(folder, workdir / "runs"))
    result = judge_class(folder)
    assert result.returncode == 3
    assert "does not answer any more" in result.stderr
    assert not (workdir / "out" / "cid" / "journal.jsonl").exists()
    shutil.rmtree(workdir / "submissions" / "ben")
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    assert judge_class(folder, "--resume").returncode == 0
    assert (workdir / "runs").read_text().count("run") == 3, "ann is not judged again"


def test_what_needs_a_gpu_is_seen_in_the_program(built_for_gpu, tmp_path):
    assert needs_gpu(built_for_gpu)
    script = tmp_path / "hw4"
    script.write_text("#!/bin/sh\n# .nv_fatbin\n")
    assert not needs_gpu(script)
    assert not needs_gpu(tmp_path / "none")
    (tmp_path / "empty").touch()
    assert not needs_gpu(tmp_path / "empty")


@slow
@needs("nvcc")
def test_what_nvcc_builds_is_seen_and_says_what_is_known(tmp_path):
    (tmp_path / "hw4.cu").write_text(
        "#include <cstdio>\n__global__ void k() {}\n"
        "int main() { void *p; cudaError_t e = cudaMalloc(&p, 4); k<<<1, 1>>>();\n"
        '  if (e) { fprintf(stderr, "%s\\n", cudaGetErrorString(e)); return 1; } }\n'
    )
    subprocess.run(["nvcc", "-o", "hw4", "hw4.cu"], cwd=tmp_path, check=True, capture_output=True)
    assert needs_gpu(tmp_path / "hw4")
    ran = subprocess.run([tmp_path / "hw4"], capture_output=True, text=True, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert names_missing_gpu(ran.stderr), ran.stderr


@pytest.mark.parametrize("text", ["cudaErrorNoDevice", "no ROCm-capable device is detected", "CUDA_ERROR_NO_DEVICE"])
def test_messages_of_a_missing_gpu_are_known(text):
    assert names_missing_gpu(f"warning: slow\nError: {text} at hw4.cu:3\n")


@pytest.mark.parametrize(
    "text", ["", "an illegal memory access was encountered", "out of memory", "no such device file"]
)
def test_other_failures_are_the_programs(text):
    assert not names_missing_gpu(text)
