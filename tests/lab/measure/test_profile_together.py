"""`hw4 profile` of kernels and of programs in one table, by an ncu that answers each as it was recorded."""

import json
import re
from itertools import takewhile

import pytest
from helpers import ROOT, fits, on_a_terminal
from slow import slow

from hw4cli.plans.ladder import VARIANTS

RECORDED = (ROOT / "benchmarks/h100-ncu-t28.csv").read_text()
SYMBOL = "void attention<64>(const float *, const float *, const float *, float *, int)"
# Recorded launches, as if they were a program's: one called so by its author, and one called as hw4's is.
STUDENTS = "\n".join(
    line for line in RECORDED.splitlines() if not re.search(r'"(split_convert|flash_combine|exact)', line)
).replace('"flash"', f'"{SYMBOL}"')
SIX = [
    *("achieved_occupancy", "sm_efficiency, %", "shared_load_throughput, GB/s", "shared_store_throughput, GB/s"),
    *("gld_throughput, GB/s", "gst_throughput, GB/s"),
]


@pytest.fixture
def programs(tools, folder, tmp_path, monkeypatch):
    """Two programs in this folder; hw4's kernels and those of each program are counted as they were recorded."""
    assert (STUDENTS.count(SYMBOL), STUDENTS.count('"split"')) == (1, 1)
    for name in ("first", "second"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    tools(ncu=RECORDED, others={"/first": STUDENTS, "/second": STUDENTS.replace("attention", "mine")})
    return ("--program", "./first", "--program", "./second", "t01", "--dir", folder)


def cells(line):
    return re.split(r"  +", line)


def test_kernels_and_programs_stand_in_one_table(hw4, programs):
    result = hw4("profile", "flash", *programs[2:], "--set", "assignment", "--set", "memory")
    assert result.returncode == 0, result.stderr
    title, _, header, *lines = result.stdout.splitlines()
    assert title.startswith("flash, ./second on t01, (B, N, d) = (320, 128, 32): NVIDIA H100")
    columns = cells(header)
    assert columns[:3] == ["metric", "flash", "flash_combine"]
    assert columns[-2:] == ["./second: mine<64>", "./second: split"]
    assert [cells(line)[0] for line in lines[:6]] == SIX
    occupancy = cells(lines[0])
    assert len(occupancy) == len(columns)
    assert occupancy[1] == occupancy[columns.index("./second: mine<64>")] == "0.1808"


def test_where_launches_are_more_than_metrics_each_is_a_line(hw4, programs):
    lines = hw4("profile", "flash", "split", *programs).stdout.splitlines()[2:]
    assert cells(lines[0]) == ["launch", *SIX]
    found = {cells(line)[0]: cells(line)[1:] for line in lines[1 : lines.index("")]}
    assert [*found][-4:] == ["./first: attention<64>", "./first: split", "./second: mine<64>", "./second: split"]
    assert found["flash"] == found["./first: attention<64>"]


def test_the_model_is_beside_hw4s_launches_alone_though_a_program_has_one_of_that_name(hw4, programs):
    record = json.loads(hw4("profile", "flash", "split", *programs, "--json").stdout)
    ratios = {
        (one["program"], one["kernel"]): any(metric["ratio"] for metric in one["metrics"]) for one in record["launches"]
    }
    assert ratios["", "split"]
    assert not ratios["./first", "split"]
    assert {program for program, _ in ratios} == {"", "./first", "./second"}


def test_each_program_has_its_sentence_and_hw4s_kernels_have_one(hw4, programs):
    last = hw4("profile", "flash", "split", *programs).stdout.splitlines()[-6:]
    begins = [line.partition(": nearest limit")[0] for line in last if "nearest limit" in line]
    assert begins == ["flash", "./first: attention<64>", "./second: mine<64>"]


def test_nvprofs_form_and_records_say_whose_a_kernel_is(hw4, programs, tmp_path):
    assert hw4("profile", "flash", *programs, "-o", tmp_path / "a.nvprof").returncode == 0
    shown = (tmp_path / "a.nvprof").read_text()
    assert "    Kernel: flash\n" in shown
    assert "    Kernel: ./first: split\n" in shown
    rows = json.loads(hw4("profile", "flash", *programs, "--json").stdout)["launches"]
    assert {(row["program"], row["kernel"]) for row in rows} >= {("", "flash"), ("./second", "mine<64>")}


def test_of_one_program_alone_kernels_have_their_names_alone(hw4, programs):
    result = hw4("profile", *programs[:2], *programs[4:])
    assert result.stdout.startswith("./first on t01: NVIDIA H100")
    assert cells(result.stdout.splitlines()[2]) == ["metric", "attention<64>", "split"]


def test_the_table_of_all_fits_a_terminal_of_60_columns(programs):
    code, shown = on_a_terminal(60, "profile", "flash", "split", *programs)
    assert code == 0, shown
    assert fits(shown, 60), shown


@slow
def test_all_is_the_ladder_as_far_as_the_gpu_starts_it(hw4, programs, tools):
    title = hw4("profile", "all", *programs).stdout.splitlines()[0]
    assert title.startswith(f"{', '.join(VARIANTS)}, ./first, ./second on t01")
    table = '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
    row = '"NVIDIA GeForce GTX 1080 (0)","flash",1,"achieved_occupancy","Achieved Occupancy",0.1,0.1,0.1\n'
    tools(gpu="NVIDIA GeForce GTX 1080, 6.1", nvprof=table + row)
    result = hw4("profile", "all", "t01")
    first = ", ".join(takewhile(lambda name: not VARIANTS[name].least_cc, VARIANTS))
    assert (result.returncode, result.stdout.startswith(f"{first}, ")) == (0, True)
    assert "hw4: kernel split needs compute capability 8.0, this GPU has 6.1" in result.stderr.splitlines()
    result = hw4("profile", "split", "t01")
    assert (result.returncode, len(result.stderr.splitlines())) == (3, 1)


def test_a_table_of_one_process_alone_is_kept_and_goes_over_lengths(hw4, programs):
    for words, options in (
        (".csv takes what is profiled at once", ("flash", *programs, "-o", "x.csv")),
        (".csv takes what is profiled at once", (*programs, "-o", "x.csv")),
        ("go with kernels alone", ("flash", *programs, "--sweep", "128,256")),
        ("one case or shape is needed", ("flash", *programs[:4], "t01-t02")),
        ("name a case", ("flash", *programs[:4])),
    ):
        result = hw4("profile", *options)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert words in result.stderr


def test_the_program_that_fails_is_named(hw4, programs, tmp_path):
    (tmp_path / "bin/ncu").rename(tmp_path / "bin/real")
    fails = f'#!/bin/sh\ncase "$*" in */second*) echo "no such file"; exit 9;; esac\nexec {tmp_path}/bin/real "$@"\n'
    (tmp_path / "bin/ncu").write_text(fails)
    (tmp_path / "bin/ncu").chmod(0o755)
    result = hw4("profile", "flash", *programs)
    assert (result.returncode, result.stderr) == (3, "hw4: ./second: ncu failed with status 9: no such file\n")


def test_on_amds_gpus_hw4_is_profiled_as_a_program(hw4_here, tools, programs, monkeypatch, tmp_path):
    """The plan of a kernel is that of an NVIDIA GPU here: beside it, no figure of an AMD GPU would mean anything."""
    tools(gpu="")
    (tmp_path / "bin/nvidia-smi").unlink()
    monkeypatch.setattr("hw4cli.lab.measure.profilers.AMD_FILE", tmp_path)
    result = hw4_here("profile", "flash", "t01")
    assert (result.returncode, result.stderr.count("\n")) == (3, 1)
    assert "profile hw4 as a program" in result.stderr
    assert "rocprofv3 is not on PATH" in hw4_here("profile", *programs).stderr
