"""Grades: the judge's points, the assignment's other columns from the TA's own table, and what lateness costs.

The assignment has 60 points for the cases, which the judge gives, 20 for the performance and 20 for the report, which
whoever grades gives: the gradebook has these columns, empty until a table says them.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import InputError
from hw4cli.judge.scoring.late import LatePolicy
from hw4cli.judge.scoring.reasons import is_upper_bound, reasons_line, score_text
from hw4cli.judge.scoring.record import Rules, Standing, score
from hw4cli.judge.scoring.results import csv_cell, is_complete
from hw4cli.judge.scoring.standings import in_public
from hw4cli.problem.verdict import Verdict
from hw4cli.system.reading import read_regular

MOST = {"performance": 20.0, "report": 20.0}  # points of the assignment that the judge does not give
OWN = ("id", "user", "score", "time", "rank", "late_hours", "late_factor", "total", "notes", "reasons")
NUMBERED = re.compile(r".+_(\d+)")  # name_id, as learning platforms name students

Table = Mapping[str, Mapping[str, float]]  # points by id or user, and column


@dataclass(frozen=True)
class Grade:
    """A student's grade. `points`: those of the columns that the judge does not fill, where they are given; `total` is
    None while a part of it is not known."""

    standing: Standing
    points: Mapping[str, float]
    factor: float
    total: float | None

    @property
    def id(self) -> str:
        """What a gradebook knows the student by: the number in a platform's name, or else the user's name."""
        found = NUMBERED.fullmatch(self.standing.user)
        return found[1] if found else self.standing.user

    @property
    def score(self) -> str:
        """The judge's points as text: "" where they are not known, "at most 48" where not all cases are judged."""
        return (
            score_text(self.standing, unknown="") if is_complete(self.standing) else f"at most {_most(self.standing)}"
        )

    @property
    def notes(self) -> str:
        """What was done to the submission, and what it lacks."""
        return "; ".join(self.standing.session.get("settings", {}).get("notes", ()))

    @property
    def reasons(self) -> str:
        """Why cases are not accepted, in a line that quotes no program."""
        return reasons_line(in_public(self.standing))


def _most(standing: Standing) -> int:
    """The score if all cases that are not judged yet were accepted."""
    return score(sum(result.verdict is not Verdict.AC for result in standing.results.values()))


def grades(standings: Sequence[Standing], rules: Rules, table: Table | None = None) -> list[Grade]:
    """A grade for each standing, by the late policy of the rules and a table of further points. InputError if the table
    has a student whom nobody knows."""
    table = table or {}
    policy = LatePolicy.parse(rules.late_policy) if rules.late_policy else None
    found = []
    for standing in standings:
        own = Grade(standing, {}, 1.0, None)
        points = table.get(standing.user, table.get(own.id, {}))
        factor = policy.factor(standing.late) if policy else 1.0
        known = standing.score is not None and is_complete(standing) and not is_upper_bound(standing)
        known = known and points.keys() >= _columns(table)
        total = (float(standing.score or 0) + sum(points.values())) * factor if known else None
        found.append(Grade(standing, points, factor, total))
    names = {name for one in found for name in (one.standing.user, one.id)}
    if unknown := table.keys() - names:
        raise InputError(f"the table of points has {min(unknown)}, whom the results have not")
    return found


def _columns(table: Table) -> set[str]:
    return set().union(*(row.keys() for row in table.values()))


def read_table(path: Path) -> Table:
    """Points from a CSV file: the column id (or user) says whose; each other column that the judge does not fill is
    added to the total. Empty cells are not given yet. InputError, with the place, if anything in it is wrong."""
    try:
        text = read_regular(path).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path} is no CSV table: {error}") from None
    key = next((name for name in ("user", "id") if rows and name in rows[0]), None)
    if key is None:
        raise InputError(f"{path} has no column id: its first line names the columns, as in id,performance,report")
    table: dict[str, dict[str, float]] = {}
    for number, row in enumerate(rows, 2):
        who = (row[key] or "").strip().removeprefix("'")
        if not who:
            if any(isinstance(value, str) and value.strip() for value in row.values()):
                raise InputError(f"{path}, line {number}: the column {key} is empty")
            continue  # a spreadsheet's empty row
        if who in table:
            raise InputError(f"{path}, line {number}: {who} comes twice")
        table[who] = {
            name: _points(path, number, name, value.strip())
            for name, value in row.items()
            if name and name not in OWN and isinstance(value, str) and value.strip()
        }
    return table


def _points(path: Path, line: int, name: str, text: str) -> float:
    """A cell's number. InputError if it is none, or more than the assignment gives for the column."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{path}, line {line}: {name} is {text!r}, but must be a number")
    if name in MOST and not 0 <= number <= MOST[name]:
        raise InputError(f"{path}, line {line}: {name} is {text}, but must be from 0 to {MOST[name]:g}")
    return number


def csv_text(found: Sequence[Grade]) -> str:
    """The gradebook: a row a student. A score that is not known is empty, one of a part of the cases "at most 48", and
    so is the total of either; a failed build has 0."""
    extra = list(dict.fromkeys([*MOST, *(name for grade in found for name in grade.points)]))
    head, tail = OWN[:4], OWN[4:]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head[:3], *extra, head[3], *tail])
    for one in found:
        standing = one.standing
        row = [
            *(one.id, standing.user, one.score),
            *("" if name not in one.points else f"{one.points[name]:g}" for name in extra),
            *(f"{standing.time:.2f}", standing.rank or "", f"{standing.late / 3600:.2f}", f"{one.factor:g}"),
            *("" if one.total is None else f"{one.total:g}", one.notes, one.reasons),
        ]
        writer.writerow([csv_cell(value) for value in row])
    return out.getvalue()


COLUMNS = ["rank", "user", "score", "points", "late", "total", "why"]


def cells(one: Grade) -> list[str]:
    """A grade as the cells of a table, in the order of COLUMNS."""
    standing = one.standing
    return [
        str(standing.rank) if standing.rank else "-",
        standing.user,
        one.score or "-",
        "+".join(f"{value:g}" for value in one.points.values()) or "-",
        f"×{one.factor:g}" if one.factor < 1 else ("late" if standing.late else ""),
        "-" if one.total is None else f"{one.total:g}",
        one.reasons,
    ]
