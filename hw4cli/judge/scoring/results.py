"""The results' files in JSON, JUnit XML, CSV and Markdown, which docs/results.md describes.

They are made from standings, and these from the journals, so they can be made again at any time.
"""

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hw4cli import __version__
from hw4cli.judge.scoring import storedrules
from hw4cli.judge.scoring.reasons import damage, is_upper_bound, score_text, upper_bounds
from hw4cli.judge.scoring.record import Result, Rules, Standing
from hw4cli.problem.verdict import Verdict
from hw4cli.system.files import write_text
from hw4cli.text import tables
from hw4cli.text.dates import duration

SCHEMA = 1
SESSION = ("program", "program_sha256", "host", "gpu", "machine", "started", "version", "settings")
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(folder: Path, standings: Sequence[Standing], rules: Rules) -> list[Path]:
    """Write results.json, .xml, .csv and .md into a folder, each atomically. Raises as NewFile does."""
    texts = {
        "results.json": json_text(standings, rules),
        "results.xml": junit(standings),
        "results.csv": csv_text(standings),
        "results.md": markdown(standings, rules),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def json_text(standings: Sequence[Standing], rules: Rules) -> str:
    """results.json: a document of schema 1. That of a class is one line, which is three times as fast to write."""
    document = {
        "schema": SCHEMA,
        "kind": "hw4-results",
        "version": __version__,
        "rules": storedrules.fields(rules),
        "standings": [_standing_fields(standing) for standing in standings],
    }
    return json.dumps(document, indent=None if len(standings) > 1 else 1, allow_nan=False) + "\n"


def _standing_fields(standing: Standing) -> dict[str, Any]:
    return {
        "user": standing.user,
        "rank": standing.rank or None,
        "passed": standing.passed,
        "score": standing.score,
        "upper_bound": is_upper_bound(standing),
        "time": standing.time,
        "penalty": standing.penalty,
        "note": standing.note,
        "handed_in": standing.handed_in.isoformat() if standing.handed_in else None,
        "late": standing.late,
        "cases": list(standing.cases),
        "missing": missing_cases(standing),
        "damaged_lines": list(standing.damaged),
        "session": {name: standing.session.get(name) for name in SESSION},
        "results": [_result_fields(standing.results[case]) for case in standing.cases if case in standing.results],
    }


def missing_cases(standing: Standing) -> list[str]:
    """The cases that count and have no result."""
    return [case for case in standing.cases if case not in standing.results]


def is_complete(standing: Standing) -> bool:
    """Whether nothing is left to judge: all cases have a result, or a note says why none can have one."""
    return standing.score is None or bool(standing.note) or not missing_cases(standing)


def missing_reason(standing: Standing) -> str:
    """Why a user's missing cases have no result; "" if that is unknown."""
    return standing.note or (damage(standing.damaged) if standing.lost else "")


def _result_fields(result: Result) -> dict[str, Any]:
    fastest, slowest = result.spread or (None, None)
    return {
        "case": result.case,
        "shape": list(result.shape),
        "verdict": str(result.verdict),
        "reason": result.reason,
        "limit": result.limit,
        "wall": result.wall,
        "fastest": fastest,
        "slowest": slowest,
        "attempts": result.attempts,
        "borderline": result.borderline,
        "unknown": result.unknown,
        "max_error": "inf" if result.max_error == math.inf else result.max_error,
        "user_time": result.user,
        "system_time": result.system,
        "peak_rss": result.peak_rss,
        "gpu_memory": result.gpu_memory,
        "gpu_clock": result.gpu_clock,
        "public_right": result.public_right,
    }


def csv_text(standings: Sequence[Standing]) -> str:
    """results.csv: a row for each user and case, with results.json's names. A missing case has no verdict."""
    blank = _csv_row(Result("", (0, 0, 0), 0.0, Verdict.NA, ""))
    out = io.StringIO()
    writer = csv.DictWriter(out, ["rank", "user", "score", "late", *blank], lineterminator="\n")
    writer.writeheader()
    for standing in standings:
        for case in standing.cases:
            result = standing.results.get(case)
            row = _csv_row(result) if result else {"case": case, "reason": missing_reason(standing)}
            who = {"rank": standing.rank or None, "user": standing.user, "score": score_text(standing, unknown="")}
            row = {**who, "late": standing.late, **row}
            writer.writerow({name: csv_cell(value) if isinstance(value, str) else value for name, value in row.items()})
    return out.getvalue()


def _csv_row(result: Result) -> dict[str, Any]:
    fields = _result_fields(result)
    B, N, d = fields.pop("shape")
    return {"case": fields.pop("case"), "B": B, "N": N, "d": d, **fields}


def csv_cell(value: Any) -> Any:
    """A value; if it is text, one that a spreadsheet reads neither as a formula nor as several rows: a lone carriage
    return would not be quoted, and what is behind it could be a formula."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\n") else text


def junit(standings: Sequence[Standing]) -> str:
    """results.xml in JUnit's form: a suite for each user, a test for each case; JE is an error, NA, TLE and TLE+ are
    failures, a case without a result is skipped."""
    root = ElementTree.Element("testsuites", name="hw4 judge")
    for standing in standings:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml_text(standing.user))
        if host := standing.session.get("host"):
            suite.set("hostname", _xml_text(str(host)))
        if started := standing.session.get("started"):
            suite.set("timestamp", _xml_text(str(started)))
        for case in standing.cases:
            test = ElementTree.SubElement(suite, "testcase", classname=_xml_text(standing.user), name=_xml_text(case))
            _junit_outcome(test, standing.results.get(case), standing)
        _junit_counts(suite, suite.findall("testcase"))
    _junit_counts(root, root.findall("testsuite/testcase"))
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, "unicode", xml_declaration=False) + "\n"


def _junit_outcome(test: ElementTree.Element, result: Result | None, standing: Standing) -> None:
    test.set("time", f"{(result and result.wall) or 0:.3f}")
    if result is None:
        why = _xml_text(missing_reason(standing))
        if standing.score is None and why:
            ElementTree.SubElement(test, "error", type="JE", message=why)
        elif why:
            ElementTree.SubElement(test, "failure", type="NA", message=why)
        else:
            ElementTree.SubElement(test, "skipped", message="not judged")
    elif result.verdict is not Verdict.AC:
        tag = "error" if result.verdict is Verdict.JE else "failure"
        ElementTree.SubElement(test, tag, type=str(result.verdict), message=_xml_text(result.reason))
    elif result.reason:
        ElementTree.SubElement(test, "system-out").text = _xml_text(result.reason)


def _junit_counts(element: ElementTree.Element, tests: Sequence[ElementTree.Element]) -> None:
    element.set("tests", str(len(tests)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(sum(test.find(tag) is not None for test in tests)))
    element.set("time", f"{sum(float(test.get('time', 0)) for test in tests):.3f}")


def _xml_text(text: str) -> str:
    """Text without the characters that XML forbids: control characters and unpaired surrogates."""
    return NO_XML.sub("?", text)


def markdown(standings: Sequence[Standing], rules: Rules) -> str:
    """results.md: the ranking, and for each user the cases; of several users only those not accepted or borderline."""
    rows = [list(map(tables.escaped, standing_cells(standing))) for standing in standings]
    text = "# Results\n\n" + tables.markdown(STANDING_COLUMNS, rows)
    text += f"\nRanked by {'the cases passed, then Time' if rules.rank_by == 'passed' else 'Time + Penalty'}.\n"
    text += f"Times count in steps of {rules.step:g} s.\n" if rules.step else ""
    text += "".join(f"{sentence}\n" for sentence in upper_bounds(standings))
    for standing in standings:
        shown = [
            result
            for result in (standing.results[case] for case in standing.cases if case in standing.results)
            if len(standings) == 1 or result.verdict is not Verdict.AC or result.borderline
        ]
        if shown:
            cells = [list(map(tables.escaped, result_cells(result))) for result in shown]
            text += f"\n## {tables.escaped(standing.user)}\n\n" + tables.markdown(RESULT_COLUMNS, cells)
        if lacking := missing_cases(standing):
            text += f"\n{tables.escaped(standing.user)} has no result in {' '.join(lacking)}.\n"
        if standing.late:
            text += f"\n{tables.escaped(standing.user)} was handed in {duration(standing.late)} late.\n"
        if standing.damaged:
            text += f"\n{tables.escaped(standing.user)}: {damage(standing.damaged)}.\n"
    return text


RESULT_COLUMNS = ["case", "(B, N, d)", "", "time s", "limit", "max error", "reason"]


def result_cells(result: Result) -> list[str]:
    """A result's values as text, in the order of RESULT_COLUMNS; of several runs the median, fastest and slowest."""
    time = "-" if result.wall is None else f"{result.wall:.2f}"
    if result.spread and result.attempts > 1:
        time += " [{:.2f} {:.2f}]".format(*result.spread)
    return [
        result.case,
        "({}, {}, {})".format(*result.shape),
        str(result.verdict),
        time,
        f"{result.limit:g}",
        "-" if result.max_error is None else f"{result.max_error:.1e}",
        result.reason,
    ]


STANDING_COLUMNS = ["rank", "user", "passed", "score", "time s", "penalty s", "note"]


def standing_cells(standing: Standing) -> list[str]:
    """A standing's values as text, in the order of STANDING_COLUMNS."""
    return [
        str(standing.rank) if standing.rank else "-",
        standing.user,
        f"{standing.passed}/{len(standing.cases)}",
        score_text(standing),
        f"{standing.time:.2f}",
        f"{standing.penalty:.2f}",
        standing.note,
    ]
