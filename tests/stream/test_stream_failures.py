"""The pipeline when a stage fails, or Ctrl-C comes, at any moment: it is raised, and no thread stays behind."""

import random
import signal
import threading
import time
from queue import SimpleQueue

import pytest
from helpers import HANGS, wait_until
from moody import Moody, interrupted_after, run

from hw4cli.problem.workload import Shape
from hw4cli.stream import scheduler
from hw4cli.stream.layout import Layout
from hw4cli.system.interrupts import came_of_interrupt

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("stage", ["buffer", "read", "copy in", "start", "finish", "copy out", "write"])
@pytest.mark.parametrize("after", [0, 3])
def test_an_error_in_any_stage_ends_all_threads_and_is_raised(stage, after):
    shape, layout = Shape(30, 5, 4), Layout(group=2, piece=100, slots=3, readers=4, writers=2)
    before = threading.active_count()
    with pytest.raises(OSError, match=f"{stage} failed"):
        run(shape, layout, Moody(shape, layout, delay=0.001, fail=(stage, after)))
    assert threading.active_count() == before


def test_ctrl_c_ends_all_threads():
    shape, layout = Shape(2000, 5, 4), Layout(group=1, piece=100, slots=2, readers=2, writers=1)
    before = threading.active_count()
    with interrupted_after(0.3):
        run(shape, layout, Moody(shape, layout, delay=0.005))
    assert threading.active_count() == before


@pytest.mark.parametrize("launched", [True, False])
@pytest.mark.parametrize("number", range(1, 5))
def test_an_interrupt_while_threads_are_started_is_raised_and_ends_them(monkeypatch, number, launched):
    """Whether or not the thread whose start is interrupted was launched before."""
    shape, layout = Shape(20, 5, 4), Layout(group=1, piece=100, slots=2, readers=3, writers=1)
    before, start, started = threading.active_count(), threading.Thread.start, []

    def interrupted(thread):
        started.append(thread)
        if len(started) != number:
            return start(thread)
        if launched:
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(shape, layout, Moody(shape, layout, delay=0.002))
    assert threading.active_count() == before


# Python itself swallows an exception that comes while it frees an object.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_moment_is_raised_and_ends_all_threads():
    """Many moments of the first milliseconds, in which threads start, work, wait and end."""
    shape, layout = Shape(3, 5, 4), Layout(group=1, piece=100, slots=2, readers=3, writers=2)
    moments, delays, inside, came = random.Random(0), SimpleQueue(), 0, threading.Event()

    def interrupted(*_):
        came.set()
        raise KeyboardInterrupt

    def interrupt():
        while (delay := delays.get()) is not None:
            time.sleep(delay)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    run(shape, layout, Moody(shape, layout))  # imports what it imports: an import may swallow an interrupt
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    before, previous = threading.active_count(), signal.signal(signal.SIGUSR1, interrupted)
    try:
        for _ in range(500):
            ended = False
            came.clear()
            try:
                delays.put(moments.uniform(0, 2e-3))
                run(shape, layout, Moody(shape, layout))
                ended = True
                while not came.is_set():
                    time.sleep(0.001)
            except (KeyboardInterrupt, RuntimeError) as error:  # the latter of Python's own locks
                assert came_of_interrupt(error)
                inside += not ended
    finally:
        delays.put(None)
        signal.signal(signal.SIGUSR1, previous)
    wait_until(lambda: threading.active_count() == before - 1)
    assert inside > 50


def test_after_a_failure_a_computation_is_cancelled_and_one_that_cannot_be_is_left_behind(monkeypatch):
    monkeypatch.setattr(scheduler, "GRACE", 2)
    shape, layout = Shape(8, 5, 4), Layout(group=1, piece=1 << 20, slots=2, readers=1, writers=2)
    for obeys in (True, False):
        device = Moody(shape, layout)
        release = device.cancelled if obeys else threading.Event()
        turns = iter(range(100))
        device.pause = lambda stage, release=release, turns=turns: (
            (next(turns) and broken()) or release.wait(HANGS) if stage == "finish" else None
        )
        start = time.monotonic()
        with pytest.raises(OSError, match="broken"):
            run(shape, layout, device)
        took = time.monotonic() - start
        assert took < 2 if obeys else 2 <= took < HANGS
        release.set()


def broken():
    raise OSError("broken")


def test_a_stage_that_never_ends_but_fails_elsewhere_does_not_hang_the_waiters():
    """The writer fails at once: readers that wait for a slot must learn of it."""
    shape, layout = Shape(50, 5, 4), Layout(group=1, piece=240, slots=1, readers=6, writers=1)
    with pytest.raises(OSError, match="write failed"):
        run(shape, layout, Moody(shape, layout, fail=("write", 0)))
