"""Words for people: printable whatever they quote, numbers with their nouns, lines as wide as the terminal."""

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

FALLBACK_COLUMNS = 80  # of a terminal whose width is unknown
# A command in backquotes is for copying, and stays whole; compilers quote `so', which is none.
WORD = re.compile(r"\s*(?:`[^`']*`\S*|\S+)")


def printable(text: object) -> str:
    """Text that cannot steer the terminal that shows it, in one line: a file's name may hold any character."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: "1 case", "2,000 cases"; `plural` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def columns(stream: TextIO | None) -> int | None:
    """The width of the terminal behind a stream, COLUMNS if that is set; None where there is no terminal, but a file or
    a program that wants lines whole."""
    if stream is None or not stream.isatty():
        return None
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    with suppress(OSError):
        return os.get_terminal_size(stream.fileno()).columns or FALLBACK_COLUMNS
    return FALLBACK_COLUMNS


def wrapped(text: str, width: int | None, indent: str = "", first: str | None = None) -> str:
    """Text in lines of at most `width` columns that break between words, each behind `indent` (the first behind
    `first`). A word that is longer stays whole: a number or a path that is cut is none."""
    lines = [indent if first is None else first]
    for place, word in enumerate(WORD.findall(text.rstrip())):  # spaces at the end would take quadratic time
        if place and width is not None and len(lines[-1]) + len(word) > width:
            lines.append(indent)
            word = word.lstrip()
        lines[-1] += word
    return "\n".join(lines)


def print_message(sentence: object) -> None:
    """Print a sentence, which may quote anything, as the command's own on stderr."""
    if sys.stderr:
        text = wrapped(printable(sentence), columns(sys.stderr), " " * 5, first="hw4: ")
        print(text, file=sys.stderr, flush=True)
