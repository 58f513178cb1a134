"""The isolation of judged programs that the options define: a sandbox, another user."""

import os
from typing import TYPE_CHECKING, Any

from hw4cli.errors import MachineError

if TYPE_CHECKING:
    from hw4cli.judge.runcase import RunSettings


def isolation_settings(sandbox: str | None, run_as: str | None, is_class: bool, elsewhere: bool) -> dict[str, Any]:
    """The fields of RunSettings for isolation. MachineError if this machine cannot provide it, unless programs run
    `elsewhere`. For a class, whose programs are not trusted, no sandbox is used only if the option says so."""
    from hw4cli.sandbox.sandbox import privilege_options
    from hw4cli.system.account import account, numbered

    each = run_as is None and is_class and os.geteuid() == 0
    if run_as is None:
        run_as = numbered(0) if each else ""
    if each and not elsewhere and not _can_run_as(run_as):
        each, run_as = False, "nobody"
    wanted = sandbox or ("auto" if is_class else "none")
    settings = {"sandbox": "none" if wanted == "none" else "bwrap", "run_as": run_as, "contained": False, "each": each}
    user = account(run_as)
    if elsewhere or (wanted == "none" and not is_class):
        return settings
    try:
        privilege_options(user)
    except MachineError as error:
        if wanted == "bwrap":
            raise
        if wanted == "auto" and is_class:
            hint = "or give --sandbox none and accept the risks that docs/judging.md lists"
            raise MachineError(f"{error}; {hint}") from None
        return {**settings, "sandbox": "none"}
    return {**settings, "contained": wanted == "none"}


def _can_run_as(name: str) -> bool:
    """Whether this machine lets root become a user that has a number and no name; some containers know few users."""
    import subprocess

    from hw4cli.sandbox.sandbox import setpriv
    from hw4cli.system.account import account

    try:
        return subprocess.run([*setpriv(account(name)), "true"], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def isolation_warning(settings: "RunSettings") -> str | None:
    """A warning about what the programs of a class may do without a sandbox; None with one."""
    if settings.sandbox != "none":
        return None
    user = "a user without a name" if settings.each else settings.run_as or login()
    reach = "" if settings.contained else f", can reach other processes of {user} and end them, the judge too"
    return (
        f"--sandbox none: programs can read and write what {user} can, answers and submissions included{reach}, and "
        "can use the network"
    )


def login() -> str:
    """The current user's name, or number if it has no name, as in a container."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
