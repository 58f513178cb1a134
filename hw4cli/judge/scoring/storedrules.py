"""The rules of a folder of results: one file that whatever judges or shows the folder reads.

`hw4 judge` and `hw4 judge --rescore` write it, whole or not at all. Older folders have none; theirs are the rules that
the first journal records.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.judge.scoring.journal import RULES, wrong_fields
from hw4cli.judge.scoring.late import LatePolicy
from hw4cli.judge.scoring.record import RANKS, Rules
from hw4cli.system.files import write_text
from hw4cli.system.reading import read_json
from hw4cli.text.dates import parse_timestamp

NAME = "rules.json"
SCHEMA = 1


def fields(rules: Rules) -> dict[str, Any]:
    """The rules as they stand in documents."""
    return {
        "tolerance": rules.tolerance,
        "penalty": rules.penalty,
        "limits": dict(rules.limits),
        "rank_by": rules.rank_by,
        "due": rules.due.isoformat() if rules.due else None,
        "late_policy": rules.late_policy or None,
        "step": rules.step,
    }


def write(folder: Path, rules: Rules) -> None:
    """Store the rules of a folder. Raises as NewFile does."""
    document = {"schema": SCHEMA, "kind": "hw4-rules", **fields(rules)}
    write_text(folder / NAME, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read(folder: Path) -> Rules | None:
    """The rules that are stored in a folder; None if there are none. InputError if they cannot be read."""
    path = folder / NAME
    try:
        document = read_json(path)
        if document["schema"] != SCHEMA and type(document["schema"]) is int:
            raise InputError(f"{path}: schema {document['schema']}, but this hw4 reads schema {SCHEMA}")
        if document["kind"] != "hw4-rules" or document["schema"] != SCHEMA:
            raise ValueError
        return _checked(
            {"late_policy": None, "step": None, **{name: document[name] for name in RULES if name in document}}
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError):
        raise InputError(
            f"{path} is damaged: restore it, or remove it, and the rules are those that the first journal records"
        ) from None


def _checked(values: Mapping[str, Any]) -> Rules:
    """These values as rules. ValueError if one is not what a rule can be."""
    due = parse_timestamp(values["due"])
    if values["late_policy"]:
        LatePolicy.parse(values["late_policy"])
    if (
        RULES.keys() - values.keys()
        or wrong_fields(values, RULES)
        or values["rank_by"] not in RANKS
        or (values["due"] and not due)
    ):
        raise ValueError
    return Rules(**{**values, "due": due, "late_policy": values["late_policy"] or ""})
