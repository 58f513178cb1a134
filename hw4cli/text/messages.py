"""stderr as a stream on which writing never fails: a message that nobody can read must not end what is computed."""

import io
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """What cannot be written, on a full disk or to a reader that has gone, is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def never_fail() -> None:
    """Write the command's messages so from now on. Streams that are not Python's own, as in tests, stay as they are."""
    given = sys.__stderr__
    if given is None or sys.stderr is not given:
        return
    raw = _Forgiving(given.fileno(), "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=given.encoding, errors="replace", line_buffering=True, write_through=True
    )
