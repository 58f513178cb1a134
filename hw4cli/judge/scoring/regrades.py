"""The log of regrades: a line for each score that has changed after it was known, with when, by whom and why."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hw4cli.errors import os_error
from hw4cli.judge.scoring import storedrules
from hw4cli.judge.scoring.record import Rules, Standing
from hw4cli.judge.scoring.results import csv_cell, is_complete
from hw4cli.system.account import login
from hw4cli.system.files import write_text
from hw4cli.system.reading import read_json

NAME = "regrades.csv"
KNOWN = ".scores.json"  # beside it: the last score of each user that was known, and the rules by which
COLUMNS = ("date", "by", "user", "score_before", "score_after", "passed_before", "passed_after", "why")


def note(folder: Path, standings: Sequence[Standing], rules: Rules) -> None:
    """Append to a folder's log a line for each user whose score, or number of cases passed, is not what it was when it
    was last known: when all was judged, and the judge did not fail. MachineError if the log cannot be written."""
    old = _known(folder)
    new = {one.user: [one.score, one.passed] for one in standings if one.score is not None and is_complete(one)}
    changed = [user for user, now in new.items() if old["scores"].get(user, now) != now]
    why = _changes(old["rules"], storedrules.fields(rules)) or "judged again"
    if changed:
        out, path = io.StringIO(), folder / NAME
        writer = csv.writer(out, lineterminator="\n")
        if not path.exists():
            writer.writerow(COLUMNS)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        for user in changed:
            (score_before, passed_before), (score, passed) = old["scores"][user], new[user]
            row = (date, login(), user, score_before, score, passed_before, passed, why)
            writer.writerow([csv_cell(value) for value in row])
        _append(path, out.getvalue())
    known = {"rules": storedrules.fields(rules), "scores": {**old["scores"], **new}}
    if known != old:
        write_text(folder / KNOWN, json.dumps(known) + "\n", mode=0o600)


def _known(folder: Path) -> dict[str, Any]:
    """The last scores that were known; none where nothing was graded before, or the file is damaged."""
    try:
        document = read_json(folder / KNOWN)
        scores = {user: [int(score), int(passed)] for user, (score, passed) in document["scores"].items()}
        return {"rules": dict(document["rules"]), "scores": scores}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {"rules": {}, "scores": {}}


def _append(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "ab") as file:
            file.write(text.encode(errors="replace"))
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
