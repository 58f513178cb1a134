"""Attempts, and the verdicts, scores and ranks that follow from them by rules. No I/O.

An attempt holds the facts of one run of a program on a case. When the rules change (a longer limit, another penalty),
verdicts are computed again from the same attempts, without running anything.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median
from typing import Any

from hw4cli.problem.rules import KILL_AFTER, PENALTY, POINTS, POINTS_PER_CASE, TOLERANCE
from hw4cli.problem.verdict import Verdict
from hw4cli.system.exits import with_message


@dataclass(frozen=True)
class Attempt:
    """One run of a program on a case. Times in seconds, sizes in bytes; None is unknown.

    `fault` is a failure of the judge; `problem` describes what is wrong with the program's start, exit or output file;
    `wrong` which elements of a complete output are wrong at `tolerance`; `max_error` is inf for NaN or Inf. These are
    the judge's sentences. `said` is the program's last output, which only its author may see.
    """

    case: str
    shape: tuple[int, int, int]
    limit: float
    tolerance: float = TOLERANCE
    repeat: int = 0
    wall: float | None = None
    killed: bool = False
    exit_code: int | None = None  # -n: signal n
    fault: str | None = None
    problem: str | None = None
    wrong: str | None = None
    said: str | None = None
    max_error: float | None = None
    user: float | None = None
    system: float | None = None
    peak_rss: int | None = None
    gpu_memory: int | None = None
    gpu_clock: int | None = None  # MHz of the multiprocessors while it ran
    staged: str | None = None  # "memory" or "disk": where the input was, written just before the clock started
    public_right: bool | None = None  # whether the public case of the same shape is right, although this one is not
    note: str | None = None  # what may have disturbed the run: another process on the GPU, a throttled clock


@dataclass(frozen=True)
class Rules:
    """The rules of judging. `limits`, by case, replace the attempts' own. A submission after `due` is marked as late,
    without a penalty."""

    tolerance: float = TOLERANCE
    penalty: float = PENALTY
    limits: Mapping[str, float] = field(default_factory=dict)
    rank_by: str = "time"  # Time + Penalty, or "passed": the number of accepted cases, then Time
    due: datetime | None = None
    late_policy: str = ""  # what lateness costs of a grade (late): scores and ranks do not depend on it
    step: float | None = None  # seconds: a time that counts is the next multiple, as of a clock that polls so often

    def counted(self, wall: float) -> float:
        """The time that counts of a wall time, both in seconds. Limits are of the wall time itself."""
        return math.ceil(round(wall / self.step, 6)) * self.step if self.step else wall


RANKS = ("time", "passed")


@dataclass(frozen=True)
class Result:
    """A case's result: the verdict of all attempts, the median of their wall times, and the spread (fastest, slowest).

    `reason` may quote the program's output; `public_reason` does not, and names no files. `borderline`: some attempts
    are below the limit and others above; `unknown`: a run was killed before the limit that applies now. Processor times
    are medians, memory is the maximum, the GPU's clock the minimum.
    """

    case: str
    shape: tuple[int, int, int]
    limit: float
    verdict: Verdict
    reason: str
    wall: float | None = None
    spread: tuple[float, float] | None = None
    max_error: float | None = None
    borderline: bool = False
    unknown: bool = False
    attempts: int = 1
    user: float | None = None
    system: float | None = None
    peak_rss: int | None = None
    gpu_memory: int | None = None
    gpu_clock: int | None = None
    public_reason: str = ""
    public_right: bool = False  # whether the public case of the same shape is right, although this one is not


def decide(attempt: Attempt, rules: Rules = Rules()) -> tuple[Verdict, str]:
    """Verdict and reason of one attempt: the first that applies of judge's fault, killed, late, wrong, right."""
    verdict, reason = _decide(attempt, rules, _problem(attempt, rules.tolerance))
    if attempt.public_right and verdict is not Verdict.AC:
        reason += "; right on the public case, but not with a secret seed"
    return verdict, reason


def decide_for_public(attempt: Attempt, rules: Rules = Rules()) -> tuple[Verdict, str]:
    """As `decide`, with a reason that quotes no program and names no files."""
    if attempt.fault is not None:
        return Verdict.JE, JUDGE_FAILED
    problem = _problem(replace(attempt, said=None), rules.tolerance)
    if problem and NOT_STARTED in problem:
        problem = f"hw4 {NOT_STARTED}{problem.partition(NOT_STARTED)[2]}"
    return _decide(attempt, rules, problem)


