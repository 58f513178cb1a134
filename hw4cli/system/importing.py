"""Signals, threads and memory while a command imports modules."""

import errno
import mmap
import os
import resource
import sys

from hw4cli.errors import ShortageError
from hw4cli.system import interrupts

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
LIMITS = ((resource.RLIMIT_AS, "address space", "-v"), (resource.RLIMIT_DATA, "memory for data", "-d"))
NUMPY_BYTES = 160 << 20  # of address space that NumPy and its BLAS take when they are loaded, and some for us


class Importing:
    """A with-block in which a command imports: the signals that raise KeyboardInterrupt end the process instead.

    NumPy's BLAS, which reads its number of threads from the environment when it is loaded, starts none: hw4 spreads
    work over the cores itself, and where a process may start no threads, the BLAS would end it by a SIGINT. The
    environment of judged programs is unchanged. Raises ShortageError if memory is limited to less than NumPy needs.
    """

    def __enter__(self) -> None:
        if "numpy" not in sys.modules:
            check_memory(NUMPY_BYTES)
        interrupts.exit_on_signals_again()
        self._added = BLAS_THREADS not in os.environ
        os.environ.setdefault(BLAS_THREADS, "1")

    def __exit__(self, *_: object) -> None:
        if self._added:
            del os.environ[BLAS_THREADS]
        interrupts.raise_on_signals()


def check_memory(needed: int) -> None:
    """Raise ShortageError if the limits of this process's memory (ulimit -v, -d) leave less than so many bytes.

    Libraries written in C end the process if they do not get it.
    """
    given = [(resource.getrlimit(kind)[0], what, option) for kind, what, option in LIMITS]
    limits = [limit for limit in given if limit[0] != resource.RLIM_INFINITY]
    if not limits:
        return
    try:
        mmap.mmap(-1, needed, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()  # nothing of it is touched
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        limit, what, option = min(limits)
        raise ShortageError(
            f"this process may use {limit >> 20} MB of {what}, and {needed >> 20} MB more are needed: "
            f"raise the limit (ulimit {option})"
        ) from None
