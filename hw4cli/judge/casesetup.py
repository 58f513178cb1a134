"""Prepares the cases of a judging: their hashes are recorded, their files watched, secret seeds drawn if asked for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hw4cli.errors import InputError, os_error
from hw4cli.judge.casemanifest import SECRET_FOLDER, CaseManifest
from hw4cli.judge.casewatch import CaseWatch, PreparedCases, make_in_subprocess
from hw4cli.judge.plan import Plan
from hw4cli.problem.suite import Case
from hw4cli.text.words import counted

MESSAGE_BYTES = 1 << 30  # reading more than this takes so long that a message says so


def prepare_cases(plan: Plan, say: Callable[[str], None]) -> PreparedCases:
    """The cases of the manifest in the plan's folder of results, and a watch of their files. A case that the manifest
    lacks is read in full and added.

    With secret seeds, the cases are generated there; a program that fails on one is also run on the plan's own, public
    case. A task of an array shares them with others that run at the same time. Raises InputError, MachineError.
    """
    assert plan.output
    cases, folder, secret = list(plan.cases), plan.folder, plan.secret_seeds
    manifest = CaseManifest.load(plan.output, secret, any(case.shape.causal for case in cases))
    if secret:
        folder = plan.output / SECRET_FOLDER
        cases = _made(manifest.with_secret_seeds(cases), folder, manifest, say)
    unread = [case for case in cases if not (entry := manifest.entries.get(case.name)) or not entry.answer]
    if (size := sum(case.shape.input_bytes + case.shape.output_bytes for case in unread)) > MESSAGE_BYTES:
        say(f"reading {counted(len(unread), 'case')}, {size / 1e9:.1f} GB, to record their hashes")
    try:
        watch = CaseWatch(cases, folder, manifest, plan.is_task, remote=bool(plan.settings.launcher))
    except OSError as error:
        raise os_error(error, f"read {error.filename}") from None
    if secret:
        known = {name: entry.input.sha256 for name, entry in manifest.entries.items() if entry.input}
        cases = [replace(case, sha256=known[case.name]) for case in cases]
    return PreparedCases(cases, folder, watch, plan.folder if secret else None)


def _made(cases: list[Case], folder: Path, manifest: CaseManifest, say: Callable[[str], None]) -> list[Case]:
    """The cases, after those that are missing in the folder are generated."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    missing = [case for case in cases if not _is_made(case, folder, manifest)]
    for number, case in enumerate(missing, 1):
        say(f"making {case.name} {case.shape} with a secret seed in {folder} ({number} of {len(missing)})")
        make_in_subprocess(case, folder)
        entry = manifest.entries[case.name]
        manifest.entries[case.name] = replace(entry, answer=None)  # another machine may round differently
    return cases


def _is_made(case: Case, folder: Path, manifest: CaseManifest) -> bool:
    """Whether a case is in the manifest and its files exist; they are not read."""
    entry = manifest.entries[case.name]
    return bool(entry.input) and case.input_path(folder).is_file() and case.answer_path(folder).is_file()
