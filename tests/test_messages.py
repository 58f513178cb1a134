"""What is said of mistakes: the mistake first, its remedy with it, nothing that steers the terminal."""

import errno
import json
import os
import platform
import shutil
import signal
import sys
from dataclasses import replace
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from boards import RIGHT, write
from helpers import fails, on_a_terminal, random_block, run_hw4, write_case

from hw4cli import gpu, suite
from hw4cli.cli import run_command
from hw4cli.errors import MachineError
from hw4cli.exits import exit_problem, program_problem, signal_of, start_problem
from hw4cli.process import Run
from hw4cli.record import Rules, combine
from hw4cli.sandbox import unwrap
from hw4cli.words import counted, printable

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
NASTY = "a\x1b[31mb\nc\u202ed"


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Run `hw4 ARGS` in a folder of its own, in this process: for mistakes that are told at once."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        code = run_command([str(arg) for arg in args])
        return CompletedProcess(args, code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return write_case(tmp_path_factory.mktemp("case") / "in", random_block(1, 8, 4))


# Words that come close, and mistakes before the machine.


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bench", "flsh", "--cases", "t01"], "'flsh' is not one of"),
        (["bench", "flsh", "--cases", "t01"], "Did you mean 'flash'?"),
        (["--kernel", "exakt", "in", "out"], "Did you mean 'exact'?"),
        (["--device", "cud", "in", "out"], "Did you mean 'cuda'?"),
        (["kernels", "--format", "jsn"], "Did you mean 'json'?"),
        (["judge", "t1"], "there is no case 't1': did you mean t01?"),
        (["gen", "T005"], "did you mean t05?"),
        (["judge", "99"], "there is no case '99': the suite has t01 to t30"),
        (["jugde", "t01"], "Did you mean 'judge'?"),
        (["nothing"], "there is no command and no file 'nothing'"),
        (["verify", "a", "b", "--tolerance", "much"], "'much' is not a valid number"),
        (["judge", "--penalty", "nan"], "nan is not a number"),
        (["judge", "--repeat", "two"], "'two' is not a valid integer"),
        (["judge", "--launcher", ""], "--launcher is empty"),
        (["judge", "--class", "a", "--output", "b", "--slurm", ""], "--slurm is empty"),
        (["judge", "t99", "--srun", "-p x"], "there is no case 't99'"),
        (["judge", "t01", "--program", "python3 mime.py"], "python3 cannot run mime.py: there is no such file"),
        (["judge", "t01", "--dir", __file__], "test_messages.py is a file: name the folder of the cases"),
    ],
)
def test_a_wrong_word_is_told_with_what_was_meant(here, args, words):
    fails(here(*args), 2, words)


@pytest.mark.parametrize("name", ["none/record.json", "."])
def test_bench_tells_of_a_bad_output_before_it_asks_for_a_gpu(here, tmp_path, name):
    fails(here("bench", "--cases", "t01", "--output", tmp_path / name), 2, str(tmp_path))


def test_bench_tells_of_a_bad_older_record_before_it_asks_for_a_gpu(here, tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"machine": {}, "rows": [{"kernel": "flash", "status": "ok"}]}))
    fails(here("bench", "--cases", "t01", "--compare", old), 2, "is not a record that")


def test_gen_tells_of_a_bad_output_before_it_looks_for_a_gpu(here, tmp_path):
    fails(here("gen", "--shape", "1,8,4", "-o", tmp_path), 2, "is a directory")
    (tmp_path / "in.out").mkdir()
    fails(here("gen", "--shape", "1,8,4", "-o", tmp_path / "in"), 2, "in.out is a directory")
    assert not (tmp_path / "in").exists()


# The GPU.


def test_a_kernel_is_refused_with_the_cpu(hw4, case, tmp_path):
    words = "--kernel flash is for the GPU and does not go with --device cpu"
    fails(hw4("--kernel", "flash", "--device", "cpu", case, tmp_path / "out"), 2, words)
    assert hw4("--kernel", "auto", "--device", "cpu", case, tmp_path / "out").returncode == 0


def test_a_kernel_that_the_cpu_does_not_have_is_told_where_there_is_no_gpu(hw4, case, tmp_path):
    result = hw4("--kernel", "flash", case, tmp_path / "out", env=NO_GPU)
    assert result.returncode == 0
    assert result.stderr.startswith("hw4: no GPU can be used: ")
    assert result.stderr.endswith("; using the CPU instead of kernel flash\n")


