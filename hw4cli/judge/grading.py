"""The cases that a class is judged by: known by their hashes and watched, and, if that is wanted, with secret seeds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hw4cli.errors import InputError, os_error
from hw4cli.judge.caserecord import SECRET_FOLDER, CaseRecord
from hw4cli.judge.casewatch import CaseWatch, make_apart
from hw4cli.judge.session import SessionPlan
from hw4cli.problem.suite import Case
from hw4cli.text.words import counted

TOLD_BYTES = 1 << 30  # what takes longer to read than this is told


def prepared(session: SessionPlan, output: Path, secret: bool, shared: bool = False) -> SessionPlan:
    """A plan whose cases are the recorded ones in `output`, read in full when they are recorded first, and watched.

    With `secret`, they are made there with seeds that nobody knows; the plan's own cases are then the public ones that
    a program is tried on when it fails. `shared`: other judges run programs meanwhile. Raises InputError, MachineError.
    """
    record = CaseRecord.load(output, secret)
    cases, folder = list(session.cases), session.folder
    if secret:
        folder = output / SECRET_FOLDER
        cases = _made(record.drawn(cases), folder, record, session.settings.say)
    unread = [case for case in cases if not (entry := record.entries.get(case.name)) or not entry.answer]
    if (size := sum(case.shape.input_bytes + case.shape.output_bytes for case in unread)) > TOLD_BYTES:
        session.settings.say(
            f"reading {counted(len(unread), 'case')}, {size / 1e9:.1f} GB, to know them by their hashes"
        )
    try:
        watch = CaseWatch(cases, folder, record, shared, elsewhere=bool(session.settings.launcher))
    except OSError as error:
        raise os_error(error, f"read {error.filename}") from None
    if secret:
        known = {name: entry.input.sha256 for name, entry in record.entries.items() if entry.input}
        cases = [replace(case, sha256=known[case.name]) for case in cases]
    settings = replace(session.settings, watch=watch)
    return replace(session, cases=cases, folder=folder, public=session.folder if secret else None, settings=settings)


def _made(cases: list[Case], folder: Path, record: CaseRecord, say: Callable[[str], None]) -> list[Case]:
    """The cases, once those that are not there yet are made."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    missing = [case for case in cases if not _is_there(case, folder, record)]
    for number, case in enumerate(missing, 1):
        say(f"making {case.name} {case.shape} with a secret seed in {folder} ({number} of {len(missing)})")
        make_apart(case, folder)
        entry = record.entries[case.name]
        record.entries[case.name] = replace(entry, answer=None)  # another machine may round another way
    return cases


def _is_there(case: Case, folder: Path, record: CaseRecord) -> bool:
    """Whether a case was made, as far as it can be told without reading it."""
    entry = record.entries[case.name]
    return bool(entry.input) and case.input_path(folder).is_file() and case.answer_path(folder).is_file()
