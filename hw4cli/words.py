"""Words for people: what comes from outside made printable, numbers with their nouns, sentences on stderr."""

import sys


def printable(text: object) -> str:
    """Text that cannot steer the terminal that shows it, in one line: a file's name may hold any character."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: "1 case", "2,000 cases"; `plural` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def tell(sentence: object) -> None:
    """Print a sentence, which may quote anything, as the command's own on stderr."""
    if sys.stderr:
        print(f"hw4: {printable(sentence)}", file=sys.stderr, flush=True)
