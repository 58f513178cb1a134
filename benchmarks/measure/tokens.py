"""Tokens a second of docs/train.py, a transformer that is trained, with hw4cli.torch.attention and with torch's own.

    python -m benchmarks.measure.tokens --output benchmarks/calls/h200-tokens.json

Runs of both follow one another in turns; of each, the steps between two prints are timed, but for the first ones, and
the medians count. Both losses must agree: a model that learns something else is no comparison.
"""

import statistics
import sys
import time
from itertools import pairwise
from typing import Any

from benchmarks import ROOT
from benchmarks.measure.scripts import end_with, say
from benchmarks.measure.sequences import record
from hw4cli.errors import MachineError

NAMES = "small", "medium", "large"
WAYS = "hw4", "torch"
ROUNDS, PERIODS = 2, 4  # runs of each; periods between two prints, the first of which is not counted
ALLOWED = 0.1  # between the losses: bfloat16 is rounded in another order


def seconds_and_loss(train: Any, attention: str, size: Any) -> tuple[list[float], float]:
    """Seconds of a step in each period but the first, and the last loss that was shown."""
    shown: list[tuple[float, float]] = []
    train.train(
        attention,
        PERIODS * train.SHOWN,
        "cuda",
        size,
        same_bits=False,
        show=lambda step, loss: shown.append((time.perf_counter(), loss)),
    )
    times = [at for at, _ in shown]
    return [(after - before) / train.SHOWN for before, after in pairwise(times)], shown[-1][1]


def measure(name: str) -> dict[str, Any]:
    """The row of a size. Raises MachineError where the losses differ."""
    import train  # type: ignore[import-not-found]

    size, times = train.SIZES[name], dict[str, list[float]]()
    losses: dict[str, float] = {}
    for way in ROUNDS * WAYS:
        found, losses[way] = seconds_and_loss(train, way, size)
        times.setdefault(way, []).extend(found)
    if abs(losses["hw4"] - losses["torch"]) > ALLOWED:
        raise MachineError(f"the losses of the {name} model differ: {losses}")
    rates = {way: size.tokens / statistics.median(found) for way, found in times.items()}
    say(f"{name}: {', '.join(f'{way} {rate:,.0f} tokens/s' for way, rate in rates.items())}, losses {losses}")
    sizes = {key: getattr(size, key) for key in ("layers", "heads", "width", "context", "batch")}
    return {"model": name, "sizes": sizes, "status": "ok", "tokens_per_s": rates, "losses": losses}


def main() -> None:
    """All sizes."""
    sys.path.append(str(ROOT / "docs"))
    how = f"medians of {ROUNDS} runs of {PERIODS - 1} periods of 50 steps each, in turns"
    record(__doc__ or "", "tokens", lambda: [measure(name) for name in NAMES], how)


if __name__ == "__main__":
    end_with(main)
