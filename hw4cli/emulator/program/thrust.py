"""Thrust for programs that run on the CPU: its own headers, where they are installed, with the host as their back end.

They are read between the prelude and the program (kernels/emulator/program/thrust_begin.h), as by a host compiler: all
that the program names.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from hw4cli.emulator.program.launches import blanked

_INCLUDE = re.compile(r'^[^\S\n]*#[^\S\n]*include[^\S\n]*(?P<opening>[<"])(?P<name>[^>"\n]+)[>"]', re.M)
# In a CUDA toolkit from 13 on, before, and where a distribution has them.
_FOLDERS = ("include/cccl", "include", "targets/x86_64-linux/include/cccl", "targets/x86_64-linux/include")
_SYSTEMS = Path("/usr/include")  # where every compiler looks, and must not look earlier


def thrust_options(texts: Sequence[str], folders: Sequence[Path], made: Path) -> list[str]:
    """The compiler's options for a program with these texts, that finds its own headers in these folders; nothing if it
    does not use Thrust, or if Thrust is not installed. Writes the header that is read before the program: `made`."""
    wanted = list(dict.fromkeys(_named(texts, folders)))
    folder = installed((*folders, *toolkits())) if wanted else None
    if not folder:
        return []
    there = [name for name in wanted if (folder / name).is_file() and "/cuda/" not in name]
    lines = [f"#include <{name}>" for name in there]
    made.write_text("\n".join(['#include "thrust_begin.h"', *lines, '#include "thrust_end.h"', ""]), encoding="utf-8")
    return ["-include", str(made), *([] if folder == _SYSTEMS else ["-isystem", str(folder)])]


def installed(folders: Sequence[Path]) -> Path | None:
    """The first of these folders that has Thrust's headers, or None."""
    return next((folder for folder in folders if (folder / "thrust/version.h").is_file()), None)


@cache
def toolkits() -> tuple[Path, ...]:
    """Where CUDA's toolkits may have Thrust."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    homes += [
        str(Path(nvcc).resolve().parents[1]) if nvcc else None,
        *map(str, sorted(Path("/usr/local").glob("cuda-*"))),
    ]
    return (*(Path(home, folder) for home in homes if home for folder in _FOLDERS), _SYSTEMS)


def _named(texts: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """The names of Thrust's headers that texts include, themselves or by headers in these folders."""
    seen: set[Path] = set()
    left = list(texts)
    while left:
        text = left.pop(0)
        plain = blanked(text)
        for found in _INCLUDE.finditer(text):
            name = found["name"]
            if (
                plain[found.start("opening") - 1 : found.start("opening")] == " "
                and "#" not in plain[found.start() : found.end()]
            ):
                continue  # in a comment
            if name.startswith("thrust/"):
                yield name
                continue
            for path in (folder / name for folder in folders):
                if path.is_file():
                    if path not in seen:
                        seen.add(path)
                        left.append(path.read_text(encoding="utf-8", errors="replace"))
                    break
