"""Messages that nobody can read, and a reader that goes away: neither loses a result nor changes what it was."""

import os
import subprocess
import sys

import pytest
from helpers import ROOT, random_block, write_case

from hw4cli import exact_attention, write_output

COMMAND = [sys.executable, "-m", "hw4cli"]


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    block = random_block(2, 16, 8)
    path = write_case(tmp_path_factory.mktemp("case") / "in", block)
    write_output(f"{path}.out", exact_attention(block))
    return path


def code(*words, stdout=None, stderr=None):
    words = list(map(str, words))
    return subprocess.run([*COMMAND, *words], cwd=ROOT, stdout=stdout, stderr=stderr).returncode


@pytest.fixture(params=["a full disk", "a reader that has gone"])
def lost(request):
    """A stream on which nothing can be written."""
    if request.param == "a full disk":
        stream = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stream = os.pipe()
        os.close(reader)
    yield stream
    os.close(stream)


def test_messages_that_cannot_be_written_lose_no_answer(lost, case, tmp_path):
    out = tmp_path / "out"
    assert code(case, out, "--device", "auto", "--timing", stdout=subprocess.DEVNULL, stderr=lost) == 0
    assert out.stat().st_size == 2 * 16 * 8 * 4


def test_messages_that_cannot_be_written_leave_the_status_as_it_is(lost, tmp_path):
    assert code(tmp_path / "missing", tmp_path / "out", stderr=lost) == 2
    assert code("run", "--no-such-option", stderr=lost) == 2
    assert code(stdout=subprocess.DEVNULL, stderr=lost) == 2


@pytest.mark.parametrize("command", ["verify", "info"])
def test_a_reader_that_goes_away_is_no_wrong_answer(command, case):
    words = [f"{case}.out", f"{case}.out"] if command == "verify" else [case]
    reader, stream = os.pipe()
    os.close(reader)
    assert code(command, *words, stdout=stream, stderr=subprocess.DEVNULL) in (0, 141)
    os.close(stream)
