"""What many tests start from: the command, a case, a class, a page; and which tests are slow (tests/README.md)."""

import functools
import os
import signal
import sys
from contextlib import suppress
from subprocess import CompletedProcess

# NumPy's BLAS reads it when it is loaded: a second thread waits by spinning, which doubles what small products take of
# the processors' time. Tests run beside others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Each of the hundreds of commands that the tests start would compile hw4's sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import cputime
import pytest
from boards import write_class
from browser import chromium  # noqa: F401 (a fixture)
from cluster import Cluster
from helpers import ROOT, make_cases, run_here, run_hw4
from keptbuilds import OneOfAll, keeping, kept_folder
from needs import COMPILER, skip_without, why_not
from slow import mark_others

from hw4cli.cli import run_command
from hw4cli.device.nvrtc import Compiler as NvrtcCompiler
from hw4cli.system.gpufiles import nvidia_gpu_is_here

# And this process, which has read that variable already, all files of tests, for 12 s of processor time.
sys.dont_write_bytecode = False

# The tests may run inside `make test`, or inside a job of Slurm's: what a make, or a Slurm, inside them does must not
# depend on the one around them.
for name in list(os.environ):
    if name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON") or name.startswith(("SLURM_", "SBATCH_")):
        del os.environ[name]

# hipcc would take nvcc where that is installed, which compiles nothing for AMD's GPUs.
os.environ.setdefault("HIP_PLATFORM", "amd")

# Nor on signals that are ignored around them (`make test &` in a script, nohup), which the command respects.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# Nor on how busy the machine is: hypothesis gives an example 0.2 s otherwise.
with suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("loaded", deadline=None)
    settings.load_profile("loaded")

GPU_TESTS = ROOT / "tests" / "gpu"
GPU_IS_HERE = nvidia_gpu_is_here() or os.path.exists("/dev/kfd")  # noqa: PTH110
SLOW_FIXTURES = {"chromium", "cluster"}  # a browser, a Slurm
# In which order tests begin, the others behind: files that take minutes in few tests, or mostly wait, are not to be the
# end of a run by several processes, nor all to wait at the same time.
BEGIN_FIRST = ("judge/test_course.py", "test_as_user.py", "arrays/", "stream/nodes/test_slurm_nodes.py")


def pytest_addoption(parser):
    parser.addoption("--cpu", action="store_true", help="say where the processors' time goes: folders, files, tests")


def gpu_tests_left_out(config):
    """Whether tests/gpu is not collected: without a GPU it is thousands of skipped tests, which few ask for."""
    asked = [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
    by_name = any(path.is_relative_to(GPU_TESTS) for path in asked)
    return not GPU_IS_HERE and not by_name and any(GPU_TESTS.is_relative_to(path) for path in asked)


def pytest_ignore_collect(collection_path, config):
    return True if collection_path == GPU_TESTS and gpu_tests_left_out(config) else None


def pytest_configure(config):
    if hasattr(config.option, "loadscopereorder"):  # pytest-xdist would begin with the files of many tests
        config.option.loadscopereorder = False


def place_of(item):
    """The number of what a test belongs to in BEGIN_FIRST."""
    places = (n for n, name in enumerate(BEGIN_FIRST) if item.nodeid.startswith(f"tests/{name}"))
    return next(places, len(BEGIN_FIRST))


def pytest_collection_modifyitems(items):
    mark_others(items)
    items.sort(key=place_of)
    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    cputime.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    cputime.end_of_phase(item, report)
    return report


def pytest_terminal_summary(terminalreporter, config):
    if gpu_tests_left_out(config):
        terminalreporter.write_line("tests/gpu: not collected, as there is no GPU here (make gpu-test, on a GPU)")
    if config.getoption("--cpu"):
        cputime.write_summary(terminalreporter)


@pytest.fixture(scope="session", autouse=True)
def kernels_on_the_cpu_need_a_compiler():
    """Where there is none, a test that would execute a kernel in this process is skipped."""
    with pytest.MonkeyPatch.context() as patch:
        if why_not(COMPILER):
            patch.setattr("hw4cli.emulator.build.find_compiler", lambda: skip_without(COMPILER))
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled(pytestconfig, tmp_path_factory):
    """A folder for what is compiled, which all tests share, those of other processes and of later runs of the same
    sources too: the runtime of kernels on the CPU takes twenty seconds to compile. On a GPU it is the user's, where
    kernels are kept from run to run."""
    base = tmp_path_factory.getbasetemp()
    folder = kept_folder(pytestconfig) or (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        if not GPU_IS_HERE:
            patch.setenv("CUPY_CACHE_DIR", str(folder))
            patch.setattr("hw4cli.emulator.build.ONE_AT_A_TIME", OneOfAll(folder))
            patch.setattr(NvrtcCompiler, "build", keeping(NvrtcCompiler.build, folder))
        yield


@pytest.fixture
def hw4():
    """Run `hw4 ARGS` in this process. A test whose point is the process takes `hw4_started`."""
    return run_here


@pytest.fixture
def hw4_started():
    """Run `hw4 ARGS` as a process of its own."""
    return run_hw4


@pytest.fixture
def hw4_in_process(monkeypatch, capsys):
    """As `hw4`, in this process, which saves the start of another: where the process is not the point. What functions
    keep of an earlier run is forgotten, as the environment may be another."""

    def run(*args, cwd=None, env=None, timeout=None):
        for name, module in list(sys.modules.items()):
            if name.startswith("hw4cli"):
                for value in list(vars(module).values()):
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
        with monkeypatch.context() as patch:
            if cwd:
                patch.chdir(cwd)
            for name, value in (env or {}).items():
                patch.setenv(name, str(value))
            capsys.readouterr()
            code = run_command([str(arg) for arg in args])
            return CompletedProcess(args, code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with t01 and its answer."""
    return make_cases(tmp_path_factory.mktemp("cases"), "t01")


@pytest.fixture(scope="session")
def two(tmp_path_factory):
    """A folder with t01, t02 and their answers."""
    return make_cases(tmp_path_factory.mktemp("cases"), "t01", "t02")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A running Slurm of one node."""
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A new current folder, with an empty folder `submissions` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "submissions").mkdir()
    return tmp_path


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """The scoreboard of a class as a page, written by the command."""
    folder = tmp_path_factory.mktemp("class")
    path = folder / "board.html"
    result = run_hw4("scoreboard", write_class(folder / "hw4"), "-o", path)
    assert result.returncode == 3, result.stderr  # one of its journals is damaged
    return path


@pytest.fixture
def hw4_here(tmp_path, monkeypatch, capsys):
    """Run `hw4 ARGS` in a folder of its own, in this process: for mistakes that are reported at once."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        code = run_command([str(arg) for arg in args])
        return CompletedProcess(args, code, *capsys.readouterr())

    return run
