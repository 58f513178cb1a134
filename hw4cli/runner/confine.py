"""One command that strangers wrote, run in as small a world as this machine can make."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hw4cli.errors import MachineError
from hw4cli.runner import sandbox
from hw4cli.runner.quota import Look, Quota
from hw4cli.system.account import Account, account
from hw4cli.system.exits import StartError, not_startable, signal_of
from hw4cli.system.process import GATE, GateError, Limits, Run, run_program

UNPRIVILEGED = Account("root without its privileges", 0, 0, (0,))


@dataclass(frozen=True)
class Confinement:
    """What is around a program. `sandbox` is "none", or "processes": it has processes of its own and sees all files, or
    "bwrap": it sees the system's files, its own, and none in the `hidden` folders. It runs as another user, or as we
    do."""

    sandbox: str = "none"
    run_as: str = ""
    hidden: tuple[str, ...] = ()

    def check(self) -> Account | None:
        """The user to run as. Raises MachineError or InputError unless all this can be done on this machine."""
        who = account(self.run_as)
        if self.sandbox != "none":
            sandbox.privileges(who)
        return who


@dataclass(frozen=True)
class Place:
    """Where a program works: its folder, what takes the place of /tmp in the sandbox, and how much both may hold."""

    folder: Path
    scratch: Path
    quota: Quota


def run(
    command: Sequence[str],
    files: Sequence[str],
    place: Place,
    env: Mapping[str, str],
    confinement: Confinement,
    kill_at: float,
    max_file: int,
) -> Run:
    """Run a command, with the names of its files behind it, to its end or to a limit.

    Raises StartError if it cannot be started, ProgramError if it is ended for what it did, MachineError if this machine
    cannot run it so.
    """
    who = confinement.check()
    hidden = [Path(folder) for folder in confinement.hidden]
    command = [_without_links(word) for word in command]
    own = sandbox.own_files(command, env, hidden)
    words, gated = [*command, *files], confinement.sandbox != "none"
    if who or (confinement.sandbox == "bwrap" and os.geteuid() == 0):
        _check_way(who or UNPRIVILEGED, Path(command[0]), own if confinement.sandbox == "bwrap" else ())
    if gated:
        shown = (lambda path: sandbox.shows(path, own)) if confinement.sandbox == "bwrap" else os.path.exists
        if problem := not_startable(command[0], shown):
            raise StartError(f"{command[0]} cannot be started: {problem}")
        words = [*GATE, str(place.folder), *words]
    if confinement.sandbox == "bwrap":
        words = sandbox.wrap(words, own, place.folder, place.scratch, hidden, who)
    elif gated:
        words = sandbox.contain(words, who)
    look = Look(place.quota)
    limits = Limits(kill_at, max_file, look.excess)
    try:
        ended = run_program(words, limits, env, place.folder, None if gated else who, gated)
    except GateError as error:
        raise MachineError(f"the sandbox cannot be made: {error}") from None
    excess = look.last() or ended.excess
    if gated and (number := signal_of(ended.exit_code)):  # bwrap tells signals as a shell does
        ended = replace(ended, exit_code=-number)
    return replace(ended, excess=excess)


def _check_way(who: Account, program: Path, own: Sequence[Path]) -> None:
    """Raise MachineError if a user does not get to a program, beginning at a folder that the sandbox shows, or else at
    the root; or may not run it when there."""
    if program.is_file() and not who.may(program, os.R_OK | os.X_OK):
        raise MachineError(f"{who.name} may not run {program}: chmod o+rx {shlex.quote(str(program))}")
    for folder in program.parents:
        if not who.may(folder, os.X_OK):
            raise MachineError(
                f"{who.name} may not enter {folder}, where {program.name} is: chmod o+x {shlex.quote(str(folder))}, or "
                "keep the results elsewhere"
            )
        if folder in own:
            return


def _without_links(word: str) -> str:
    """A word of a command; if it is a file's name, with no link on the way to it."""
    if not word.startswith("/") or not os.path.isfile(word):  # noqa: PTH113
        return word
    return str(Path(os.path.realpath(Path(word).parent), Path(word).name))
