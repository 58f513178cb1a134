"""The part of cupy that a run imports; it becomes the whole where more is asked for. Needs cupy, but no GPU."""

import subprocess
import sys

import pytest
from helpers import ROOT, hw4_env

pytest.importorskip("cupy", reason="cupy is not installed")

WITHOUT = {"cupy.fft", "cupy.random", "cupy.linalg"}
PRELUDE = "import sys; from hw4cli.device import cupyparts\n"


def run(script):
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], cwd=ROOT, env=hw4_env(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_part_holds_what_a_run_needs_and_not_the_rest():
    names = "RawModule ndarray cuda.runtime.getDeviceCount cuda.Device cuda.Stream cuda.Event cuda.alloc_pinned_memory"
    names += " cuda.memory.OutOfMemoryError cuda.runtime.CUDARuntimeError cuda.driver.CUDADriverError"
    script = f"cupy = cupyparts.load()\n{chr(10).join(f'cupy.{name}' for name in names.split())}\nprint(*sys.modules)"
    assert not set(run(script).split()) & WITHOUT


@pytest.mark.parametrize(
    "use",
    [
        "import cupy; assert cupy.matmul and cupy.__version__ and cupy.linalg.norm",
        "from cupy import asarray, testing",
        "import cupyx",
        "import cupy.random; assert cupy.random.rand and cupy.fft.fft",
        "import threading, cupy; t = [threading.Thread(target=lambda: cupy.matmul) for _ in range(8)]; "
        "[x.start() for x in t]; [x.join() for x in t]; assert cupy.matmul",
    ],
)
def test_whoever_needs_more_finds_the_whole(use):
    assert "cupy.linalg" in run(
        f"part = cupyparts.load()\n{use}\nimport cupy; assert cupy is part\nprint(*sys.modules)"
    )


def test_memory_comes_from_pools_as_it_does_of_the_whole():
    run(
        "cuda = cupyparts.load().cuda\nassert cuda.get_allocator().__self__.__class__ is cuda.MemoryPool\n"
        "import cupy; assert cupy.matmul and cuda.get_allocator() == cupy.get_default_memory_pool().malloc"
    )


def test_what_there_is_not_is_missing_as_usual():
    run("cupy = cupyparts.load()\nassert not hasattr(cupy, 'nonsense') and not hasattr(cupy, '__wrapped__')")


@pytest.mark.parametrize(
    "trouble", ["cupyparts.TESTED = set()", "cupyparts._import_parts = lambda cupy: cupy.nonsense"]
)
def test_another_version_or_another_structure_is_a_plain_import(trouble):
    assert "cupy.linalg" in run(f"{trouble}\ncupy = cupyparts.load()\nassert cupy.matmul\nprint(*sys.modules)")


def test_no_cupy_is_no_module():
    run(
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\ntry: cupyparts.load()\n"
        "except ModuleNotFoundError as error: assert error.name == 'cupy' and 'cupy' not in sys.modules\n"
        "else: raise SystemExit(1)"
    )


def test_no_process_is_started_and_no_library_of_cudas_looked_for():
    watch = "seen = []\nsys.addaudithook(lambda event, args: seen.append((event, str(args[:1]))))\n"
    show = "print(*(args for event, args in seen if event == 'subprocess.Popen' or 'cu' in args and 'dlopen' in event))"
    assert not run(f"{watch}cupyparts.load()\n{show}").strip()
    ask = "import cupy_backends.cuda.libs as libs\nprint(libs._pathfinder.load_nvidia_dynamic_lib)"
    assert "_Pathfinder" not in run(f"cupyparts.load()\n{ask}")
