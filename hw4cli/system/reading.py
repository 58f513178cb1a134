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


def read_json(path: Path) -> Any:
    """The JSON document in a regular file. OSError as `read_regular`; ValueError if it is none."""
    try:
        return json.loads(read_regular(path))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
