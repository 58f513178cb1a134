"""The package as it is installed: a wheel that carries its data, and a Makefile that chooses the right cupy."""

import os
import subprocess
import sys
import zipfile

import pytest
from helpers import ROOT, random_block, write_case

from hw4cli.compute.variants import VARIANTS
from hw4cli.resources import data_path, kernel_source


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of a wheel built from the source tree and unpacked, as pip would."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("hw4cli-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_wheel_computes_generates_and_judges_from_anywhere(installed, tmp_path):
    source = write_case(tmp_path / "in", random_block(2, 40, 8))
    env = {**os.environ, "PYTHONPATH": str(installed), "CUDA_VISIBLE_DEVICES": "-1"}

    def hw4(*args):
        command = [sys.executable, "-m", "hw4cli", *map(str, args)]
        return subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True)

    where = [sys.executable, "-c", "import hw4cli; print(hw4cli.__file__)"]
    assert subprocess.check_output(where, cwd=tmp_path, env=env, text=True).startswith(str(installed))
    hw4("--device", "cpu", source, "out")
    hw4("gen", "t01")
    assert "1 of 1 case AC" in hw4("judge", "t01").stdout


def test_a_wheel_carries_every_kernel_and_the_suite(installed):
    for path in [*(ROOT / "kernels").glob("*.cu*"), ROOT / "testcases/suite.toml"]:
        assert (installed / "hw4cli" / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_a_wheel_carries_the_scoreboards_page(installed):
    assert (installed / "hw4cli/templates/scoreboard.html").read_bytes() == data_path(
        "templates/scoreboard.html"
    ).read_bytes()


def test_the_source_tree_finds_its_own_data():
    assert data_path("kernels") == ROOT / "kernels"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_kernels_text_is_whole_and_its_lines_keep_their_names(name):
    text = kernel_source(name)
    assert "#include" not in text
    assert text.startswith(f'#line 1 "{name}.cu"\n')


@pytest.mark.parametrize(
    ("says", "extra"),
    [
        ("580.159.04, 9.0", "cuda13"),
        ("590.1, 7.5\n590.1, 9.0", "cuda13"),
        ("570.86.10, 9.0", "cuda12"),
        ("580.95, 6.1", "cuda12"),
        ("580.95, 9.0\n580.95, 6.1", "cuda12"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", ""),
    ],
)
def test_make_chooses_the_cupy_that_the_driver_can_run(tmp_path, says, extra):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\ncat <<'EOF'\n{says}\nEOF\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.check_output(["make", "-s", "cuda-extra"], cwd=ROOT, env=env, text=True).strip() == extra


def test_make_installs_nothing_where_a_python_is_given():
    plan = subprocess.check_output(["make", "-n", "gpu-test", "PYTHON=python3"], cwd=ROOT, text=True)
    assert plan.strip() == "python3 -m pytest tests/gpu"


def test_make_help_lists_every_target():
    shown = subprocess.check_output(["make"], cwd=ROOT, text=True)
    for target in ("help", "demo", "test", "gpu-test", "lint", "cases", "hw4", "results", "clean", "clean-cases"):
        assert f"make {target} " in shown
