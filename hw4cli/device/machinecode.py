"""The kernels' machine code: compiled by NVRTC or hiprtc the first time, then read from a cache folder.

If one kernel is not in the cache, its companions usually are not, either: those that the assignment's other files need
on this GPU. They are compiled at the same time, each in its own process, because within one process NVRTC compiles one
after the other. Any number of processes may do so at once: a file appears only when it is complete.

A folder that can be read, but not written, or is full, still serves: what is missing there is kept in a private one.
"""

import fcntl
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hw4cli.device.hip import hiprtc
from hw4cli.device.hip.hiprtc import HipCompiler
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.problem.cpu import on_all_cores, workers
from hw4cli.resources import kernel_source, python_command

if TYPE_CHECKING:
    import subprocess

Kernel = tuple[str, tuple[str, ...]]  # a variant's name or a user's file, and the compiler's options for its macros
OPTIONS = ("-std=c++17", "-ftz=true", "--device-as-default-execution-space")
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
DIGEST_BYTES = 32  # SHA-256, at the start of a file
ROOM = 8 << 20  # bytes that the kernels of all thirty cases need, and as many again of others


class MachineCode:
    """The machine code of kernels for one GPU and driver, cached in a folder, or not at all if `folder` is None."""

    def __init__(self, cc: int, driver: int, folder: Path | None, library: Path | None = None, gfx: str = "") -> None:
        self.cc, self.driver, self.folder, self.gfx = cc, driver, folder, gfx
        self._library = library or (hiprtc.find() if gfx else find(driver, cc))
        self._loaded: Compiler | HipCompiler | None = None
        self._name = cache(self._name_of)  # a kernel's files are read once
        self._helpers: list[subprocess.Popen[bytes]] = []

    @property
    def compiler(self) -> Compiler | HipCompiler:
        """NVRTC, or hiprtc for a GPU of AMD's, loaded. Raises MachineError if it cannot be."""
        if self._loaded is None:
            amd = self.gfx
            self._loaded = HipCompiler(self._library, amd) if amd else Compiler(self._library, self.driver, self.cc)
        return self._loaded

    def get(self, kernel: Kernel, companions: Callable[[], Iterable[Kernel]] = tuple) -> bytes:
        """A kernel's code; if it must be compiled, compiling those of its companions that are missing is started, too.

        `finish` waits for them. Raises CompileError, and MachineError if there is no compiler.
        """
        code = self._kept(kernel)
        if code is not None:
            return code
        self._compile_elsewhere(other for other in companions() if other != kernel)
        try:
            return self.compile(kernel)
        except BaseException:
            for helper in self._helpers:
                helper.kill()
            self.finish(0)
            raise

    def finish(self, seconds: float) -> None:
        """Wait until all companions are compiled, so long at most; end those that need longer: whoever needs them
        compiles them."""
        if not self._helpers:
            return
        import subprocess

        deadline = time.monotonic() + max(0, seconds)
        while self._helpers:
            try:
                self._helpers[-1].wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._helpers[-1].kill()
                self._helpers[-1].wait()
            self._helpers.pop()

    def compile(self, kernel: Kernel) -> bytes:
        """Compile a kernel, and put its code into the cache. Raises as `get` does."""
        name, options = kernel
        compiler, file = self.compiler, f"{Path(name).stem}.cu"
        if isinstance(compiler, HipCompiler):
            code = compiler.compile(self._source(name), file, (*hiprtc.OPTIONS, *options))
        else:
            code = compiler.compile(self._source(name), file, (*OPTIONS, *options), self.cc)
        if self.folder:
            self._keep(self._name(kernel), hashlib.sha256(code).digest() + code)
        return code

    def is_kept(self, kernel: Kernel) -> bool:
        """Whether a kernel need not be compiled."""
        return self._kept(kernel) is not None

    def _kept(self, kernel: Kernel) -> bytes | None:
        if self.folder is None:
            return None
        name = self._name(kernel)
        return _read(self.folder / name) or ((spare := spare_folder()) and _read(spare / name)) or None

    def _keep(self, name: str, data: bytes) -> None:
        """Write a file; where nothing can be written, the next process compiles again."""
        if self.folder and not _written(self.folder / name, data) and (spare := spare_folder(make=True)):
            _written(spare / name, data)

    @property
    def compiler_id(self) -> str:
        """What distinguishes compilers: the file, which need not be loaded for that, or else the version."""
        if self._library:
            status = self._library.stat()
            return f"{status.st_size} {status.st_mtime_ns}"
        return self.compiler.version

    def _name_of(self, kernel: Kernel) -> str:
        """The file in which a kernel's code is cached: the name depends on source, options, GPU and compiler."""
        name, options = kernel
        facts = [self._source(name), OPTIONS, options, self.cc, self.compiler_id]
        facts += [hiprtc.OPTIONS, self.gfx] if self.gfx else []
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return f"hw4-{digest[:40]}.{'hsaco' if self.gfx else 'cubin'}"

    def missing(self, kernels: Iterable[Kernel]) -> list[Kernel]:
        """Those kernels, each once, whose code is not in the cache; none if there is no cache."""
        return [kernel for kernel in dict.fromkeys(kernels) if self._kept(kernel) is None] if self.folder else []

    def compile_all(self, kernels: Iterable[Kernel], compiled: Callable[[Kernel], None]) -> None:
        """Compile kernels into the cache, each in a process of its own, as many at a time as there are cores.

        `compiled` is called after each, by several threads: also after one that does not compile, or could not be kept,
        which `missing` still lists. Raises OSError if no process can be started.
        """
        import subprocess

        stop = threading.Event()

        def compile_one(kernel: Kernel) -> None:
            helper = self.start(kernel)
            while not stop.is_set():
                with suppress(subprocess.TimeoutExpired):
                    helper.wait(0.1)
                    compiled(kernel)
                    return
            helper.kill()
            helper.wait()

        on_all_cores(compile_one, [(kernel,) for kernel in kernels], stop)

    def start(self, *kernels: Kernel, apart: bool = False) -> "subprocess.Popen[bytes]":
        """Start a process that compiles kernels, one after the other, into the cache. Raises OSError if it cannot be
        started. `apart`: it goes on when this process has ended, whatever ends that, at the lowest priority."""
        import subprocess  # here, because it takes 6 ms

        env = {**os.environ, **NO_GPU}  # which the compiler would open, and does not need
        order = json.dumps([self.cc, self.driver, str(self.folder), str(self._library or ""), self.gfx, apart, kernels])
        nothing = subprocess.DEVNULL
        return subprocess.Popen(
            [*python_command("device.machinecode", "-I", "-S"), order],
            env=env,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=apart,
        )

    def _compile_elsewhere(self, kernels: Iterable[Kernel]) -> None:
        """Start to compile kernels that are missing, in other processes: as many as there are other cores."""
        for kernel in self.missing(kernels)[: workers() - 1]:
            with suppress(OSError):  # then only this process compiles
                self._helpers.append(self.start(kernel))

    def _source(self, name: str) -> str:
        """The text of a kernel, with the range check behind it."""
        if self.gfx:
            return f"{kernel_source(name, hip=True)}\n{kernel_source('absmax')}"
        return f"{kernel_source(name)}\n{kernel_source('absmax')}"


