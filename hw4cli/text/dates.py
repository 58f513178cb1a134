"""Due dates, time stamps, and durations in words."""

from datetime import UTC, datetime, time

# The first and the last moment that any time zone can show as a date.
FIRST, LAST = (datetime(*day, tzinfo=UTC) for day in ((1, 1, 3), (9999, 12, 29)))


class SkippedTimeError(ValueError):
    """A time that no clock here shows."""


def today() -> str:
    """The date in UTC, as records have it: 2026-05-01."""
    return datetime.now(UTC).date().isoformat()


def local(moment: datetime) -> datetime:
    """A moment in this machine's time zone; in UTC where TZ names one that no place has, such as UTC+99."""
    try:
        return moment.astimezone()
    except (OverflowError, OSError, ValueError):
        return moment.astimezone(UTC)


def now() -> datetime:
    """The present moment, with this machine's time zone."""
    return local(datetime.now(UTC))


def due_date(text: str) -> datetime:
    """A time such as 2026-05-01T18:00, in this machine's time zone unless it names one; a day alone means its end.

    Of a time that a clock shows twice, when daylight saving ends, it is the second: nobody is late by the first.
    ValueError if it is not a date, or out of range; SkippedTimeError if clocks skip it when daylight saving begins.
    """
    moment = datetime.fromisoformat(text)
    if len(text) <= len("2026-05-01"):
        moment = datetime.combine(moment, time(23, 59, 59), moment.tzinfo)
    if moment.tzinfo is None:
        try:
            first, second = (moment.replace(fold=fold).astimezone() for fold in (0, 1))
        except (OverflowError, OSError, ValueError) as error:
            raise ValueError(str(error)) from None
        if first.replace(tzinfo=None) != moment:
            raise SkippedTimeError("clocks here skip it, when daylight saving begins")
        moment = max(first, second)
    if not FIRST <= moment <= LAST:
        raise ValueError("it is out of range")
    return moment


def from_timestamp(stamp: float) -> datetime:
    """A file's time stamp as a date, to the second; the first or the last date there is where it is out of range."""
    try:
        return min(LAST, max(FIRST, datetime.fromtimestamp(int(stamp), UTC)))
    except (OverflowError, OSError, ValueError):
        return LAST if stamp > 0 else FIRST


def parse_timestamp(text: object) -> datetime | None:
    """A date in a journal, with its time zone; None if it is no such date, or out of range."""
    try:
        moment = datetime.fromisoformat(str(text))
        return moment if moment.tzinfo and FIRST <= moment <= LAST else None
    except (ValueError, OverflowError):
        return None


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
