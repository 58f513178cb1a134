"""The package as it is installed: a wheel that carries its data, and a Makefile that chooses the right cupy."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
from helpers import JUDGE_T01, ROOT, random_block, write_case
from needs import needs
from slow import slow
from solutions import MATRICES

from hw4cli.plans.ladder import VARIANTS
from hw4cli.resources import data_path, kernel_source


def built(kind, source, folder):
    """The wheel or the source distribution ("sdist") of a source tree."""
    build = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (file,) = folder.glob("hw4cli-*")
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of a wheel built from the source tree and unpacked, as pip would."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_wheel_carries_every_suite(installed):
    suites = {path.name for path in (ROOT / "testcases").glob("*.toml")}
    assert {"amd.toml", "suite.toml"} <= suites
    assert {path.name for path in (installed / "hw4cli" / "testcases").iterdir()} >= suites


@slow
def test_a_source_distribution_makes_the_same_wheel_and_can_be_tested(wheel, tmp_path):
    with tarfile.open(built("sdist", ROOT, tmp_path / "sdist")) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11 has it from 3.11.4 on
        archive.extractall(tmp_path, **safely)
    (tree,) = tmp_path.glob("hw4cli-*")
    assert {"Makefile", "tests", "docs", "benchmarks", "LICENSE"} <= {path.name for path in tree.iterdir()}
    again = built("wheel", tree, tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert set(first.namelist()) == set(second.namelist())


def test_a_wheel_has_the_commands_script_which_an_installer_makes_executable(wheel):
    with zipfile.ZipFile(wheel) as archive:
        scripts = [entry for entry in archive.infolist() if ".data/scripts/" in entry.filename]
        assert {script.filename.rpartition("/")[2] for script in scripts} == {"hw4", "hw4-judge", "hw4-amd-judge"}
        for script in scripts:
            assert script.external_attr >> 16 & 0o111
            assert archive.read(script).startswith(b"#!python\n")  # which it replaces by its own


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
    assert "1 of 1 case AC" in hw4(*JUDGE_T01).stdout


def test_a_wheel_carries_every_kernel_and_the_suite(installed):
    for path in [*(ROOT / "kernels").glob("*.cu*"), *(ROOT / "testcases").glob("*.toml")]:
        assert (installed / "hw4cli" / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_a_wheel_carries_the_pages_and_their_styles(installed):
    templates = {path.name: path.read_bytes() for path in data_path("templates").iterdir()}
    assert {"scoreboard.html", "scoreboard.css", "scoreboard.js", "handout.html", "common.css"} <= set(templates)
    carried = {path.name: path.read_bytes() for path in (installed / "hw4cli/templates").iterdir()}
    assert carried == templates


@pytest.fixture(scope="module")
def judge_alone(tmp_path_factory):
    """The folder of the judge's own wheel, unpacked as pip would."""
    folder = tmp_path_factory.mktemp("judge")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT / "packaging/hw4-judge")], check=True, capture_output=True)
    (wheel,) = folder.glob("hw4_judge-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_judges_wheel_holds_no_kernel_and_nothing_that_computes(judge_alone):
    names = {path.relative_to(judge_alone / "hw4cli").as_posix() for path in (judge_alone / "hw4cli").rglob("*")}
    assert not [name for name in names if name.endswith((".cu", ".cuh", ".hip"))]
    assert not {"kernels", "plans", "device", "arrays", "lab", "stream", "emulator", "torch.py"} & names
    assert {"judge/session.py", "testcases/suite.toml", "templates/scoreboard.html"} <= names
    (metadata,) = judge_alone.glob("*.dist-info/METADATA")
    assert "cupy" not in metadata.read_text()


def test_whatever_the_judge_alone_imports_is_in_its_wheel(judge_alone):
    asked = {  # what commands import only where `has_solution` says so
        "cli/gen.py": {"device.float64"},
        "cli/judge.py": {"emulator.program.attention", "emulator.program.build"},
        "judge/racecheck.py": {"emulator.build", "emulator.program.attention", "emulator.program.build"},
        "cli/terminal/options.py": {"device.machinecode"},
        "cli/doctor.py": {"lab.arrays.named", "doctor.measure", "doctor.prepare", "stream.nodes.model"},
        "doctor/host.py": {"device.machinecode", "doctor.bytecode"},
        "entry.py": {"device.driver"},
        "cli/terminal/grammar.py": {"lab.arrays.named", "cli.terminal.launches"},
    }
    package, missing = judge_alone / "hw4cli", {}
    for path in package.rglob("*.py"):
        for module in re.findall(r"^ *from hw4cli\.([\w.]+) import", path.read_text(), re.MULTILINE):
            place = package / module.replace(".", "/")
            if not place.is_dir() and not place.with_suffix(".py").exists():
                missing.setdefault(path.relative_to(package).as_posix(), set()).add(module)
    del missing["__init__.py"]  # the public names of all of hw4, each imported when it is used
    assert missing == asked


@slow
def test_the_judge_alone_makes_cases_judges_programs_and_says_what_it_is(judge_alone, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(judge_alone)}

    def run(*words, code=0):
        command = [sys.executable, *map(str, words)]
        result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr

    assert "new-kernel" not in run("-m", "hw4cli", "--help")
    run("-m", "hw4cli", "gen", "t01")
    (tmp_path / "hw4").write_text(f'#!/bin/sh\ncp {tmp_path}/testcases/t01.out "$2"\n')
    (tmp_path / "hw4").chmod(0o755)
    (script,) = judge_alone.glob("*.data/scripts/hw4-judge")
    assert "1 of 1 case AC" in run(script, "t01")
    (tmp_path / "wrong").write_text('#!/bin/sh\nhead -c 5242880 /dev/zero > "$2"\n')
    (tmp_path / "wrong").chmod(0o755)
    assert "NA" in run("-m", "hw4cli", "judge", "t01", "--program", "./wrong", code=1)
    assert "this is the judge alone" in run("-m", "hw4cli", "doctor")
    for user in ("ann", "bob"):
        (tmp_path / "class" / user).mkdir(parents=True)
        (tmp_path / "class" / user / "hw4.cu").write_text(MATRICES)
    assert "100%  ann" in run("-m", "hw4cli", "similar", "class")
    assert "the judge alone" in run("-m", "hw4cli", "testcases/t01", "out", code=2)
    assert "the judge alone" in run("-m", "hw4cli", "doctor", "--prepare", code=2)
    emulated = ("--device", "emulate", "--program", "./wrong")
    assert "the judge alone" in run("-m", "hw4cli", "judge", "t01", *emulated, code=2)
    assert re.search(r"hw4 judge +\./hw4, on all thirty cases", run("-m", "hw4cli", "judge", "--help"))
    said = run("-c", "from hw4cli import exact_attention, attention", code=1).splitlines()[-1]
    assert said == "ImportError: there is no hw4cli.attention here: this is the judge alone, which computes nothing"


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
@needs("make")
def test_make_chooses_the_cupy_that_the_driver_can_run(tmp_path, says, extra):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\ncat <<'EOF'\n{says}\nEOF\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.check_output(["make", "-s", "cuda-extra"], cwd=ROOT, env=env, text=True).strip() == extra


@needs("make")
def test_make_installs_nothing_where_a_python_is_given():
    plan = subprocess.check_output(["make", "-n", "gpu-test", "PYTHON=python3"], cwd=ROOT, text=True)
    together, alone = plan.strip().splitlines()
    assert re.match(r'python3 -m pytest tests/gpu -n \d+ --dist worksteal -m "not alone"; ', together)
    assert alone == "python3 -m pytest tests/gpu -m alone && exit $together"


@needs("make")
def test_make_help_lists_every_target():
    shown = subprocess.check_output(["make"], cwd=ROOT, text=True)
    for target in (
        "help",
        "demo",
        "test",
        "test-all",
        "test-exhaustive",
        "gpu-test",
        "lint",
        "cases",
        "hw4",
        "results",
        "dist",
        "clean",
        "clean-cases",
    ):
        assert f"make {target} " in shown
