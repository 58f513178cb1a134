"""Where the package's data files are: the kernels and the suite of cases.

In a wheel they lie inside the package; in a source tree (and an editable install) beside it.
"""

import os
import re
import site
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# Where the Pythons of a system keep packages.
SITES = (
    *("usr/lib/python3*/*-packages", "usr/local/lib/python3*/*-packages"),
    *("opt/*/lib/python3*/site-packages", "opt/*/envs/*/lib/python3*/site-packages"),
)
INCLUDE = re.compile(r'#include "([\w.]+)"')
IMPORT_PATH = str(PACKAGE.parent)  # what makes this very package importable, also where it is not installed


def python_command(module: str, *flags: str) -> list[str]:
    """The command that starts a module's `main` with this Python, these flags and this package, from any folder."""
    start = f"import sys; sys.path.insert(0, {IMPORT_PATH!r}); from hw4cli.{module} import main; main()"
    return [sys.executable, *flags, "-c", start]


def data_path(name: str) -> Path:
    """The path of a data file such as "kernels/flash.cu", in a wheel or a source tree."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parent / name


@cache
def installations() -> list[Path]:
    """The folders of this package that a program of this machine might find: this one, and those of other Pythons."""
    folders = [*map(Path, sys.path), Path(site.getusersitepackages())]
    for pattern in SITES:
        folders += Path("/").glob(pattern)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folders += Path(os.environ.get(variable) or "/nowhere").glob("lib/python3*/site-packages")
    return [PACKAGE, *dict.fromkeys(path for folder in folders if os.path.isdir(path := folder / PACKAGE.name))]  # noqa: PTH112


def source_tree() -> Path | None:
    """The folder of the source tree that this package lies in; None if it is installed."""
    return PACKAGE.parent if (PACKAGE.parent / "pyproject.toml").is_file() else None


def has_solution() -> bool:
    """Whether this is all of hw4, and not the judge alone, which has no kernels (packaging/hw4-judge)."""
    return data_path("kernels").is_dir()


def names_in(path: str | Path, table: str) -> list[str]:
    """The names in a table of a TOML file; none where it cannot be read or is damaged, which its own reader reports."""
    import tomllib  # not for every run

    if os.path.isdir(path):  # noqa: PTH112
        return sorted(name for name in os.listdir(path) if not name.endswith((".out", ".ans")) and name[0] != ".")  # noqa: PTH208
    with suppress(OSError, ValueError, LookupError, AttributeError, RecursionError):
        return [*tomllib.loads(Path(path).read_text(encoding="utf-8"))[table].keys()]
    return []


def is_own_kernel(name: str) -> bool:
    """Whether a kernel's name is that of a file of the user's own, PATH.cu, and not of one of the ladder."""
    return name.endswith(".cu")


def kernel_path(name: str) -> Path:
    """The file of a kernel: kernels/NAME.cu, or PATH.cu of the user's own."""
    return Path(name) if is_own_kernel(name) else data_path("kernels") / f"{name}.cu"


def kernel_source(name: str, hip: bool = False) -> str:
    """The text of kernels/NAME.cu, or of a file PATH.cu of the user's own, with its local includes spliced in.

    A user's file finds headers beside itself, then the project's. NVRTC gets one text because cupy's cache of compiled
    kernels is keyed by the text it is given: a header that was only named would change without a recompilation.
    """
    path, project = kernel_path(name), data_path("kernels")
    # For AMD's GPUs, kernels/hip has other headers of the same names.
    return spliced(path, (*([project / "hip"] if hip else []), path.parent, project))


def spliced(path: Path, folders: Sequence[Path]) -> str:
    """The text of a file with its local includes spliced in, and theirs, each file once, as `#pragma once` has it.

    An include is looked for in the folders, the first first; one that is in none of them stays as it is. `#line` keeps
    the compiler's messages pointing at the files. (An include that stands inside #if would be missing behind it.)
    """
    seen = set()

    def text_of(path: Path) -> str:
        lines = [f'#line 1 "{path.name}"']
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            included = INCLUDE.fullmatch(line) if line.startswith("#") else None
            places = [folder / included[1] for folder in folders] if included else []
            header = next((place for place in places if place.is_file()), None)
            if header is None:
                lines.append("" if line == "#pragma once" else line)
            elif header.name in seen:
                lines.append("")
            else:
                seen.add(header.name)
                lines += [text_of(header), f'#line {number + 1} "{path.name}"']
        return "\n".join(lines)

    return text_of(path) + "\n"


def own_files() -> list[Path]:
    """The package's modules and kernels: all that makes hw4 compute what it computes."""
    return sorted([*PACKAGE.rglob("*.py"), *data_path("kernels").glob("*.cu*"), *data_path("kernels/hip").iterdir()])
