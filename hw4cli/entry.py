"""Where the command starts: signals and the last resort for errors are in place before anything heavy is imported."""

import os
import signal
import sys

from hw4cli.commands import wants_gpu


def main() -> None:
    """Run the command line and exit."""
    # Slurm, `kill` and a closed terminal ask with SIGTERM or SIGHUP: they end a run as Ctrl-C does, so that no
    # half-written file and no judged program stays behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        if wants_gpu(sys.argv[1:]):
            from hw4cli.context import make_context

            make_context()  # nothing but ctypes is imported before
        from hw4cli.cli import run_command

        code = run_command()
    except KeyboardInterrupt:
        print("hw4: interrupted", file=sys.stderr)
        code = 130
    if "cupy" in sys.modules or "hw4cli.context" in sys.modules:
        # All is written and closed: taking CUDA down piece by piece would cost 25 ms more.
        os._exit(code)
    sys.exit(code)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt
