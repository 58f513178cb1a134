"""What judged runs leave behind: facts first, and the verdicts, scores and ranks that rules make of them. No I/O.

An attempt is one run of a program on a case, as it was seen. Rules may change later (a longer limit, another penalty);
then verdicts are decided again from the same attempts, and nothing runs twice.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median
from typing import Any

from hw4cli.problem.verdict import KILL_AFTER, PENALTY, POINTS, POINTS_PER_CASE, TOLERANCE, Verdict
from hw4cli.system.exits import with_words


@dataclass(frozen=True)
class Attempt:
    """One run of a program on a case. Times in seconds, sizes in bytes; None is what was not seen.

    `fault` is the judge's own failure; `problem` says what is wrong with the program's start, exit or output file;
    `wrong` which elements of a whole output are wrong at `tolerance`; `max_error` is inf where there is NaN or Inf.
    These are our words; `said` are the program's own last ones, which are nobody's business but its author's.
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
    staged: str | None = None  # "memory" or "disk": where the input lay, read just before the clock started
    public_right: bool | None = None  # whether it fails here and does well on the public case of the same shape
    note: str | None = None  # what may have disturbed the run: another process on the GPU, a throttled clock


@dataclass(frozen=True)
class Rules:
    """By what attempts are judged. `limits` are those of single cases, in place of the attempts' own. What was
    handed in after `due` is late, which costs nothing."""

    tolerance: float = TOLERANCE
    penalty: float = PENALTY
    limits: Mapping[str, float] = field(default_factory=dict)
    rank_by: str = "time"  # Time + Penalty, or "passed": the number of accepted cases, then Time
    due: datetime | None = None


RANKS = ("time", "passed")


@dataclass(frozen=True)
class Result:
    """A case, judged: the verdict of all attempts, the median of their wall times, and the spread [fastest, slowest].

    `reason` may end with the program's own words; `public_reason` is ours alone, and names no one's files.
    `borderline` marks a case whose attempts lie on both sides of the limit; `unknown` one that was killed before the
    limit now asked about. Processor times are medians, too; memory is the largest, the clock the lowest that was seen.
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
    public_right: bool = False  # whether it fails here, and does well on the public case of the same shape


def decide(attempt: Attempt, rules: Rules = Rules()) -> tuple[Verdict, str]:
    """Verdict and reason of one attempt, in the order of the rules: judge's fault, killed, late, wrong, right."""
    verdict, reason = _decide(attempt, rules, _problem(attempt, rules.tolerance))
    if attempt.public_right and verdict is not Verdict.AC:
        reason += "; right on the public case, not on this fresh one"
    return verdict, reason


def decide_in_public(attempt: Attempt, rules: Rules = Rules()) -> tuple[Verdict, str]:
    """The same, in our words alone, without the names of files."""
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
    if wall is not None and wall > limit + KILL_AFTER:  # by a limit that is shorter than it was then
        return Verdict.TLE_PLUS, f"ended after {wall:.2f} s, more than {KILL_AFTER:g} s past the limit of {limit:g} s"
    if wall is not None and wall > limit:
        outcome = f"output wrong: {problem}" if problem else "output correct"
        # Two digits, unless more are needed to tell them apart.
        digits = 2 if round(limit, 2) == limit and wall - limit > 0.005 else 4
        return Verdict.TLE, f"{wall:.{digits}f}/{limit:.{digits}f} s, {outcome}"
    if problem:
        return Verdict.NA, problem
    return Verdict.AC, attempt.note or ""


def _problem(attempt: Attempt, tolerance: float) -> str | None:
    """What is wrong, and what the program said of it."""
    problem = attempt.problem or _wrong(attempt, tolerance)
    if not problem or not attempt.said:
        return problem
    return with_words(problem, attempt.said) if attempt.exit_code else f"{problem}; it said: {attempt.said}"


def _wrong(attempt: Attempt, tolerance: float) -> str | None:
    """What is wrong with a whole output's elements at this tolerance."""
    if attempt.max_error is None or attempt.max_error <= tolerance:
        return None
    if attempt.wrong and (tolerance == attempt.tolerance or math.isinf(attempt.max_error)):
        return attempt.wrong
    return f"an element is off by {attempt.max_error:.3g}, more than {tolerance:g}"


JUDGE_FAILED = "the judge failed, not the program"
NOT_STARTED = "cannot be started"
GRAVEST = (Verdict.JE, Verdict.NA, Verdict.TLE_PLUS, Verdict.TLE, Verdict.AC)


