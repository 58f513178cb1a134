"""What Ctrl-C, `kill` and a closed terminal do to the command.

Slurm, `kill` and a closed terminal ask with SIGTERM or SIGHUP: they end a run as Ctrl-C does, so that no half-written
file and no judged program stays behind. At first, and while a command imports what it needs, there is nothing to clean
up: the process ends at once, because an import may swallow an exception, or make another one of it. From then on
KeyboardInterrupt is raised. A signal that was ignored when the process started stays ignored (nohup; `command &` in a
script).
"""

# Python has imported these itself. The module signal would import enum, some milliseconds in which Ctrl-C is Python's.
import _signal
import os
import time

SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
EXIT_CODE = 130
CLEAN_UP = 1.0  # seconds after an interrupt in which further ones are ignored: they would cut the cleaning up short

_last = 0.0  # when KeyboardInterrupt was last raised


def end_at_once() -> None:
    """From now on the signals end the process; those that are ignored stay so."""
    for number in SIGNALS:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, exit_interrupted)


def raise_from_now_on() -> None:
    """From now on the signals that ended the process raise KeyboardInterrupt."""
    _replace(exit_interrupted, _raise)


def end_at_once_again() -> None:
    """From now on the signals that raised KeyboardInterrupt end the process."""
    _replace(_raise, exit_interrupted)


def _replace(old: object, new: object) -> None:
    for number in SIGNALS:
        if _signal.getsignal(number) is old:
            _signal.signal(number, new)


def exit_interrupted(*_: object) -> None:
    """End the process as one that was interrupted."""
    try:
        os.write(2, b"hw4: interrupted\n")
    finally:  # stderr may be closed
        os._exit(EXIT_CODE)


def _raise(*_: object) -> None:
    global _last
    now = time.monotonic()
    if now - _last > CLEAN_UP:
        _last = now
        raise KeyboardInterrupt
