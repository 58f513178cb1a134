"""Bars of letters, to compare numbers on a terminal at a glance."""

from typing import TextIO

EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int, blocks: bool) -> str:
    """A bar of `share` (0 to 1) of so many columns: of blocks, in eighths of a column, or of the letter #.

    >>> bar(0.5, 8, blocks=False)
    '####'
    """
    share = min(1.0, max(0.0, share))
    if not blocks:
        return "#" * round(share * width)
    whole, part = divmod(round(8 * share * width), 8)
    return ("█" * whole + EIGHTHS[part]).rstrip()


def shares(values: list[float | None]) -> list[float | None]:
    """Each value as a share of the largest; None where there is no value."""
    largest = max((value for value in values if value is not None), default=0.0)
    return [value / largest if value is not None and largest > 0 else None for value in values]


def shows_blocks(stream: TextIO | None) -> bool:
    """Whether the stream's encoding has the letters of bars."""
    try:
        EIGHTHS.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