def test_cupy_is_advised_only_where_there_is_an_nvidia_gpu(monkeypatch, tmp_path):
    def missing():
        raise ModuleNotFoundError("No module named 'cupy'", name="cupy")

    monkeypatch.setattr(gpu, "load", missing)
    monkeypatch.setattr(gpu, "DEVICES", [str(tmp_path / "nvidiactl")])
    with pytest.raises(MachineError, match=r"^no GPU can be used: there is no NVIDIA GPU here$"):
        gpu.import_cupy()
    (tmp_path / "nvidiactl").touch()
    with pytest.raises(MachineError, match=r"cupy is not installed \(pip install"):
        gpu.import_cupy()


def test_a_machine_without_a_gpu_is_not_told_that_its_driver_is_old(monkeypatch, tmp_path):
    class RefusalError(RuntimeError):
        pass

    def count():
        raise RefusalError("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")

    runtime = SimpleNamespace(is_hip=False, getDeviceCount=count, CUDARuntimeError=RefusalError)
    monkeypatch.setattr(gpu, "import_cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    monkeypatch.setattr(gpu, "DEVICES", [str(tmp_path / "nvidiactl")])
    with pytest.raises(MachineError, match=r"^no GPU can be used: there is no NVIDIA GPU here$"):
        gpu.Gpu()
    (tmp_path / "nvidiactl").touch()
    with pytest.raises(MachineError, match="driver version is insufficient"):
        gpu.Gpu()


# Programs that cannot be started.

TEXTS = {
    "my-script": (b"#!/bin/sh\n", "it is not executable (chmod +x my-script)"),
    "mine.py": (b"print(1)\n", "(chmod +x mine.py, with #!/usr/bin/env python3 in its first line; or name both: "),
    "own.py": (b"#!/usr/bin/env python3\n", "it is not executable (chmod +x own.py)"),
    "hw4.cu": (b"int main() {}\n", "it is not executable (it is source code: build it first)"),
    "two words": (b"hello", "it is not executable (chmod +x 'two words')"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_program_that_is_not_executable_is_told_with_what_makes_it_so(here, tmp_path, name):
    content, words = TEXTS[name]
    (tmp_path / name).write_bytes(content)
    args = ["bench", "--end-to-end", "--cases", "t01", "--program"]
    fails(here(*args, f"'{tmp_path / name}'"), 2, f"{tmp_path / name} cannot be started: ", words)
    fails(here(*args, f"'{name}'"), 2, f"it is not on PATH; the file in this folder is ./{name}, and ", words)


def test_a_program_that_is_no_file_is_told_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("gone")
    assert program_problem("no-such-program-x").endswith("there is no such program on PATH")
    assert program_problem("./nothing").endswith("there is no such file")
    assert program_problem(f"{tmp_path}/").endswith("it is a folder")
    assert program_problem("./link").endswith("it is a link that leads nowhere")
    assert program_problem(sys.executable) is None
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    assert program_problem("mine").endswith("it is not on PATH; the file in this folder is ./mine")
    assert program_problem("./mine") is None


@pytest.mark.skipif(os.getuid() == 0, reason="root may enter any folder")
def test_a_program_behind_a_closed_folder_is_told_so(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    assert program_problem(f"{tmp_path}/closed/hw4").endswith("a folder on its path is closed to us")


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
def test_what_the_system_refuses_is_told_by_its_content(tmp_path, content, number, words):
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    assert words in start_problem(str(program), OSError(number, os.strerror(number)))


def test_a_launcher_that_is_not_there_is_told_before_anything_is_judged(here, tmp_path):
    for path in (suite.cases()["t01"].input_path(tmp_path), suite.cases()["t01"].answer_path(tmp_path)):
        path.touch()
    result = here("judge", "t01", "--dir", tmp_path, "--launcher", "no-such-srun -n1")
    fails(result, 2, "the launcher no-such-srun cannot be started: there is no such program on PATH")


def test_slurms_fatal_error_is_not_taken_for_a_judgement(hw4, tmp_path):
    """srun ends with 1 then, as the judge does where a program is not right."""
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


def test_a_sandboxed_program_that_returns_minus_one_is_not_ended_by_a_signal():
    assert unwrap(Run(1.0, exit_code=255), "hw4").exit_code == 255
    assert unwrap(Run(1.0, exit_code=139), "hw4").exit_code == -11


def test_an_exit_code_that_a_shell_made_of_a_signal_names_the_signal():
    assert exit_problem(139, "") == "exit code 139, a shell's report of signal 11 (SIGSEGV)"
    assert exit_problem(-11, "") == "ended by signal 11 (SIGSEGV)"
    assert exit_problem(255, "bye\n") == "exit code 255: bye"


def test_a_late_run_that_was_not_killed_is_not_told_to_have_been():
    late = replace(RIGHT, wall=12.5)
    assert (
        combine([late], Rules(limits={"t01": 2})).reason == "ended after 12.50 s, more than 10 s past the limit of 2 s"
    )
    assert combine([replace(late, killed=True)]).reason == "killed after 12.50 s, the limit is 2 s"


def test_a_time_and_its_limit_are_told_apart():
    assert combine([replace(RIGHT, wall=2.004)]).reason == "2.0040/2.0000 s, output correct"
    assert combine([replace(RIGHT, wall=0.2, limit=0.001)]).reason == "0.2000/0.0010 s, output correct"
    assert combine([replace(RIGHT, wall=7.31, limit=6.0)]).reason == "7.31/6.00 s, output correct"


# Numbers.


def test_numbers_have_their_nouns():
    assert [counted(number, "case") for number in (0, 1, 2, 2000)] == ["0 cases", "1 case", "2 cases", "2,000 cases"]
    assert counted(2, "batch", "batches") == "2 batches"


def test_a_score_tells_what_it_is_of_and_what_is_open(tmp_path):
    whole = [replace(RIGHT, case=name) for name in suite.cases()]
    write(tmp_path / "whole", *whole, cases=list(suite.cases()))
    write(tmp_path / "part", RIGHT, replace(RIGHT, case="t02", max_error=1.0), cases=["t01", "t02"])
    assert "\n30 of 30 cases AC, score 60 of 60\n" in run_hw4("rescore", tmp_path / "whole").stdout
    told = "2 of the suite's 30 cases judged"
    assert f"\n1 of 2 cases AC, score at most 57 of 60: {told}\n" in run_hw4("rescore", tmp_path / "part").stdout
    assert told in run_hw4("scoreboard", tmp_path / "part").stdout
    assert "2 of the suite's 30 cases" in (tmp_path / "part/results.md").read_text()
    assert "at most" not in (tmp_path / "whole/results.md").read_text()


# Names from outside.


def test_what_is_printable_steers_no_terminal():
    assert printable(NASTY) == "a?[31mb?c?d"
    assert printable("t01 (1, 2, 3) √ 王") == "t01 (1, 2, 3) √ 王"


@pytest.mark.parametrize(
    "args",
    [
        ["info", NASTY],
        ["verify", NASTY, NASTY],
        [NASTY, "out"],
        ["--device", "cpu", "in", NASTY + "/out"],
        ["gen", "--shape", "1,8,4", "--no-answers", "-o", NASTY],
        ["gen", NASTY],
        ["judge", "--dir", NASTY, "t01"],
        ["judge", "t01", "--program", f"'{NASTY}'"],
        ["judge", "--user", "me", NASTY],
        ["rescore", NASTY],
        ["scoreboard", "journals"],
        ["scoreboard", "journals", "--html", NASTY],
        ["rescore", "journals/one"],
        ["doctor", "--dir", NASTY],
        ["bench", "--shape", "1,8,4", "--compare", NASTY],
        ["bench", NASTY],
    ],
)
def test_a_name_does_not_reach_the_terminal_raw(tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    write_case(tmp_path / "in", random_block(1, 8, 4))
    write(tmp_path / "journals/one", replace(RIGHT, case=NASTY, problem=NASTY), user=NASTY, cases=[NASTY, "b" + NASTY])
    _, shown = on_a_terminal(200, *args, env=NO_GPU)
    assert "?[31mb" in shown or "\\x1b[31mb" in shown, shown
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown


def test_a_name_in_brackets_is_no_markup(hw4, tmp_path):
    result = hw4("gen", "--shape", "1,8,4", "--no-answers", "-o", tmp_path / "[red]x")
    assert "[red]x  (1, 8, 4)  0.0 MB" in result.stderr


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell")
def test_a_launchers_words_do_not_reach_the_terminal_raw(tmp_path):
    (tmp_path / "srun").write_text(
        "#!/bin/sh\nprintf 'srun: job 1 queued and waiting \\033[31mb\\nplain \\033[31mb\\n' >&2\n"
    )
    (tmp_path / "srun").chmod(0o755)
    _, shown = on_a_terminal(200, "judge", "--srun", "-p x", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert "plain ?[31mb" in shown
    assert "\x1b[31m" not in shown
