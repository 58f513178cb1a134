"""What is compiled for the CPU is kept: whole, where there is room for it, and made anew where it is neither."""

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from needs import COMPILER, needs

from hw4cli.emulator import build
from hw4cli.errors import MachineError
from hw4cli.resources import kernel_path

pytestmark = needs(COMPILER)


class Compilers:
    """Compilers that give a program of the system's in the place of what they are asked for."""

    def __init__(self):
        self.called = 0

    def __call__(self, command, **_):
        self.called += 1
        shutil.copy(shutil.which("true"), command[command.index("-o") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made():
    """The file of a kernel, and how many compilers were called for it."""
    compilers = Compilers()
    found = build.shared_object(kernel_path("naive"), {"D": 4}, 80, 32, build.PLAIN, run=compilers)
    assert found.read_bytes() == Path(shutil.which("true")).read_bytes()
    return found, compilers.called


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damaged", [cut, emptied])
def test_what_is_kept_and_damaged_is_compiled_anew(cache, damaged):
    first, called = made()
    assert first.parent == cache and called
    assert made() == (first, 0)
    damaged(first)
    again, called = made()
    assert called == 2, "compiled and linked: the runtime is kept"
    for one in cache.glob("*.o"):
        damaged(one)
    damaged(again)
    last, called = made()
    assert called == 2 + len(list(cache.glob("*.o")))
    assert made() == (last, 0)


def test_where_the_cache_is_full_the_private_folder_keeps_it(cache, monkeypatch):
    copy, refused = shutil.copy, []

    def full(source, to):
        if Path(to).is_relative_to(cache):
            refused.append(to)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(to))
        return copy(source, to)

    monkeypatch.setattr(shutil, "copy", full)
    first, called = made()
    assert refused and called and not list(cache.iterdir())
    assert first.parent.name == f"hw4-kernels-{os.getuid()}"
    assert made() == (first, 0)
    monkeypatch.setattr(build, "spare_folder", lambda make=False: None)
    with pytest.raises(MachineError, match=r"cannot write .*\.o: No space left on device"):
        made()


def test_what_cannot_be_read_there_is_kept_in_the_private_folder(cache):
    """Another user's, where several have one cache; here a folder, which root cannot read either."""
    first, _ = made()
    first.unlink()
    first.mkdir()
    second, called = made()
    assert called and second.parent.name == f"hw4-kernels-{os.getuid()}"
    assert made() == (second, 0)


def test_who_finds_the_runtime_does_not_wait_for_who_compiles_another(cache, monkeypatch):
    made()

    class Taken:
        def __enter__(self):
            raise AssertionError("waits for who compiles a runtime")

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(build, "ONE_AT_A_TIME", Taken())
    compilers = Compilers()
    build.shared_object(kernel_path("naive"), {"D": 8}, 80, 32, build.PLAIN, run=compilers)
    assert compilers.called == 2, "compiled and linked"
