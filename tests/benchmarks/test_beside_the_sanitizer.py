"""compute-sanitizer beside the emulator: what its output says, a record of runs, and suites that are made ready."""

import json
import struct
import tarfile

import pytest

from benchmarks.measure.indigo3 import ALONE, HUB, bugs_of, graph, reason_of
from benchmarks.measure.reported import LIST as LIST_OF_REPORTS
from benchmarks.measure.reported import with_size
from benchmarks.measure.sanitizer import CLEAN, FOUND, LIST, NOT_RUN, TOOLS, compare, read, run
from benchmarks.pages import suites, table

RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at foo(int *)+0x30 in a.cu:3
=========     and Read access at foo(int *)+0x40 in a.cu:4 [4 hazards]
=========
========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)
"""
ENDED_EARLY = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at foo(int *)+0x30 in a.cu:3
"""
# Racecheck finds something in racy programs, the others nothing; slow programs do not end.
TOOL = """#!/bin/sh
[ "$1" = --version ] && { echo "Version 2025.3"; exit; }
tool=$2
for word; do case $word in *bin/racy) racy=1 ;; *bin/slow) exec sleep 300 ;; esac; done
echo "========= COMPUTE-SANITIZER"
if [ "$tool$racy" = racecheck1 ]; then
    echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
else
    echo "========= ERROR SUMMARY: 0 errors"
fi
"""


@pytest.mark.parametrize(
    ("text", "outcome", "errors", "warnings"),
    [
        (RACES, FOUND, 1, 2),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 12 errors\n", FOUND, 12, 0),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", CLEAN, 0, 0),
        (ENDED_EARLY, FOUND, 1, 0),
        ("========= COMPUTE-SANITIZER\n========= Error: Device not supported\n", NOT_RUN, 0, 0),
        ("", NOT_RUN, 0, 0),
    ],
)
def test_what_a_tool_s_output_says(text, outcome, errors, warnings):
    said = read(text)
    assert (said["outcome"], said["errors"], said["warnings"]) == (outcome, errors, warnings)


def test_every_tool_runs_on_every_program_of_an_archive_and_one_that_does_not_end_is_ended(tmp_path, monkeypatch):
    tools, made = tmp_path / "tools", tmp_path / "made"
    tools.mkdir()
    (made / "bin").mkdir(parents=True)
    (tools / "compute-sanitizer").write_text(TOOL)
    (tools / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    lines = [
        {"suite": "s", "program": name, "expected": what, "binary": f"bin/{name}", "stdin": "", "arguments": ["8"]}
        for name, what in (("racy", "buggy"), ("tidy", "right"), ("slow", "right"))
    ]
    lines.append({"suite": "s", "program": "odd", "expected": "right", "problem": "it does not compile"})
    (made / LIST).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with tarfile.open(tmp_path / "made.tar.xz", "w:xz") as archive:
        archive.add(made, ".")
    run([str(tmp_path / "made.tar.xz"), "-o", str(tmp_path / "record.json"), "--seconds", "3", "--wall", "60"])
    record = json.loads((tmp_path / "record.json").read_text())
    racy, tidy, slow, odd = record["programs"]
    assert [racy["runs"][tool]["outcome"] for tool in ("racecheck", "memcheck")] == [FOUND, CLEAN]
    assert [tidy["runs"][tool]["outcome"] for tool in ("racecheck", "initcheck")] == [CLEAN, CLEAN]
    assert slow["runs"]["synccheck"]["outcome"] == NOT_RUN and slow["runs"]["synccheck"]["status"] is None
    assert odd["runs"] == {} and odd["problem"] == "it does not compile"
    assert record["not begun"] == {} and record["sanitizer"] == ["Version 2025.3"]


def test_runs_for_which_no_time_is_left_are_counted_in_the_record(tmp_path, monkeypatch):
    (tmp_path / "compute-sanitizer").write_text(TOOL)
    (tmp_path / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    line = {"suite": "s", "program": "p", "expected": "right", "binary": "bin/p", "stdin": "", "arguments": []}
    (tmp_path / LIST).write_text(json.dumps(line) + "\n")
    run([str(tmp_path), "-o", str(tmp_path / "record.json"), "--seconds", "3", "--wall", "0", "--tool", "racecheck"])
    assert json.loads((tmp_path / "record.json").read_text())["not begun"] == {"s racecheck": 1}


def test_a_size_is_put_in_place_of_the_one_in_a_program_s_text():
    assert with_size("#define N 1024 // blocks\nint x = N;\n", "N", "8") == "#define N 8\nint x = N;\n"
    assert with_size("constexpr unsigned int N(1024);", "N", "8") == "constexpr unsigned int N(8);"
    assert with_size("const uint32_t kN = 64*1024; // large", "kN", "2") == "const uint32_t kN = 2; // large"
    with pytest.raises(ValueError, match="defines no M"):
        with_size("int N = 2;", "M", "8")


def test_indigo3_s_graph_is_a_wheel_whose_last_vertex_has_neighbours():
    numbers = struct.unpack("<195i", graph())
    vertices, edges, ends = numbers[0], numbers[1], numbers[2:43]
    assert (vertices, edges) == (40, 152) and ends[-1] == edges
    degrees = [ends[v + 1] - ends[v] for v in range(vertices)]
    assert degrees[HUB] == 38 and degrees[ALONE] == 0 and degrees[-1] == 3
    assert len(graph(150, weights=True)) == 4 * (2 + 151 + 2 * 4 * 148)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CC_CUDA_V_Topo_Push_NonPersist_Thread_NbrBoundsBug.cu", ""),
        ("CC_CUDA_V_Topo_Push_NonPersist_Block_ExcessThreadsBug.cu", "no thread is in excess"),
        ("CC_CUDA_V_Data_Push_NonPersist_Thread_FieldBug.cu", "the answer is wrong"),
        ("CC_CUDA_V_Topo_Push_NonPersist_Thread_FieldBug.cu", ""),
        ("CC_CUDA_V_Topo_Push_NonPersist_Thread_LivelockBug.cu", "never end"),
        ("PR_CUDA_Pull_NoRaceBug.cu", "mistakes of their own"),
    ],
)
def test_what_does_not_show_in_one_execution_has_a_reason(name, words):
    assert words in reason_of(name, "const int N = g.edges;") and (
        words or not reason_of(name, "const int N = g.edges;")
    )


