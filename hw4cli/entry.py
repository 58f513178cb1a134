"""The start of the command: Ctrl-C is handled before anything is imported that takes time."""

import os
import sys

from hw4cli.system import interrupts

OTHERS = ("--program", "--class", "--rescore")  # options of `hw4 judge` that say what is judged
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
        if interrupts.came_of_interrupt(error):
            interrupts.exit_interrupted()
        message = resource_shortage(error)
        if message is None:
            raise
        os.write(2, f"hw4: {message}\n".encode())
        code = 3
    # All files are written and closed. An orderly shutdown of Python takes 10 ms, 25 more with CUDA, and Ctrl-C during
    # it would print a traceback.
    os._exit(code)


def judge(program: str, *options: str) -> None:
    """Run `hw4 judge` with these options on a program, unless the command line says what to judge."""
    given = sys.argv[1:]
    named = any(word.partition("=")[0] in OTHERS for word in given)
    sys.argv[1:] = ["judge", *options, *([] if named else ["--program", program]), *given]
    main()
