"""Text for people: safe to print, numbers with their nouns, lines as wide as the terminal."""

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

FALLBACK_COLUMNS = 80  # of a terminal whose width is unknown
# A command in backquotes is for copying, and stays whole; compilers quote `so', which is no command.
WORD = re.compile(r"\s*(?:`[^`']*`\S*|\S+)")


def printable(text: object) -> str:
    """Text in one line, without control characters, which could steer the terminal: a file's name may hold any."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: "1 case", "2,000 cases"; `plural` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def columns(stream: TextIO | None) -> int | None:
    """The width of the terminal behind a stream, COLUMNS if that is set; None for a file or a pipe, where
    lines stay whole."""
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
    `first`). A longer word stays whole: a number or a path must not be cut."""
    lines = [indent if first is None else first]
    for place, word in enumerate(WORD.findall(text.rstrip())):  # spaces at the end would take quadratic time
        if place and width is not None and len(lines[-1]) + len(word) > width:
            lines.append(indent)
            word = word.lstrip()
        lines[-1] += word
    return "\n".join(lines)


def print_message(sentence: object) -> None:
    """Print a message of the command on stderr; it may quote anything."""
    if sys.stderr:
        text = wrapped(printable(sentence), columns(sys.stderr), " " * 5, first="hw4: ")
        print(text, file=sys.stderr, flush=True)
