"""What lateness costs: a rule as text, such as "10%/day, grace 15 min, max 3 days"."""

import math
import re
from dataclasses import dataclass

UNITS = {"min": 60.0, "hour": 3600.0, "day": 86400.0}
RATE = re.compile(r"(\d{1,3}(?:\.\d+)?) ?%/(hour|day)")
PART = re.compile(r"(grace|max) (\d{1,5}(?:\.\d+)?) ?(min|hour|day)s?")
FORM = "PERCENT%/day or /hour, then grace TIME and max TIME if wanted, as in '10%/day, grace 15 min, max 3 days'"


@dataclass(frozen=True)
class LatePolicy:
    """Each begun `unit` (seconds) after the due date costs `percent` of all points; up to `grace` seconds are free, and
    after more than `last` nothing is left."""

    percent: float
    unit: float
    grace: float = 0.0
    last: float = math.inf

    @classmethod
    def parse(cls, text: str) -> "LatePolicy":
        """The rule of a text. ValueError if it is none.

        >>> LatePolicy.parse("10%/day, grace 15 min").factor(86401)
        0.8
        """
        rate, *parts = (part.strip() for part in text.split(","))
        found = RATE.fullmatch(rate)
        times = {}
        for part in parts:
            one = PART.fullmatch(part)
            if not one or one[1] in times:
                raise ValueError(f"{text!r} is no rule of lateness: {FORM}")
            times[one[1]] = float(one[2]) * UNITS[one[3]]
        if not found or float(found[1]) > 100:
            raise ValueError(f"{text!r} is no rule of lateness: {FORM}")
        return cls(float(found[1]), UNITS[found[2]], times.get("grace", 0.0), times.get("max", math.inf))

    def factor(self, late: float) -> float:
        """What is left of the points, from 1 to 0, when a submission is so many seconds late."""
        if late <= self.grace:
            return 1.0
        if late > self.last:
            return 0.0
        return max(0.0, round(1 - self.percent / 100 * math.ceil(late / self.unit), 6))
