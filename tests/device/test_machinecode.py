"""The kernels' machine code: found where it was kept, compiled where it was not, several kernels at the same time."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import HANGS
from moody import interrupt, interrupted
from slow import slow

from hw4cli.device import machinecode, nvrtc
from hw4cli.device.gpu import Gpu
from hw4cli.device.machinecode import MachineCode
from hw4cli.device.nvrtc import find
from hw4cli.errors import CompileError, MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem import cpu
from hw4cli.problem.workload import Shape

pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")


def naive(d):
    """A kernel that compiles in a moment."""
    return "naive", ("-DABSMAX_CHUNK=16384", *VARIANTS["naive"].plan(Shape(1, 8, d), DEVICES[90]).options)


def code_in(folder, cc=90):
    return MachineCode(cc, 13000, folder)


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    """Where temporary files are, and what cannot be kept elsewhere."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))  # for processes
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with one kernel's code, and the code."""
    folder = tmp_path_factory.mktemp("kernels")
    return folder, code_in(folder).get(naive(4))


def test_kept_code_is_found_without_a_compiler(kept, monkeypatch):
    folder, code = kept
    monkeypatch.setattr(MachineCode, "compile", None)
    assert code.startswith(b"\x7fELF")
    assert code_in(folder).get(naive(4)) == code


def test_other_options_gpus_and_sources_are_other_code(kept, monkeypatch):
    folder, _ = kept
    asked = []
    monkeypatch.setattr(MachineCode, "compile", lambda self, kernel: asked.append(kernel) or b"new")
    assert code_in(folder).get(naive(8)) == b"new"
    assert code_in(folder, cc=80).get(naive(4)) == b"new"
    monkeypatch.setattr(machinecode, "kernel_source", lambda name: "// another")
    assert code_in(folder).get(naive(4)) == b"new"
    assert len(asked) == 3


@pytest.mark.parametrize("damage", [lambda data: data[:1000], lambda data: b"", lambda data: data[:-1] + b"!"])
def test_a_damaged_file_is_compiled_again(tmp_path, monkeypatch, kept, damage):
    folder, code = kept
    (file,) = folder.iterdir()
    (tmp_path / file.name).write_bytes(damage(file.read_bytes()))
    monkeypatch.setattr(nvrtc.Compiler, "compile", lambda *_: code)
    assert code_in(tmp_path).get(naive(4)) == code
    assert (tmp_path / file.name).read_bytes() == file.read_bytes()


