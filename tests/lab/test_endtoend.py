"""`hw4 bench --end-to-end` with real programs: checked, in turn, timed from outside, ratios and sums by arithmetic."""

import csv
import io
import json
import time

import pytest
from helpers import HANGS, fails, folder_is_clean, make_cases
from records import as_written
from slow import slow

from hw4cli.cli.benchcommand.shown import hyperfine
from hw4cli.errors import InputError
from hw4cli.lab import endtoend
from hw4cli.lab.endtoend import (
    Program,
    ProgramResult,
    cached_share,
    evict,
    measure,
    program_record,
    read_once,
    sums,
    with_distinct_names,
)
from hw4cli.lab.tables import PROGRAM_COLUMNS, program_cells
from hw4cli.problem import suite
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.checksums import RECORD
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.suite import Case
from hw4cli.problem.workload import Shape

CPU = {"CUDA_VISIBLE_DEVICES": "-1"}
SMALL = Case("t01", Shape(2, 40, 8), 5, 5.0, "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small case and its answer."""
    folder = tmp_path_factory.mktemp("cases")
    suite.generate_input(SMALL.input_path(folder), SMALL.shape, SMALL.seed, lambda _: None)
    with InputFile(SMALL.input_path(folder)) as inputs:
        answer = exact_attention(inputs.batches(0, SMALL.shape.B))
    SMALL.answer_path(folder).write_bytes(answer.astype("<f4").tobytes())
    return folder


@pytest.fixture
def program(tmp_path):
    """Makes a program of a shell script, which gets its INPUT as $1 and its OUTPUT as $2; "$1.out" is the answer."""

    def make_program(name, script):
        path = tmp_path / f"{name}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Program(name, [str(path)])

    return make_program


def run(programs, folder, runs=3, cold=False, case=SMALL):
    said = []
    rows = measure(programs, case, folder, runs, cold, said.append)
    return rows, said


def test_programs_take_turns_after_a_check_of_each(program, folder, tmp_path):
    log = tmp_path / "log"
    programs = [program(name, f'echo {name} >> {log}; cp "$1.out" "$2"') for name in "ab"]
    rows, _ = run(programs, folder, runs=3)
    assert log.read_text().split() == [*"ab", *"ababab"]
    assert [row.status for row in rows] == ["ok", "ok"]
    assert [len(row.seconds) for row in rows] == [3, 3]


def test_times_are_of_the_whole_process_and_ratios_to_the_first(program, folder):
    quick, slow = program("quick", 'cp "$1.out" "$2"'), program("slow", 'cp "$1.out" "$2"; sleep 0.2')
    (a, b), _ = run([slow, quick], folder)
    assert a.fastest >= 0.2
    assert a.fastest <= a.median <= a.slowest
    assert a.ratio == 1
    assert b.ratio == b.median / a.median < 1
    assert a.max_error == 0


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ('head -c 2560 /dev/zero > "$2"', "wrong", "off by more than"),
        ('head -c 100 /dev/zero > "$2"', "wrong", "too short"),
        ("true", "wrong", "no output file"),
        ('cp "$1.out" "$2"; echo oh dear >&2; exit 3', "failed", "exit code 3: oh dear"),
        ('mkdir "$2"', "wrong", "not a regular file"),
    ],
)
def test_a_wrong_program_is_told_and_not_timed(program, folder, tmp_path, script, status, words):
    log = tmp_path / "log"
    bad, good = program("bad", f"echo x >> {log}\n{script}"), program("good", 'cp "$1.out" "$2"')
    (first, second), _ = run([bad, good], folder)
    assert (first.status, first.median, first.seconds) == (status, None, ())
    assert words in first.reason
    assert log.read_text() == "x\n", "it ran again after its check"
    assert second.status == "ok"
    assert second.ratio is None, "there is nothing to compare with"


def test_a_program_that_fails_later_has_no_time(program, folder, tmp_path):
    flag = tmp_path / "ran"
    script = f'[ -e {flag} ] && exit 9\ntouch {flag}\ncp "$1.out" "$2"'
    (row,), _ = run([program("fickle", script)], folder)
    assert (row.status, row.seconds) == ("failed", ())
    assert "exit code 9" in row.reason


