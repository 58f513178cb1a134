"""`hw4 INPUTFILE OUTPUTFILE` as its users meet it: real files, and every way a run can go wrong."""

import os
import re
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from helpers import (
    HANGS,
    ROOT,
    definition,
    fails,
    folder_is_clean,
    random_block,
    read_output,
    start_hw4,
    wait_until,
    write_case,
)
from slow import quick_of_each, slow

from hw4cli.problem.workload import Shape

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture
def case(tmp_path):
    return write_case(tmp_path / "case", random_block(3, 130, 32))


@quick_of_each(2)
@pytest.mark.parametrize("shape", [(3, 130, 32), (1, 1, 4), (2, 129, 100), (5, 31, 64)])
def test_the_default_command_computes_attention(hw4_started, tmp_path, shape):
    block = random_block(*shape)
    source = write_case(tmp_path / "in", block)
    result = hw4_started("--device", "cpu", source, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(rf"\(B, N, d\): {re.escape(str(shape))}\nTime: \d+\.\d\d\d seconds\n", result.stdout)
    assert np.abs(read_output(tmp_path / "out", Shape(*shape)) - definition(block)).max() < 2e-5
    folder_is_clean(tmp_path, "in", "out")


def test_run_may_be_written_out(hw4, case, tmp_path):
    assert hw4("run", case, tmp_path / "a", "--device=cpu").returncode == 0
    assert hw4(case, tmp_path / "b", "--device", "cpu").returncode == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_quiet_prints_nothing_and_timing_tells_the_stages(hw4, case, tmp_path):
    quiet = hw4("--device", "cpu", "--quiet", case, tmp_path / "out")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    timing = hw4("--device", "cpu", "--timing", case, tmp_path / "out")
    *stages, kernel = timing.stderr.splitlines()
    seconds = {line[:9].strip(): line[9:18] for line in stages}
    assert list(seconds) == ["start", "read", "copy in", "kernel", "copy out", "write", "total"]
    assert all(0 <= float(seconds[stage]) <= float(seconds["total"]) for stage in seconds)
    error = r"error at most [\de.-]+ \([\de.-]+ without norms\)"
    assert re.fullmatch(rf"kernel: 3 batches by float32, {error}; allowed 0.004; .*CPU.*", kernel)


def test_without_a_gpu_auto_computes_on_the_cpu_and_says_so_in_one_line(hw4_started, case, tmp_path):
    result = hw4_started(case, tmp_path / "out", env=NO_GPU)
    assert result.returncode == 0
    assert len(result.stderr.splitlines()) == 1
    assert "no GPU" in result.stderr
    assert "CPU" in result.stderr


def test_a_cache_folder_that_cannot_be_made_is_no_obstacle(hw4, case, tmp_path):
    result = hw4(case, tmp_path / "out", env={**NO_GPU, "CUPY_CACHE_DIR": "/proc/none"})
    assert result.returncode == 0, result.stderr


def test_without_a_gpu_cuda_is_refused(hw4_started, case, tmp_path):
    fails(hw4_started("--device", "cuda", case, tmp_path / "out", env=NO_GPU), 3, "no GPU can be used")
    folder_is_clean(tmp_path, "case")


def test_scores_beyond_float32_are_computed_in_float64_and_reported(hw4, tmp_path):
    block = random_block(2, 40, 8) * np.float32(1e25)
    source = write_case(tmp_path / "in", block)
    result = hw4("--device", "cpu", source, tmp_path / "out")
    assert "float64" in result.stderr
    expected = definition(block)
    assert np.abs(read_output(tmp_path / "out", Shape(2, 40, 8)) / expected - 1).max() < 1e-6


@pytest.mark.parametrize(("asked", "kernel", "error"), [("1e-4", "float32", 2e-5), ("1e-6", "float64", 1e-6)])
def test_a_smaller_error_is_had_for_the_asking_and_nothing_is_said(hw4, case, tmp_path, asked, kernel, error):
    result = hw4("--device", "cpu", "--max-error", asked, "--timing", case, tmp_path / "out")
    assert result.returncode == 0
    assert result.stderr.splitlines()[-1].startswith(f"kernel: 3 batches by {kernel}, ")
    assert not any(line.startswith("hw4: ") for line in result.stderr.splitlines())
    got = read_output(tmp_path / "out", Shape(3, 130, 32))
    assert np.abs(got - definition(random_block(3, 130, 32))).max() <= error


def test_an_error_that_no_kernel_can_keep_is_refused_and_the_old_output_is_untouched(hw4, case, tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    result = hw4("--device", "cpu", "--max-error", "1e-9", case, tmp_path / "out")
    fails(result, 2, "--max-error 1e-09 is less than any kernel can keep", "float64 keeps 1.8e-07")
    assert (tmp_path / "out").read_bytes() == b"old"
    folder_is_clean(tmp_path, "case", "out")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "much"])
def test_a_max_error_must_be_a_positive_number(hw4_here, case, tmp_path, value):
    fails(hw4_here("--device", "cpu", "--max-error", value, case, tmp_path / "out"), 2, "--max-error", value)


@slow
def test_only_the_batches_that_need_it_are_computed_in_float64(hw4, tmp_path):
    block = random_block(50, 512, 128)  # two groups, of 42 and 8
    block[1, :2] *= 100
    source = write_case(tmp_path / "in", block)
    result = hw4("--device", "cpu", "--timing", source, tmp_path / "out")
    lines = [line for line in result.stderr.splitlines() if line.startswith("hw4: ")]
    assert len(lines) == 1
    assert "42 batches had values too large for float32" in lines[0]
    assert np.abs(read_output(tmp_path / "out", Shape(50, 512, 128)) - definition(block)).max() < 2e-5


