"""What was found while a kernel ran, as sentences that name files and lines."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hw4cli.resources import data_path

NO_BLOCK = 0xFFFFFFFF  # what the host did
WIDER = "__syncthreads() is missing"  # which helps where __syncwarp() would, and beyond
VARIABLE = re.compile(r"\{0x([0-9a-f]+):(\d+)\}")  # a variable at that offset, and the bytes of its elements
PLACE = re.compile(r"\{(0x[0-9a-f]+)\}")  # a place in a finding's text, beside {0} and {1}


@dataclass(frozen=True)
class Raw:
    """A finding as the runtime has it: {0} and {1} in its text stand for two places in the shared object, {0x...} for
    the one at that offset."""

    kind: str
    text: str
    pc: tuple[int, ...]
    times: int
    block: int
    story: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One mistake: its kind ("race", "out of bounds" and so on), a sentence, and how often it was seen.

    `story`: where the order of blocks or warps matters, what one after the other does, a line each.
    """

    kind: str
    sentence: str
    times: int = 1
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = f" ({self.times:,} times)" if self.times > 1 else ""
        return f"{self.kind}: {self.sentence}{more}"


def findings_of(path: Path, found: Sequence[Raw]) -> tuple[Finding, ...]:
    """The findings in words, those of the same kind at the same lines as one."""
    named = {int(text, 16) for raw in found for text in PLACE.findall("\n".join([raw.text, *raw.story]))}
    lines = places(path, named | {pc for raw in found for pc in raw.pc if pc})
    variables = variables_of(path) if any(VARIABLE.search(line) for raw in found for line in raw.story) else {}
    merged: dict[object, Finding] = {}
    for raw in found:
        where = [lines.get(pc, "?") for pc in raw.pc]
        block = "" if raw.block == NO_BLOCK or raw.text.startswith("block ") else f"block {raw.block}, "
        text = PLACE.sub(lambda match: lines.get(int(match[1], 16), "?"), raw.text).replace(" at ??:?", "")
        sentence = block + text.replace("{0}", where[0]).replace("{1}", where[1])
        key = (raw.kind, *where) if raw.pc[0] else (raw.kind, *re.findall(r"[\w.-]+:\d+", raw.text))
        old = merged.get(key)
        if old and WIDER not in sentence:
            sentence = old.sentence
        story = tuple(
            VARIABLE.sub(
                lambda match: _element(variables, int(match[1], 16), int(match[2])),
                PLACE.sub(lambda match: lines.get(int(match[1], 16), "?"), line),
            )
            for line in raw.story
        )
        merged[key] = Finding(raw.kind, sentence, raw.times + (old.times if old else 0), old.story if old else story)
    return tuple(merged.values())


def variables_of(path: Path) -> dict[str, tuple[int, int]]:
    """A program's variables: where each begins, and its bytes. Nothing where nm is missing."""
    try:
        words = ["nm", "--defined-only", "--print-size", "--demangle", str(path)]
        listed = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    fields = [line.split(maxsplit=3) for line in listed.splitlines()]
    data = [field for field in fields if len(field) == 4 and field[2] in "bBdD"]
    return {name: (int(begin, 16), int(size, 16)) for begin, size, _, name in data}


def _element(variables: dict[str, tuple[int, int]], at: int, bytes_of_one: int) -> str:
    """What lies at an address: "flag", or "sums[3]" of a variable with several elements."""
    for name, (begin, size) in variables.items():
        if begin <= at < begin + size:
            return name if size == bytes_of_one else f"{name}[{(at - begin) // max(bytes_of_one, 1)}]"
    return "a __device__ variable"


def is_runtime(frame: str) -> bool:
    """Whether a line is the runtime's or the system's, and not the kernel's own."""
    standing_in = {path.name for path in data_path("kernels/emulator/headers").iterdir()}
    return "/kernels/emulator/" in frame or frame.startswith("/usr/") or _file(frame).split(":")[0] in standing_in


def _file(frame: str) -> str:
    return re.sub(r" \(discriminator \d+\)$", "", frame.rsplit("/", 1)[-1])


def places(path: Path, addresses: Iterable[int]) -> dict[int, str]:
    """The lines of return addresses in a shared object, as "flash.cu:117, called at flash.cu:160"."""
    wanted = sorted(addresses)
    found = frames_of(path, wanted)
    if wanted and not found:
        return {address: f"offset {address:#x}" for address in wanted}
    lines: dict[int, str] = {}
    for address, frames in found.items():
        kernel = [_file(frame) for frame in frames if not is_runtime(frame)] or [_file(frame) for frame in frames]
        lines[address] = kernel[0] + (f", called at {kernel[1]}" if len(kernel) > 1 else "")
    return lines


def frames_of(path: Path, addresses: Iterable[int]) -> dict[int, list[str]]:
    """The lines of return addresses in a shared object, as "/.../flash.cu:117": where the code stands, then where that
    is called, as far as calls are inlined. Nothing where addr2line is missing."""
    wanted = [hex(address - 1) for address in sorted(addresses)]
    try:
        words = ["addr2line", "-a", "-i", "-e", str(path)]
        text = subprocess.run(
            words, input="\n".join(wanted), capture_output=True, text=True, errors="replace", check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    chunks = re.split(r"^0x", text, flags=re.MULTILINE)[1:]
    return {int(first, 16) + 1: frames for first, *frames in map(str.splitlines, chunks)}
