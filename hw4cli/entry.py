"""The start of the command: Ctrl-C is handled before anything is imported that takes time."""

import os
import sys

from hw4cli.system import interrupts

LONGEST_WORD = 128 << 10  # bytes of an argument, or a variable of the environment, on Linux


def main() -> None:
    """Run the command line and exit."""
    interrupts.exit_on_signals()
    sys.set_int_max_str_digits(LONGEST_WORD)  # a number that is too large is refused as what it is
    from hw4cli.commands import first_gpu, gpus_option, wants_gpu
    from hw4cli.errors import resource_shortage

    try:
        if wants_gpu(sys.argv[1:]):
            from hw4cli.device.driver import make_context

            make_context(first_gpu(gpus_option(sys.argv[1:])))  # only ctypes is imported before
        from hw4cli.cli import run_command

        interrupts.raise_on_signals()
        code = run_command()
    except KeyboardInterrupt:
        interrupts.exit_interrupted()
    except (ImportError, MemoryError, RuntimeError) as error:
        message = resource_shortage(error)
        if message is None:
            raise
        os.write(2, f"hw4: {message}\n".encode())
        code = 3
    # All files are written and closed. An orderly shutdown of Python takes 10 ms, 25 more with CUDA, and Ctrl-C during
    # it would print a traceback.
    os._exit(code)
