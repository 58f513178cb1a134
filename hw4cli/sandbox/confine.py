"""Runs one untrusted command: in a sandbox, as another user, within limits of time, memory and disk."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hw4cli.errors import MachineError
from hw4cli.sandbox import sandbox
from hw4cli.sandbox.memory import PrivateMemory
from hw4cli.sandbox.quota import Quota, QuotaMonitor
from hw4cli.system.account import Account, account
from hw4cli.system.exits import StartError, not_startable, signal_of
from hw4cli.system.process import GATE, OPEN_GATE, Gate, GateError, Limits, Run, run_program

UNPRIVILEGED = Account("root without its privileges", 0, 0, (0,))


@dataclass(frozen=True)
class Confinement:
    """How a program is isolated. `sandbox` is "none"; "processes": a process namespace of its own, but all files are
    visible; or "bwrap": only the system's files and its own are visible, and none in the `hidden` folders. `run_as` is
    the user it runs as, "" for the judge's own; `mounts` are further paths that are visible, read-only."""

    sandbox: str = "none"
    run_as: str = ""
    hidden: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()

    def check(self) -> Account | None:
        """The user to run as. Raises MachineError or InputError if this machine cannot isolate programs so."""
        user = account(self.run_as)
        if self.sandbox != "none":
            sandbox.privilege_options(user)
        return user


@dataclass(frozen=True)
class Workspace:
    """The folder that a program runs in; the one that replaces /tmp in the sandbox, and the quota of both, or both in
    private memory. `root` is removed if the judge is killed."""

    folder: Path
    scratch: Path | PrivateMemory
    quota: Quota | None = None
    root: Path | None = None

    def monitor(self) -> QuotaMonitor | PrivateMemory:
        """What checks the quota."""
        if isinstance(self.scratch, PrivateMemory):
            return self.scratch
        assert self.quota is not None
        return QuotaMonitor(self.quota)


def run(
    command: Sequence[str],
    files: Sequence[str],
    workspace: Workspace,
    env: Mapping[str, str],
    confinement: Confinement,
    kill_at: float,
    max_file: int,
) -> Run:
    """Run a command, with the paths of its files as last arguments, until it ends or exceeds a limit.

    Raises StartError if it cannot be started, ProgramError if it is ended for what it did, MachineError if this machine
    cannot run it so.
    """
    user = confinement.check()
    hidden = [Path(folder) for folder in confinement.hidden]
    command = [_without_links(argument) for argument in command]
    visible = []
    if confinement.sandbox == "bwrap":
        visible = sandbox.visible_paths(command, env, hidden, confinement.mounts)
    full, gated = [*command, *files], confinement.sandbox != "none"
    if user or (confinement.sandbox == "bwrap" and os.geteuid() == 0):
        _check_access(user or UNPRIVILEGED, Path(command[0]), visible)
    exists = (lambda path: sandbox.is_visible(path, visible)) if confinement.sandbox == "bwrap" else os.path.exists
    if problem := not_startable(command[0], exists):
        raise StartError(f"{command[0]} cannot be started: {problem}")
    full = [*GATE, str(workspace.folder), *full] if gated else [*OPEN_GATE, *full]
    monitor = workspace.monitor()
    limits = Limits(kill_at, max_file, monitor.excess)
    try:
        if not gated:
            gate = Gate(is_open=True)
            ended = run_program(full, limits, env, workspace.folder, user, gate, workspace.root)
        else:
            if confinement.sandbox == "bwrap":
                wrapped = sandbox.wrap(full, visible, workspace.folder, workspace.scratch, hidden, user)
            else:
                wrapped = sandbox.wrap_processes(full, user)
            with wrapped.command() as (words, inherited):
                gate = Gate(inherited, lambda: _enter(workspace.scratch, inherited))
                ended = run_program(words, limits, env, gate=gate)
    except GateError as error:
        what = "the sandbox cannot be made" if gated else "programs cannot be started"
        raise MachineError(f"{what}: {error}") from None
    excess = monitor.final_excess() or ended.excess
    if gated and (number := signal_of(ended.exit_code)):  # bwrap reports signals as a shell does
        ended = replace(ended, exit_code=-number)
    return replace(ended, excess=excess)


def _enter(scratch: Path | PrivateMemory, files: Sequence[int]) -> None:
    if isinstance(scratch, PrivateMemory):
        scratch.enter(sandbox.first_process(files))


def _check_access(user: Account, program: Path, visible: Sequence[Path]) -> None:
    """Raise MachineError if a user may not run a program, or enter a folder above it; of these, only those up to a
    `visible` one count, which the sandbox mounts."""
    if program.is_file() and not user.has_permission(program, os.R_OK | os.X_OK):
        raise MachineError(f"{user.name} may not run {program}: chmod o+rx {shlex.quote(str(program))}")
    for folder in program.parents:
        if not user.has_permission(folder, os.X_OK):
            raise MachineError(
                f"{user.name} may not enter {folder}, where {program.name} is: chmod o+x {shlex.quote(str(folder))}, "
                "or keep the results elsewhere"
            )
        if folder in visible:
            return


def _without_links(argument: str) -> str:
    """An argument of a command; if it is a file's path, with the links in its folders resolved."""
    if not argument.startswith("/") or not os.path.isfile(argument):  # noqa: PTH113
        return argument
    return str(Path(os.path.realpath(Path(argument).parent), Path(argument).name))
