"""The judge of one case and its command with real programs, and verify; see also test_verdicts_of_programs."""

import shutil
import stat
import sys
import time

import numpy as np
import psutil
import pytest
from helpers import (
    HANGS,
    JUDGE_T01,
    ROOT,
    fails,
    holds_once,
    make_cases,
    run_here,
    set_kill_after,
    tiny_case,
    wait_until,
)

from hw4cli.judge import runcase
from hw4cli.judge.runcase import size_problem
from hw4cli.judge.scoring.record import combine
from hw4cli.problem import suite
from hw4cli.problem.verdict import Comparison, Verdict
from hw4cli.problem.workload import Shape


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A small case with a limit of half a second, for programs that exceed it."""
    case = tiny_case(limit=0.5)
    return case, make_cases(tmp_path_factory.mktemp("tiny"), case)


@pytest.fixture
def program(tmp_path):
    """Makes an executable Python program from its lines, in which `answer` is the path of the answer."""

    def write(body, answer="/none"):
        path = tmp_path / "program"
        path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time, shutil\nanswer = {str(answer)!r}\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return write


def judge_case(*args, **kwargs):
    """The result of one attempt."""
    return combine([runcase.judge_case(*args, **kwargs)])


RIGHT = "shutil.copyfile(answer, sys.argv[2])"


def judged(tiny, program, body, monkeypatch, kill_after=0.5):
    case, folder = tiny
    set_kill_after(monkeypatch, kill_after)
    return judge_case(case, [str(program(body, case.answer_path(folder)))], folder)


def test_a_failure_of_the_judge_has_words_and_an_advice(tiny, program, tmp_path):
    case, folder = tiny
    shutil.copy(case.input_path(folder), tmp_path)  # without its answer
    result = judge_case(case, [str(program(RIGHT))], tmp_path)
    assert result.verdict is Verdict.JE and "Errno" not in result.reason
    assert f"cannot read {case.answer_path(tmp_path)}: No such file" in result.reason and "judge again" in result.reason


def test_the_judge_does_not_kill_its_own_earlier_children(tiny, program, monkeypatch):
    bystander = psutil.Popen(["sleep", "30"])
    try:
        judged(tiny, program, RIGHT, monkeypatch)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_the_end_of_a_program_is_noticed_at_once(tiny, program, monkeypatch):
    walls = {body: [] for body in (RIGHT, RIGHT + "; time.sleep(0.1)")}

    def noticed():
        for body, times in walls.items():
            times.append(judged(tiny, program, body, monkeypatch, kill_after=60).wall)
        fast, slow = (min(times) for times in walls.values())
        return len(walls[RIGHT]) >= 5 and slow - fast == pytest.approx(0.1, abs=0.045)

    assert holds_once(noticed, tries=30)


def test_a_damaged_answer_is_the_judges_failure(tiny, program, tmp_path):
    case, folder = tiny
    for path in (case.input_path, case.answer_path):
        path(tmp_path).write_bytes(path(folder).read_bytes())
    answer = case.answer_path(tmp_path)
    command = [str(program(RIGHT, case.answer_path(folder)))]
    assert judge_case(case, command, tmp_path).verdict is Verdict.AC
    data = answer.read_bytes()
    for damage in (data[:-4], b"\xff" * len(data)):
        answer.write_bytes(damage)
        result = judge_case(case, command, tmp_path)
        assert result.verdict is Verdict.JE
        assert "answer" in result.reason
    case.input_path(tmp_path).write_bytes(b"short")
    assert judge_case(case, command, tmp_path).verdict is Verdict.JE


@pytest.mark.parametrize("file", ["t01", "t01.out"])
def test_an_input_or_answer_of_the_right_size_that_is_not_the_suites_is_the_judges_failure(
    folder, program, tmp_path, file
):
    case = suite.cases()["t01"]
    for path in folder.iterdir():
        shutil.copy(path, tmp_path)
    command = [str(program(RIGHT, case.answer_path(tmp_path)))]
    assert judge_case(case, command, tmp_path).verdict is Verdict.AC
    with (tmp_path / file).open("r+b") as damaged:
        damaged.seek(12)
        damaged.write(b"\0\0\0\0")
    result = judge_case(case, command, tmp_path)
    assert result.verdict is Verdict.JE
    assert f"{tmp_path / file} " in result.reason
    assert f"`hw4 gen t01 --dir {tmp_path}`" in result.reason


@pytest.mark.parametrize("damaged", ["answer", "answer[:-4]", "permissions"])
def test_a_program_that_changes_the_cases_files_is_refused(tiny, program, tmp_path, damaged):
    case, folder = tiny
    for path in (case.input_path, case.answer_path):
        path(tmp_path).write_bytes(path(folder).read_bytes())
    change = "os.chmod(answer, 0o400)" if damaged == "permissions" else f"open({damaged}, 'r+b').write(b'xxxx')"
    body = f"{RIGHT}; {change}"
    result = judge_case(case, [str(program(body, case.answer_path(tmp_path)))], tmp_path)
    assert result.verdict is Verdict.NA
    assert "changed while the program ran" in result.reason


def test_too_little_free_space_for_the_output_is_the_judges_failure(tiny, program, monkeypatch):
    case, folder = tiny
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    result = judge_case(case, [str(program(RIGHT, case.answer_path(folder)))], folder)
    assert result.verdict is Verdict.JE
    assert "TMPDIR" in result.reason


def test_comparing_takes_little_longer_than_reading(tmp_path):
    values = np.linspace(-3, 3, 1 << 24, dtype=np.float32)  # 64 MB
    paths = tmp_path / "output", tmp_path / "answer"
    for path in paths:
        values.tofile(path)

    def seconds(work):
        def once():
            start = time.monotonic()
            work()
            return time.monotonic() - start

        return min(once() for _ in range(5))

    reading = seconds(lambda: [np.fromfile(path, np.float32) for path in paths])
    assert seconds(lambda: runcase.compare_files(*paths, Comparison())) < 6 * reading


def test_a_wrong_size_is_given_in_rows_if_it_is_a_multiple_of_rows():
    shape = Shape(2, 40, 8)
    assert size_problem(2560, shape) is None
    assert "3 rows too short" in size_problem(2560 - 96, shape)
    assert "5 bytes too long" in size_problem(2565, shape)


def test_hw4_judges_itself_and_shows_the_table(hw4, folder):
    result = hw4(*JUDGE_T01, "--dir", folder, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert result.returncode == 0, result.stdout + result.stderr
    row = next(line for line in result.stdout.splitlines() if line.startswith("t01"))
    assert "(320, 128, 32)" in row
    assert " AC " in row
    assert float(row.split()[-1]) < 5e-5
    assert "1 of 1 case AC, score at most 60 of 60: 1 of the suite's 30 cases judged" in result.stdout
    assert "+ Penalty 0.00 s" in result.stdout


def test_a_program_with_arguments_is_judged_and_wrong_cases_get_the_penalty(hw4, folder, program):
    path = program("sys.exit(len(sys.argv))")
    result = hw4(*JUDGE_T01, "--dir", folder, "--program", f"{path} 'one argument' two")
    assert result.returncode == 1
    assert "NA" in result.stdout
    assert "exit code 5" in result.stdout
    assert "score at most 57 of 60" in result.stdout
    assert "Penalty 60.00 s" in result.stdout


def test_missing_cases_are_reported_with_the_command_that_makes_them(hw4, folder):
    result = hw4("judge", "t01-t03", "t05", "--dir", folder)
    fails(result, 3, "3 of 4 cases", f"hw4 gen t02-t03 t05 --dir {folder}")


def test_a_wrong_option_is_reported_in_one_sentence(hw4_here, folder):
    fails(hw4_here("judge", "t99", "--dir", folder), 2, "no case 't99'")
    fails(hw4_here("judge", "t01", "--dir", folder, "--program", "./nowhere"), 2, "./nowhere")
    fails(hw4_here("judge", "t01", "--dir", folder, "--program", "'"), 2, "--program")
    for penalty in ("nan", "-5", "inf"):
        fails(hw4_here("judge", "t01", "--dir", folder, "--penalty", penalty), 2, "--penalty")


def test_an_interrupted_judge_ends_the_program(folder, program):
    import signal
    import subprocess

    path = program("time.sleep(300)")
    process = subprocess.Popen(
        [sys.executable, "-m", "hw4cli", "judge", "t01", "--dir", str(folder), "--program", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: psutil.Process(process.pid).children())
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert stderr.strip() == "hw4: interrupted: 0 of 1 cases are judged"
    alive = [p for p in psutil.process_iter(["cmdline"]) if str(path) in (p.info["cmdline"] or [])]
    assert not alive


def verify(*args):
    return run_here("verify", *args)


def test_verify_distinguishes_right_from_wrong_and_shows_where(folder, tmp_path):
    case = suite.cases()["t01"]
    answer = case.answer_path(folder)
    assert verify(answer, answer).returncode == 0
    output = tmp_path / "out"
    data = bytearray(answer.read_bytes())
    data[4 * (128 * 32 * 2 + 5 * 32 + 7) :][:4] = b""
    data[4 * (128 * 32 * 2 + 5 * 32 + 7) : 4 * (128 * 32 * 2 + 5 * 32 + 7) + 4] = b"\x00\x00\xa0\x41"
    output.write_bytes(data)
    result = verify(output, answer)
    assert result.returncode == 1
    assert "wrong       1" in result.stdout
    assert "first wrong batch 2, row 5, column 7" in result.stdout
    assert "worst       batch 2, row 5, column 7" in result.stdout


def test_verify_counts_nan_and_needs_equal_sizes(folder, tmp_path):
    answer = suite.cases()["t01"].answer_path(folder)
    output = tmp_path / "out"
    output.write_bytes(b"\xff" * 8 + answer.read_bytes()[8:])
    result = verify(output, answer)
    assert result.returncode == 1
    assert "NaN or Inf  2" in result.stdout
    output.write_bytes(answer.read_bytes()[:-1])
    assert verify(output, answer).returncode == 1
    fails(verify(tmp_path / "none", answer), 2, "does not exist")
    fails(verify(answer, output), 2, "bytes")
    fails(verify(answer, answer, "1,2,4"), 2, "(1, 2, 4)")
