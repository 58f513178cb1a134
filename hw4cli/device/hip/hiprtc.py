"""hiprtc, HIP's compiler as a library, called through ctypes: ROCm's counterpart of NVRTC. It needs no GPU."""

import ctypes
import os
from pathlib import Path
from typing import Any

from hw4cli.errors import CompileError, MachineError

# Until ROCm 5, hiprtc was a part of HIP's own library.
NAMES = ("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libamdhip64.so.5", "libamdhip64.so")
# exp2f is then one instruction, as with NVRTC's -ftz=true.
OPTIONS = ("-std=c++17", "-O3", "-fgpu-flush-denormals-to-zero")
NOT_THERE = "hiprtc, HIP's compiler as a library, does not load: install ROCm (Debian, Ubuntu: libamdhip64-dev)"


def find() -> Path | None:
    """The hiprtc of the ROCm that ROCM_HOME or ROCM_PATH names, or of /opt/rocm; None if it is not there, though the
    loader may still find one."""
    roots = [os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH"), "/opt/rocm"]
    places = (Path(root, "lib", name) for root in roots if root for name in NAMES)
    return next((place for place in places if place.is_file()), None)


class HipCompiler:
    """A loaded hiprtc for an architecture such as gfx90a. Raises MachineError if it cannot be loaded; `library` None:
    the loader searches for it."""

    def __init__(self, library: Path | None, gfx: str) -> None:
        self.gfx = gfx
        self._library = _loaded([str(library)] if library else [*NAMES])
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.hiprtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, name: str, options: tuple[str, ...]) -> bytes:
        """A code object for the architecture. Raises CompileError with the compiler's log."""
        program = ctypes.c_void_p()
        self._check("hiprtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        try:
            words = [option.encode() for option in (*options, f"--offload-arch={self.gfx}")]
            failed = self._library.hiprtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
            if failed:
                log = self._result("ProgramLog", program).rstrip(b"\0\n").decode(errors="replace")
                raise CompileError(log or self._message(failed))
            return self._result("Code", program)
        finally:
            self._library.hiprtcDestroyProgram(ctypes.byref(program))

    def _result(self, what: str, program: Any) -> bytes:
        """A result of a compilation, by hiprtcGetCode or hiprtcGetProgramLog."""
        size = ctypes.c_size_t()
        self._check(f"hiprtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(1, size.value))
        self._check(f"hiprtcGet{what}", program, buffer)
        return buffer.raw

    def _message(self, code: int) -> str:
        return str(self._library.hiprtcGetErrorString(code).decode())

    def _check(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise CompileError(self._message(code))


def _loaded(names: list[str]) -> Any:
    for name in names:
        try:
            library = ctypes.CDLL(name)
            library.hiprtcGetErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError):  # it is not there, or HIP's library is too new to contain hiprtc
            continue
        return library
    raise MachineError(NOT_THERE)