def test_an_old_output_is_no_output(program, folder, tmp_path):
    flag = tmp_path / "ran"
    script = f'[ -e {flag} ] && exit 0\ntouch {flag}\ncp "$1.out" "$2"'
    (row,), _ = run([program("lazy", script)], folder)
    assert (row.status, row.reason) == ("wrong", "no output file")


def test_a_program_past_its_limit_is_killed(program, folder, monkeypatch):
    monkeypatch.setattr(endtoend, "KILL_AFTER", -4.7)
    start = time.monotonic()
    (row,), _ = run([program("endless", "sleep 600")], folder)
    assert time.monotonic() - start < HANGS
    assert row.status == "failed"
    assert "killed" in row.reason


def test_a_damaged_case_is_nobodys_time(program, tmp_path, folder):
    for name in ("t01", "t01.out"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "t01.out").write_bytes(b"short")
    with pytest.raises(InputError, match=r"t01\.out is damaged"):
        run([program("any", "true")], tmp_path)
    (tmp_path / "t01.out").write_bytes(b"\xff" * 2560)
    with pytest.raises(InputError, match="is not an answer"):
        run([program("copy", 'cp "$1.out" "$2"')], tmp_path)


def row(name, case, *seconds, status="ok"):
    middle = sorted(seconds)[len(seconds) // 2] if seconds else None
    return ProgramResult(name, case, (1, 2, 4), status, seconds=seconds, median=middle)


def test_the_sum_is_of_rounds_and_its_ratio_of_medians():
    rows = [row("a", "t01", 1, 2, 6), row("b", "t01", 2, 2, 2), row("a", "t02", 10, 10, 10), row("b", "t02", 4, 5, 6)]
    a, b = sums(rows)
    assert (a.case, a.seconds, a.median, a.fastest, a.slowest) == ("sum", (11, 12, 16), 12, 11, 16)
    assert (a.ratio, b.ratio) == (1, 7 / 12)


def test_a_sum_leaves_out_the_cases_that_a_program_did_not_do():
    rows = [row(name, case, 1, 1) for case in ("t01", "t02") for name in "ab"]
    assert sums(rows[:2]) == []
    rows += [row("a", "t03", 1, 1), row("b", "t03", status="failed")]
    assert [(total.median, total.reason) for total in sums(rows)] == [(2, "without t03")] * 2


def test_programs_of_one_name_are_told_apart():
    assert [p.name for p in with_distinct_names([Program("cp", ["cp"])] * 3)] == ["cp", "cp #2", "cp #3"]


def test_cold_drops_only_the_cases_own_file(tmp_path):
    inputs, other = tmp_path / "in", tmp_path / "other"
    for path in (inputs, other):
        path.write_bytes(bytes(1 << 20))
    read_once(inputs)
    assert cached_share(inputs) == 1
    evict(inputs)
    if cached_share(inputs) > 0:
        pytest.skip("this file system does not leave the page cache")
    assert cached_share(other) == 1
    read_once(inputs)
    assert cached_share(inputs) == 1


@pytest.mark.parametrize("cold", [False, True])
def test_the_input_is_dropped_before_each_timed_run_only_if_cold(program, folder, monkeypatch, cold):
    dropped = []
    monkeypatch.setattr(endtoend, "evict", dropped.append)
    monkeypatch.setattr(endtoend, "cached_share", lambda path: 0.5)
    (only,), said = run([program("copy", 'cp "$1.out" "$2"')], folder, runs=3, cold=cold)
    assert only.status == "ok"
    assert dropped == [folder / "t01"] * (4 if cold else 0)  # once to see whether it goes
    assert [("stays in the page cache" in text) for text in said] == [True] * cold


def test_a_record_names_machine_method_and_every_run(program, folder):
    programs = [program("copy", 'cp "$1.out" "$2"')]
    rows, _ = run(programs, folder, runs=2)
    found = json.loads(json.dumps(program_record(programs, rows, 2, cold=False)))
    assert {"cpu", "cores", "gpu", "driver", "python", "cupy"} <= set(found["machine"])
    assert found["machine"]["cores"] >= 1
    assert found["method"]["runs"] == 2
    assert found["method"]["cache"] == "input in the page cache"
    assert len(found["rows"][0]["seconds"]) == 2
    assert len(program_cells(found["rows"][0])) == len(PROGRAM_COLUMNS)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A folder with t01 and its answer."""
    return make_cases(tmp_path_factory.mktemp("real"), "t01")


def test_the_command_measures_hw4_last_and_writes_a_record(hw4, real, tmp_path, program):
    copy = program("copy", 'cp "$1.out" "$2"').command[0]
    options = ["t01", "--dir", real, "--samples", 2, "-o", tmp_path / "record.json", "-o", tmp_path / "a.csv"]
    result = hw4("bench", *options, "--program", copy, env=CPU)
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [(line["program"], line["case"], line["status"]) for line in rows] == [
        (copy, "t01", "ok"),
        ("hw4", "t01", "ok"),
    ]
    assert float(rows[0]["ratio"]) == 1
    assert as_written((tmp_path / "record.json").read_text())["kind"] == "end-to-end"
    folder_is_clean(real, RECORD, "t01", "t01.out")


def test_a_wrong_program_makes_the_exit_status_1(hw4, real):
    options = ["t01", "--dir", real, "--samples", 1, "--program", "cp"]
    result = hw4("bench", *options, "--cold", env=CPU)
    assert result.returncode == 1
    assert "cp on t01 wrong: output is" in result.stdout
    assert "\nt01 " in result.stdout, "hw4's own line"


@slow
def test_why_a_program_is_not_in_hyperfines_json_is_said_beside_it(hw4, real, tmp_path):
    options = ("t01", "--dir", real, "--samples", 1, "--program", "cp", "-o", tmp_path / "a.hyperfine.json")
    result = hw4("bench", *options, env=CPU)
    assert result.returncode == 1
    assert [one["command"] for one in json.loads((tmp_path / "a.hyperfine.json").read_text())["results"]] == ["hw4"]
    assert "cp on t01 wrong: output is" in result.stdout


def test_bad_requests_are_one_sentence(hw4_here, tmp_path):
    mine = ("--program", "hw4")  # hw4 itself, which takes part without it
    fails(hw4_here("bench", *mine), 2, "name the cases")
    fails(hw4_here("bench", "t99", *mine), 2, "no case 't99'")
    fails(hw4_here("bench", "t01", "--dir", tmp_path, *mine), 3, f"hw4 gen t01 --dir {tmp_path}")
    fails(hw4_here("bench", "t01", "--program", "no-such"), 2, "no such program on PATH")
    fails(hw4_here("bench", "t01", "--program", " "), 2, "--program is empty")
    fails(hw4_here("bench", "t01", "--samples", 0, *mine), 2, "--samples")
    fails(hw4_here("bench", "flash", "t01", *mine), 2, "a kernel's name does not go with --program")
    fails(hw4_here("bench", "1,2,4", *mine), 2, "a shape does not go with --program")
    fails(hw4_here("bench", "t01", "--cold"), 2, "--cold goes only with --program")
    fails(hw4_here("bench", "t01", "-o", "a.hyperfine.json"), 2, ".hyperfine.json is of whole programs")


def test_programs_have_the_json_of_hyperfine(program, folder):
    busy = program("busy", """i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; cp "$1.out" "$2" """)
    programs = [busy, program("bad", "true")]
    rows, _ = run(programs, folder, runs=3)
    found = hyperfine(program_record(programs, rows, 3, cold=False))
    (one,) = found["results"]
    assert (one["command"], one["exit_codes"], one["parameters"]) == ("busy", [0, 0, 0], {"case": "t01"})
    assert one["min"] == min(one["times"]) <= one["mean"] <= max(one["times"]) == one["max"]
    assert one["user"] + one["system"] > 0
    assert one["stddev"] > 0
