"""What is around judged programs, as the options ask for it: a sandbox, a user."""

import os
from typing import TYPE_CHECKING, Any

from hw4cli.errors import MachineError

if TYPE_CHECKING:
    from hw4cli.judge.runcase import Settings


def surroundings(sandbox: str | None, run_as: str | None, is_class: bool, elsewhere: bool) -> dict[str, Any]:
    """What is around the programs, as Settings call it. MachineError if it cannot be had here, unless it is needed
    `elsewhere`; of a class, a missing sandbox must be asked for, since its programs are strangers'."""
    from hw4cli.runner.sandbox import privileges
    from hw4cli.system.account import account

    if run_as is None:
        run_as = "nobody" if is_class and os.geteuid() == 0 else ""
    wanted = sandbox or ("auto" if is_class else "none")
    around = {"sandbox": "none" if wanted == "none" else "bwrap", "run_as": run_as, "contained": False}
    who = account(run_as)
    if elsewhere or (wanted == "none" and not is_class):
        return around
    try:
        privileges(who)
    except MachineError as error:
        if wanted == "bwrap":
            raise
        if wanted == "auto" and is_class:
            hint = "or say --sandbox none, and what docs/judging.md tells of it is yours to bear"
            raise MachineError(f"{error}; {hint}") from None
        return {**around, "sandbox": "none"}
    return {**around, "contained": wanted == "none"}


def what_is_open(settings: "Settings") -> str | None:
    """What programs of a class may do that a sandbox would keep them from, in a sentence."""
    if settings.sandbox != "none":
        return None
    who = settings.run_as or login()
    reach = "" if settings.contained else f", reach other processes of {who}'s"
    return f"--sandbox none: programs read and write what {who} can, answers and submissions too{reach}, and go on line"


def login() -> str:
    """The name of who is logged in, or the number where it has none, as in a container."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
