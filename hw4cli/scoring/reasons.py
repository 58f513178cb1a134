"""What is to be said of a user's results: why cases fail, with like ones together, and what else catches the eye."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hw4cli.problem import suite
from hw4cli.problem.verdict import Verdict
from hw4cli.scoring.record import Result, Standing

NUMBER = re.compile(r"\d+(,\d{3})*")
GRAVITY = (Verdict.NA, Verdict.TLE_PLUS, Verdict.TLE, Verdict.JE)
SHOWN, LONGEST = 2, 100  # reasons in a row, and characters of each
LINES_SHOWN = 5  # of a journal


@dataclass(frozen=True)
class Group:
    """Cases of one user with the same verdict and, but for its numbers, the same reason."""

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


def groups(one: Standing) -> list[Group]:
    """The cases that are not accepted, the gravest and the most frequent reasons first."""
    found: dict[tuple[Verdict, str], list[Result]] = {}
    for case in one.cases:
        result = one.results.get(case)
        if result and result.verdict is not Verdict.AC:
            found.setdefault((result.verdict, NUMBER.sub("#", result.reason)), []).append(result)
    together = [Group(verdict, results) for (verdict, _), results in found.items()]
    return sorted(together, key=lambda group: (GRAVITY.index(group.verdict), -len(group.results)))


def case_names(cases: Iterable[str]) -> str:
    """The names of cases, as short as the suite's allow: "t03-t05 mine"."""
    known, wanted = suite.cases(), list(cases)
    others = [case for case in wanted if case not in known]
    return " ".join(filter(None, (suite.names(known[case] for case in wanted if case in known), *others)))


def in_a_row(one: Standing) -> str:
    """Why a user's cases fail, in a line; empty if none does."""
    if one.note:
        first = one.note.partition("\n")[0]
        return f"broken build: {first}" if first.startswith("make ") else first
    found = sorted(groups(one), key=lambda group: -len(group.results))
    told = [f"{len(group.results)} {group.verdict}{_briefly(group.reason)}" for group in found[:SHOWN]]
    if len(found) > SHOWN:
        told.append(f"{sum(len(group.results) for group in found[SHOWN:])} others")
    return "; ".join(told)


def _briefly(reason: str) -> str:
    short = reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 1]}…"
    return f": {short}" if reason else ""


def suspicion(one: Standing) -> str:
    """What is to be asked about a program that is right on public cases and not on fresh ones; empty if it is not."""
    found = [case for case in one.cases if case in one.results and one.results[case].public_right]
    words = "right on the public cases, wrong on fresh ones: answers stored in the submission?"
    return f"{words} ({' '.join(found)})" if found else ""


def damage(lines: Sequence[int], journal: object = "the journal") -> str:
    """Which lines of a journal are damaged, in words; empty if none is."""
    if not lines:
        return ""
    shown = ", ".join(map(str, lines[:LINES_SHOWN])) + (", …" if len(lines) > LINES_SHOWN else "")
    return f"{journal} is damaged in line{'s' if len(lines) > 1 else ''} {shown}"