@slow
def test_companions_are_compiled_at_the_same_time_and_kept(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(machinecode, "workers", lambda: 8)
    kernels = code_in(tmp_path)
    assert kernels.get(naive(4), lambda: [naive(4), naive(8), naive(12), naive(8)]) == kept[1]
    kernels.finish(60)
    monkeypatch.setattr(MachineCode, "compile", None)
    for d in (4, 8, 12):
        assert code_in(tmp_path).get(naive(d)).startswith(b"\x7fELF")
    assert len(list(tmp_path.iterdir())) == 3


def test_on_one_core_no_companion_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(machinecode, "workers", lambda: 1)
    monkeypatch.setattr(nvrtc.Compiler, "compile", lambda *_: b"code")
    code_in(tmp_path).get(naive(4), lambda: [naive(8)])
    assert len(list(tmp_path.iterdir())) == 1


def test_any_number_of_kernels_is_compiled_and_kept_and_each_is_reported(tmp_path, kept):
    kernels, reported = code_in(tmp_path), []
    wanted = [naive(d) for d in (4, 8, 12)]
    kernels.compile_all(wanted, reported.append)
    assert sorted(reported) == sorted(wanted)
    assert kernels.missing(wanted) == []
    assert code_in(tmp_path).get(naive(4)) == kept[1]


def test_one_that_does_not_compile_is_missing_afterwards(tmp_path):
    kernels, wrong = code_in(tmp_path), ("naive", ("-DD=4",))
    kernels.compile_all([wrong, naive(4)], lambda kernel: None)
    assert kernels.missing([naive(4), wrong]) == [wrong]


def test_ctrl_c_ends_all_that_compile(tmp_path, monkeypatch):
    started = []

    def start(self, kernel):
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        if len(started) == 2:
            interrupt()
        return started[-1]

    monkeypatch.setattr(cpu, "workers", lambda: 2)
    monkeypatch.setattr(MachineCode, "start", start)
    with interrupted():
        code_in(tmp_path).compile_all([naive(4), naive(8), naive(12)], lambda kernel: None)
    assert [helper.returncode for helper in started] == [-9, -9]


def test_what_is_compiled_apart_is_kept_though_who_asked_for_it_has_ended(tmp_path):
    words = (
        "import sys; from hw4cli.device.machinecode import MachineCode; from pathlib import Path; import json\n"
        "order = [(name, tuple(options)) for name, options in json.loads(sys.argv[2])]\n"
        "print(MachineCode(90, 13000, Path(sys.argv[1])).start(*order, apart=True).pid)"
    )
    order = json.dumps([naive(4), naive(8)])
    command = [sys.executable, "-c", words, str(tmp_path), order]
    # The pipe's reader gets its end when the asking process ends: the other one holds no stream of it.
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    pid = int(found.stdout)
    deadline = time.monotonic() + 120
    while code_in(tmp_path).missing([naive(4), naive(8)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert code_in(tmp_path).missing([naive(4), naive(8)]) == []
    assert pid > 0


def test_only_one_process_compiles_apart_for_a_cache(tmp_path):
    with locked(tmp_path):
        assert code_in(tmp_path).start(naive(4), apart=True).wait(120) == 0
        assert code_in(tmp_path).missing([naive(4)]) == [naive(4)]
    assert code_in(tmp_path).start(naive(4), apart=True).wait(120) == 0
    assert code_in(tmp_path).missing([naive(4)]) == []


@contextmanager
def locked(folder):
    """A process that compiles apart for a folder is at work."""
    number = os.open(folder, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    yield
    os.close(number)


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A cache folder in which nothing can be written any more."""
    write = Path.write_bytes

    def write_elsewhere(path, data):
        if path.is_relative_to(tmp_path / "full"):
            write(path, b"")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_elsewhere)
    (tmp_path / "full").mkdir()
    return tmp_path / "full"


def test_where_the_cache_is_full_kernels_are_kept_in_the_private_temporary_folder(full, temporary, monkeypatch):
    code = code_in(full).get(naive(4))
    assert list(full.iterdir()) == []
    monkeypatch.setattr(MachineCode, "compile", None)
    assert code_in(full).get(naive(4)) == code
    [private] = temporary.iterdir()
    assert private.stat().st_mode & 0o777 == 0o700


def test_a_private_folder_of_somebody_else_is_neither_read_nor_written(full, temporary, monkeypatch):
    code_in(full).get(naive(4))
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    (temporary / f"hw4-kernels-{os.getuid()}").symlink_to(next(temporary.iterdir()))
    assert code_in(full).missing([naive(4)]) == [naive(4)]


def test_without_a_home_kernels_are_kept_in_the_private_temporary_folder(temporary, monkeypatch):
    """Root could make a home for itself, in which nobody would look."""
    for name in ("HOME", "CUPY_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert machinecode.kernel_cache() == temporary / f"hw4-kernels-{os.getuid()}"
    assert not Path("/nonexistent").exists()


def test_a_program_with_a_temporary_folder_of_its_own_gets_a_cache_that_has_room(tmp_path, temporary, monkeypatch):
    """What is compiled for it beforehand would else be kept where it does not look."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    assert machinecode.roomy_cache() == tmp_path

    def none(*_):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "posix_fallocate", none)
    assert machinecode.roomy_cache() == temporary / f"hw4-kernels-{os.getuid()}"
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_can_only_be_read_still_serves(tmp_path, kept, monkeypatch):
    folder, code = kept
    monkeypatch.setenv("CUPY_CACHE_DIR", str(folder))
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    assert machinecode.kernel_cache(os.R_OK) == folder
    assert machinecode.kernel_cache() != folder
    assert code_in(folder).get(naive(4)) == code


def test_a_companion_that_takes_too_long_is_ended(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(machinecode, "workers", lambda: 3)
    monkeypatch.setattr(
        machinecode, "python_command", lambda *_: [sys.executable, "-c", "import time; time.sleep(600)"]
    )
    kernels = code_in(tmp_path)
    kernels.get(naive(4), lambda: [naive(8), naive(12)])
    began = time.monotonic()
    kernels.finish(0.5)
    assert time.monotonic() - began < HANGS


def test_what_stops_the_compiling_ends_the_companions(tmp_path, monkeypatch):
    started = []

    class Helper(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__([sys.executable, "-c", "import time; time.sleep(600)"], **kwargs)
            started.append(self)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Helper)
    monkeypatch.setattr(machinecode, "workers", lambda: 3)
    monkeypatch.setattr(MachineCode, "compile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        code_in(tmp_path).get(naive(4), lambda: [naive(8), naive(12)])
    assert [helper.returncode for helper in started] == [-9, -9]


@pytest.mark.parametrize("folder", ["/proc/none", None])
def test_a_folder_that_cannot_be_written_is_no_obstacle(monkeypatch, folder):
    monkeypatch.setattr(nvrtc.Compiler, "compile", lambda *_: b"code")
    assert code_in(folder and Path(folder)).get(naive(4), lambda: [naive(8)]) == b"code"


def test_a_kernel_that_does_not_compile_is_quoted(tmp_path):
    with pytest.raises(CompileError, match=r"naive.cu\(\d+\): error: "):
        code_in(tmp_path).get(("naive", ("-DD=4",)))
    assert not list(tmp_path.iterdir())


def test_a_gpu_that_the_compiler_no_longer_knows_is_told_what_it_knows():
    compiler = nvrtc.Compiler(find(13000, 90), 13000, 90)
    with pytest.raises(CompileError, match=r"NVRTC \d+\.\d+ knows compute capability \d\.\d and newer ones"):
        compiler.compile("", "x.cu", (), 30)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Where NVRTC may be: two Python packages and a toolkit."""
    for place in ("site/nvidia/cu13/lib/libnvrtc.so.13", "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    for major in (12, 13):
        (tmp_path / "cuda/lib64").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"cuda/lib64/libnvrtc.so.{major}").touch()
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "site")])
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda"))
    return tmp_path


@pytest.mark.parametrize(
    ("driver", "cc", "library"),
    [
        (13000, 90, "site/nvidia/cu13/lib/libnvrtc.so.13"),
        (14010, 90, "site/nvidia/cu13/lib/libnvrtc.so.13"),
        (12080, 90, "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"),  # the driver is too old for CUDA 13
        (13000, 61, "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"),  # CUDA 13 no longer knows the GPU
    ],
)
def test_the_newest_compiler_that_driver_and_gpu_allow_is_taken(places, driver, cc, library):
    assert find(driver, cc) == places / library


def test_a_toolkit_is_taken_where_no_package_brings_the_compiler(places):
    (places / "site/nvidia/cu13/lib/libnvrtc.so.13").unlink()
    assert find(13000, 90) == places / "cuda/lib64/libnvrtc.so.13"


def test_where_we_find_no_compiler_the_search_that_comes_with_cupy_is_asked():
    pytest.importorskip("cuda.pathfinder")
    assert nvrtc.Compiler(Path("/none/libnvrtc.so.13"), 13000, 90).version


@pytest.mark.parametrize(
    ("library", "driver", "words"),
    [(Path("/none/libnvrtc.so.13"), 13000, "libnvrtc.so.13"), (None, 11080, "older than CUDA 12")],
)
def test_no_compiler_is_one_sentence(monkeypatch, library, driver, words):
    monkeypatch.setattr(nvrtc, "_by_pathfinder", lambda: None)
    with pytest.raises(MachineError, match=rf"NVRTC does not load: .*{words}.* \(pip install"):
        nvrtc.Compiler(library, driver, 90)


def test_no_two_kernels_are_loaded_from_the_same_path():
    """cupy keeps modules by path: the second kernel would be the first."""
    from hw4cli.device.gpu import as_file

    with as_file(b"one") as first:
        assert Path(first).read_bytes() == b"one"
    with as_file(b"two") as second:
        assert Path(second).read_bytes() == b"two"
    assert first != second
    assert not Path(second).exists()


def test_what_one_call_needs_is_compiled_at_the_same_time_and_one_kernel_by_itself():
    asked, gpu = [], Gpu.__new__(Gpu)
    plans = [VARIANTS[name].plan(Shape(1, 128, 64), DEVICES[90]) for name in ("split", "exact", "flash")]
    for there in (0, 1, 2, 3):
        gpu.code = SimpleNamespace(
            missing=lambda kernels, there=there: [*kernels][there:],
            compile_all=lambda kernels, compiled: asked.append(len(kernels)),
        )
        gpu.prepare(plans)
    assert asked == [3, 2]
    gpu.code.missing = list
    gpu.code.compile_all = lambda kernels, compiled: (_ for _ in ()).throw(OSError("no process can be started"))
    gpu.prepare(plans)  # each is compiled when it is asked for
