"""Why a program did not start, how it exited and what its stderr shows, in sentences for its author."""

import errno
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hw4cli.errors import Hw4Error
from hw4cli.text.words import printable

# e_machine of an ELF file (elf(5)), and what platform.machine() calls it.
MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}
ALSO_RUN = {("x86_64", "i686"), ("aarch64", "armv7l")}  # a machine, and whose programs it may run, too
PT_INTERP = 3  # elf(5): where an ELF file has the path of its loader
ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"

INTERPRETERS = {".py": "python3", ".sh": "sh", ".bash": "bash", ".pl": "perl", ".rb": "ruby", ".js": "node"}
SOURCES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".rs"}
NO_LOADER = "the loader that it was built for (ld.so) is not on this machine: build it here"
NO_PROGRAM = "it is not a program for this machine (a script needs a first line such as #!/usr/bin/env python3)"

# The searched text is untrusted: no expression here has two adjacent repetitions that match the same letters, which
# would take quadratic time.
SEARCHED = 2000  # characters of a line
CUDA_SUBJECT = re.compile(r"\b(cuda\w*|cu(blas|rand|fft|dnn)\w*|nvrtc\w*|hip\w*|gpu|kernel)\b", re.IGNORECASE)
FAILURE = re.compile(r"error|fail|illegal|invalid|out of memory", re.IGNORECASE)  # behind such a subject
CUDA_ERROR = re.compile(
    r"\b(cudaError\w+|CUDA_ERROR_\w+|hipError\w+)"
    r"|(illegal memory|misaligned) a|too many resources requested|no kernel image|unspecified launch failure",
    re.IGNORECASE,
)

# What a program's runtime says where a machine has no GPU, no driver, or has lost them.
MISSING_GPU = re.compile(
    r"no (CUDA|ROCm)-capable device|NO_?DEVICE\b|driver version is insufficient|INSUFFICIENT_?DRIVER"
    r"|libcuda\.so\.1: cannot open|cannot find .{0,40}libcuda|system not yet initialized|SYSTEM_?NOT_?READY"
    r"|GPU is lost|DEVICES_?UNAVAILABLE|devices are busy or unavailable|STUB_LIBRARY|CUDA driver is a stub",
    re.IGNORECASE,
)

# The driver's messages, or their names, and what they mean for the programmer.
MEANINGS = {
    r"illegal ?memory ?access|illegal_?address": "a kernel went outside its arrays: compute-sanitizer shows where",
    r"misaligned[ _]?address": "a float4 was loaded from an address that is not a multiple of 16",
    r"invalid ?configuration|InvalidConfiguration": "more than 1024 threads a block, or a grid or block of 0",
    r"too many resources|LaunchOutOfResources|LAUNCH_OUT_OF_RESOURCES": "threads a block times registers a thread "
    "is more than there are: fewer threads, or __launch_bounds__",
    r"out ?_?of ?_?memory|MemoryAllocation": "the GPU's memory does not hold what was asked for",
    r"no ?kernel ?image|NO_BINARY|invalid ?device ?function|UNSUPPORTED_PTX": "it was built for another GPU: see -arch",
    r"no CUDA-capable device|ErrorNoDevice|ERROR_NO_DEVICE": "it was given no GPU: see CUDA_VISIBLE_DEVICES, --gres",
    r"driver version is insufficient|InsufficientDriver": "it was built with a newer CUDA than this driver knows",
    r"launch timed out|LaunchTimeout|LAUNCH_TIMEOUT": "the driver stops kernels that run long on a GPU with a display",
    r"unspecified launch failure|LaunchFailure|LAUNCH_FAILED": "a kernel crashed: compute-sanitizer shows where",
    r"invalid ?argument|ErrorInvalidValue|ERROR_INVALID_VALUE": "a size or a pointer is wrong, or a block takes more "
    "than 48 KB of shared memory",
}


class ProgramError(Hw4Error):
    """What a judged program did that ends its judging, in a sentence for its author."""


class StartError(ProgramError):
    """The program is missing, not executable, or no program of this machine."""


# Signals that end no program: they are ignored by default, or stop it for a while.
HARMLESS = {
    *(signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH),
    *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
}