def kernel_cache(access: int = os.W_OK) -> Path | None:
    """The folder, made if need be, where compiled kernels are kept, ours and cupy's.

    It is CUPY_CACHE_DIR or under the home; or a private temporary folder where that cannot be written (or, with R_OK as
    the access, not even read); or None.
    """
    named, home = os.environ.get("CUPY_CACHE_DIR"), os.environ.get("HOME")
    if named or home:
        wanted = Path(named or f"{home}/.cupy/kernel_cache")
        with suppress(OSError):
            wanted.mkdir(parents=True, exist_ok=True)
            if os.access(wanted, access):
                return wanted
    return spare_folder(make=True)


def roomy_cache() -> Path | None:
    """The same folder, or the private one where the kernels of a suite do not fit: for programs that have other
    temporary folders than this one, and could not find there what is compiled for them now."""
    folder = kernel_cache()
    if folder:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, ROOM)
        except OSError:  # full, or beyond a quota
            return spare_folder(make=True)
    return folder


def spare_folder(make: bool = False) -> Path | None:
    """The private temporary folder for what cannot be kept in the wanted one; None if it is not there, or not ours."""
    with suppress(OSError):
        private = Path(tempfile.gettempdir()) / f"hw4-kernels-{os.getuid()}"
        if make:
            private.mkdir(mode=0o700, exist_ok=True)
        if private.stat().st_uid == os.getuid() and not private.is_symlink():
            return private
    return None


def _read(path: Path) -> bytes | None:
    """The code in a file of the cache; None if it is not there, or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, code = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _written(path: Path, data: bytes) -> bool:
    """Write a file that appears when it is complete; whether that could be done."""
    part = path.with_suffix(f".{os.getpid()}")
    try:
        try:
            part.write_bytes(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def main() -> None:
    """Compile the kernels that this process's last argument names, and that are missing, into the cache."""
    cc, driver, folder, library, gfx, apart, kernels = json.loads(sys.argv[-1])
    code = MachineCode(cc, driver, Path(folder), Path(library) if library else None, gfx)
    if apart and not _alone(Path(folder)):
        return
    for name, options in kernels:
        kernel = name, tuple(options)
        if not code.is_kept(kernel):
            code.compile(kernel)


def _alone(folder: Path) -> bool:
    """Whether no other process does this already, apart, for the same cache; from now on this one does."""
    os.nice(19)
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
