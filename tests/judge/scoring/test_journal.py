"""Damaged journals: each line is read or counted as damaged, and results that may be lost are reported."""

import json
from dataclasses import replace

import pytest
from boards import RIGHT, write
from helpers import run_here
from slow import slow

from hw4cli.errors import InputError
from hw4cli.judge.scoring import journal
from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.scoring.standings import load

RULES = Rules()
RUN = json.dumps(journal.run_line("key", RIGHT))
LATER = replace(RIGHT, case="t02")


def line_with(field, value, line=RUN):
    """A run's line with another value, as the text of JSON."""
    fields = json.loads(line)
    fields[field] = "HERE"
    return json.dumps(fields).replace('"HERE"', value)


def read(tmp_path, *lines):
    path = tmp_path / journal.NAME
    path.write_text("".join(f"{line}\n" for line in lines))
    return journal.read(path)


WRONG = {
    "case": ["[]", "5", "null", "{}"],
    "key": ["[]", "5", "null", "{}"],
    "shape": [
        "5",
        "[1, 2]",
        "[1, 2, 3, 4]",
        '["1", 2, 3]',
        "[1, 2, 3.0]",
        "[1, 2, -3]",
        "[true, 2, 3]",
        "[1, 2, 2147483648]",
        "null",
    ],
    "limit": ['"soon"', "null", "0", "-1", "1e999", "NaN", "true", "[]"],
    "tolerance": ['"much"', "null", "-1", "Infinity"],
    "repeat": ["-1", "1.5", "1e3", "null", '"0"', "9" * 30],
    "wall": ['"1"', "-1", "1e999", "-Infinity", "NaN", "[]", "false"],
    "killed": ["0", "null", '"no"'],
    "exit_code": ['"0"', "1.0", "99999999999", "[]"],
    "fault": ["{}", "1", "[]", "true"],
    "problem": ["{}", "1", "[]"],
    "wrong": ["{}", "1", "[]"],
    "said": ["{}", "1", "[]"],
    "max_error": ['"much"', "-1", "NaN", "1e999", "[]", "2" + "0" * 308],
    "user": ['"1"', "-1", "1e999"],
    "system": ['"1"', "-1", "1e999"],
    "peak_rss": ['"1"', "-1", "1.5", "1e999"],
    "gpu_memory": ['"1"', "-1", "1.5"],
    "gpu_clock": ['"1"', "-1", "1.5"],
    "staged": ["1", "[]"],
    "public_right": ["1", "[]"],
    "note": ["1", "[]"],
}


@pytest.mark.parametrize("field", journal.RUN)
def test_a_run_with_a_wrong_value_is_a_damaged_line(tmp_path, field):
    for value in WRONG[field]:
        found = read(tmp_path, RUN, line_with(field, value))
        assert (len(found.runs), found.damaged) == (1, [2]), value


HEADER_WRONG = [
    *({"cases": value} for value in (5, [5], "t01", None, {"t01": 1})),
    *({"keys": value} for value in (5, ["t01"], {"t01": []}, None)),
    *({"user": value} for value in (5, [], None, {})),
    *({"note": value} for value in (5, [], {})),
    *({"fault": value} for value in (1, "yes", None)),
    *({"gpu": value} for value in (5, "H100", {"name": []})),
    *({"settings": value} for value in (5, [], None, {"penalty": "x"}, {"tolerance": True}, {"submission": {}})),
    *({"program": value} for value in ("./hw4", [5], None)),
    *({name: []} for name in ("program_sha256", "host", "started", "version")),
]


@pytest.mark.parametrize("fields", HEADER_WRONG, ids=str)
def test_a_header_with_a_wrong_value_is_a_damaged_line(tmp_path, fields):
    good = {"user": "ann", "cases": ["t01"], "settings": {"penalty": 50}}
    header, wrong = journal.header_line(**good), journal.header_line(**{**good, **fields})
    found = read(tmp_path, json.dumps(header), RUN, json.dumps(wrong))
    assert (len(found.headers), found.damaged, found.in_doubt) == (1, [3], True)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", "{}", '{"kind": []}', '{"kind": "run"}', '{"kind": "header"}', "[" * 10_000,
             '{"kind": "header", "schema": []}', '{"kind": "header", "schema": true}', "9" * 10_000, "\0", RUN[:-40]]
)  # fmt: skip
def test_an_unknown_line_is_damaged_and_the_others_are_read(tmp_path, text):
    found = read(tmp_path, RUN, text, json.dumps(journal.run_line("key", LATER)))
    assert [attempt.case for _, attempt in found.runs] == ["t01", "t02"]
    assert found.damaged == ([2] if text else [])


