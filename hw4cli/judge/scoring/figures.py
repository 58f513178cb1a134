"""What a board shows of all its users together: of each case how many solved it and how fast, and the class in four
figures. No HTML here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import exp, log
from statistics import fmean, median

from hw4cli.judge.scoring.record import Rules, Standing
from hw4cli.problem import suite
from hw4cli.problem.verdict import Verdict

LEAST_SECONDS = 1e-3  # a shorter time counts as this on a logarithmic axis


@dataclass(frozen=True)
class CaseFigures:
    """A case among all users. `best` and `median` are of the accepted times, in seconds, None where there is none;
    `begins` says that a new part of the suite begins here: t11 and t21."""

    name: str
    begins: bool
    solved: int
    best: float | None
    median: float | None
    shape: tuple[int, int, int] | None = None  # None where nobody has a result
    limit: float | None = None


@dataclass(frozen=True)
class Private:
    """What only whoever judges may see of a user: the handout's address, as seen from the board, the name on a board
    with pseudonyms, and the end of what the build said."""

    handout: str = ""
    pseudonym: str = ""
    log: str = ""


@dataclass(frozen=True)
class Board:
    """All that a board shows. `private` has an entry for each user of a private board, and is None for a public one."""

    standings: Sequence[Standing]
    rules: Rules
    private: Mapping[str, Private] | None = None

    @cached_property
    def ids(self) -> list[str]:
        """A name for each user's part of the page. It is made of the user's own, so that a link to it lives longer
        than a rank; a second user of the same name gets a number."""
        found: list[str] = []
        for place, one in enumerate(self.standings):
            name = "u" + sha256(one.user.encode(errors="surrogatepass")).hexdigest()[:8]
            found.append(f"{name}-{place}" if name in found else name)
        return found

    @cached_property
    def cases(self) -> list[CaseFigures]:
        """The cases that count, in their order."""
        names = self.standings[0].cases if self.standings else []
        known, found, before = suite.cases(), list[CaseFigures](), None
        for name in names:
            part = known[name].limit if name in known else None
            found.append(self._case(name, begins=bool(found) and part != before))
            before = part
        return found

    def _case(self, name: str, begins: bool) -> CaseFigures:
        results = [one.results[name] for one in self.standings if name in one.results]
        accepted = [result for result in results if result.verdict is Verdict.AC]
        walls = [result.wall for result in accepted if result.wall is not None]
        best, middle = (min(walls), median(walls)) if walls else (None, None)
        about = (results[0].shape, results[0].limit) if results else (None, None)
        return CaseFigures(name, begins, len(accepted), best, middle, *about)

    @cached_property
    def best(self) -> dict[str, float]:
        """The best accepted time of each case, in seconds; no entry where nobody was accepted."""
        return {case.name: case.best for case in self.cases if case.best is not None}

    @cached_property
    def complete(self) -> list[Standing]:
        """The users who passed every case, the shortest time first."""
        found = [one for one in self.standings if one.cases and one.passed == len(one.cases)]
        return sorted(found, key=lambda one: one.time)

    @cached_property
    def ranked(self) -> list[Standing]:
        """The users with a rank."""
        return [one for one in self.standings if one.rank]

    def ratios(self, one: Standing) -> dict[str, float]:
        """A user's times of the cases that ended, as multiples of the best."""
        ended = (Verdict.AC, Verdict.TLE)
        return {
            case: max(result.wall, LEAST_SECONDS) / max(self.best[case], LEAST_SECONDS)
            for case in one.cases
            if (result := one.results.get(case)) and result.verdict in ended and result.wall and case in self.best
        }


def total(one: Standing) -> float:
    """Time + Penalty, in seconds."""
    return one.time + one.penalty


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values, at least one."""
    return exp(fmean(map(log, values)))
