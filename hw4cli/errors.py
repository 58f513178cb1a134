"""The errors that are the user's to mend: one sentence each, and the exit code that goes with it."""


class Hw4Error(Exception):
    """A problem told in one sentence: what is wrong, where, and what to do."""

    exit_code = 3


class InputError(Hw4Error):
    """The command line, or a file that it names, is wrong (exit code 2)."""

    exit_code = 2


class MachineError(Hw4Error):
    """The machine cannot do it: no GPU, no memory, no space, no permission (exit code 3)."""


def os_error(error: OSError, doing: str) -> MachineError:
    """An operating system's error as a sentence, for example "cannot write out.bin: No space left on device"."""
    return MachineError(f"cannot {doing}: {error.strerror or error}")
