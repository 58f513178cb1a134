"""The errors that a user can do something about: one sentence each, and its exit code."""

import errno

# System errors that are never a judged program's fault: this machine or user has run out of something, or a disk fails.
SHORTAGES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT}
DISK_FAULTS = {errno.EIO, errno.ESTALE, errno.EROFS}

READER_GONE = 141  # the exit code as shells report a program that SIGPIPE ended


class Hw4Error(Exception):
    """A problem in one sentence: what is wrong, where, and what to do. All of hw4's errors are of this class.

    >>> raise InputError("in: N is 0, but must be between 1 and 2147483647")
    Traceback (most recent call last):
    hw4cli.errors.InputError: in: N is 0, but must be between 1 and 2147483647
    """

    exit_code = 3


class InputError(Hw4Error):
    """The command line, an argument, or a file that it names, is wrong (exit code 2)."""

    exit_code = 2


class MachineError(Hw4Error):
    """The machine cannot do it: no GPU, no memory, no space, no permission (exit code 3)."""


class ShortageError(MachineError):
    """There is not enough memory, or space, for what was asked, whatever computes it."""


class LostGpuError(MachineError):
    """CUDA refuses all further work of this process on a GPU. `others`: the numbers of the GPUs with which a new
    process may begin again, where those of this one failed, too."""

    others: tuple[int, ...] = ()


class NoGpuError(MachineError):
    """No GPU answers where programs that need one are judged: it says nothing about them, and stops the judging."""


class KernelError(MachineError):
    """A kernel of the user's own is wrong: it does not compile, or lacks a function (exit code 2)."""

    exit_code = 2


class CompileError(Exception):
    """The compiler's message about a kernel's source or its options; who asked for the compilation puts it in words."""


class BusyError(MachineError):
    """Another process has a lock that is needed; nothing was done."""


def resource_shortage(error: BaseException) -> str | None:
    """The sentence for an error that shows a lack of memory, threads, processes or open files; None for any other."""
    message = str(error)
    if isinstance(error, MemoryError) or "Cannot allocate memory" in message or "failed to map segment" in message:
        return "this machine has not enough memory for that, or a limit leaves too little (ulimit -v)"
    if "can't start new thread" in message:
        return "this machine starts no more threads: a limit (ulimit -u, ulimit -v, a container's) leaves too few"
    if message.endswith("Resource temporarily unavailable"):  # from fork
        return "this machine starts no more processes: a limit (ulimit -u, a container's) leaves too few"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "no more files can be opened: raise the limit (ulimit -n)"
    return None


def os_error(error: OSError, doing: str) -> MachineError:
    """An operating system's error as a sentence, for example "cannot write out.bin: No space left on device"."""
    return MachineError(f"cannot {doing}: {error.strerror or error}")


LONGEST_LINE = 160  # letters of an error of somebody else's


def first_line(error: Exception) -> str:
    """What an error of somebody else's says first: its first line, cut where that is long, or its name where it says
    nothing."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
