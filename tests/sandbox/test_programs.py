"""The reasons of programs that cannot be started, and of those that fail or are late."""

import errno
import os
import platform
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from boards import RIGHT
from helpers import fails

from hw4cli.judge.scoring.record import Rules, combine
from hw4cli.problem import suite
from hw4cli.system.exits import exit_problem, program_problem, signal_of, start_problem

# Programs that cannot be started.

TEXTS = {
    "my-script": (b"#!/bin/sh\n", "it is not executable (chmod +x my-script)"),
    "mine.py": (b"print(1)\n", "(chmod +x mine.py, with #!/usr/bin/env python3 in its first line; or name both: "),
    "own.py": (b"#!/usr/bin/env python3\n", "it is not executable (chmod +x own.py)"),
    "hw4.cu": (b"int main() {}\n", "it is not executable (it is source code: build it first)"),
    "two words": (b"hello", "it is not executable (chmod +x 'two words')"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_program_that_is_not_executable_is_refused_with_the_command_that_makes_it_so(hw4_here, tmp_path, name):
    content, words = TEXTS[name]
    (tmp_path / name).write_bytes(content)
    args = ["bench", "t01", "--program"]
    fails(hw4_here(*args, f"'{tmp_path / name}'"), 2, f"{tmp_path / name} cannot be started: ", words)
    fails(hw4_here(*args, f"'{name}'"), 2, f"it is not on PATH; the file in this folder is ./{name}, and ", words)


def test_a_program_that_is_not_a_file_is_refused_with_the_cause(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("gone")
    assert program_problem("no-such-program-x").endswith("there is no such program on PATH")
    assert program_problem("./nothing").endswith("there is no such file")
    assert program_problem(f"{tmp_path}/").endswith("it is a folder")
    assert program_problem("./link").endswith("it is a link that leads nowhere")
    assert program_problem(sys.executable) is None
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    os.mkfifo("pipe.py")
    assert program_problem("./pipe.py").endswith("it is not a regular file")
    Path("pipe.py").chmod(0o755)
    problem = start_problem("./pipe.py", PermissionError(errno.EACCES, "Permission denied"))
    assert problem == "./pipe.py cannot be started: Permission denied"
    assert program_problem("mine").endswith("it is not on PATH; the file in this folder is ./mine")
    assert program_problem("./mine") is None


@pytest.mark.skipif(os.getuid() == 0, reason="root may enter any folder")
def test_a_program_in_a_closed_folder_is_refused_with_the_cause(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    assert program_problem(f"{tmp_path}/closed/hw4").endswith("a folder on its path cannot be entered")


@pytest.mark.parametrize(
    ("content", "number", "words"),
    [
        (b"echo hello", errno.ENOEXEC, "a script needs a first line such as #!/usr/bin/env python3"),
        (b"", errno.ENOEXEC, "it is an empty file"),
        (b"#!/no/such/sh\n", errno.ENOENT, "its first line names the interpreter /no/such/sh"),
        (b"#!/bin/sh\r\n", errno.ENOENT, "as Windows ends lines (\\r\\n)"),
        (b"#!/\x1b[31m\n", errno.ENOENT, "the interpreter /?[31m,"),
        (b"\x7fELF" + bytes(14) + b"\x02\x00", errno.ENOEXEC, f"and this machine is {platform.machine()}"),
    ],
)
def test_a_start_that_the_system_refuses_is_explained_by_the_files_content(tmp_path, content, number, words):
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    assert words in start_problem(str(program), OSError(number, os.strerror(number)))


def test_a_missing_launcher_is_reported_before_anything_is_judged(hw4_here, tmp_path):
    for path in (suite.cases()["t01"].input_path(tmp_path), suite.cases()["t01"].answer_path(tmp_path)):
        path.touch()
    result = hw4_here("judge", "t01", "--dir", tmp_path, "--launcher", "no-such-srun -n1")
    fails(result, 2, "the launcher no-such-srun cannot be started: there is no such program on PATH")


def test_a_fatal_error_of_srun_is_not_taken_for_the_judges_exit_status(hw4, tmp_path):
    """srun's exit status is 1 then, as the judge's for a program that is not right."""
    (tmp_path / "srun").write_text(
        "#!/bin/sh\necho 'srun: fatal: Could not establish a configuration source' >&2; exit 1\n"
    )
    (tmp_path / "srun").chmod(0o755)
    result = hw4("judge", "t01", "--srun", "-p x", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    fails(result, 3, "Could not establish a configuration source")


# How a program ended.


def test_an_exit_status_is_a_signal_only_where_it_can_be_one():
    assert [signal_of(128 + number) for number in (9, 11, 15)] == [9, 11, 15]
    assert [signal_of(status) for status in (0, 1, 127, 128, 255, 128 + signal.SIGCHLD, 128 + signal.SIGSTOP)] == [
        None
    ] * 7


def test_an_exit_code_that_a_shell_made_of_a_signal_names_the_signal():
    assert exit_problem(139, "") == "exit code 139, a shell's report of signal 11 (SIGSEGV)"
    assert exit_problem(-11, "") == "ended by signal 11 (SIGSEGV)"
    assert exit_problem(255, "bye\n") == "exit code 255: bye"


def test_the_reason_of_a_late_run_says_killed_only_if_it_was():
    late = replace(RIGHT, wall=12.5)
    assert (
        combine([late], Rules(limits={"t01": 2})).reason == "ended after 12.50 s, more than 10 s past the limit of 2 s"
    )
    assert combine([replace(late, killed=True)]).reason == "killed after 12.50 s, the limit is 2 s"


def test_a_time_just_over_the_limit_is_shown_with_enough_digits():
    assert combine([replace(RIGHT, wall=2.004)]).reason == "2.0040/2.0000 s, output correct"
    assert combine([replace(RIGHT, wall=0.2, limit=0.001)]).reason == "0.2000/0.0010 s, output correct"
    assert combine([replace(RIGHT, wall=7.31, limit=6.0)]).reason == "7.31/6.00 s, output correct"