def signal_of(status: int) -> int | None:
    """The signal that ended a program whose exit status comes from a shell or a sandbox: 128 + n stands for signal n.
    None where no signal that ends a program has the number: 255 is `return -1`, 127 a command that was not found."""
    number = status - 128
    return number if number in signal.valid_signals() - HARMLESS else None


def exit_problem(exit_code: int, stderr: str) -> str | None:
    """The problem that a program's exit (-n: signal n) shows, with its own message; None if it ended well."""
    return with_message(describe_exit(exit_code), error_line(stderr)) if exit_code else None


def with_message(problem: str, message: str | None) -> str:
    """A problem, and behind it the program's own message, if there is one."""
    return f"{problem}: {message}" if message else problem


def describe_exit(exit_code: int, max_file: int | None = None) -> str:
    """How a program ended (-n: signal n) that did not end well; no file of its own had more than `max_file` bytes."""
    what = f"ended by signal {_signal_name(-exit_code)}" if exit_code < 0 else f"exit code {exit_code}"
    if number := signal_of(exit_code):
        what += f", a shell's report of signal {_signal_name(number)}"
    if exit_code == -signal.SIGXFSZ and max_file is not None:
        what += f", for writing a file of more than {max_file:,} bytes"
    if exit_code == -signal.SIGKILL:
        what += ", which the system sends where memory runs out"
    return what


def error_line(stderr: str) -> str:
    """The line of a program's stderr that has a CUDA error, or else the last one; "" if there is none."""
    return cuda_error(stderr) or _last_line(stderr)


def cuda_error(stderr: str) -> str | None:
    """The first line that has a CUDA error, with its meaning if that is known."""
    line = next((start for line in stderr.splitlines() if _is_cuda_error(start := line[:SEARCHED])), None)
    if line is None:
        return None
    meaning = next((text for words, text in MEANINGS.items() if re.search(words, line, re.IGNORECASE)), None)
    return f"{_quotable(line)} ({meaning})" if meaning else _quotable(line)


def names_missing_gpu(stderr: str) -> bool:
    """Whether a program's message says that there is no GPU, or no driver for it."""
    return any(MISSING_GPU.search(line[:SEARCHED]) for line in stderr.splitlines())


def _is_cuda_error(line: str) -> bool:
    subject = CUDA_SUBJECT.search(line)
    return bool(CUDA_ERROR.search(line) or (subject and FAILURE.search(line, subject.end())))


def _last_line(text: str) -> str:
    return next((_quotable(line) for line in reversed(text.splitlines()) if line.strip()), "")


def _quotable(line: str) -> str:
    """A program's line as it can be quoted."""
    return printable(line.strip()[:200].replace("\t", " "))


def _signal_name(number: int) -> str:
    """A signal as number and name; real-time signals have no name."""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def start_problem(program: str, error: OSError) -> str:
    """Why the system would not start a program, in a sentence."""
    return f"{program} cannot be started: {_out_of_reach(program) or _refused(Path(program), error)}"


def program_problem(program: str, script: str = "") -> str | None:
    """Why a program, named as in a shell, cannot be started, as far as that is known without trying; or None.

    `script` is its first argument, which an interpreter looks for in the folder where it runs.
    """
    if problem := _out_of_reach(program):
        return f"{program} cannot be started: {problem}"
    wanted = INTERPRETERS.get(Path(script).suffix)
    if wanted and Path(program).name.startswith(wanted) and not Path(script).is_file():
        return f"{program} cannot run {script}: there is no such file"
    return None


def not_startable(program: str, shown: Callable[[str], bool] = os.path.exists) -> str | None:
    """Why the system will not start a program, as far as its file shows; None if it may. `shown` returns whether the
    program's sandbox shows a file."""
    if problem := _out_of_reach(program):
        return problem
    start = _first_bytes(Path(program))
    if start.startswith(b"\x7fELF"):
        return _foreign(start) or _without_loader(Path(program), shown)
    if not start.startswith(b"#!"):
        return _refused(Path(program), OSError(errno.ENOEXEC, ""))
    words = start[2:].partition(b"\n")[0].decode(errors="replace").split()
    if problem := windows_line(program):
        return problem
    if not words or not os.access(words[0], os.X_OK):
        return _refused(Path(program), OSError(errno.ENOENT, ""))
    return None if shown(words[0]) else f"its first line names {_quotable(words[0])}, which is not shown to it"


