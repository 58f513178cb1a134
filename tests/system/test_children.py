"""Programs that threads wait for: what they print, and that an interrupt of the main thread ends them."""

import subprocess
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from helpers import HANGS, wait_until

from hw4cli.system.children import Children


def test_a_program_gets_its_input_and_its_output_and_status_come_back():
    done = Children().run(["sh", "-c", "cat; exit 3"], input="seen", stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == ("seen", 3)


def test_a_program_without_input_has_an_empty_one():
    assert Children().run(["cat"], stdout=subprocess.PIPE, timeout=HANGS).stdout == b""


def test_an_exception_ends_the_programs_that_threads_wait_for_and_their_children(tmp_path):
    children, began = Children(), time.monotonic()
    command = ["sh", "-c", f"sleep 600 & echo $! >{tmp_path / 'pid'}; wait"]
    with pytest.raises(KeyboardInterrupt), ThreadPoolExecutor(2) as pool, children:
        waiting = [pool.submit(children.run, command, stdout=subprocess.PIPE) for _ in range(4)]
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        raise KeyboardInterrupt
    assert time.monotonic() - began < HANGS  # the pipe is closed: the grandchild has ended, too
    assert [type(one.exception()) for one in waiting[2:]] == [CancelledError] * 2


def test_a_program_that_takes_too_long_is_killed():
    with pytest.raises(subprocess.TimeoutExpired):
        Children().run(["sleep", "60"], timeout=0.1)
