"""The log of regrades: a line for each score that has changed after it was known, with when, by whom and why."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hw4cli.errors import os_error
from hw4cli.judge.scoring import storedrules
from hw4cli.judge.scoring.record import Rules, Standing
from hw4cli.judge.scoring.results import csv_cell
from hw4cli.system.account import login
from hw4cli.system.reading import read_json

NAME = "regrades.csv"
COLUMNS = ("date", "by", "user", "score_before", "score_after", "passed_before", "passed_after", "why")


def note(folder: Path, standings: Sequence[Standing], rules: Rules) -> None:
    """Append to a folder's log a line for each user whose score, or number of cases passed, is not that of the results
    that lie there. Called before those are written again. MachineError if the log cannot be written."""
    try:
        document = read_json(folder / "results.json")
        before = {one["user"]: one for one in document["standings"] if one["score"] is not None}
        why = _changes(document["rules"], storedrules.fields(rules)) or "judged again"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # nothing was graded before
    changed = [
        [before[one.user]["score"], "" if one.score is None else one.score, before[one.user]["passed"], one.passed, one]
        for one in standings
        if one.user in before and (before[one.user]["score"], before[one.user]["passed"]) != (one.score, one.passed)
    ]
    if not changed:
        return
    out, path = io.StringIO(), folder / NAME
    writer = csv.writer(out, lineterminator="\n")
    if not path.exists():
        writer.writerow(COLUMNS)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    for *numbers, one in changed:
        writer.writerow([csv_cell(value) for value in (date, login(), one.user, *numbers, why)])
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "ab") as file:
            file.write(out.getvalue().encode(errors="replace"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise os_error(error, f"write {path}") from None


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What has changed in the rules, in words; "" if nothing has."""
    old, new = _flat(before), _flat(after)
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {_shown(old.get(name))} → {_shown(new.get(name))}" for name in changed)


def _flat(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Rules by the words that name them; a limit by its case."""
    limits = {f"limit of {case}": seconds for case, seconds in (rules.get("limits") or {}).items()}
    return {**{name.replace("_", " "): rules[name] for name in rules if name != "limits"}, **limits}


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)
