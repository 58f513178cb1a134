"""Completion: what the Tab key offers, in real shells, and that it costs no heavy import."""

import os
import pty
import select
import subprocess
import sys
import time

import click
import pytest
from click.shell_completion import BashComplete
from helpers import commands, fails, hw4_env
from needs import needs

from hw4cli.cli import cli
from hw4cli.plans.ladder import VARIANTS


def offered(*words, type="plain"):
    """The words of one type that a shell is given for the last of these words."""
    found = BashComplete(cli, {}, "hw4", "_HW4_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [item.value for item in found if item.type == type]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with files whose names begin like commands and unlike them."""
    monkeypatch.chdir(tmp_path)
    for name in ("input.bin", "t07", "other"):
        (tmp_path / name).touch()
    (tmp_path / "inner").mkdir()
    return tmp_path


def test_the_first_word_is_a_command_an_option_of_run_or_a_file(here):
    assert offered("in") == ["info", "inner/", "input.bin"]
    assert {"judge", "bench", "completion"} <= set(offered(""))
    assert offered("--ker") == ["--kernel"]
    assert "--version" in offered("--")
    assert offered("oth", type="file") == ["oth"]


@pytest.mark.parametrize(
    "words", [("t07", ""), ("--timing", "t07", "o"), ("run", "t"), ("info", ""), ("verify", "t07", "")]
)
def test_files_are_left_to_the_shell(here, words):
    assert offered(*words, type="file") == [words[-1]]


@pytest.mark.parametrize(
    "words", [("judge", "--rescore", ""), ("scoreboard", "r"), ("gen", "--dir", ""), ("judge", "--class", "")]
)
def test_folders_are_left_to_the_shell(words):
    assert offered(*words, type="dir") == [words[-1]]


@pytest.mark.parametrize("words", [("judge",), ("gen", "--force"), ("judge", "--limit")])
def test_cases_and_ranges_are_completed(words):
    assert offered(*words, "t0") == [f"t0{number}" for number in range(1, 10)]
    assert offered(*words, "t28-") == ["t28-t29", "t28-t30"]
    assert offered(*words, "t05,t3") == ["t05,t30"]
    assert offered(*words, "t01") == ["t01", "t01-"]
    assert offered(*words, "x") == offered(*words, "t99-") == []


def test_kernels_are_completed():
    assert offered("--kernel", "fl") == [name for name in VARIANTS if name.startswith("fl")]
    assert offered("in", "out", "--kernel", "") == ["auto", *VARIANTS]
    assert offered("bench", "flash", "s") == [name for name in VARIANTS if name.startswith("s")]


@pytest.mark.parametrize(
    "words", [("check",), ("check", "naive"), ("bench",), ("--kernel",), ("in", "out", "--kernel")]
)
def test_kernels_of_ones_own_are_completed_beside_the_ladders(here, words):
    for name in ("fast.cu", "inner/mine.cu", "notes.txt"):
        (here / name).touch()
    assert offered(*words, "fast") == ["fast.cu"]
    assert {"naive", "flash", "fast.cu"} <= set(offered(*words, ""))
    assert "notes.txt" not in offered(*words, "")
    assert offered(*words, "./f") == ["./fast.cu"]
    assert offered(*words, "inner/") == ["inner/mine.cu"]
    assert offered(*words, "inn") == []
    assert offered(*words, "inn", type="file") == ["inn"]  # a folder is left to the shell


def test_a_classs_students_are_completed(here):
    assert offered("judge", "--class", str(here), "--only", "in") == ["inner"]
    assert offered("judge", "--only", "in") == []


def test_every_option_of_every_command_is_completed():
    for name, command in commands().items():
        shown = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
        options = {option for param in shown for option in param.opts}
        assert {option for option in options if option.startswith("--")} <= set(offered(name, "--")), name


def test_a_damaged_suite_stops_no_completion(monkeypatch, tmp_path):
    (tmp_path / "suite.toml").write_text("[cases\n")
    monkeypatch.setattr("hw4cli.cli.terminal.params.data_path", lambda name: tmp_path / "suite.toml")
    assert offered("judge", "t") == []


@pytest.mark.parametrize(
    "words", ["hw4 ", "hw4 judge t0", "hw4 bench f", "hw4 check f", "hw4 judge --limit t01=3 --", "hw4 --kernel f"]
)
def test_completing_imports_nothing_heavy(words):
    script = (
        "import sys\n"
        "for name in ('numpy', 'cupy', 'rich', 'psutil'): sys.modules[name] = None\n"
        "from hw4cli.cli import run_command\nrun_command([])"
    )
    env = hw4_env(_HW4_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    result = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("plain,")


def test_an_unknown_shell_is_one_sentence(hw4):
    fails(hw4("completion", "tcsh"), 2, "tcsh", "bash")
    fails(hw4("completion"), 2, "bash|zsh|fish")


@pytest.fixture
def shell_env(tmp_path):
    """An environment in which `hw4` is on PATH, and no file of the user's is read."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/hw4"
    python_path = hw4_env()["PYTHONPATH"]
    program.write_text(f'#!/bin/sh\nPYTHONPATH={python_path!r} exec {sys.executable} -m hw4cli "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def on_tab(command, script, line, words, env, folder):
    """Whether a shell on a terminal, that has read a script, shows these words when a line and a Tab are typed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, env)
    shown, deadline = "", time.monotonic() + 60
    try:
        os.write(terminal, f"{script}; echo rea''dy\n".encode())
        for typed, expected in ((f"{line}\t\t", "ready"), ("", words)):
            while expected not in shown:
                if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                    return shown
                shown += os.read(terminal, 65536).decode(errors="replace")
            os.write(terminal, typed.encode())
            shown = "" if typed else shown
        return True
    finally:
        os.close(terminal)  # which ends the shell
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hw4 inp", "hw4 input.bin"),
        ("hw4 oth", "hw4 other"),
        ("hw4 judge t28-t3", "t28-t30"),
        ("hw4 expl", "hw4 explain"),
    ],
)
def test_bash_completes_it(here, shell_env, line, words):
    shell = ["bash", "--norc", "--noprofile", "-i"]
    assert on_tab(shell, 'eval "$(hw4 completion bash)"', line, words, shell_env, here) is True


@needs("zsh")
@pytest.mark.parametrize(("line", "words"), [("hw4 judge t28-t3", "t28-t30"), ("hw4 oth", "hw4 other")])
def test_zsh_completes_it(here, shell_env, line, words):
    script = 'autoload -Uz compinit; compinit -u -D; eval "$(hw4 completion zsh)"'
    assert on_tab(["zsh", "-f", "-i"], script, line, words, shell_env, here) is True


@needs("fish")
@pytest.mark.parametrize(
    ("line", "words"), [("hw4 judge t28-", "t28-t30"), ("hw4 oth", "other"), ("hw4 expl", "explain")]
)
def test_fish_completes_it(here, shell_env, line, words):
    script = f"hw4 completion fish | source; complete -C '{line}'"
    result = subprocess.run(["fish", "-N", "-c", script], env=shell_env, cwd=here, capture_output=True, text=True)
    assert words in [answer.split("\t")[0] for answer in result.stdout.splitlines()], result