def _decide(attempt: Attempt, rules: Rules, problem: str | None) -> tuple[Verdict, str]:
    limit = rules.limits.get(attempt.case, attempt.limit)
    if attempt.fault is not None:
        return Verdict.JE, attempt.fault
    wall = attempt.wall
    if wall is not None and attempt.killed and wall < limit:
        return Verdict.TLE_PLUS, f"killed after {wall:.2f} s: only a new run can tell if it ends within {limit:g} s"
    if wall is not None and attempt.killed:
        return Verdict.TLE_PLUS, f"killed after {wall:.2f} s, the limit is {limit:g} s"
    if wall is not None and wall > limit + KILL_AFTER:  # the limit was longer when it ran
        return Verdict.TLE_PLUS, f"ended after {wall:.2f} s, more than {KILL_AFTER:g} s past the limit of {limit:g} s"
    if wall is not None and wall > limit:
        outcome = f"output wrong: {problem}" if problem else "output correct"
        # Two digits, unless the two would look equal.
        digits = 2 if round(limit, 2) == limit and wall - limit > 0.005 else 4
        return Verdict.TLE, f"{wall:.{digits}f}/{limit:.{digits}f} s, {outcome}"
    if problem:
        return Verdict.NA, problem
    return Verdict.AC, attempt.note or ""


def _problem(attempt: Attempt, tolerance: float) -> str | None:
    """What is wrong, with the program's last output."""
    problem = attempt.problem or _wrong_elements(attempt, tolerance)
    if not problem or not attempt.said:
        return problem
    return with_message(problem, attempt.said) if attempt.exit_code else f"{problem}; it said: {attempt.said}"


def _wrong_elements(attempt: Attempt, tolerance: float) -> str | None:
    """Which elements of a complete output are wrong at this tolerance; None if none is."""
    if attempt.max_error is None or attempt.max_error <= tolerance:
        return None
    if attempt.wrong and (tolerance == attempt.tolerance or math.isinf(attempt.max_error)):
        return attempt.wrong
    return f"an element is off by {attempt.max_error:.3g}, more than {tolerance:g}"


def undecided(attempt: Attempt, limit: float) -> bool:
    """Whether a run was killed before this limit, so that only a new run can tell if it ends in time."""
    return attempt.killed and (attempt.wall or 0.0) < limit


JUDGE_FAILED = "the judge failed, not the program"
NOT_STARTED = "cannot be started"
BY_SEVERITY = (Verdict.JE, Verdict.NA, Verdict.TLE_PLUS, Verdict.TLE, Verdict.AC)


def combine(attempts: Sequence[Attempt], rules: Rules = Rules()) -> Result:
    """One case's result from all its attempts (at least one).

    All attempts must be right: one NA or JE decides. Their median must be within the limit; of an even number it is the
    mean of the middle two, and a killed run counts as infinitely long.
    """
    limit = rules.limits.get(attempts[0].case, attempts[0].limit)
    walls = sorted(_values(attempts, "wall"))
    borderline = bool(walls) and walls[0] <= limit < walls[-1]
    verdict, reason = _combine_verdicts(attempts, [decide(attempt, rules) for attempt in attempts], limit)
    _, public_reason = _combine_verdicts(attempts, [decide_for_public(attempt, rules) for attempt in attempts], limit)
    if borderline:
        spread = f"borderline: {walls[0]:.2f} to {walls[-1]:.2f} s"
        reason, public_reason = (", ".join(filter(None, (spread, words))) for words in (reason, public_reason))
    return Result(
        case=attempts[0].case,
        shape=attempts[0].shape,
        limit=limit,
        verdict=verdict,
        reason=reason,
        wall=rules.counted(median(walls)) if walls else None,
        spread=(walls[0], walls[-1]) if walls else None,
        max_error=max(_values(attempts, "max_error"), default=None),
        borderline=borderline,
        unknown=verdict is Verdict.TLE_PLUS and any(undecided(attempt, limit) for attempt in attempts),
        attempts=len(attempts),
        user=median(_values(attempts, "user") or [None]),
        system=median(_values(attempts, "system") or [None]),
        peak_rss=max(_values(attempts, "peak_rss"), default=None),
        gpu_memory=max(_values(attempts, "gpu_memory"), default=None),
        gpu_clock=min(_values(attempts, "gpu_clock"), default=None),
        public_reason=public_reason,
        public_right=verdict is not Verdict.AC and any(attempt.public_right for attempt in attempts),
    )


