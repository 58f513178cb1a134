"""Due dates, time stamps, and durations in words."""

from datetime import UTC, datetime, time


def today() -> str:
    """The date in UTC, as records have it: 2026-05-01."""
    return datetime.now(UTC).date().isoformat()


def due_date(text: str) -> datetime:
    """A time such as 2026-05-01T18:00, in this machine's time zone unless it names one; a day alone means its end.

    ValueError if it is not a date, or out of range.
    """
    moment = datetime.fromisoformat(text)
    if len(text) <= len("2026-05-01"):
        moment = datetime.combine(moment, time(23, 59, 59))
    try:
        return moment if moment.tzinfo else moment.astimezone()
    except (OverflowError, OSError) as error:
        raise ValueError(str(error)) from None


def from_timestamp(stamp: float) -> datetime | None:
    """A file's time stamp as a date, to the second; None if it is out of range."""
    try:
        return datetime.fromtimestamp(int(stamp), UTC)
    except (OverflowError, OSError, ValueError):
        return None


def parse_timestamp(text: object) -> datetime | None:
    """A date in a journal, with its time zone; None if it is no such date."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def duration(seconds: float) -> str:
    """A duration in words: "40 s", "3 min", "2 h 5 min", "3 days 4 h"."""
    whole = round(seconds)
    for name, size, part, part_size in (("day", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "", 0)):
        if whole >= size:
            count, rest = divmod(whole, size)
            more = rest // part_size if part_size else 0
            plural = "s" if name == "day" and count > 1 else ""
            return f"{count} {name}{plural}" + (f" {more} {part}" if more else "")
    return f"{whole} s"
