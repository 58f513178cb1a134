"""How the command answers Ctrl-C, `kill` and a closed terminal.

Slurm, `kill` and a closed terminal send SIGTERM or SIGHUP: these end a run as Ctrl-C does, so that no half-written file
and no judged program is left. At first, and while a command imports modules, there is nothing to clean up: the process
ends at once, because an import may swallow an exception or replace it by another. After that, KeyboardInterrupt is
raised, but not inside a block of SignalsDeferred. A signal that was ignored when the process started stays ignored
(nohup; `command &` in a script), but programs that are started get the default.

Python runs a handler only between its own instructions, in the main thread. A signal that comes between two of them,
just before a wait (for a child, a thread, a queue), would be seen after it: a nudge follows each signal, and ends the
wait. Where the main thread waits in a driver's call for a kernel that never ends, be it in the clean-up, a command that
has called `end_if_stuck` ends all the same.
"""

# Python itself has imported these. The module signal would import enum: some milliseconds in which Python would answer
# Ctrl-C by a traceback.
import _signal
import _thread
import os
import sys
import time

SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
EXIT_CODE = 130
CLEAN_UP = (
    1.0  # seconds after an interrupt in which further ones are ignored, so that they do not interrupt the clean-up
)
STUCK = 1.5  # seconds after a signal in which the main thread must have ended, where that is asked for
AGAIN = 0.01  # seconds until an interrupt comes again that Python dropped
NUDGE = _signal.SIGURG  # a signal that does nothing where nobody asks for it; here it ends a wait, and nothing more
NUDGE_AFTER = 0.05  # seconds after a signal: its handler has run by then, or the main thread is in a wait or in C

# These stay ignored in programs, too: Python resets the first two, and those of a terminal would stop a program.
KEPT = {_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGTTIN, _signal.SIGTTOU, _signal.SIGTSTP}

_last = 0.0  # when KeyboardInterrupt was last raised
_deferrals = 0  # nested blocks of SignalsDeferred
_pending = False  # whether a signal came in such a block
_watched = False  # whether a thread learns of signals
_ends_if_stuck = False  # whether that thread ends the process where the main thread does not


def exit_on_signals() -> None:
    """From now on the signals end the process; those that are ignored stay so."""
    sys.unraisablehook = _dropped
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # ignored, no child's end could be waited for
    for number in SIGNALS:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, exit_interrupted)


def raise_on_signals() -> None:
    """From now on the signals that ended the process raise KeyboardInterrupt, also in a wait that began just after."""
    _replace(exit_interrupted, _raise)
    _watch_signals()


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


def came_of_interrupt(error: BaseException) -> bool:
    """Whether an error was raised while an interrupt was: one that comes in the middle of Python's own locks becomes a
    RuntimeError there ("release unlocked lock"), whose context has it."""
    context = error.__context__
    return isinstance(error, KeyboardInterrupt) or (context is not None and came_of_interrupt(context))


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


def _dropped(what: "sys.UnraisableHookArgs") -> None:
    """An exception was raised where Python drops it, in a finaliser or a callback: an interrupt comes again."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_again, ())
    else:
        sys.__unraisablehook__(what)


def _interrupt_again() -> None:
    global _last
    time.sleep(AGAIN)
    _last = 0.0
    for number in _handled()[:1]:
        os.kill(os.getpid(), number)


def _handled() -> list[int]:
    """The signals that the command answers: none in a user's program, and none that are ignored."""
    return [number for number in SIGNALS if _signal.getsignal(number) in (_raise, exit_interrupted)]


def _watch_signals() -> None:
    """Let a thread learn of signals, however busy the main thread is: their numbers come through a pipe. Without effect
    where the handlers are not the command's; where no thread or pipe can be made, signals come as Python has them."""
    global _watched
    if _watched or not _handled():
        return
    try:
        reader, writer = os.pipe()
        _thread.start_new_thread(_watch, (reader, _thread.get_ident()))
    except (OSError, RuntimeError):
        return
    _watched = True
    os.set_blocking(writer, False)
    _signal.signal(NUDGE, _nothing)
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)


def _watch(reader: int, main_thread: int) -> None:
    while True:
        if not {*os.read(reader, 64)} & {*_handled()}:
            continue
        time.sleep(NUDGE_AFTER)
        _signal.pthread_kill(main_thread, NUDGE)
        if _ends_if_stuck:
            time.sleep(STUCK - NUDGE_AFTER)
            try:
                _kill_children()
            finally:
                exit_interrupted()


def end_if_stuck() -> None:
    """From now on a signal ends the process and its children after STUCK seconds, whatever the main thread does: for
    commands that leave nothing half-done. Without effect where the handlers are not the command's."""
    global _ends_if_stuck
    _watch_signals()
    _ends_if_stuck = True


def _kill_children() -> None:
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
            for pid in map(int, file.read().split()):
                os.kill(pid, _signal.SIGKILL)


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
