"""Summaries of a user's results: why cases fail, grouped by reason, and notes on suspicious or damaged ones."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hw4cli.judge.scoring.record import Result, Standing
from hw4cli.problem import suite
from hw4cli.problem.rules import POINTS
from hw4cli.problem.verdict import Verdict
from hw4cli.text.words import counted

NUMBER = re.compile(r"\d+(,\d{3})*")
BUILD = re.compile(r"make |\S+ \S+ (failed|did not end|was ended|made no)\b")  # how a note on a build begins
BY_SEVERITY = (Verdict.NA, Verdict.TLE_PLUS, Verdict.TLE, Verdict.JE)
SHOWN, LONGEST = 2, 100  # reasons in a row, and characters of each
LINES_SHOWN = 5  # of a journal


@dataclass(frozen=True)
class Group:
    """Cases of one user with the same verdict and the same reason, apart from numbers in it."""

    verdict: Verdict
    results: Sequence[Result]

    @property
    def reason(self) -> str:
        """The first case's reason."""
        return self.results[0].reason

    @property
    def cases(self) -> str:
        """The cases' names."""
        return case_names(result.case for result in self.results)


def groups(standing: Standing) -> list[Group]:
    """The cases that are not accepted, grouped by reason: the most severe and most frequent first."""
    found: dict[tuple[Verdict, str], list[Result]] = {}
    for case in standing.cases:
        result = standing.results.get(case)
        if result and result.verdict is not Verdict.AC:
            found.setdefault((result.verdict, NUMBER.sub("#", result.reason)), []).append(result)
    together = [Group(verdict, results) for (verdict, _), results in found.items()]
    return sorted(together, key=lambda group: (BY_SEVERITY.index(group.verdict), -len(group.results)))


def case_names(cases: Iterable[str]) -> str:
    """The names of cases, with ranges of the suite's cases abbreviated: "t03-t05 mine"."""
    known, wanted = suite.cases(), list(cases)
    others = [case for case in wanted if case not in known]
    return " ".join(filter(None, (suite.ranges(known[case] for case in wanted if case in known), *others)))


def reasons_line(standing: Standing) -> str:
    """One line on why a user's cases fail; empty if none does."""
    if standing.note:
        first = standing.note.partition("\n")[0]
        return f"broken build: {first}" if BUILD.match(first) else first
    found = sorted(groups(standing), key=lambda group: -len(group.results))
    texts = [f"{len(group.results)} {group.verdict}{_shortened(group.reason)}" for group in found[:SHOWN]]
    if len(found) > SHOWN:
        texts.append(f"{sum(len(group.results) for group in found[SHOWN:])} others")
    return "; ".join(texts)


def _shortened(reason: str) -> str:
    short = reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 1]}…"
    return f": {short}" if reason else ""


def score_words(standing: Standing) -> str:
    """The score in words: an upper bound, with the reason, where not all cases of the suite are judged."""
    if standing.score is None:
        return "score not known"
    why = f": {suite_share(standing)} judged" if is_upper_bound(standing) else ""
    return f"score {score_text(standing)} of {POINTS}{why}"


def score_text(standing: Standing, unknown: str = "-") -> str:
    """The score as a table shows it: `unknown` without one."""
    if standing.score is None:
        return unknown
    return f"at most {standing.score}" if is_upper_bound(standing) else str(standing.score)


def is_upper_bound(standing: Standing) -> bool:
    """Whether cases of the suite that are not judged could lower the score. A program that does not build has 0."""
    return standing.score is not None and not standing.note and bool(suite_share(standing))


def upper_bounds(standings: Sequence[Standing]) -> list[str]:
    """A sentence that all scores are upper bounds, where not all cases of the suite are judged; else none."""
    part = next(filter(None, map(suite_share, standings)), "")
    return [f"Scores are upper bounds: {part} judged."] if part else []


def suite_share(standing: Standing) -> str:
    """How many of the suite's cases are judged, as text; "" if all are. The suite is the one that was judged by."""
    whole = standing.session.get("settings", {}).get("suite") or suite.cases()
    some = sum(case in whole for case in standing.cases)
    return "" if some == len(whole) else f"{some} of the suite's {counted(len(whole), 'case')}"


def suspicion(standing: Standing) -> str:
    """A note on a program that is right on public cases but not on those with secret seeds; else empty."""
    found = [case for case in standing.cases if case in standing.results and standing.results[case].public_right]
    note = "right on the public cases, wrong on those with secret seeds: answers stored in the submission?"
    return f"{note} ({' '.join(found)})" if found else ""


def damage(lines: Sequence[int], journal: object = "the journal") -> str:
    """A note with the numbers of a journal's damaged lines; empty if none is."""
    if not lines:
        return ""
    shown = ", ".join(map(str, lines[:LINES_SHOWN])) + (", …" if len(lines) > LINES_SHOWN else "")
    return f"{journal} is damaged in line{'s' if len(lines) > 1 else ''} {shown}"
