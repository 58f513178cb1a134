"""What a judging comes to, for programs and people: JSON, JUnit XML, CSV and Markdown, told in docs/results.md.

All of it is made from standings, and so from the journal: these files can be made again at any time.
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
from hw4cli.problem import suite
from hw4cli.problem.verdict import Verdict
from hw4cli.scoring.reasons import damage
from hw4cli.scoring.record import Result, Rules, Standing
from hw4cli.scoring.tables import RESULT_COLUMNS, STANDING_COLUMNS, result_cells, standing_cells
from hw4cli.system.files import write_text
from hw4cli.text import tables
from hw4cli.text.dates import span
from hw4cli.text.words import counted

SCHEMA = 1
SESSION = ("program", "program_sha256", "host", "gpu", "started", "version", "settings")
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(folder: Path, standings: Sequence[Standing], rules: Rules) -> list[Path]:
    """Write results.json, .xml, .csv and .md into a folder, each whole or not at all. Raises as NewFile does."""
    texts = {
        "results.json": json_text(standings, rules),
        "results.xml": junit(standings),
        "results.csv": comma_separated(standings),
        "results.md": markdown(standings, rules),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def json_text(standings: Sequence[Standing], rules: Rules) -> str:
    """results.json: a document of schema 1. A class's is one line, which is written three times as fast."""
    document = {
        "schema": SCHEMA,
        "kind": "hw4-results",
        "version": __version__,
        "rules": {
            "tolerance": rules.tolerance,
            "penalty": rules.penalty,
            "limits": dict(rules.limits),
            "rank_by": rules.rank_by,
            "due": rules.due.isoformat() if rules.due else None,
        },
        "standings": [_standing(one) for one in standings],
    }
    return json.dumps(document, indent=None if len(standings) > 1 else 1, allow_nan=False) + "\n"


def _standing(one: Standing) -> dict[str, Any]:
    return {
        "user": one.user,
        "rank": one.rank or None,
        "passed": one.passed,
        "score": one.score,
        "time": one.time,
        "penalty": one.penalty,
        "note": one.note,
        "handed_in": one.handed_in.isoformat() if one.handed_in else None,
        "late": one.late,
        "cases": list(one.cases),
        "missing": missing(one),
        "damaged_lines": list(one.damaged),
        "session": {name: one.session.get(name) for name in SESSION},
        "results": [_result(one.results[case]) for case in one.cases if case in one.results],
    }


def missing(one: Standing) -> list[str]:
    """The cases that count and have no result."""
    return [case for case in one.cases if case not in one.results]


def of_the_suite(cases: Sequence[str]) -> str:
    """What a score of fewer cases than the suite has leaves open, in words; "" of all of them."""
    whole = suite.cases()
    some = sum(case in whole for case in cases)
    return "" if some == len(whole) else f"{some} of the suite's {counted(len(whole), 'case')}"


def why_missing(one: Standing) -> str:
    """Why a user's cases without a result have none, as far as it is known."""
    return one.note or (damage(one.damaged) if one.lost else "")


def _result(result: Result) -> dict[str, Any]:
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


def comma_separated(standings: Sequence[Standing]) -> str:
    """results.csv: a row for each user and case, with results.json's names. A missing case has no verdict."""
    blank = _row(Result("", (0, 0, 0), 0.0, Verdict.NA, ""))
    out = io.StringIO()
    writer = csv.DictWriter(out, ["rank", "user", "late", *blank], lineterminator="\n")
    writer.writeheader()
    for one in standings:
        for case in one.cases:
            row = _row(one.results[case]) if case in one.results else {"case": case, "reason": why_missing(one)}
            row = {"rank": one.rank or None, "user": one.user, "late": one.late, **row}
            writer.writerow({name: _cell(value) if isinstance(value, str) else value for name, value in row.items()})
    return out.getvalue()


def _row(result: Result) -> dict[str, Any]:
    fields = _result(result)
    B, N, d = fields.pop("shape")
    return {"case": fields.pop("case"), "B": B, "N": N, "d": d, **fields}


def _cell(text: str) -> str:
    """Text that a spreadsheet takes for text, not for a formula."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def junit(standings: Sequence[Standing]) -> str:
    """results.xml in JUnit's form: a suite for each user, a test for each case; JE is an error, what is not AC a
    failure, a case that was not judged is skipped."""
    root = ElementTree.Element("testsuites", name="hw4 judge")
    for one in standings:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(one.user))
        if host := one.session.get("host"):
            suite.set("hostname", _xml(str(host)))
        if started := one.session.get("started"):
            suite.set("timestamp", _xml(str(started)))
        for case in one.cases:
            test = ElementTree.SubElement(suite, "testcase", classname=_xml(one.user), name=_xml(case))
            _outcome(test, one.results.get(case), one)
        _count(suite, suite.findall("testcase"))
    _count(root, root.findall("testsuite/testcase"))
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, "unicode", xml_declaration=False) + "\n"


def _outcome(test: ElementTree.Element, result: Result | None, one: Standing) -> None:
    test.set("time", f"{(result and result.wall) or 0:.3f}")
    if result is None:
        why = _xml(why_missing(one))
        if one.score is None and why:
            ElementTree.SubElement(test, "error", type="JE", message=why)
        elif why:
            ElementTree.SubElement(test, "failure", type="NA", message=why)
        else:
            ElementTree.SubElement(test, "skipped", message="not judged")
    elif result.verdict is not Verdict.AC:
        tag = "error" if result.verdict is Verdict.JE else "failure"
        ElementTree.SubElement(test, tag, type=str(result.verdict), message=_xml(result.reason))
    elif result.reason:
        ElementTree.SubElement(test, "system-out").text = _xml(result.reason)


def _count(element: ElementTree.Element, tests: Sequence[ElementTree.Element]) -> None:
    element.set("tests", str(len(tests)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(sum(test.find(tag) is not None for test in tests)))
    element.set("time", f"{sum(float(test.get('time', 0)) for test in tests):.3f}")


def _xml(text: str) -> str:
    """Text that XML can hold: it has no control characters and no half of a surrogate pair."""
    return NO_XML.sub("?", text)


def markdown(standings: Sequence[Standing], rules: Rules) -> str:
    """results.md: the ranking, and for each user the cases (of one user all, of several those that need a look)."""
    rows = [list(map(tables.escaped, standing_cells(one))) for one in standings]
    text = "# Results\n\n" + tables.markdown(STANDING_COLUMNS, rows)
    text += f"\nRanked by {'the cases passed, then Time' if rules.rank_by == 'passed' else 'Time + Penalty'}.\n"
    if standings and (part := of_the_suite(standings[0].cases)):
        text += f"Scores are at most these: judged were {part}.\n"
    for one in standings:
        shown = [
            result
            for result in (one.results[case] for case in one.cases if case in one.results)
            if len(standings) == 1 or result.verdict is not Verdict.AC or result.borderline
        ]
        if shown:
            cells = [list(map(tables.escaped, result_cells(result))) for result in shown]
            text += f"\n## {tables.escaped(one.user)}\n\n" + tables.markdown(RESULT_COLUMNS, cells)
        if lacking := missing(one):
            text += f"\n{tables.escaped(one.user)} has no result in {' '.join(lacking)}.\n"
        if one.late:
            text += f"\n{tables.escaped(one.user)} was handed in {span(one.late)} late.\n"
        if one.damaged:
            text += f"\n{tables.escaped(one.user)}: {damage(one.damaged)}.\n"
    return text
