"""What Ctrl-C, `kill` and a closed terminal do to the command.

Slurm, `kill` and a closed terminal ask with SIGTERM or SIGHUP: they end a run as Ctrl-C does, so that no half-written
file and no judged program stays behind. At first, and while a command imports what it needs, there is nothing to clean
up: the process ends at once, because an import may swallow an exception, or make another one of it. From then on
KeyboardInterrupt is raised, though not in the middle of a block that is Held. A signal that was ignored when the
process started stays ignored (nohup; `command &` in a script), but programs that are started get the default.
"""

# Python has imported these itself. The module signal would import enum, some milliseconds in which Ctrl-C is Python's.
import _signal
import os
import time

SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
EXIT_CODE = 130
CLEAN_UP = 1.0  # seconds after an interrupt in which further ones are ignored: they would cut the cleaning up short

# These stay ignored in programs, too: Python sees to the first two, and a terminal's can only be tried again.
KEPT = {_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGTTIN, _signal.SIGTTOU, _signal.SIGTSTP}

_last = 0.0  # when KeyboardInterrupt was last raised
_holds = 0  # blocks that must not be broken into, one inside another
_waiting = False  # a signal that came in such a block


def end_at_once() -> None:
    """From now on the signals end the process; those that are ignored stay so."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # ignored, no child's end could be waited for
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
    global _waiting
    if time.monotonic() - _last > CLEAN_UP:
        _waiting = True
        _act()


def _act() -> None:
    global _last, _waiting
    if _waiting and not _holds:
        _last, _waiting = time.monotonic(), False
        raise KeyboardInterrupt


class Held:
    """A block that no signal breaks into: `with Held(): …`. What came meanwhile is acted on behind it."""

    def __enter__(self) -> None:
        global _holds
        _holds += 1

    def __exit__(self, *_: object) -> None:
        global _holds
        _holds -= 1
        _act()


class DefaultsForChildren:
    """A block in which processes are started that are to have no signal ignored: what we ignore has a handler
    meanwhile, which does nothing and is not inherited. Elsewhere than in the main thread nothing changes."""

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
