"""Records as files: a row on a line, whatever the record is of, and nothing lost."""

import json

import pytest
from helpers import ROOT

from hw4cli.text.records import record_text

RECORDS = sorted([*(ROOT / "benchmarks").rglob("*.json"), *(ROOT / "tests/kept").glob("*.json")])


def test_a_row_is_a_line_and_so_is_each_field_of_a_record():
    rows = [
        {"kernel": "flash", "samples_ms": [1.5, 2.0], "quantiles": {"5%": 1.5}},
        {"kernel": "split", "reason": "ü\n"},
    ]
    record = {"schema": 1, "machine": {"gpu": "H200", "sms": 132}, "rows": rows}
    text = record_text(record)
    assert json.loads(text) == record
    assert text.splitlines() == [
        "{",
        ' "schema": 1,',
        ' "machine": {"gpu": "H200", "sms": 132},',
        ' "rows": [',
        '  {"kernel": "flash", "samples_ms": [1.5, 2.0], "quantiles": {"5%": 1.5}},',
        '  {"kernel": "split", "reason": "\\u00fc\\n"}',
        " ]",
        "}",
    ]


def test_rows_within_rows_have_lines_too_but_a_launchs_metrics_stay_with_it():
    workloads = [{"case": "t28", "rows": [{"tile": "64x64"}, {"tile": "32x32"}]}]
    assert record_text({"workloads": workloads}).count("\n") == 11
    launches = [{"kernel": "flash", "metrics": [{"name": "duration"}, {"name": "ipc"}]}]
    assert record_text({"launches": launches}).count("\n") == 5
    assert record_text([{"launches": launches}]).count("\n") == 7  # several profiles are a list


@pytest.mark.parametrize("record", [{}, [], {"rows": []}, {"rows": [1, {}]}, [{}], None])
def test_what_has_no_rows_is_the_same_again(record):
    assert json.loads(record_text(record)) == record


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_record_in_the_tree_is_as_it_would_be_written(path):
    text = path.read_text(encoding="utf-8")
    assert text == record_text(json.loads(text))
