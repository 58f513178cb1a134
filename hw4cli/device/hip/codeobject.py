"""What machine code for AMD's GPUs says of its kernels: registers, shared memory (LDS), spills.

A code object is an ELF file; a note in it (NT_AMDGPU_METADATA) holds a MessagePack map, whose keys are those of LLVM's
AMDGPU back end (code object versions 3 to 5).
"""

import struct
from dataclasses import dataclass
from typing import Any

from hw4cli.errors import MachineError

SECTIONS = struct.Struct("<40xQ10xHHH")  # of the ELF header: where the sections' headers lie, their size and number
SECTION = struct.Struct("<4xI16xQQ")  # type, offset, size
NOTE = struct.Struct("<III")  # bytes of the name and of the content, type
NOTES, METADATA = 7, 32  # the types of such a section and of such a note


@dataclass(frozen=True)
class CodeResources:
    """What a kernel uses: registers of a lane, those of the matrix cores (accumulation) included; how many of them are
    such; bytes of a lane that lie in memory instead; bytes of LDS of a block, without dynamic ones; lanes of a wave."""

    registers: int
    accumulation: int
    spilled: int
    shared: int
    lanes: int


def kernels_of(code: bytes) -> dict[str, CodeResources]:
    """What each kernel of a code object uses, by its symbol. Raises MachineError if it is none, or is damaged."""
    try:
        kernels = _metadata(code)["amdhsa.kernels"]
        return {
            kernel[".name"]: CodeResources(
                kernel[".vgpr_count"],
                kernel.get(".agpr_count", 0),
                kernel[".private_segment_fixed_size"],
                kernel[".group_segment_fixed_size"],
                kernel[".wavefront_size"],
            )
            for kernel in kernels
        }
    except (struct.error, LookupError, TypeError, ValueError):
        raise MachineError("what the compiler made is not a code object of AMD's, or is damaged") from None


def _metadata(code: bytes) -> Any:
    if code[:5] != b"\x7fELF\2":
        raise ValueError
    table, size, count, _ = SECTIONS.unpack_from(code)
    for index in range(count):
        kind, offset, length = SECTION.unpack_from(code, table + index * size)
        end = offset + length if kind == NOTES else offset
        while offset < end:
            name, content, which = NOTE.unpack_from(code, offset)
            begin = offset + NOTE.size + _whole(name)
            if which == METADATA:
                return _value(code, begin)[0]
            offset = begin + _whole(content)
    raise LookupError


def _whole(size: int) -> int:
    """Notes are padded to four bytes."""
    return (size + 3) // 4 * 4


# MessagePack's types whose size, or value, is in the next bytes.
SIZED = {
    **{0xD9: ("str", "B"), 0xDA: ("str", "H"), 0xDB: ("str", "I"), 0xDC: ("list", "H"), 0xDD: ("list", "I")},
    **{0xDE: ("map", "H"), 0xDF: ("map", "I"), 0xCC: ("int", "B"), 0xCD: ("int", "H"), 0xCE: ("int", "I")},
    **{0xCF: ("int", "Q"), 0xD0: ("int", "b"), 0xD1: ("int", "h"), 0xD2: ("int", "i"), 0xD3: ("int", "q")},
}


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """A value of MessagePack's, and where the next one begins."""
    head = data[at]
    at += 1
    if head < 0x80:
        return head, at
    if head >= 0xE0:
        return head - 256, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if head < 0xC0:
        kind, count = ("map", head & 15) if head < 0x90 else ("list", head & 15) if head < 0xA0 else ("str", head & 31)
    else:
        kind, code = SIZED[head]
        (count,) = struct.unpack_from(f">{code}", data, at)
        at += struct.calcsize(code)
    if kind == "int":
        return count, at
    if kind == "str":
        return data[at : at + count].decode(), at + count
    values = []
    for _ in range(2 * count if kind == "map" else count):
        value, at = _value(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind == "map" else values), at