def windows_line(program: str) -> str | None:
    """The sentence about a script whose first line ends in \\r\\n; None of any other file.

    The system takes the \\r for the end of the last word. Where that is the interpreter itself, it starts nothing;
    where it is an argument, as in `#!/usr/bin/env python3`, it starts, and does not find what it is asked for.
    `env -S` alone takes it for a space.
    """
    start = _first_bytes(Path(shutil.which(program) or program))
    line = start[2:].partition(b"\n")[0]
    if not start.startswith(b"#!") or not line.endswith(b"\r") or b"env -S" in line:
        return None
    return "its first line ends as Windows ends lines (\\r\\n): save it with plain \\n"


def _out_of_reach(program: str) -> str | None:
    """Why nobody can start a program: it is missing, a folder, or not executable. None if it can be started."""
    if shutil.which(program):
        return None
    if "/" not in program:
        if not Path(program).is_file():
            return "there is no such program on PATH"
        here = _out_of_reach(f"./{program}")
        return f"it is not on PATH; the file in this folder is ./{program}{', and ' + here if here else ''}"
    path = Path(program)
    try:
        mode = path.stat().st_mode
    except PermissionError:
        return "a folder on its path cannot be entered"
    except OSError:
        return "it is a link that leads nowhere" if path.is_symlink() else "there is no such file"
    if stat.S_ISDIR(mode):
        return "it is a folder"
    if not stat.S_ISREG(mode):
        return "it is not a regular file"
    if not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
        return f"it is not executable ({_advice(path)})"
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        return "nothing can be executed where it lies (mounted noexec)"
    return "its permissions let others execute it, but not this user"


def _advice(path: Path) -> str:
    """How to make a file executable: chmod alone is not enough for a script without an interpreter in its first
    line."""
    chmod, interpreter = f"chmod +x {shlex.quote(path.name)}", INTERPRETERS.get(path.suffix)
    if path.suffix in SOURCES:
        return "it is source code: build it first"
    if interpreter and not _first_bytes(path).startswith(b"#!"):
        return (
            f"{chmod}, with #!/usr/bin/env {interpreter} in its first line; or name both: '{interpreter} {path.name}'"
        )
    return chmod


def _refused(path: Path, error: OSError) -> str:
    """Why the system refused to execute a file."""
    start = _first_bytes(path)
    if start.startswith(b"#!"):
        if problem := windows_line(str(path)):
            return problem
        words = start[2:].partition(b"\n")[0].decode(errors="replace").split()
        name = _quotable(words[0]) if words else ""
        return f"its first line names the interpreter {name or '(none)'}, which cannot be run here"
    if start.startswith(b"\x7fELF"):
        if problem := _foreign(start):
            return problem
        if error.errno == errno.ENOENT:
            return NO_LOADER
    if error.errno == errno.ENOEXEC:
        return NO_PROGRAM if start else "it is an empty file"
    return error.strerror or str(error)


def _foreign(start: bytes) -> str | None:
    """The sentence about a program, by its first bytes, that was built for another kind of machine; None of others."""
    machine, here = MACHINES.get(int.from_bytes(start[18:20], "little"), "another kind of machine"), platform.machine()
    if machine == here or (here, machine) in ALSO_RUN:
        return None
    return f"it was built for {machine}, and this machine is {here}"


def _without_loader(path: Path, shown: Callable[[str], bool]) -> str | None:
    """The sentence about a program whose loader is not there; None of one that is static, or has it."""
    with suppress(OSError, IndexError, struct.error), path.open("rb") as file:
        head = file.read(64)
        if not head.startswith(ELF64_LITTLE_ENDIAN):
            return None
        (place,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        file.seek(place)
        table = file.read(size * count)
        for number in range(count):
            kind, _, begin, _, _, length = struct.unpack_from("<IIQQQQ", table, number * size)
            if kind == PT_INTERP:
                file.seek(begin)
                name = os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
                return None if "\0" not in name and shown(name) else NO_LOADER
    return None


def _first_bytes(path: Path) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # not waiting for a pipe's writer
            return file.read(256) or b""
    except OSError:
        return b""