def test_an_unknown_kernel_names_the_known_ones(hw4, case, tmp_path):
    fails(hw4("--kernel", "falsh", case, tmp_path / "out"), 2, "falsh", "flash")


def test_a_missing_output_name_is_a_usage_error(hw4, case):
    fails(hw4(case), 2, "OUTPUTFILE", "--help")


@pytest.mark.parametrize("words", [["jugde"], ["jugde", "t01"], ["verfy", "a", "b"]])
def test_a_mistyped_command_is_asked_back(hw4, words):
    expected = {"jugde": "judge", "verfy": "verify"}[words[0]]
    fails(hw4(*words), 2, f"Did you mean {expected!r}?")


def test_a_file_with_a_commands_name_can_be_named_by_a_path(hw4, tmp_path):
    write_case(tmp_path / "judge", random_block(1, 4, 4))
    assert hw4("--device", "cpu", "./judge", "out", cwd=tmp_path).returncode == 0


def test_no_words_show_the_help(hw4_started):
    result = hw4_started()
    assert "hw4 INPUTFILE OUTPUTFILE" in result.stdout + result.stderr
    assert result.returncode == 2


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle_it_leaves_nothing_behind(tmp_path, stop):
    source = write_case(tmp_path / "in", random_block(1, 16384, 64))  # some seconds of work
    (tmp_path / "out").write_bytes(b"old")
    process = subprocess.Popen(
        [sys.executable, "-m", "hw4cli", "--device", "cpu", str(source), str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )
    wait_until(lambda: list(tmp_path.glob(".out.*")))
    time.sleep(0.2)
    process.send_signal(stop)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 130, stderr
    assert stderr.strip() == "hw4: interrupted"
    assert (tmp_path / "out").read_bytes() == b"old"
    folder_is_clean(tmp_path, "in", "out")


@slow
def test_ctrl_c_in_a_long_computation_ends_it_within_a_second_of_processor_time(tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 49152, 64))  # 600 GFLOP in a single group
    process = start_hw4("--device", "cpu", source, tmp_path / "out")
    seconds = psutil.Process(process.pid).cpu_times
    while process.poll() is None and sum(seconds()[:2]) < 2:
        time.sleep(0.05)
    before = sum(seconds()[:2])
    process.send_signal(signal.SIGINT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 130
    assert usage.ru_utime + usage.ru_stime - before < 1
    assert process.stderr.read().strip() == "hw4: interrupted"
    folder_is_clean(tmp_path, "in")


def test_info_tells_header_ranges_and_what_is_outside_the_assignment(hw4, tmp_path):
    block = random_block(3, 130, 20)
    block[0, 1, 2, 3] = -7.5
    source = write_case(tmp_path / "in", block)
    out = hw4("info", source).stdout
    assert "(3, 130, 20)" in out
    assert f"{source.stat().st_size:,} bytes" in out
    assert "-7.5 …" in out
    for note in ("N = 130", "d = 20", "K leave [-3, 3]"):
        assert note in out
    regular = write_case(tmp_path / "ok", random_block(2, 128, 32))
    assert "within the assignment's ranges" in hw4("info", regular).stdout
    block[1, 2, 3, 4] = np.nan
    fails(hw4("info", write_case(tmp_path / "nan", block)), 2, "nan in V of batch 1, row 3, column 4")
    fails(hw4("info", tmp_path), 2, "is a directory")
    fails(hw4("info", "/sys/class/net/lo/mtu"), 2, "/sys/class/net/lo/mtu ends after")


def test_info_looks_at_a_large_batch_in_bounded_memory(tmp_path):
    shape = Shape(1, 1 << 19, 64)
    with (tmp_path / "in").open("wb") as file:
        file.write(struct.pack("<iii", shape.B, shape.N, shape.d))
        file.seek(shape.input_bytes - 4)
        file.write(struct.pack("<f", 2.5))
    script = (
        "import sys; from hw4cli.cli import run_command; run_command(['info', sys.argv[1]])\n"
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "in")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "V          0 … 2.5" in result.stdout
    assert int(result.stderr) < 200_000, "kilobytes at most"


@pytest.mark.parametrize("unbuffered", ["", "1"])  # what could not be written is still there at the end, or not
def test_an_output_that_cannot_be_printed_is_one_sentence(case, unbuffered):
    command = [sys.executable, "-m", "hw4cli", "info", str(case)]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert result.returncode == 3
    assert result.stderr.splitlines() == ["hw4: cannot write the output: No space left on device"]
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert "Traceback" not in closed.stderr


def test_a_terminal_without_our_letters_is_no_traceback(hw4_started):
    assert hw4_started("--help", env={"PYTHONIOENCODING": "latin-1"}).returncode == 0


def test_a_name_that_leads_nowhere_is_one_sentence(hw4, case, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert len(hw4("--device", "cpu", case, tmp_path / "loop").stderr.splitlines()) == 1
    assert len(hw4("--device", "cpu", case, tmp_path / ("x" * 300)).stderr.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_traceback(case):
    process = subprocess.Popen(
        [sys.executable, "-m", "hw4cli", "info", str(case)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait()
