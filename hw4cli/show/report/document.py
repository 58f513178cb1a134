"""A report's text, which two write: hw4 between its marks, the author everywhere else.

    <!-- hw4: ladder 3f2a9c1b -->
    (what hw4 made of the records)
    <!-- hw4: end -->

The digits are a fingerprint of what stands between the marks: by it an edit there is noticed before it would be lost.
A blank, which only its author can fill in, is a line `> FILL IN: question`; what lacks a record, a line
`> MISSING: reason`.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from hw4cli.text import tables

HEAD = re.compile(r"\A\ufeff?<!-- hw4 report: (.*?) -->\r?\n")
BLOCK = re.compile(
    r"^<!-- hw4: (\S+) ([0-9a-f]{8}) -->\r?\n(.*?)^<!-- hw4: end -->[ \t]*\r?$", re.MULTILINE | re.DOTALL
)
MARK = re.compile(r"^<!-- hw4: .*", re.MULTILINE)
PLACE = re.compile(r"^<!-- hw4: (\S+) -->$", re.MULTILINE)  # in a template: where a block goes
STEPS = "<!-- hw4: new steps go above this line -->"
MISSING = re.compile(r"^> MISSING: *(.*?)\s*$", re.MULTILINE)
BLANK = re.compile(r"^> FILL IN: *(.*?)\s*$", re.MULTILINE)
HEADING = re.compile(r"^#{1,3} +(.*?)\s*$", re.MULTILINE)  # those below are parts of a section
IMAGE = re.compile(r'!\[((?:\\.|[^\]\\])*)\]\(<?([^)>"]*?)>?(?:\s+"[^"]*")?\)')
FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
NUMBERS = re.compile(rf"(?:{tables.NUMBER.pattern})( to (?:{tables.NUMBER.pattern}))?")  # or an interval
UNIMPORTANT = re.compile(r"[\s|:-]+")  # what a program that tidies Markdown changes


@dataclass(frozen=True)
class Found:
    """Something in a text: the number of its line, from 1, and its words."""

    line: int
    words: str


@dataclass(frozen=True)
class Block:
    """What stands between two marks. It is `edited` if it is not what hw4 wrote there."""

    name: str
    content: str
    edited: bool
    line: int


def block(name: str, content: str) -> str:
    """A block's text, marks included."""
    content = f"{content.strip()}\n"
    return f"<!-- hw4: {name} {_fingerprint(content)} -->\n{content}<!-- hw4: end -->"


def missing(sentence: str) -> str:
    """What stands in a block where there is nothing to make it of."""
    return f"> MISSING: {sentence}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; a column of numbers stands to the right."""
    numbers = [all(NUMBERS.fullmatch(row[place]) for row in rows) for place in range(len(header))]
    sides = ["---:" if number else "---" for number in numbers]
    lines = tables.markdown(header, rows).splitlines()
    return "\n".join([lines[0], f"| {' | '.join(sides)} |", *lines[2:]])


def key_of(name: str) -> str:
    """The name of a kernel or a program in the name of a block, which has no spaces."""
    return quote(name, safe="./_-")


def _fingerprint(content: str) -> str:
    return hashlib.sha256(UNIMPORTANT.sub("", content).encode()).hexdigest()[:8]


def blocks(text: str) -> list[Block]:
    """The blocks of a text, in its order."""
    return [
        Block(match[1], match[3], _fingerprint(match[3]) != match[2], _line(text, match.start()))
        for match in BLOCK.finditer(text)
    ]


def damaged_marks(text: str) -> list[Found]:
    """The marks that neither begin nor end a block, as when one of the two was deleted."""
    spans = [match.span() for match in BLOCK.finditer(text)]
    starts = {start for start, _ in spans}
    found = []
    for match in MARK.finditer(text):
        inside = any(start < match.start() < end for start, end in spans)
        ends_block = inside and match[0].startswith("<!-- hw4: end")
        if match.start() not in starts and not ends_block and not match[0].startswith(STEPS):
            found.append(Found(_line(text, match.start()), match[0].strip()))
    return found


def settings(text: str) -> dict[str, str] | None:
    """What the first line of a report says of it (form, kernel, case); None if hw4 did not begin this text."""
    match = HEAD.match(text)
    words = [word.partition("=") for word in match[1].split()] if match else []
    return {key: unquote(value) for key, _, value in words} if match else None


def with_settings(text: str, values: Mapping[str, str]) -> str:
    """The text with this first line instead of its own."""
    words = " ".join(f"{key}={quote(value, safe='./_,-')}" for key, value in values.items() if value)
    return f"<!-- hw4 report: {words} -->\n{HEAD.sub('', text)}"


def begun(template: str, content: Callable[[str], str]) -> str:
    """A new text from a template, with every block filled in."""
    return PLACE.sub(lambda match: block(match[1], content(match[1])), template)


def refilled(text: str, contents: Mapping[str, str]) -> str:
    """The text with other contents in the blocks of these names; everything else stays, byte for byte."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] not in contents:
            return match[0]
        new = block(match[1], contents[match[1]])
        same = _fingerprint(match[3]) == match[2] and new.partition("\n")[0] == match[0].partition("\n")[0].rstrip()
        return match[0] if same else new

    return BLOCK.sub(replaced, text)


def with_new_step(text: str, step: str) -> str:
    """The text with a step where new ones go; as it is if its author has deleted that place."""
    return text.replace(STEPS, f"{step.strip()}\n\n{STEPS}", 1)


def blanks(text: str) -> list[Found]:
    """The questions that still wait for an answer."""
    return _found(BLANK, _without_code(text))


def lacking(text: str) -> list[Found]:
    """What hw4 had no record for."""
    return _found(MISSING, _without_code(text))


def headings(text: str) -> list[Found]:
    """The headings, without their #."""
    return _found(HEADING, _without_code(text))


def images(text: str) -> list[tuple[Found, str]]:
    """The pictures: line and caption, and the file's name."""
    plain = _without_code(text)
    return [
        (Found(_line(plain, match.start()), match[1]), unquote(match[2].strip())) for match in IMAGE.finditer(plain)
    ]


def section_at(text: str, line: int) -> str:
    """The number of the section that a line stands in, such as "1.a"; its whole heading if that has none."""
    before = [one.words for one in headings(text) if one.line <= line]
    return number_of(before[-1]) or before[-1] if before else ""


def own_words(text: str, number: str) -> str:
    """What a section holds beside its heading, blocks and comments: its author's words. Its subsections are not it."""
    lines = text.splitlines(keepends=True)
    places = [one.line for one in headings(text)]
    start = next(one.line for one in headings(text) if number_of(one.words) == number)
    end = next((line - 1 for line in places if line > start), len(lines))
    return COMMENT.sub("", BLOCK.sub("", "".join(lines[start:end]))).strip()


def number_of(heading: str) -> str:
    """The number that a heading begins with, such as "3.b" or "2"; empty if there is none."""
    match = re.match(r"(\d+(?:\.[a-z])?)[.)]?(?=\s|$)", heading)
    return match[1] if match else ""


def _found(pattern: re.Pattern[str], text: str) -> list[Found]:
    return [Found(_line(text, match.start()), match[1]) for match in pattern.finditer(text)]


def _without_code(text: str) -> str:
    """The text with its fenced blocks of code emptied: what stands in them is no heading and no blank."""
    return FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
