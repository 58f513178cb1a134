"""What is said of mistakes: the mistake first, its remedy with it, nothing that steers the terminal."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from boards import RIGHT, write
from helpers import ROOT, fails, on_a_terminal, random_block, run_here, run_hw4, write_case
from needs import needs
from slow import quick_of_each

from hw4cli.device import gpu
from hw4cli.errors import MachineError
from hw4cli.problem import suite
from hw4cli.system import gpufiles
from hw4cli.text.words import counted, printable

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
NASTY = "a\x1b[31mb\nc\u202ed"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return write_case(tmp_path_factory.mktemp("case") / "in", random_block(1, 8, 4))


# Words that come close, and mistakes before the machine.


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bench", "flsh", "t01"], "'flsh' is no KERNEL, CASE, B,N,d or WORKLOAD"),
        (["bench", "flsh", "t01"], "Did you mean 'flash'?"),
        (["--kernel", "exakt", "in", "out"], "Did you mean 'exact'?"),
        (["--device", "cud", "in", "out"], "Did you mean 'cuda'?"),
        (["plot", "rate", "--over", "case", "a.json", "-o", "a.svg"], "Did you mean 'cases'?"),
        (["judge", "t1"], "there is no case 't1': did you mean t01?"),
        (["gen", "T005"], "did you mean t05?"),
        (["judge", "99"], "there is no case '99': the suite has t01 to t30"),
        (["jugde", "t01"], "there is no command and no file 'jugde'. Did you mean 'judge'?"),
        (["nothing"], "there is no command and no file 'nothing'"),
        (["verify", "a", "b", "--tolerance", "much"], "'much' is not a valid number"),
        (["judge", "--penalty", "nan"], "nan is not a number"),
        (["judge", "--repeat", "two"], "'two' is not a valid integer"),
        (["judge", "--launcher", ""], "--launcher is empty"),
        (["judge", "--program", ""], "--program is empty"),  # and not hw4 itself
        (["judge", "--run-as", ""], "--run-as is empty"),
        (["--srun", " ", "in", "out"], "--srun is empty"),
        (["gen", "t01", "--suite", ""], "'--suite': the name is empty"),
        (["gen", "t01", "--seed", "5"], "--seed goes with a shape"),
        (["gen", "1,8,4", "-o", "my.in", "--dir", "cases"], "--dir goes with cases"),
        (["judge", "--class", "a", "--output", "b", "--slurm", ""], "--slurm is empty"),
        (["judge", "t99", "--srun", "-p x"], "there is no case 't99'"),
        (["judge", "t01", "--program", "python3 mime.py"], "python3 cannot run mime.py: there is no such file"),
        (["judge", "t01", "--dir", __file__], "test_messages.py is a file: name the folder of the cases"),
    ],
)
def test_a_wrong_word_is_told_with_what_was_meant(hw4_here, args, words):
    fails(hw4_here(*args), 2, words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["in", "out", "--gpus", "count:{}"], "is not all, count:N"),
        (["in", "out", "--gpus", "ids:{}"], "is not all, count:N"),
        (["gen", "t{}"], "there is no case"),
        (["profile", "flash", "t28", "--sweep", "{}"], "is not a list of N"),
    ],
)
def test_a_number_of_thousands_of_digits_is_refused_for_what_it_is(args, words):
    fails(run_hw4(*(arg.format("9" * 5000) for arg in args)), 2, words)  # its start raises Python's own limit


@pytest.mark.parametrize("name", ["none/record.json", "."])
def test_bench_tells_of_a_bad_output_before_it_asks_for_a_gpu(hw4_here, tmp_path, name):
    fails(hw4_here("bench", "t01", "--output", tmp_path / name), 2, str(tmp_path))


def test_bench_tells_of_a_bad_older_record_before_it_asks_for_a_gpu(hw4_here, tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"schema": 1, "machine": {}, "rows": [{"kernel": "flash", "status": "ok"}]}))
    fails(hw4_here("bench", "t01", "--compare", old), 2, "is not a record that")


def test_gen_tells_of_a_bad_output_before_it_looks_for_a_gpu(hw4_here, tmp_path):
    fails(hw4_here("gen", "1,8,4", "-o", tmp_path), 2, "is a directory")
    (tmp_path / "in.out").mkdir()
    fails(hw4_here("gen", "1,8,4", "-o", tmp_path / "in"), 2, "in.out is a directory")
    assert not (tmp_path / "in").exists()


# The GPU.


def test_a_kernel_is_refused_with_the_cpu(hw4, case, tmp_path):
    words = "--kernel flash is for the GPU and does not go with --device cpu"
    fails(hw4("--kernel", "flash", "--device", "cpu", case, tmp_path / "out"), 2, words)
    assert hw4("--kernel", "auto", "--device", "cpu", case, tmp_path / "out").returncode == 0


def test_a_kernel_that_is_named_is_never_replaced(hw4, case, tmp_path):
    result = hw4("--kernel", "float4", case, tmp_path / "out", env=NO_GPU)
    fails(result, 3, "no GPU can be used: ", "`--device emulate` executes float4 on the CPU", "`--device cpu`")
    assert not (tmp_path / "out").exists()
    auto = hw4(case, tmp_path / "out", env=NO_GPU)
    assert (auto.returncode, auto.stderr.endswith("; using the CPU\n")) == (0, True)


def test_cupy_is_advised_only_where_there_is_an_nvidia_gpu(monkeypatch, tmp_path):
    def missing():
        raise ModuleNotFoundError("No module named 'cupy'", name="cupy")

    monkeypatch.setattr(gpu, "load", missing)
    monkeypatch.setattr(gpufiles, "NVIDIA_FILES", [str(tmp_path / "nvidiactl")])
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
    monkeypatch.setattr(gpufiles, "NVIDIA_FILES", [str(tmp_path / "nvidiactl")])
    with pytest.raises(MachineError, match=r"^no GPU can be used: there is no NVIDIA GPU here$"):
        gpu.Gpu()
    (tmp_path / "nvidiactl").touch()
    with pytest.raises(MachineError, match="driver version is insufficient"):
        gpu.Gpu()


# Numbers.


def test_numbers_have_their_nouns():
    assert [counted(number, "case") for number in (0, 1, 2, 2000)] == ["0 cases", "1 case", "2 cases", "2,000 cases"]
    assert counted(2, "batch", "batches") == "2 batches"


def test_a_score_tells_what_it_is_of_and_what_is_open(tmp_path):
    whole = [replace(RIGHT, case=name) for name in suite.cases()]
    write(tmp_path / "whole", *whole, cases=list(suite.cases()))
    write(tmp_path / "part", RIGHT, replace(RIGHT, case="t02", max_error=1.0), cases=["t01", "t02"])
    assert "\n30 of 30 cases AC, score 60 of 60\n" in run_here("judge", "--rescore", tmp_path / "whole").stdout
    share = "2 of the suite's 30 cases judged"
    assert (
        f"\n1 of 2 cases AC, score at most 57 of 60: {share}\n"
        in run_here("judge", "--rescore", tmp_path / "part").stdout
    )
    assert share in run_here("scoreboard", tmp_path / "part").stdout
    assert "2 of the suite's 30 cases" in (tmp_path / "part/results.md").read_text()
    assert "at most" not in (tmp_path / "whole/results.md").read_text()


# Names from outside.


def test_what_is_printable_steers_no_terminal():
    assert printable(NASTY) == "a?[31mb?c?d"
    assert printable("t01 (1, 2, 3) √ 王") == "t01 (1, 2, 3) √ 王"


@quick_of_each(5)
@pytest.mark.parametrize(
    "args",
    [
        ["info", NASTY],
        ["verify", NASTY, NASTY],
        [NASTY, "out"],
        ["--device", "cpu", "in", NASTY + "/out"],
        ["gen", "1,8,4", "--no-answers", "-o", NASTY],
        ["gen", NASTY],
        ["judge", "--dir", NASTY, "t01"],
        ["judge", "t01", "--program", f"'{NASTY}'"],
        ["judge", "--user", "me", NASTY],
        ["judge", "--rescore", NASTY],
        ["scoreboard", "journals"],
        ["scoreboard", "journals", "-o", NASTY],
        ["judge", "--rescore", "journals/one"],
        ["doctor", "--dir", NASTY],
        ["bench", "1,8,4", "--compare", NASTY],
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
    result = hw4("gen", "1,8,4", "--no-answers", "-o", tmp_path / "[red]x")
    assert "[red]x  (1, 8, 4)  0.0 MB" in result.stderr


@needs("sh")
def test_a_launchers_words_do_not_reach_the_terminal_raw(tmp_path):
    (tmp_path / "srun").write_text(
        "#!/bin/sh\nprintf 'srun: job 1 queued and waiting \\033[31mb\\nplain \\033[31mb\\n' >&2\n"
    )
    (tmp_path / "srun").chmod(0o755)
    _, shown = on_a_terminal(200, "judge", "--srun", "-p x", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert "plain ?[31mb" in shown
    assert "\x1b[31m" not in shown


def test_a_package_that_is_missing_is_named(tmp_path):
    without = "import sys; sys.modules['rich'] = None; from hw4cli.entry import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", without, "judge", "t01", "--dir", tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    fails(result, 3, "the package rich", "is missing here: install hw4 again")
