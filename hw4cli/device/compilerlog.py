"""Messages of NVRTC, ptxas and hiprtc about a source, and the kernels in machine code."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hw4cli.resources import is_own_kernel

VERBOSE = "--ptxas-options=-v"  # makes the log show what each kernel uses

# mine.cu(31): error: identifier "foo" is undefined, and below it the line of source.
ERROR = re.compile(r"^(\S.*)\((\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (.*)\n?(.*)", re.MULTILINE)
# mine.cu:31:9: error: use of undeclared identifier 'foo', as Clang has it, HIP's compiler.
CLANGS_ERROR = re.compile(r"^(\S.*?):(\d+):\d+: (?:fatal )?error: (.*)\n?(.*)", re.MULTILINE)
OTHER_ERROR = re.compile(r"\b(?:error|fatal) *: (.*)")
USAGE = re.compile(
    r"Function properties for (\w+)\n[^\n]* (\d+) bytes spill stores, (\d+) bytes spill loads"
    r"(?:\n(?!.*Function properties).*)*?Used (\d+) registers(?:.*?, (\d+) bytes smem)?"
)
# A section of a kernel's constants in a cubin, its beginning in PTX, or its descriptor in a code object of AMD's.
ENTRY = re.compile(rb"\.nv\.constant0\.(\w+)\0|\.entry\s+(\w+)\s*\(|\0(\w+)\.kd(?=\0)")
TOO_MUCH_SHARED = re.compile(r"Entry function '(\w+)' uses too much shared data \((\w+) bytes, (\w+) max\)")
UNDEFINED = re.compile(r"Unresolved extern function '(\w+)'")
MANGLED = re.compile(r"_Z(\d+)(\w+)")  # the length of a name, the name, the types of its parameters
HEADER = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
STATIC_ASSERTION = re.compile(r'static assertion failed with "(.*)"')


@dataclass(frozen=True)
class Usage:
    """What a kernel uses, as ptxas reports it: registers a thread, bytes spilled, static shared bytes a block."""

    registers: int
    spilled: int
    shared: int


def usage(log: str) -> dict[str, Usage]:
    """What each kernel of a log uses, by its symbol."""
    found = USAGE.findall(log)
    return {name: Usage(int(count), int(out) + int(back), int(shared or 0)) for name, out, back, count, shared in found}


def entry_points(code: bytes) -> list[str]:
    """The kernels of machine code or PTX, sorted. C++ names are as the compiler mangles them."""
    return sorted({(native or ptx or amd).decode() for native, ptx, amd in ENTRY.findall(code)})


def missing_symbol(there: Sequence[str], symbols: Iterable[str], unlisted: Iterable[str] = ()) -> str | None:
    """If code lacks a symbol, a predicate of the kernel: the symbol, and those that are `there`, but `unlisted`.

    None if all symbols are there.
    """
    missing = next((symbol for symbol in symbols if symbol not in there), None)
    if missing is None:
        return None
    if any(name.startswith(f"_Z{len(missing)}{missing}") for name in there):
        return f'has {missing} under a C++ name only: write extern "C" before its __global__'
    names = [name for name in there if name not in unlisted and not name.startswith("_Z")]
    return f"has no kernel {missing}: it has {', '.join(sorted(names)) or 'none'}"


def first_error(log: str, kernel: str) -> str:
    """A log's first error in plain words: `mine.cu:31: identifier "foo" is undefined: float s = foo;`.

    `kernel` is the path of a user's file: errors in it, or in a header beside it, are shown with their path.
    """
    match = ERROR.search(log) or CLANGS_ERROR.search(log)
    if not match:
        other = OTHER_ERROR.search(log)
        return _plain(other[1]) if other else (log.strip().splitlines() or ["the compiler gives no reason"])[0]
    file, line, words, source = match.groups()
    beside = Path(kernel).parent / file
    where = str(beside) if is_own_kernel(kernel) and beside.is_file() else file
    return f"{where}:{line}: {_plain(words)}" + (f": `{source.strip()}`" if source.strip() else "")


def _plain(words: str) -> str:
    """The compiler's message in plain words."""
    if match := HEADER.search(words):
        return f"there is no header {match[1]} beside the file or among hw4's own (CUDA's and C's are not there)"
    if match := STATIC_ASSERTION.search(words):
        return match[1]
    if match := TOO_MUCH_SHARED.search(words):
        symbol, wanted, most = match[1], int(match[2], 16), int(match[3], 16)
        return f"{symbol} declares {wanted:,} bytes of __shared__ variables, where {most:,} are the most"
    if match := UNDEFINED.search(words):
        mangled = MANGLED.fullmatch(match[1])
        name = mangled[2][: int(mangled[1])] if mangled else match[1]
        return f"the function {name} is declared and called, but defined nowhere"
    return words.strip()
