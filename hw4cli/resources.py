"""Where the package's data files are: the kernels and the suite of cases.

In a wheel they lie inside the package; in a source tree (and an editable install) beside it.
"""

import re
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
IMPORT_PATH = str(_PACKAGE.parent)  # what makes this very package importable, also where it is not installed


def python_words(module: str, *flags: str) -> list[str]:
    """The words that start a module's `main` with this Python, these flags and this package, wherever they are said."""
    start = f"import sys; sys.path.insert(0, {IMPORT_PATH!r}); from hw4cli.{module} import main; main()"
    return [sys.executable, *flags, "-c", start]


def data_path(name: str) -> Path:
    """The path of a data file such as "kernels/flash.cu", in a wheel as in a source tree."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name


def kernel_source(name: str) -> str:
    """The text of kernels/NAME.cu with its local includes spliced in.

    NVRTC gets one text because cupy's cache of compiled kernels is keyed by the text it is given: a header that
    was only named would change without a recompilation. `#line` keeps the compiler's messages pointing at the files.
    """
    folder = data_path("kernels")

    def splice(match: re.Match[str]) -> str:
        header = match.group(1)
        line = match.string.count("\n", 0, match.start()) + 2
        text = (folder / header).read_text(encoding="utf-8")
        return f'#line 1 "{header}"\n{text}\n#line {line} "{name}.cu"'

    text = (folder / f"{name}.cu").read_text(encoding="utf-8")
    return f'#line 1 "{name}.cu"\n' + re.sub(r'^#include "([\w.]+)"$', splice, text, flags=re.MULTILINE)


def own_files() -> list[Path]:
    """The package's modules and kernels: all that makes hw4 compute what it computes."""
    return sorted([*_PACKAGE.rglob("*.py"), *data_path("kernels").glob("*.cu*")])