def _combine_verdicts(
    attempts: Sequence[Attempt], decided: Sequence[tuple[Verdict, str]], limit: float
) -> tuple[Verdict, str]:
    """The verdict of several attempts: the most severe or, if no attempt was wrong, that of the median."""
    verdict, reason = min(decided, key=lambda pair: BY_SEVERITY.index(pair[0]))
    late = verdict in (Verdict.TLE, Verdict.TLE_PLUS)
    return _by_the_median(attempts, decided, limit) if late else (verdict, reason)


def _by_the_median(
    attempts: Sequence[Attempt], decided: Sequence[tuple[Verdict, str]], limit: float
) -> tuple[Verdict, str]:
    """The verdict of attempts of which none is NA or JE and at least one is late."""
    ends = [math.inf if attempt.killed else attempt.wall or 0.0 for attempt in attempts]
    if median(ends) <= limit:
        return Verdict.AC, ""
    order = sorted(range(len(ends)), key=lambda index: ends[index])
    return decided[order[len(order) // 2]]


def _values(attempts: Iterable[Attempt], name: str) -> list[Any]:
    """The known values of a field."""
    return [value for attempt in attempts if (value := getattr(attempt, name)) is not None]


@dataclass(frozen=True)
class Standing:
    """One user's results, score and rank; a rank of 0 is not known yet."""

    user: str
    results: Mapping[str, Result]  # by case; cases without an attempt are missing
    cases: Sequence[str]  # the names of the cases that count
    passed: int
    time: float
    penalty: float
    score: int | None  # None while a case is JE, none is judged, or one may be lost in a damaged line of the journal
    rank: int = 0
    note: str = ""  # why there are no results, such as a failed build
    public_note: str = ""  # the same without quotes of programs
    session: Mapping[str, Any] = field(default_factory=dict)  # the journal's header: program, host, gpu, settings
    handed_in: datetime | None = None  # by the time stamps of the submission's files
    late: float = 0.0  # seconds after the due date
    damaged: Sequence[int] = ()  # the numbers of the journal's lines that cannot be read
    lost: bool = False  # whether a result that counts may be lost in such a line


def make_standing(
    user: str,
    results: Iterable[Result],
    cases: Sequence[str],
    rules: Rules = Rules(),
    note: str = "",
    public_note: str = "",
    session: Mapping[str, Any] | None = None,
    damaged: Sequence[int] = (),
    lost: bool = False,
) -> Standing:
    """A user's standing. Time is the sum over accepted cases, Penalty a fixed time for each other case, judged or
    missing. A JE, a failure of the judge, has no penalty and leaves the score open; so does a missing case if the
    journal has `lost` results, or if no case is judged and no `note` says that none could be right."""
    by_case = {result.case: result for result in results if result.case in cases}
    accepted = [result for result in by_case.values() if result.verdict is Verdict.AC]
    faults = sum(result.verdict is Verdict.JE for result in by_case.values())
    failed = (len(by_case) if lost else len(cases)) - len(accepted) - faults
    return Standing(
        user=user,
        results=by_case,
        cases=cases,
        passed=len(accepted),
        time=sum(result.wall or 0.0 for result in accepted),
        penalty=rules.penalty * failed,
        score=None if faults or lost or not (by_case or note) else score(failed),
        note=note,
        public_note=public_note,
        session=session or {},
        damaged=damaged,
        lost=lost,
    )


def score(failed: int) -> int:
    """max(0, 60 - 3k) for k cases that are not accepted."""
    return max(0, POINTS - POINTS_PER_CASE * failed)


def rank(standings: Iterable[Standing], rules: Rules = Rules()) -> list[Standing]:
    """Standings sorted by `rules.rank_by`, with ranks; equal ones share a rank.

    A standing with an open score has no rank and comes last: since a JE has no penalty, it could be the first.
    """

    def key(standing: Standing) -> tuple[float, ...]:
        total = round(standing.time + standing.penalty, 3)
        worth = (-standing.passed, round(standing.time, 3)) if rules.rank_by == "passed" else (total,)
        return (standing.score is None, *worth)

    ordered = sorted(standings, key=lambda standing: (key(standing), standing.user))
    keys = [key(standing) for standing in ordered]
    ranks = [0 if one.score is None else keys.index(own) + 1 for one, own in zip(ordered, keys, strict=True)]
    return [replace(standing, rank=place) for standing, place in zip(ordered, ranks, strict=True)]
