"""Which GPUs' contexts a command makes before it has looked at anything: none on a GPU that --gpus leaves out."""

import subprocess
import sys

import pytest
from helpers import HANGS, hw4_env, random_block, write_case

# `hw4 ARGS` with a driver that notes what is asked of it, in place of CUDA's.
DRIVER = """
import ctypes, sys, threading
made, lock = [], threading.Lock()

class Driver:
    def __init__(self, name):
        if name != "libcuda.so.1":
            raise OSError(name)

    def cuInit(self, flags):
        return 0

    def cuDeviceGet(self, device, number):
        self.number = number
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        made.append(self.number)
        return 0

ctypes.CDLL = Driver
import hw4cli.cli
from hw4cli import entry
from hw4cli.cli import run_command

def whole():
    try:
        return run_command()
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(5)
        print("made:", *made)
        sys.stdout.flush()

hw4cli.cli.run_command = whole
entry.main()
"""


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ((), [0]),
        (("--gpus", "ids:2"), [2]),
        (("--gpus=ids:2,0,1",), [2, 0, 1]),
        (("--gpus", "ids:0,3"), [0, 3]),
        (("--gpus", "count:2"), [0]),  # there is too little work for the second one
        (("--device", "cpu"), []),
        (("--gpus", "ids:x"), [0]),
    ],
)
def test_contexts_are_made_on_the_gpus_that_compute(tmp_path, options, made):
    source = write_case(tmp_path / "in", random_block(2, 16, 32))
    words = [sys.executable, "-c", DRIVER, str(source), str(tmp_path / "out"), *options]
    result = subprocess.run(words, env=hw4_env(), capture_output=True, text=True, timeout=HANGS)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("made:")]
    assert [int(word) for word in line.split()[1:]] == made
