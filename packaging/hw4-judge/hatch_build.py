"""The files of the judge alone: of hw4's packages those that judging needs, and no kernel."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TREE = Path(__file__).resolve().parents[2]
PACKAGES = ("text", "system", "problem", "sandbox", "judge", "doctor", "cli/terminal", "templates")
COMMANDS = ("__init__", "gen", "judge", "verify", "scoreboard", "grades", "similar", "info", "kit", "doctor")
PAGES = ("lab", "leaderboard", "report", "stepper")
# What computes, measures or shows kernels; pages of the laboratory.
WITHOUT = {
    "torch.py",
    *(f"doctor/{name}.py" for name in ("bytecode", "measure", "prepare", "probe")),
    *(f"cli/terminal/{name}.py" for name in ("counts", "ladder", "launches", "programs", "roofs")),
    "templates/step.md",
    "templates/worklog.md",
    *(f"templates/{page}.{end}" for page in PAGES for end in ("css", "html", "js", "md")),
}
SUITES = ("suite.toml", "amd.toml")


def files() -> dict[str, str]:
    """The judge's files: where each is in the tree, and where it is in the wheel."""
    package = TREE / "hw4cli"
    found = [path for path in package.iterdir() if path.is_file() and path.name.endswith((".py", "py.typed"))]
    found += [path for name in PACKAGES for path in (package / name).rglob("*") if path.is_file()]
    found += [package / "cli" / f"{name}.py" for name in COMMANDS]
    names = {path: path.relative_to(package).as_posix() for path in found if "__pycache__" not in path.parts}
    own = {str(path): f"hw4cli/{name}" for path, name in names.items() if name not in WITHOUT}
    return {**own, **{str(TREE / "testcases" / name): f"hw4cli/testcases/{name}" for name in SUITES}}


class JudgeBuildHook(BuildHookInterface):
    """Puts the judge's files into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        build_data["force_include"].update(files())
