"""What a class is judged by: for each case the seed, the hashes of input and answer, and how their files looked.

It lies in the folder of the results as `cases.json`, which nobody else may read: with seeds of its own, nobody who is
judged knows the inputs, and the same judging can be repeated.
"""

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.problem.checksums import Stamp
from hw4cli.problem.suite import Case
from hw4cli.system.files import write_text

NAME = "cases.json"
SECRET_FOLDER = "secret"  # beside it: the cases with secret seeds
SCHEMA = 1
SEED_BITS = 62  # what every reader of JSON keeps


@dataclass(frozen=True)
class Seen:
    """A file as it was when it was read in full."""

    sha256: str
    stamp: Stamp


@dataclass(frozen=True)
class Entry:
    """A case: its seed, and its files, where they have been made."""

    seed: int
    input: Seen | None = None
    answer: Seen | None = None


@dataclass
class CaseRecord:
    """The record in a folder of results. `secret`: the seeds are this judging's own."""

    path: Path
    secret: bool
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def load(cls, output: Path, secret: bool) -> "CaseRecord":
        """The record of a folder; an empty one where there is none. InputError if it is damaged, or if the judging
        there has other seeds than are wanted now."""
        path = output / NAME
        try:
            document = json.loads(path.read_bytes())
            found = cls(path, document["secret"] is True, {name: _entry(e) for name, e in document["cases"].items()})
            if document["schema"] != SCHEMA:
                raise ValueError
        except FileNotFoundError:
            return cls(path, secret)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{path} is damaged: restore it, or judge into another --output") from None
        if found.secret != secret:
            how = "secret seeds: give --secret-seeds" if found.secret else "the suite's seeds: leave --secret-seeds out"
            raise InputError(f"{output} is judged with {how}, or choose another --output")
        return found

    def save(self) -> None:
        """Write it, for its owner's eyes only. Raises as NewFile does."""
        cases = {name: asdict(entry) for name, entry in self.entries.items()}
        text = json.dumps({"schema": SCHEMA, "kind": "hw4-cases", "secret": self.secret, "cases": cases}, indent=1)
        write_text(self.path, text + "\n", mode=0o600)

    def drawn(self, cases: Iterable[Case]) -> list[Case]:
        """These cases with seeds that nobody knows; those that are recorded are kept, new ones are saved at once."""
        cases = list(cases)
        for case in cases:
            self.entries.setdefault(case.name, Entry(secrets.randbits(SEED_BITS)))
        self.save()
        return [replace(case, seed=self.entries[case.name].seed, sha256="") for case in cases]


def _entry(facts: Any) -> Entry:
    """An entry of the document. Raises something where it is none."""
    if type(facts["seed"]) is not int or facts["seed"] < 0:
        raise ValueError
    return Entry(facts["seed"], _seen(facts["input"]), _seen(facts["answer"]))


def _seen(facts: Any) -> Seen | None:
    if facts is None:
        return None
    numbers: Sequence[Any] = facts["stamp"]
    if not isinstance(facts["sha256"], str) or not all(type(number) is int for number in numbers):
        raise ValueError
    return Seen(facts["sha256"], Stamp(*numbers))
