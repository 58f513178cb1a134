"""Cases made elsewhere: a folder of inputs NAME, with their answers NAME.out or NAME.ans if there are any, is a suite.

The shape is in an input's header, the limit that of the assignment's case of this shape. An answer that the folder
lacks is computed by the float64 oracle, once, into the user's cache: nothing is written into the folder but the record
of its files' hashes (checksums).
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hw4cli.problem.casefolder import answer_in, candidates
from hw4cli.problem.checksums import answer_sha256, note_answer, sha256
from hw4cli.problem.suite import Case

SHOWN = 5  # names in a sentence


def not_cases(folder: Path, known: Sequence[str]) -> str:
    """A sentence on files of a folder that are no cases; "" without one."""
    others = [path.name for path in candidates(folder) if path.name not in known]
    return f"no cases: {', '.join(others[:SHOWN])}{', …' if len(others) > SHOWN else ''}" if others else ""


def cache() -> Path:
    """The folder of answers that were computed for inputs without one."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hw4" / "answers"


def settled(case: Case, folder: Path) -> Case:
    """A case whose files in `folder` nobody has described, with the hash of its input and the path of its answer, which
    is in the cache, and may not be there yet, if the folder has none. Hashes are noted when files are first seen, so
    that a later change is found. A case whose hash the suite has stays as it is. InputError if a file cannot be read.
    """
    if case.sha256:
        return case
    found = sha256(case.input_path(folder))
    answer = answer_in(folder, case.name, case.shape.answer_suffix)
    if answer is None and case.foreign:
        answer = cache() / f"{found}{case.shape.answer_suffix}"
    case = replace(case, sha256=found, answer=answer)
    with suppress(FileNotFoundError):
        path = case.answer_path(folder)
        if path.is_file() and not answer_sha256(path, found):
            note_answer(path, sha256(path), found)
    return case


def is_computed(case: Case) -> bool:
    """Whether the case's answer is one that hw4 computes into its cache."""
    return case.answer is not None and case.answer.parent == cache()
