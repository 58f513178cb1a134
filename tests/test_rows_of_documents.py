"""The rows of the documents that the project grew from: a row is delivered only by evidence that is there."""

import csv
import json
import re
import shlex
from functools import cache
from importlib import import_module

import click
import pytest
from helpers import ROOT

from benchmarks.pages.rows import (
    COMMAND,
    DOCUMENTS,
    NO,
    NOTHING,
    PAGE,
    PARTLY,
    RECORD,
    STATUSES,
    TEST,
    TEXT,
    YES,
    page,
    parts,
    rows,
)
from hw4cli.commands import COMMANDS

ALL = rows()
ROWS_OF = {"000": 56, "001": 72, "002": 42, "003": 34, "004": 58}
LEAST_YES = 246  # which may only grow


@cache
def command(name):
    return getattr(import_module(f"hw4cli.cli.{name.replace('-', '_')}"), name.replace("-", "_"))


def check_command(text):
    """The command exists, and takes each of the options."""
    words = shlex.split(text)
    assert words[0] == "hw4", text
    assert words[1] in COMMANDS, text
    found = command(words[1])
    options = {opt: param for param in found.params if isinstance(param, click.Option) for opt in param.opts}
    for place, word in enumerate(words):
        if word.startswith("-") and " " not in word:
            assert word in options, f"{text}: there is no {word}"
            takes = not options[word].is_flag and not options[word].count
            assert not takes or place + 1 < len(words), f"{text}: {word} has no value"
            if takes and isinstance(options[word].type, click.Choice):
                assert words[place + 1] in options[word].type.choices, text


def check_test(path, names):
    """The file is there, and a test in it has the name."""
    file = ROOT / "tests" / (path if path.endswith(".py") else f"{path}.py")
    text = file.read_text()
    for name in names or ["test_"]:
        assert re.search(rf"^def {name}{'' if name == 'test_' else '[(]'}", text, re.MULTILINE), f"{path}: no {name}"


@cache
def lines_of(path):
    """A record's rows, each with all that is known of it: of tune with the workload's fields, of profiles a line for
    each metric of a launch."""
    file = ROOT / "benchmarks" / path
    if file.suffix == ".csv":
        return [*csv.DictReader(file.open())]
    document = json.loads(file.read_text())
    found = []
    for one in document if isinstance(document, list) else [document]:
        found += one.get("rows", [])
        found += [{**workload, **row} for workload in one.get("workloads", []) for row in workload["rows"]]
        for launch in one.get("launches", []):
            found += [{**launch, **metric, "metric": metric["name"]} for metric in launch["metrics"]]
        found += [{"rates": one["rates"]}] if "rates" in one else []
    return found


def holds(line, condition):
    """Whether a row has a field, a value in it, or a number below another."""
    if "<" in condition:
        name, most = condition.split("<")
        return line.get(name) is not None and float(line[name]) < float(most)
    name, equal, value = condition.partition("=")
    if not equal:
        return line.get(name) not in (None, "")
    held = line.get(name)
    return str(held).lower() == value if isinstance(held, bool) else str(held) == value


def check_record(path, conditions):
    """A row of the record has all of these."""
    assert any(all(holds(line, one) for one in conditions) for line in lines_of(path)), f"{path} has no {conditions}"


def check_text(path, words):
    text = (ROOT / path).read_text()
    assert all(" ".join(one.split()) in " ".join(text.split()) for one in words), f"{path} has no {words}"


CHECKS = {COMMAND: lambda text, _: check_command(text), TEST: check_test, RECORD: check_record, TEXT: check_text}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_piece_of_evidence_is_there(document):
    missing = []
    for row in ALL:
        for evidence in row.evidence if row.document == document else ():
            kind, what, details = parts(evidence)
            try:
                CHECKS[kind](what, details)
            except (AssertionError, OSError, KeyError) as error:
                missing.append(f"{row.name}: {evidence}: {str(error).splitlines()[0]}")
    assert missing == []


def test_a_row_is_delivered_by_a_command_a_record_or_a_test_and_every_other_says_what_is_missing():
    for row in ALL:
        assert row.status in STATUSES, row
        kinds = {parts(evidence)[0] for evidence in row.evidence}
        if row.status == YES:
            assert kinds & {COMMAND, RECORD, TEST} or row.name == "001-4", f"{row.name}: a text alone shows nothing"
            assert not row.reason, row
        else:
            assert row.reason, f"{row.name} does not say what is missing"
        assert row.evidence or row.status in (NO, NOTHING), row
        assert row.what, row


def test_no_row_is_lost_and_none_is_delivered_no_longer():
    names = [row.name for row in ALL]
    assert names == [f"{number}-{place}" for number, count in ROWS_OF.items() for place in range(1, count + 1)]
    assert sum(row.status == YES for row in ALL) >= LEAST_YES
    assert {row.status for row in ALL} == {YES, PARTLY, NO, NOTHING}


def test_the_page_has_the_rows_as_they_are():
    text = PAGE.read_text()
    assert page(text) == text, "run make results"


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (COMMAND, "hw4 bench flash t28 --no-such-option"),
        (COMMAND, "hw4 nothing"),
        (COMMAND, "hw4 bench lm16k --pass sideways"),
        (TEST, "test_rows_of_documents.py::test_that_nobody_wrote"),
        (TEST, "no_such_file.py"),
        (RECORD, "h200-arrays.json[case=tilelang,median<1.0]"),
        (RECORD, "h200-arrays.json[no_such_field]"),
        (RECORD, "none.json"),
        (TEXT, "README.md#words that are not there"),
    ],
)
def test_evidence_that_is_not_there_is_found(kind, wrong):
    with pytest.raises((AssertionError, OSError)):
        CHECKS[kind](*parts(kind + wrong)[1:])
