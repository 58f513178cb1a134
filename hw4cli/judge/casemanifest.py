"""The manifest of the cases that a class is judged by: their seeds, and the hashes and stamps of inputs and answers.

It is the file `cases.json` in the folder of results, which only its owner can read: it may hold secret seeds. With it
the same judging can be repeated.
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
from hw4cli.system.reading import read_json

NAME = "cases.json"
SECRET_FOLDER = "secret"  # beside the manifest: the cases with secret seeds
SCHEMA = 1
SEED_BITS = 62  # every reader of JSON keeps integers of this size


@dataclass(frozen=True)
class FileDigest:
    """A file's hash, and its stamp when it was read in full."""

    sha256: str
    stamp: Stamp


@dataclass(frozen=True)
class CaseEntry:
    """A case's seed, and the digests of its files if they have been made."""

    seed: int
    input: FileDigest | None = None
    answer: FileDigest | None = None


@dataclass
class CaseManifest:
    """The manifest in a folder of results. `secret`: the seeds are not the suite's; `causal`: its answers are."""

    path: Path
    secret: bool
    entries: dict[str, CaseEntry] = field(default_factory=dict)
    causal: bool = False

    @classmethod
    def load(cls, output: Path, secret: bool, causal: bool = False) -> "CaseManifest":
        """The manifest of a folder of results; an empty one if there is none. InputError if it is damaged, or if it has
        the other kind of seeds or of answers."""
        path = output / NAME
        try:
            document = read_json(path)
            entries = {name: _entry(e) for name, e in document["cases"].items()}
            manifest = cls(path, document["secret"] is True, entries, document.get("causal") is True)
            if document["schema"] != SCHEMA:
                raise ValueError
        except FileNotFoundError:
            return cls(path, secret, causal=causal)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise InputError(f"{path} is damaged: restore it, or judge into another --output") from None
        if manifest.secret != secret:
            kind = "secret seeds: give" if manifest.secret else "the suite's seeds: leave out"
            raise InputError(f"{output} is judged with {kind} --secret-seeds, or choose another --output")
        if manifest.causal != causal:
            kind = "causal answers: give" if manifest.causal else "answers that are not causal: leave out"
            raise InputError(f"{output} is judged with {kind} --causal, or choose another --output")
        return manifest

    def save(self) -> None:
        """Write it so that only its owner can read it. Raises as NewFile does."""
        cases = {name: asdict(entry) for name, entry in self.entries.items()}
        kinds = {"secret": self.secret, "causal": self.causal}
        text = json.dumps({"schema": SCHEMA, "kind": "hw4-cases", **kinds, "cases": cases}, indent=1)
        write_text(self.path, text + "\n", mode=0o600)

    def with_secret_seeds(self, cases: Iterable[Case]) -> list[Case]:
        """These cases with the manifest's seeds; for new cases, random ones are added, and saved at once."""
        cases = list(cases)
        for case in cases:
            self.entries.setdefault(case.name, CaseEntry(secrets.randbits(SEED_BITS)))
        self.save()
        return [
            replace(case, seed=self.entries[case.name].seed, sha256="", foreign=False, answer=None) for case in cases
        ]


def _entry(facts: Any) -> CaseEntry:
    """An entry of the document. Raises ValueError, LookupError or TypeError if it is none."""
    if type(facts["seed"]) is not int or facts["seed"] < 0:
        raise ValueError
    return CaseEntry(facts["seed"], _digest(facts["input"]), _digest(facts["answer"]))


def _digest(facts: Any) -> FileDigest | None:
    if facts is None:
        return None
    numbers: Sequence[Any] = facts["stamp"]
    if not isinstance(facts["sha256"], str) or not all(type(number) is int for number in numbers):
        raise ValueError
    return FileDigest(facts["sha256"], Stamp(*numbers))
