"""Results and standings as rows of tables."""

from hw4cli.scoring.record import Result, Standing

RESULT_COLUMNS = ["case", "(B, N, d)", "", "time s", "limit", "max error", "reason"]


def result_cells(result: Result) -> list[str]:
    """A judged case's values as they are shown, in the order of RESULT_COLUMNS; the median of several runs comes with
    the fastest and the slowest."""
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


def standing_cells(one: Standing) -> list[str]:
    """A user's standing as it is shown, in the order of STANDING_COLUMNS."""
    return [
        str(one.rank) if one.rank else "-",
        one.user,
        f"{one.passed}/{len(one.cases)}",
        "-" if one.score is None else str(one.score),
        f"{one.time:.2f}",
        f"{one.penalty:.2f}",
        one.note,
    ]