def combine(attempts: Sequence[Attempt], rules: Rules = Rules()) -> Result:
    """One case's result from all its attempts (at least one).

    A program must be right each time: one NA or JE decides. In time it must be by the median: with an even number, by
    the mean of the two in the middle. A run that was killed has no end.
    """
    limit = rules.limits.get(attempts[0].case, attempts[0].limit)
    walls = sorted(_seen(attempts, "wall"))
    borderline = bool(walls) and walls[0] <= limit < walls[-1]
    verdict, reason = _together(attempts, [decide(attempt, rules) for attempt in attempts], limit)
    _, public_reason = _together(attempts, [decide_in_public(attempt, rules) for attempt in attempts], limit)
    if borderline:
        spread = f"borderline: {walls[0]:.2f} to {walls[-1]:.2f} s"
        reason, public_reason = (", ".join(filter(None, (spread, words))) for words in (reason, public_reason))
    return Result(
        case=attempts[0].case,
        shape=attempts[0].shape,
        limit=limit,
        verdict=verdict,
        reason=reason,
        wall=median(walls) if walls else None,
        spread=(walls[0], walls[-1]) if walls else None,
        max_error=max(_seen(attempts, "max_error"), default=None),
        borderline=borderline,
        unknown=verdict is Verdict.TLE_PLUS and any(a.killed and (a.wall or 0.0) < limit for a in attempts),
        attempts=len(attempts),
        user=median(_seen(attempts, "user") or [None]),
        system=median(_seen(attempts, "system") or [None]),
        peak_rss=max(_seen(attempts, "peak_rss"), default=None),
        gpu_memory=max(_seen(attempts, "gpu_memory"), default=None),
        gpu_clock=min(_seen(attempts, "gpu_clock"), default=None),
        public_reason=public_reason,
        public_right=verdict is not Verdict.AC and any(attempt.public_right for attempt in attempts),
    )


def _together(attempts: Sequence[Attempt], decided: Sequence[tuple[Verdict, str]], limit: float) -> tuple[Verdict, str]:
    """The verdict of several attempts: the gravest, or, of a program that was never wrong, that of the median."""
    verdict, reason = min(decided, key=lambda one: GRAVEST.index(one[0]))
    late = verdict in (Verdict.TLE, Verdict.TLE_PLUS)
    return _by_the_median(attempts, decided, limit) if late else (verdict, reason)


def _by_the_median(
    attempts: Sequence[Attempt], decided: Sequence[tuple[Verdict, str]], limit: float
) -> tuple[Verdict, str]:
    """The verdict on a program that was right each time, or might have been, and late at least once."""
    ends = [math.inf if attempt.killed else attempt.wall or 0.0 for attempt in attempts]
    if median(ends) <= limit:
        return Verdict.AC, ""
    order = sorted(range(len(ends)), key=lambda index: ends[index])
    return decided[order[len(order) // 2]]


def _seen(attempts: Iterable[Attempt], name: str) -> list[Any]:
    """The values of a field, without those that were not seen."""
    return [value for attempt in attempts if (value := getattr(attempt, name)) is not None]


@dataclass(frozen=True)
class Standing:
    """One user's results and what they are worth. `rank` 0 is not ranked yet."""

    user: str
    results: Mapping[str, Result]  # by case; cases without an attempt are missing
    cases: Sequence[str]  # those that count
    passed: int
    time: float
    penalty: float
    score: int | None  # None while a case is JE, or may be lost with a damaged line of the journal
    rank: int = 0
    note: str = ""  # why there are no results: it does not compile, say
    public_note: str = ""  # the same in our words alone
    session: Mapping[str, Any] = field(default_factory=dict)  # the journal's header: program, host, gpu, settings
    handed_in: datetime | None = None  # by the time stamps of the submission's files
    late: float = 0.0  # seconds after the due date
    damaged: Sequence[int] = ()  # the journal's lines that cannot be read
    lost: bool = False  # whether such a line may have held what counts, or all of the journal is damaged


def standing(
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
    """A user's standing. Time is the sum over accepted cases, Penalty a set time for each that is judged or missing
    and not accepted; a JE, the judge's own failure, costs nothing and leaves the score open. So does a case without a
    result where the journal has `lost` some."""
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
        score=None if faults or lost else score(failed),
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
    """Standings in the order of their ranks, equal ones sharing a rank: by Time + Penalty, or by `rules.rank_by`.

    Whose score is open has no rank yet and comes last: a JE costs nothing, so nothing but faults would be first.
    """

    def key(one: Standing) -> tuple[float, ...]:
        total = round(one.time + one.penalty, 3)
        worth = (-one.passed, round(one.time, 3)) if rules.rank_by == "passed" else (total,)
        return (one.score is None, *worth)

    ordered = sorted(standings, key=lambda one: (key(one), one.user))
    keys = [key(one) for one in ordered]
    ranks = [0 if one.score is None else keys.index(mine) + 1 for one, mine in zip(ordered, keys, strict=True)]
    return [replace(one, rank=place) for one, place in zip(ordered, ranks, strict=True)]
