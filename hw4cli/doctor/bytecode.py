"""Python's bytecode of what a run imports: where it is not kept, each start compiles the sources again.

pip compiles what it installs. An image that was built without that, or a source tree under PYTHONDONTWRITEBYTECODE, as
is usual in containers, has sources alone: NumPy's then take 0.1 s longer to import.
"""

import importlib
import json
import py_compile
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from hw4cli.errors import MachineError
from hw4cli.resources import python_command

HASHED = 1  # of a file's flags: it goes by the source's hash, not by its time
WORD, MASK = 4, 0xFFFFFFFF  # bytes of a number in a file's head
# What imports all that a run does, but for cupy.
COMMAND = ("hw4cli.entry", "hw4cli.cli.run", "hw4cli.stream.pipeline", "hw4cli.stream.cudadevice")
SECONDS = 60.0


def sources_of_a_run() -> dict[Path, Path]:
    """The sources that a run on a GPU imports, and where the bytecode of each belongs. A process of its own imports
    them: it has no others, and a broken driver may crash it. Raises MachineError if it cannot be started, or fails."""
    command = python_command("doctor.bytecode", "-P")
    try:
        found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"what a run imports cannot be imported: {error}") from None
    return {Path(source): Path(kept) for source, kept in json.loads(found.stdout.splitlines()[-1])}


def main() -> None:
    """Import what a run imports, and print each source and the place of its bytecode, as JSON."""
    for name in COMMAND:
        importlib.import_module(name)
    with suppress(MachineError):
        from hw4cli.device.gpu import import_cupy

        import_cupy()
    specs = (getattr(module, "__spec__", None) for module in list(sys.modules.values()))
    places = {(spec.origin, spec.cached) for spec in specs if spec and spec.has_location and spec.cached}
    print(json.dumps(sorted((source, kept) for source, kept in places if source and source.endswith(".py"))))


def missing(sources: dict[Path, Path]) -> dict[Path, Path]:
    """Those whose bytecode is not kept, or is that of another version of the source or of Python."""
    return {source: kept for source, kept in sources.items() if not _is_valid(source, kept)}


def _is_valid(source: Path, kept: Path) -> bool:
    try:
        with kept.open("rb") as file:
            head, now = file.read(4 * WORD), source.stat()
    except OSError:
        return False
    if head[:WORD] != MAGIC_NUMBER or len(head) < 4 * WORD:
        return False
    flags, time, size = (int.from_bytes(head[at : at + WORD], "little") for at in range(WORD, 4 * WORD, WORD))
    return bool(flags & HASHED) or (time, size) == (int(now.st_mtime) & MASK, now.st_size & MASK)


def compile_sources(sources: Iterable[tuple[Path, Path]]) -> int:
    """Keep the bytecode of sources, each where Python looks for it; of how many that could be done."""
    count = 0
    for source, kept in sources:
        with suppress(OSError, py_compile.PyCompileError):  # a folder that cannot be written
            py_compile.compile(str(source), str(kept), doraise=True)
            count += 1
    return count
