"""The progress bar: on a terminal's stderr, for what takes long, and gone in the end."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from helpers import HANGS, ROOT, hw4_env, random_block, write_case
from slow import quick_of_each


class Terminal:
    """A terminal whose screen can be read: what was written to it until now."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        self.text = ""

    def read(self, until="", seconds=0.2):
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not (until and re.search(until, self.text)):
            if select.select([self.master], [], [], left)[0]:
                self.text += os.read(self.master, 1 << 16).decode()
        return self.text

    def close(self):
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    screen = Terminal()
    yield screen
    screen.close()


SCRIPT = """
import sys, time, threading
from hw4cli.cli.terminal.bar import Bar
from hw4cli.text.progress import Progress
progress = Progress(200)
with Bar("working [x]", progress, delay={delay}, wanted={wanted}) as bar:
    for line in sys.stdin:
        progress.add(50)
        bar.print_message(f"[a] sentence, {{line.strip()}}")
assert threading.active_count() == 1
assert "rich" in sys.modules or not {imported}
"""


def start(stderr, delay=0, wanted=True, imported=False):
    script = SCRIPT.format(delay=delay, wanted=wanted, imported=imported)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=hw4_env(TERM="xterm"),
        text=True,
        stdin=subprocess.PIPE,
        stderr=stderr,
    )


def test_the_bar_follows_the_progress_sentences_stand_above_and_it_goes_away(terminal):
    process = start(terminal.slave, imported=True)
    assert "working [x]" in terminal.read(until="0%", seconds=HANGS)
    for line, share in (("one", "25%"), ("two", "50%")):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        assert f"hw4: [a] sentence, {line}" in terminal.read(until=share, seconds=HANGS)
    process.stdin.close()
    assert process.wait(HANGS) == 0
    text = terminal.read()
    assert text.endswith("\x1b[2K"), "the line is cleared"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is there again"


@pytest.mark.parametrize("settings", [{"delay": 60}, {"wanted": False}])
def test_what_ends_before_the_delay_or_is_not_wanted_shows_none(terminal, settings):
    process = start(terminal.slave, **settings)
    process.communicate("one\n")
    assert process.returncode == 0
    assert terminal.read() == "hw4: [a] sentence, one\r\n"


def test_in_a_pipe_there_is_none(terminal):
    process = start(subprocess.PIPE)
    time.sleep(0.5)
    _, stderr = process.communicate("one\n")
    assert stderr == "hw4: [a] sentence, one\n"


@quick_of_each(1)
@pytest.mark.parametrize("quiet", [False, True])
def test_a_long_run_shows_a_bar_after_two_seconds_unless_quiet(terminal, tmp_path, quiet):
    source = write_case(tmp_path / "in", random_block(1, 49152, 64))
    command = [sys.executable, "-m", "hw4cli", "--device", "cpu", str(source), str(tmp_path / "out")]
    began = time.monotonic()
    process = subprocess.Popen(
        command + ["--quiet"] * quiet,
        cwd=ROOT,
        env=hw4_env(TERM="xterm"),
        stdout=subprocess.DEVNULL,
        stderr=terminal.slave,
        start_new_session=True,
    )
    text = terminal.read(until=r"computing.*[1-9]%", seconds=2.8 if quiet else HANGS)
    took = time.monotonic() - began
    process.send_signal(signal.SIGINT)
    assert process.wait(HANGS) == 130
    after = terminal.read()
    if quiet:
        assert text == ""
    else:
        assert "computing" in text
        assert took > 2
        assert after.rindex("\x1b[?25h") > after.rindex("\x1b[?25l")
    assert after.endswith("hw4: interrupted\r\n")
