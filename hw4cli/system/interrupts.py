"""How the command answers Ctrl-C, `kill` and a closed terminal.

Slurm, `kill` and a closed terminal send SIGTERM or SIGHUP: these end a run as Ctrl-C does, so that no half-written file
and no judged program is left. At first, and while a command imports modules, there is nothing to clean up: the process
ends at once, because an import may swallow an exception or replace it by another. After that, KeyboardInterrupt is
raised, but not inside a block of SignalsDeferred. A signal that was ignored when the process started stays ignored
(nohup; `command &` in a script), but programs that are started get the default.
"""

# Python itself has imported these. The module signal would import enum: some milliseconds in which Python would answer
# Ctrl-C by a traceback.
import _signal
import os
import time

SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
EXIT_CODE = 130
CLEAN_UP = (
    1.0  # seconds after an interrupt in which further ones are ignored, so that they do not interrupt the clean-up
)

# These stay ignored in programs, too: Python resets the first two, and those of a terminal would stop a program.
KEPT = {_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGTTIN, _signal.SIGTTOU, _signal.SIGTSTP}

_last = 0.0  # when KeyboardInterrupt was last raised
_deferrals = 0  # nested blocks of SignalsDeferred
_pending = False  # whether a signal came in such a block


def exit_on_signals() -> None:
    """From now on the signals end the process; those that are ignored stay so."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # ignored, no child's end could be waited for
    for number in SIGNALS:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, exit_interrupted)


def raise_on_signals() -> None:
    """From now on the signals that ended the process raise KeyboardInterrupt."""
    _replace(exit_interrupted, _raise)


def exit_on_signals_again() -> None:
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
    global _pending
    if time.monotonic() - _last > CLEAN_UP:
        _pending = True
        _raise_if_pending()


def _raise_if_pending() -> None:
    global _last, _pending
    if _pending and not _deferrals:
        _last, _pending = time.monotonic(), False
        raise KeyboardInterrupt


class SignalsDeferred:
    """A block that no signal interrupts: `with SignalsDeferred(): …`. A signal that came meanwhile is raised after
    it."""

    def __enter__(self) -> None:
        global _deferrals
        _deferrals += 1

    def __exit__(self, *_: object) -> None:
        global _deferrals
        _deferrals -= 1
        _raise_if_pending()


class DefaultSignalsForChildren:
    """A block in which started processes ignore no signal: the signals that this process ignores get a handler
    meanwhile, which does nothing and is not inherited. Outside the main thread it has no effect."""

    def __enter__(self) -> None:
        self._ignored: list[int] = []
        try:
            for number in _signal.valid_signals() - KEPT:
                if _signal.getsignal(number) == _signal.SIG_IGN:
                    _signal.signal(number, _nothing)
                    self._ignored.append(number)
        except ValueError:
            pass

    def __exit__(self, *_: object) -> None:
        for number in self._ignored:
            _signal.signal(number, _signal.SIG_IGN)


def _nothing(*_: object) -> None:
    pass
