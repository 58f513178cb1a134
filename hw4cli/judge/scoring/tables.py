"""Results and standings as the cells of tables."""

from hw4cli.judge.scoring.reasons import score_text
from hw4cli.judge.scoring.record import Result, Standing

RESULT_COLUMNS = ["case", "(B, N, d)", "", "time s", "limit", "max error", "reason"]


def result_cells(result: Result) -> list[str]:
    """A result's values as text, in the order of RESULT_COLUMNS; of several runs the median, fastest and slowest."""
    time = "-" if result.wall is None else f"{result.wall:.2f}"
    if result.spread and result.attempts > 1:
        time += " [{:.2f} {:.2f}]".format(*result.spread)
    return [
        result.case,
        "({}, {}, {})".format(*result.shape),
        str(result.verdict),
        time,
        f"{result.limit:g}",
        "-" if result.max_error is None else f"{result.max_error:.1e}",
        result.reason,
    ]


STANDING_COLUMNS = ["rank", "user", "passed", "score", "time s", "penalty s", "note"]


def standing_cells(standing: Standing) -> list[str]:
    """A standing's values as text, in the order of STANDING_COLUMNS."""
    return [
        str(standing.rank) if standing.rank else "-",
        standing.user,
        f"{standing.passed}/{len(standing.cases)}",
        score_text(standing),
        f"{standing.time:.2f}",
        f"{standing.penalty:.2f}",
        standing.note,
    ]
