"""CUDA's launches as C++: kernel<<<grid, block, shared, stream>>>(x, y) becomes a call.

The scanner knows comments, strings and brackets, and no more of C++. Lines stay where they were.
"""

import re

from hw4cli.errors import InputError

_SKIPPED = re.compile(
    r'R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|//[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.S,
)
_OPENING = re.compile(r"<<\s?<")
_CLOSING = re.compile(r">>\s?>|>\s?>>")
_ANY_POINTER = re.compile(
    r"(\bcudaLaunch(?:Cooperative)?Kernel\s*\()[^\S\n]*\([^\S\n]*(?:const[^\S\n]+)?void[^\S\n]*(?:const[^\S\n]*)?\*[^\S\n]*\)"
)
# A line mark's file: compilers put a backslash before each quote and backslash of its name.
MARKED_FILE = r'"((?:[^"\\]|\\.)*)"'
_LINE_MARK = re.compile(rf"^#\s*(?:line\s+)?(\d+)\s+{MARKED_FILE}", re.M)


def named_by(marked: str) -> str:
    """A file's name, as it is, from what a line mark has between its quotes."""
    return re.sub(r"\\(.)", r"\1", marked)


def blanked(text: str) -> str:
    """The text with comments and the contents of strings as blanks: positions stay the same."""
    pieces, end = [], 0
    for match in _SKIPPED.finditer(text):
        start, stop = match.span()
        quoted = text[start] in "\"'R"
        inner = slice(start + 1, stop - 1) if quoted else slice(start, stop)
        pieces += [text[end : inner.start], re.sub(r"[^\n]", " ", text[inner])]
        end = inner.stop
    return "".join([*pieces, text[end:]])


def place_in(text: str, at: int, name: str) -> str:
    """The file and line of a position, by the line marks before it; `name` is the file where there are none."""
    marks = [*_LINE_MARK.finditer(text, 0, at)]
    if not marks:
        return f"{name}:{text.count(chr(10), 0, at) + 1}"
    mark = marks[-1]
    line = int(mark[1]) + text.count("\n", mark.end(), at) - 1
    return f"{named_by(mark[2]).rsplit('/', 1)[-1]}:{line}"


def with_types(text: str) -> str:
    """The text with kernels as such where CUDA's functions take any pointer: cudaLaunchKernel((void*)kernel, ...)."""
    return _ANY_POINTER.sub(lambda match: match[1] + " " * (match.end() - match.end(1)), text)


def with_calls(text: str, name: str) -> tuple[str, int]:
    """The text with every launch as a call of hw4::Kernel (kernels/emulator/program/api.h), and how many there were.

    Raises InputError for what begins as a launch and is none.
    """
    text = with_types(text)
    plain = blanked(text)
    pieces, done, count = [], 0, 0
    position = 0
    while opening := _OPENING.search(plain, position):
        try:
            end = _end_of_configuration(plain, opening.end())
            bracket = _next(plain, end)
            if plain[bracket : bracket + 1] != "(":
                raise ValueError("no arguments in parentheses follow >>>")
            close = _closing(plain, bracket)
            first = _begin_of_name(plain, opening.start())
            if first < done or not plain[first : opening.start()].strip():
                raise ValueError("no kernel's name is before <<<")
        except (ValueError, IndexError) as error:
            reason = str(error) if isinstance(error, ValueError) else "it does not end"
            raise InputError(
                f"{place_in(text, opening.start(), name)}: this launch is not understood: {reason}"
            ) from None
        kernel = text[first : opening.start()].strip()
        shown = re.sub(r"\s+", " ", kernel).replace("\\", "").replace('"', "'")
        head = f'hw4::Kernel{{"{shown}", {{__builtin_FILE(), __builtin_LINE()}}}}.with('
        configuration = _with_calls_inside(text[opening.end() : _begin_of_closing(plain, end)], name)
        arguments = _with_calls_inside(text[bracket + 1 : close], name)
        call = f"{head}{configuration})([=](auto&... hw4_a) {{ {kernel}(hw4_a...); }}"
        call += f", {arguments})" if plain[bracket + 1 : close].strip() else ")"
        # What is between the name and the arguments may have had line breaks that `kernel` has lost.
        lost = text.count("\n", first, close) - call.count("\n")
        pieces += [text[done:first], call, "\n" * max(lost, 0)]
        done = position = close + 1
        count += 1
    return "".join([*pieces, text[done:]]), count


def _with_calls_inside(text: str, name: str) -> str:
    return with_calls(text, name)[0] if "<<" in text else text


def _end_of_configuration(plain: str, at: int) -> int:
    """Behind the first >>> outside of brackets."""
    depth = 0
    while True:
        if depth == 0 and (found := _CLOSING.match(plain, at)):
            return found.end()
        depth += (plain[at] in "([{") - (plain[at] in ")]}")
        if depth < 0 or (plain[at] == ";" and depth == 0):
            raise ValueError("no >>> belongs to the <<<")
        at += 1


def _begin_of_closing(plain: str, end: int) -> int:
    at = end
    for _ in range(3):
        at -= 1
        while plain[at] != ">":
            at -= 1
    return at


def _next(plain: str, at: int) -> int:
    while at < len(plain) and plain[at].isspace():
        at += 1
    return at


def _closing(plain: str, at: int) -> int:
    """Where the bracket that opens at `at` is closed."""
    pair = plain[at], {"(": ")", "[": "]", "{": "}"}[plain[at]]
    depth = 0
    for i in range(at, len(plain)):
        depth += (plain[i] == pair[0]) - (plain[i] == pair[1])
        if depth == 0:
            return i
    raise ValueError(f"no {pair[1]} closes the {pair[0]}")


def _begin_of_name(plain: str, end: int) -> int:
    """Where the kernel's name, with its template arguments and namespaces, begins that ends before `end`."""
    at = _back(plain, end)
    if plain[at - 1] == ">":
        at = _back(plain, _opening(plain, at - 1, "<>"))
    if plain[at - 1] in ")]":  # (*pointer)<<<...>>>, table[i]<<<...>>>
        pair = "()" if plain[at - 1] == ")" else "[]"
        at = _opening(plain, at - 1, pair)
        if pair == "()":
            return at
    while at and (re.match(r"[\w:.]", plain[at - 1]) or plain[at - 2 : at] == "->"):
        at -= 1
    return at


def _back(plain: str, at: int) -> int:
    while at and plain[at - 1].isspace():
        at -= 1
    return at


def _opening(plain: str, at: int, pair: str) -> int:
    depth = 0
    while at >= 0:
        depth += (plain[at] == pair[1]) - (plain[at] == pair[0])
        if depth == 0:
            return at
        at -= 1
    raise ValueError(f"no {pair[0]} opens the {pair[1]}")