def test_a_journal_of_another_schema_is_refused_and_not_taken_for_damaged(tmp_path):
    with pytest.raises(InputError, match="schema 2, but this hw4 reads schema 1"):
        read(tmp_path, '{"kind": "header", "schema": 2, "user": []}'.replace("[]", '"ann"'))


def damaged_class(folder, students):
    """A folder with Ann's complete journal and those of other students, which lack something in different ways."""
    write(folder / "ann", RIGHT, LATER, cases=["t01", "t02"])
    for number in range(students):
        write(folder / f"s{number:03}", RIGHT, LATER, cases=["t01", "t02"])
        path = folder / f"s{number:03}" / journal.NAME
        lines = path.read_text().splitlines()
        field = list(WRONG)[number % len(WRONG)]
        lines[2] = lines[2][:-30] if number % 3 else line_with(field, WRONG[field][0], lines[2])
        path.write_text("\n".join(lines))


def test_a_board_with_many_damaged_journals_is_shown_with_exit_status_3(tmp_path):
    damaged_class(tmp_path / "out", 60)
    page = tmp_path / "board.html"
    result = run_here("scoreboard", tmp_path / "out", "-o", page)
    assert result.returncode == 3
    [message] = [line for line in result.stderr.splitlines() if "journals damaged" in line]
    assert message.startswith("hw4: 60 of 61 journals damaged, judge with --resume: s000, s001")
    assert "s059: the journal is damaged in line 3" in result.stdout
    assert page.read_text().count("<tr data-place=") == 61
    for one in load(tmp_path / "out", RULES):
        expected = (2, 60, 1) if one.user == "ann" else (1, None, 0)
        assert (one.passed, one.score, one.rank) == expected
        assert one.penalty == 0, "what is lost with a line costs nothing"
    result = run_here("judge", "--rescore", tmp_path / "out")
    assert result.returncode == 3
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["damaged_lines"] for one in document["standings"]] == [[]] + [[3]] * 60
    assert 'type="JE" message="the journal is damaged' in (tmp_path / "out" / "results.xml").read_text()
    assert "is damaged in line 3" in (tmp_path / "out" / "results.md").read_text()


@slow
def test_resume_judges_lost_results_again_and_ends_the_damage(tmp_path):
    cases, out = tmp_path / "cases", tmp_path / "out"
    assert run_here("gen", "t01", "t02", "--dir", cases).returncode == 0
    program = tmp_path / "hw4"
    program.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\ncmp -s $1 {cases}/t01 && n=t01 || n=t02\n"
                       f"cp {cases}/$n.out $2\n")  # fmt: skip
    program.chmod(0o755)
    args = ("judge", "t01", "t02", "--limit", "t01-t02=120", "--dir", cases, "--program", program, "--output", out)
    assert run_here(*args).returncode == 0
    path = out / journal.NAME
    path.write_text(path.read_text()[:-30])
    assert run_here("scoreboard", out).returncode == 3
    result = run_here(*args, "--resume")
    assert result.returncode == 0, result.stdout
    assert f"{path} is damaged in line 3: missing results are judged again" in result.stderr
    assert (tmp_path / "runs").read_text().count("run") == 3
    assert "damaged" not in run_here(*args, "--resume").stderr
    assert run_here("scoreboard", out).returncode == 0
    [one] = load(out, RULES)
    assert (one.passed, one.score, list(one.damaged)) == (2, 60, [3])


def test_a_lost_repeat_leaves_the_score_open(tmp_path):
    """The lost repeat may have been wrong."""
    write(tmp_path / "ann", RIGHT, replace(RIGHT, repeat=1), cases=["t01"])
    path = tmp_path / "ann" / journal.NAME
    path.write_text(path.read_text()[:-20])
    [one] = load(tmp_path, RULES)
    assert (one.passed, one.score, one.lost) == (1, None, True)


def test_results_of_an_older_program_do_not_replace_those_after_a_damaged_header(tmp_path):
    write(tmp_path / "ann", RIGHT, cases=["t01"], keys={"t01": "key"})
    with (tmp_path / "ann" / journal.NAME).open("a") as file:
        file.write('{"kind": "header", "schema": 1, "keys": {"t01": 7}}\n')
        file.write(json.dumps(journal.run_line("newer", replace(RIGHT, problem="exit code 1"))) + "\n")
    [one] = load(tmp_path, RULES)
    assert (one.score, one.lost) == (None, True)
