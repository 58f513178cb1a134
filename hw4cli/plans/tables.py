"""Tables in a plan's scratch memory, as launches write them where a CUDA graph is captured (kernels/tablewriter.cu)."""

import struct
from collections.abc import Iterator

from hw4cli.plans.plan import Kernel, Launch, Plan

MOST_WORDS, THREADS, WORD = 1004, 256, 4  # of a launch; kernels/tablewriter.cu
WRITER = Kernel("tablewriter", "tables of sequences, written by launches that are passed them")
LAUNCH = Launch(WRITER.name, 1, THREADS, 0)
CODE = Plan(WRITER.name, {}, (LAUNCH,))
_HEAD = struct.Struct("<Qii")  # TablePart before its words


def written(table: bytes, at: int) -> Iterator[bytes]:
    """The one argument of each launch that writes a part of a table of whole words to its place; it begins at an
    address."""
    most = MOST_WORDS * WORD
    for start in range(0, len(table), most):
        part = table[start : start + most]
        yield _HEAD.pack(at + start, len(part) // WORD, 0) + part.ljust(most, b"\0")
