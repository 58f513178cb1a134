"""Tasks on all cores, and how they end."""

import _thread
import sys
import threading
import time

import pytest
from moody import interrupted

from hw4cli.arrays.shards.places import in_threads
from hw4cli.problem import cpu


def functions_of(thread):
    """The names of the functions that a thread is in."""
    frame, names = sys._current_frames()[thread.ident], set()
    while frame:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names


def interrupt_and_wait_for(stop):
    """Ctrl-C as it comes between two instructions, before a wait: no system call ends by it. Whether it was seen."""
    deadline = time.monotonic() + 20
    while "start" in (names := functions_of(threading.main_thread())) or not names & {"wait", "join", "result"}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    _thread.interrupt_main()
    return stop.wait(20)


def test_ctrl_c_just_before_the_wait_for_a_task_ends_it():
    stop, seen = threading.Event(), []
    with interrupted():
        cpu.on_all_cores(lambda: seen.append(interrupt_and_wait_for(stop)), [()], stop)
    assert seen == [True]


def test_ctrl_c_while_a_thread_starts_waits_for_what_that_thread_does(monkeypatch):
    stop, begun, ended = threading.Event(), threading.Event(), []
    start = threading.Thread.start

    def start_and_interrupt(thread):
        start(thread)
        assert begun.wait(20)
        raise KeyboardInterrupt

    def task():
        begun.set()
        assert stop.wait(20)
        time.sleep(0.2)  # in which nobody who does not wait is still there
        ended.append(True)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(threading.Thread, "start", start_and_interrupt)
        cpu.on_all_cores(task, [()], stop)
    assert ended == [True]


class Ring:
    """One whose work ends when it is aborted."""

    def __init__(self):
        self.aborted = threading.Event()

    def abort(self):
        self.aborted.set()


def test_ctrl_c_just_before_the_wait_for_shards_ends_them():
    ring, seen, ended = Ring(), [], threading.Event()

    def work(ring):
        seen.append(interrupt_and_wait_for(ring.aborted))
        ended.set()

    with interrupted():
        in_threads(work, [ring])
    assert ended.wait(30) and seen == [True]
