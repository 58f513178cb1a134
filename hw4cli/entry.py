"""Where the command starts: Ctrl-C is answered before anything is imported that takes time."""

import os
import sys

from hw4cli.system import interrupts


def main() -> None:
    """Run the command line and exit."""
    interrupts.end_at_once()
    from hw4cli.commands import wants_gpu
    from hw4cli.errors import lack

    try:
        if wants_gpu(sys.argv[1:]):
            from hw4cli.device.context import make_context

            make_context()  # nothing but ctypes is imported before
        from hw4cli.cli import run_command

        interrupts.raise_from_now_on()
        code = run_command()
    except KeyboardInterrupt:
        interrupts.exit_interrupted()
    except (ImportError, MemoryError, RuntimeError) as error:
        words = lack(error)
        if words is None:
            raise
        os.write(2, f"hw4: {words}\n".encode())
        code = 3
    # All is written and closed. Taking everything down piece by piece would cost some 10 ms, 25 more where CUDA was at
    # work, and Ctrl-C meanwhile would be a traceback.
    os._exit(code)
