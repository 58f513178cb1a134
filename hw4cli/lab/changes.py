"""What became faster or slower since an older record of the same method, beyond the spread from run to run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.lab.contender import KernelResult
from hw4cli.lab.record import CACHE
from hw4cli.lab.tables import FORWARD
from hw4cli.plans.measured import RUN_SPREAD


@dataclass(frozen=True)
class Change:
    """A kernel on a case, now and in an older record: "faster", "slower", "same" or "unsure"; ratio is new/old time."""

    kernel: str
    case: str
    direction: str
    ratio: float


def check_comparable(old: dict[str, Any], path: Path, cold: bool) -> None:
    """Raise InputError if `old`, read from `path`, is not a record of kernels, or was measured by another method."""
    try:
        cache = old["method"]["cache"]
        timed = [row for row in old["rows"] if row["status"] == "ok"]
        good = all(row["kernel"] and row["shape"] and row["low"] <= row["median"] <= row["high"] for row in timed)
    except (KeyError, TypeError):
        good = False
    if not good:
        raise InputError(f"{path} is not a record that `hw4 bench` made of kernels")
    if cache != CACHE[cold]:
        advice = "give --warm, too" if cold else "leave out --warm"
        raise InputError(f"{path} was measured with another L2 cache ({cache}): {advice}")


def compare(rows: Sequence[KernelResult], old: dict[str, Any], spread: float = RUN_SPREAD) -> list[Change]:
    """The kernels and shapes, causal or not, that an older record has, too, for which `check_comparable` holds.

    A change is certain only if it exceeds the medians' intervals and the relative `spread` of medians from run to run.
    """
    timed = [row for row in old["rows"] if row["status"] == "ok"]
    before = {_subject(row): row for row in timed}
    changes = []
    for row in rows:
        then = before.get(_subject(vars(row)))
        if then is None or row.median is None or row.low is None or row.high is None:
            continue
        direction = _direction(row.low / then["high"], row.high / then["low"], 1 + spread)
        changes.append(Change(row.kernel, row.case, direction, row.median / then["median"]))
    return changes


def _subject(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a row is about: rows of other kernels, workloads or layouts are not compared with it."""
    arrays = (row.get(key) for key in ("dtype", "heads", "kv_heads", "Nk", "layout", "distribution"))
    which, dv = row.get("pass") or row.get("direction") or FORWARD, row.get("dv") or 0
    return row["kernel"], *row["shape"], dv, bool(row.get("causal")), which, *arrays


def _direction(least: float, most: float, factor: float) -> str:
    """What a ratio of times between `least` and `most` shows if runs of one kernel differ by up to a factor."""
    if most < 1 / factor:
        return "faster"
    if least > factor:
        return "slower"
    return "same" if 1 / factor <= least and most <= factor else "unsure"
