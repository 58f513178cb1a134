"""Reading small files whole: records, journals, kernels, reports. A user may name anything in their place."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

MOST = 256 << 20  # bytes of such a file


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file. OSError if there is none, or it cannot be read, or has more than MOST bytes: a pipe
    could block for ever, and a device be endless."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise OSError(errno.EFBIG, f"it is larger than {MOST >> 20} MB", str(path))
    return content


def leads_out(folder: Path, path: Path) -> bool:
    """Whether a name leads out of a folder: by .., as an absolute path, or by links, even to what is not there."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_file_in(folder: Path, path: Path) -> bool:
    """Whether a name is that of a regular file in a folder, or in the folders in it: of a folder that somebody else
    filled, no other file may be read."""
    try:
        return not leads_out(folder, path) and path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a zero
        return False


def read_json(path: Path) -> Any:
    """The JSON document in a regular file. OSError as `read_regular`; ValueError if it is none."""
    try:
        return json.loads(read_regular(path))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
