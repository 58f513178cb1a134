"""NVRTC, CUDA's compiler as a library, called through ctypes; it is loaded only where a kernel must be compiled."""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hw4cli.errors import CompileError, MachineError

NEWEST, OLDEST = 13, 12  # versions of CUDA whose NVRTC is looked for
CUDA13_CC = 75  # the least compute capability that CUDA 13 knows


def find(driver: int, cc: int) -> Path | None:
    """The newest NVRTC library whose code works with a driver (13000 is CUDA 13.0) and a compute capability.

    Searched in Python packages, conda and the toolkit; None if it is not there, though the loader may still find one.
    """
    return next((path for path in _places(driver, cc) if path.is_file()), None)


def _places(driver: int, cc: int) -> Iterator[Path]:
    toolkits = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    for major in _majors(driver, cc):
        package = "nvidia/cuda_nvrtc" if major == 12 else f"nvidia/cu{major}"
        folders = [Path(entry, package, "lib") for entry in sys.path if entry]
        folders += [Path(sys.prefix, "lib"), *(Path(root, "lib64") for root in toolkits if root)]
        yield from (folder / f"libnvrtc.so.{major}" for folder in folders)


def _majors(driver: int, cc: int) -> range:
    return range(min(driver // 1000, NEWEST if cc >= CUDA13_CC else OLDEST), OLDEST - 1, -1)


class UnknownArchitectureError(CompileError):
    """NVRTC does not know an architecture that was asked for; the source may be right."""


class Compiler:
    """A loaded NVRTC. Raises MachineError if it cannot be loaded; `library` None: the loader searches for it."""

    def __init__(self, library: Path | None, driver: int, cc: int) -> None:
        self._library = _loaded([str(library)] if library else [f"libnvrtc.so.{m}" for m in _majors(driver, cc)])
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, name: str, options: tuple[str, ...], cc: int) -> bytes:
        """Machine code for a compute capability, or PTX if NVRTC is older than the GPU. Raises CompileError.

        An -arch among the options replaces the architecture of the compute capability.
        """
        return self.build(source, name, options, cc)[0]

    def build(self, source: str, name: str, options: tuple[str, ...], cc: int) -> tuple[bytes, str]:
        """What `compile` returns, and the compiler's log."""
        if not any(option.startswith("-arch=") for option in options):
            options = (*options, self._architecture(cc))
        program = ctypes.c_void_p()
        self._check("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            failed = self._library.nvrtcCompileProgram(program, len(options), words)
            log = self._result("nvrtcGetProgramLog", program).rstrip(b"\0\n").decode(errors="replace")
            if failed:
                raise CompileError(log)
            native = any(option.startswith("-arch=sm_") for option in options)
            return self._result("nvrtcGetCUBIN" if native else "nvrtcGetPTX", program), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _architecture(self, cc: int) -> str:
        known = self.known()
        if cc in known:
            return f"-arch=sm_{cc}"
        older = [number for number in known if number < cc]
        if not older:
            raise UnknownArchitectureError(
                f"error: NVRTC {self.version} knows compute capability {min(known) / 10} and newer ones"
            )
        return f"-arch=compute_{max(older)}"

    def known(self) -> list[int]:
        """The compute capabilities that NVRTC compiles for."""
        count = ctypes.c_int()
        self._check("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._check("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def _result(self, what: str, program: Any) -> bytes:
        """A result of a compilation, by nvrtcGetCUBIN, nvrtcGetPTX or nvrtcGetProgramLog."""
        size = ctypes.c_size_t()
        self._check(f"{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(what, program, buffer)
        return buffer.raw

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CompileError(self._library.nvrtcGetErrorString(code).decode())


def _loaded(names: list[str]) -> Any:
    reason = "the driver is older than CUDA 12"
    for index, name in enumerate(names):
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            reason = reason if index else str(error)
        else:
            library.nvrtcGetErrorString.restype = ctypes.c_char_p
            return library
    if names and (found := _by_pathfinder()) is not None and str(found) not in names:
        return _loaded([str(found)])
    raise MachineError(f"NVRTC does not load: {reason} (pip install '.[cuda13]' or '.[cuda12]', see docs/install.md)")


def _by_pathfinder() -> Path | None:
    """NVRTC as NVIDIA's own search finds it, which comes with cupy, knows more places, and takes 0.1 s."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, RuntimeError, OSError):
        return None
    return Path(path) if path else None
