"""Gradescope's documents: the results.json of an autograder, and the submission_metadata.json that it is given.

The fields are those of https://gradescope-autograders.readthedocs.io/en/latest/specs/ and …/submission_metadata/.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.judge.scoring.gradebook import Grade
from hw4cli.judge.scoring.reasons import groups, score_words
from hw4cli.judge.scoring.record import Rules, Standing
from hw4cli.problem.rules import POINTS
from hw4cli.problem.verdict import Verdict
from hw4cli.system.reading import read_json
from hw4cli.text.dates import duration, parse_timestamp


@dataclass(frozen=True)
class Metadata:
    """What Gradescope says of a submission: when it was handed in, when it was due, and by whom it is."""

    handed_in: datetime | None
    due: datetime | None
    names: tuple[str, ...]


def read_metadata(path: Path) -> Metadata:
    """Read a submission_metadata.json. InputError if it cannot be read, or is none."""
    try:
        document = read_json(path)
        assignment = document.get("assignment") or {}
        users = document.get("users") or []
        names = tuple(str(user.get("name") or user.get("email") or user["id"]) for user in users)
        handed_in, due = parse_timestamp(document["created_at"]), parse_timestamp(assignment.get("due_date"))
        if handed_in is None:
            raise ValueError
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InputError(f"{path} is not Gradescope's submission_metadata.json: it has no created_at") from None
    return Metadata(handed_in, due, names)


def with_metadata(standing: Standing, rules: Rules, metadata: Metadata) -> tuple[Standing, Rules]:
    """A standing by what Gradescope knows: its time of handing in, its authors, and the due date unless the rules have
    one of their own."""
    rules = replace(rules, due=rules.due or metadata.due)
    late = (metadata.handed_in - rules.due).total_seconds() if metadata.handed_in and rules.due else 0.0
    user = " and ".join(metadata.names) or standing.user
    return replace(standing, user=user, handed_in=metadata.handed_in, late=max(0.0, late)), rules


def results_text(grade: Grade, hidden: bool = False) -> str:
    """Gradescope's results.json of one student: the score after what lateness costs, a test a case, the leaderboard.
    With `hidden`, the tests are shown after the grades are published. Without a score, the failure is the judge's: the
    document has none, and Gradescope asks for another run."""
    standing = grade.standing
    visibility = "after_published" if hidden else "visible"
    lines = [standing.note.strip()] if standing.note else []
    lines += [f"{group.verdict} {group.cases}: {group.reason}" for group in groups(standing)]
    if standing.late:
        lines.append(f"handed in {duration(standing.late)} late: ×{grade.factor:g}")
    document: dict[str, Any] = {
        "output": "\n".join([f"{standing.passed} of {len(standing.cases)} cases AC, {score_words(standing)}", *lines]),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "execution_time": round(sum(result.wall or 0.0 for result in standing.results.values())),
        "tests": [_test(standing, case, visibility) for case in standing.cases],
        "leaderboard": [
            {"name": "passed", "value": standing.passed},
            {"name": "seconds", "value": round(standing.time + standing.penalty, 3), "order": "asc"},
        ],
        "extra_data": {"points": dict(grade.points), "late_seconds": standing.late, "most": POINTS},
    }
    if standing.score is not None:
        given = standing.score + sum(grade.points.values())
        document = {"score": round(given * grade.factor, 4), **document}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _test(standing: Standing, case: str, visibility: str) -> dict[str, Any]:
    result = standing.results.get(case)
    if result is None:
        return {"name": case, "status": "failed", "output": standing.note or "not judged", "visibility": visibility}
    seconds = "" if result.wall is None else f", {result.wall:.2f}/{result.limit:g} s"
    return {
        "name": f"{case} {result.shape}",
        "status": "passed" if result.verdict is Verdict.AC else "failed",
        "output": f"{result.verdict}{seconds}{': ' if result.reason else ''}{result.reason}",
        "visibility": visibility,
    }