def test_the_mistakes_of_a_program_of_indigo3_are_in_its_name():
    assert bugs_of("BFS_CUDA_E_NoFieldBug_RaceBug_NoLivelockBug_NbrBoundsBug") == ["RaceBug", "NbrBoundsBug"]


FINDINGS = [
    {"program": "a", "expected": "buggy", "outcome": "found"}
    | {"seconds": 3.0, "plain": 1.0, "bytes": 4e6, "plain_bytes": 2e6},
    {"program": "b", "expected": "buggy", "outcome": "clean"},
    {"program": "c", "expected": "right", "outcome": "found", "note": True},
]
RUN = {
    **dict.fromkeys(("gpu", "nvcc"), ""),
    **{"sanitizer": ["Version 1"], "jobs": 2, "seconds": 10.0},
    "programs": [
        {"suite": "scor", "program": name, "expected": what, "runs": dict.fromkeys(TOOLS, one)}
        for name, what, one in (
            ("a", "buggy", {"outcome": CLEAN, "first": []}),
            ("b", "buggy", {"outcome": NOT_RUN, "first": ["Error: Potential WAR hazard detected at __shared__ 0x0"]}),
            ("c", "right", {"outcome": CLEAN, "first": []}),
        )
    ],
}


def test_the_record_of_both_is_shown_as_recall_beside_the_tools_and_as_what_watching_costs(tmp_path):
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in FINDINGS))
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    made = tmp_path / "found.json"
    own = f"scor={tmp_path / 'own.jsonl'}"
    compare([own, "--beside", str(tmp_path / "run.json"), "--commit", "abc", "-o", str(made)])
    record = table.read(made)
    assert suites.recall(record).lines == [["ScoR, small programs", "2", "1 (50 %)", "", "1", "0", "1"]]
    beside = suites.beside(record)
    # racecheck was ended while it told of a hazard; the other tools show no race, and count for none here.
    assert beside.lines == [["ScoR, small programs", "2", "**1**", *"1000", "1", "1", "0", *"0000"]]
    assert "by the emulator: ScoR, small programs: b." in beside.below[1]
    assert suites.cost(record).lines == [
        ["ScoR, small programs", "1", "1.0", "3.0", "3.0", "3.0", "3", "2.00", "4"],
    ]


def test_each_of_hecbench_s_programs_names_what_takes_its_race_away_and_who_reports_it():
    rows = [line.split("\t") for line in LIST_OF_REPORTS.read_text().splitlines() if not line.startswith("#")]
    assert len(rows) == len({row[0] for row in rows}) == 25
    assert all(len(row) >= 8 and row[1].lstrip("=") and row[2] and row[7] for row in rows)
