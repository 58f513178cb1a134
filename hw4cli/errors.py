"""The errors that are the user's to mend: one sentence each, and the exit code that goes with it."""

import errno

# Of the system's errors, those that no judged program is to blame for: this machine, or this user, has run out of
# something; and a disk that fails.
SHORTAGES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT}
DISK_FAULTS = {errno.EIO, errno.ESTALE, errno.EROFS}


class Hw4Error(Exception):
    """A problem told in one sentence: what is wrong, where, and what to do."""

    exit_code = 3


class InputError(Hw4Error):
    """The command line, or a file that it names, is wrong (exit code 2)."""

    exit_code = 2


class MachineError(Hw4Error):
    """The machine cannot do it: no GPU, no memory, no space, no permission (exit code 3)."""


class KernelError(MachineError):
    """A kernel of the user's own is wrong: it does not compile, or lacks a function (exit code 2)."""

    exit_code = 2


class BusyError(MachineError):
    """Another process has what is needed; nothing was done."""


def lack(error: BaseException) -> str | None:
    """What the machine lacks, memory or threads, if an error says so in whatever words; None if it does not."""
    words = str(error)
    if isinstance(error, MemoryError) or "Cannot allocate memory" in words or "failed to map segment" in words:
        return "this machine has not enough memory for that, or a limit leaves too little (ulimit -v)"
    if "can't start new thread" in words:
        return "this machine starts no more threads: a limit (ulimit -u, ulimit -v, a container's) leaves too few"
    return None


def os_error(error: OSError, doing: str) -> MachineError:
    """An operating system's error as a sentence, for example "cannot write out.bin: No space left on device"."""
    return MachineError(f"cannot {doing}: {error.strerror or error}")
