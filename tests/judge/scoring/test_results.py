"""The results' files: all have the same content, whatever the users' names and the programs' output are."""

import csv
import io
import json
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from helpers import ROOT

from hw4cli.errors import InputError
from hw4cli.judge.scoring import journal, results
from hw4cli.judge.scoring.record import Attempt, Rules, combine, make_standing, rank

RIGHT = Attempt("t01", (320, 128, 32), 2.0, wall=0.5, exit_code=0, max_error=1e-5, user=0.4, peak_rss=1 << 30)
NASTY = '<script>|alert("&")|</script> *\x1b[31m \udcff\x00'
SESSION = {
    "program": ["./hw4"],
    "host": "node7",
    "gpu": None,
    "started": "2026-01-02T03:04:05+00:00",
    "settings": {"repeat": 2},
}


def ann():
    """A standing with cases of each kind: accepted, borderline, late, wrong, judge's fault, missing."""
    attempts = [
        [RIGHT],
        [replace(RIGHT, case="t02", wall=1.5), replace(RIGHT, case="t02", wall=2.2, repeat=1)],
        [replace(RIGHT, case="t03", wall=2.5)],
        [replace(RIGHT, case="t04", max_error=math.inf, wrong="3 of 9 elements are NaN or Inf")],
        [replace(RIGHT, case="t05", fault="the disk is full")],
    ]
    judged = [combine(runs) for runs in attempts]
    return make_standing("ann", judged, [f"t0{number}" for number in range(1, 7)], session=SESSION)


def nasty():
    broken = make_standing("=1+1", [], ["t01"], note=NASTY)
    odd = make_standing(NASTY, [combine([replace(RIGHT, problem=f"exit code 1: {NASTY}")])], ["t01"])
    return [broken, odd]


def fields(value, path=""):
    """The paths of all fields in a document, as docs/results.md writes them."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from fields(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield f"{path}[]"
        for inner in value:
            if isinstance(inner, dict):
                yield from (found for found in fields(inner, f"{path}[]") if found != f"{path}[]")
    if not isinstance(value, list) and path:
        yield path


def table_after(heading, text):
    """The first column of the first table behind a heading."""
    part = text.split(f"\n{heading}\n", 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)[0].splitlines()[2:]
    return [name.strip() for row in rows for name in row.split("|")[1].split(",")]


def test_the_documentation_lists_each_field_of_results_json():
    document = json.loads(results.json_text(rank([ann()]), Rules()))
    found = {path for path in fields(document) if not path.startswith("standings[].session.settings.")}
    documented = table_after("## results.json", (ROOT / "docs/results.md").read_text())
    assert sorted(documented) == sorted(found)


def test_the_documentation_lists_each_field_of_a_run():
    documented = table_after("A run follows as it ends:", (ROOT / "docs/results.md").read_text())
    assert sorted(documented) == sorted(journal.run_line("key", RIGHT))


def test_json_has_verdicts_measurements_and_the_session():
    document = json.loads(results.json_text(rank([ann()]), Rules(penalty=7)), parse_constant=pytest.fail)
    assert (document["schema"], document["rules"]["penalty"]) == (1, 7)
    [one] = document["standings"]
    assert [result["verdict"] for result in one["results"]] == ["AC", "AC", "TLE", "NA", "JE"]
    second = one["results"][1]
    assert (second["wall"], second["fastest"], second["slowest"], second["borderline"]) == (1.85, 1.5, 2.2, True)
    assert one["results"][3]["max_error"] == "inf"
    assert (one["rank"], one["score"], one["missing"]) == (None, None, ["t06"])
    assert one["session"]["host"] == "node7"


def test_junit_counts_failures_errors_and_skipped_cases():
    root = ElementTree.fromstring(results.junit([ann(), *nasty()]))
    first, broken, odd = root.findall("testsuite")
    count = {name: int(first.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    assert count == {"tests": 6, "failures": 2, "errors": 1, "skipped": 1}
    assert (first.get("name"), first.get("hostname")) == ("ann", "node7")
    assert int(root.get("tests")) == 8
    assert first.find("testcase[@name='t03']/failure").get("type") == "TLE"
    assert first.find("testcase[@name='t05']/error").get("message") == "the disk is full"
    assert "borderline" in first.find("testcase[@name='t02']/system-out").text
    assert broken.find("testcase/failure").get("message").startswith("<script>")
    assert odd.get("name").startswith('<script>|alert("&")')


def test_csv_has_a_row_for_each_user_and_case_and_no_formula():
    rows = list(csv.DictReader(io.StringIO(results.csv_text(rank([ann(), *nasty()])))))
    mine = [row for row in rows if row["user"] == "ann"]
    assert [(row["case"], row["verdict"]) for row in mine] == [
        ("t01", "AC"), ("t02", "AC"), ("t03", "TLE"), ("t04", "NA"), ("t05", "JE"), ("t06", ""),
    ]  # fmt: skip
    assert (mine[0]["B"], mine[0]["wall"], mine[0]["user_time"]) == ("320", "0.5", "0.4")
    assert any(row["user"] == "'=1+1" for row in rows)


def test_markdown_escapes_names_and_reasons():
    text = results.markdown(rank([ann(), *nasty()]), Rules())
    assert "<script>" not in text
    assert "\x1b" not in text
    for row in (line for line in text.splitlines() if line.startswith("|")):
        assert len(re.findall(r"(?<!\\)\|", row)) == 8, row
    assert "ann has no result in t06." in text


def test_all_four_files_are_written_with_names_that_are_not_valid_text(tmp_path):
    paths = results.write(tmp_path, rank([ann(), *nasty()]), Rules())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    for path in paths:
        path.read_text(encoding="utf-8")
    ElementTree.parse(tmp_path / "results.xml")
    with pytest.raises(InputError):
        results.write(tmp_path / "none", [ann()], Rules())
