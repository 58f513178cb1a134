"""What compilers for GPUs have beside C++, as C++: inline PTX, `__shared__ alignas(16)`, and Clang's pointers into
AMD's shared memory.

An asm statement of single instructions that kernels/emulator/program/ptx.h has becomes calls. What has another
instruction, a register of its own or a label stays as it is, and is refused later (refusals.py).
"""

import re
from functools import cache

from hw4cli.emulator.program.launches import blanked
from hw4cli.resources import data_path

_ASM = re.compile(r"\b(?:__asm__|__asm|asm)\b\s*(?:volatile\b|__volatile__\b)?\s*\(")
_STRING = re.compile(r'\s*"((?:\\.|[^"\\])*)"')
_OPERAND = re.compile(r'\s*(?:\[\w+\]\s*)?"[^"]*"\s*\((.*)\)\s*', re.S)
_INSTRUCTION = re.compile(r"(?P<name>[a-z][\w.]*(?:::\w+)*)(?:\s+(?P<operands>.*))?", re.S)
_TOKEN = re.compile(r"%(?P<number>\d+)(?:\s*\+\s*(?P<more>\d+))?|(?P<literal>0x[0-9a-fA-F]+|-?\d+)")
_SHARED = re.compile(
    r"(\bconst\s+)?__attribute__\s*\(\(\s*address_space\s*\(\s*3\s*\)\s*\)\)\s*((?:const\s+)?\w+)\s*\*"
)
# C++ takes alignas in front of all other words of a declaration alone. What __shared__ is, prelude.h says.
_ALIGNAS = re.compile(r"(\bthread_local __attribute__\(\([^\n;]*?used\)\)\s*)alignas\s*\(((?:[^()]|\([^()]*\))*)\)")
_VECTOR = re.compile(r"\btypedef\s+(\w+)\s+(\w+)\s+__attribute__\s*\(\(\s*ext_vector_type\s*\(\s*(\d+)\s*\)\s*\)\)")
_QUALIFIERS = re.compile(r"\.L2::(?:64B|128B|256B)")  # hints that change no result


@cache
def known() -> frozenset[str]:
    """The instructions that are there, as the functions' names are spelt."""
    text = data_path("kernels/emulator/program/ptx.h").read_text(encoding="utf-8")
    return frozenset(re.findall(r"inline void (\w+)\(", text))


def with_instructions(text: str) -> str:
    """A preprocessed text with calls in place of the asm statements that are understood, and with classes in place of
    Clang's attributes. Lines stay where they were."""
    text = _SHARED.sub(lambda match: f"hw4::Shared<{match[1] or ''}{match[2]}>", text)
    text = _ALIGNAS.sub(r"\1__attribute__((aligned(\2)))", text)
    text = _VECTOR.sub(r"typedef \1 \2 __attribute__((vector_size(\3 * sizeof(\1))))", text)
    if "asm" not in text:
        return text
    plain = blanked(text)
    pieces, done = [], 0
    for match in _ASM.finditer(plain):
        end = _closing(plain, match.end() - 1)
        calls = _calls(text[match.end() : end - 1], plain[match.end() : end - 1])
        if calls is not None:
            lines = "\n" * (text.count("\n", match.start(), end) - calls.count("\n"))
            pieces += [text[done : match.start()], calls, lines]
            done = end
    return "".join([*pieces, text[done:]])


def _closing(plain: str, at: int) -> int:
    """Behind the parenthesis that closes the one at `at`; the text's end if none does."""
    depth = 0
    for i in range(at, len(plain)):
        depth += (plain[i] == "(") - (plain[i] == ")")
        if not depth:
            return i + 1
    return len(plain)


def _split(text: str, plain: str, at: str) -> list[str]:
    """The text cut at a character outside of brackets and strings."""
    pieces, depth, begin = [], 0, 0
    for i, letter in enumerate(plain):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == at and not depth:
            pieces.append(text[begin:i])
            begin = i + 1
    return [*pieces, text[begin:]]


def _calls(text: str, plain: str) -> str | None:
    """The calls of an asm statement's instructions, separated by commas; None if one is not there."""
    words, at = [], 0
    while string := _STRING.match(text, at):
        words.append(string[1])
        at = string.end()
    template = re.sub(r"\\[nt]", " ", "".join(words))
    sections = _split(text[at:], plain[at:], ":")[1:3]  # what is written, what is read; then, what it clobbers
    operands = []
    for section in sections:
        for operand in _split(section, blanked(section), ","):
            if found := _OPERAND.fullmatch(operand):
                operands.append(f"({found[1]})")
            elif operand.strip():
                return None
    calls = []
    for one in filter(None, map(str.strip, template.split(";"))):
        instruction = _INSTRUCTION.fullmatch(one)
        if not instruction:
            return None
        name = re.sub(r"\W+", "_", _QUALIFIERS.sub("", instruction["name"]))
        arguments = _arguments(instruction["operands"] or "", operands)
        if name not in known() or arguments is None:
            return None
        calls.append(f"hw4_ptx::{name}({', '.join(arguments)})")
    return f"({', '.join(calls)})" if calls else "(void)0"


def _arguments(text: str, operands: list[str]) -> list[str] | None:
    """An instruction's operands as C++; None if one is neither an operand of the statement nor a number."""
    found = []
    for word in filter(None, (word.strip() for word in re.sub(r"[\[\]{}]", " ", text).split(","))):
        token = _TOKEN.fullmatch(word)
        if not token or (token["number"] and int(token["number"]) >= len(operands)):
            return None
        number = token["number"]
        found.append(token["literal"] or operands[int(number)] + (f" + {token['more']}" if token["more"] else ""))
    return found
