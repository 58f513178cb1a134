"""Tokens a second of docs/train.py, a transformer that is trained, with hw4cli.torch.attention and with torch's own.

    python -m benchmarks.measure.tokens --output benchmarks/calls/h200-tokens.json

Both models are trained in one process and take turns of some steps, whose medians count. Both losses must agree: a
model that learns something else is no comparison.
"""

import statistics
import sys
import time
from itertools import islice
from typing import Any

from benchmarks import ROOT
from benchmarks.measure.scripts import end_with, say
from benchmarks.measure.sequences import record
from hw4cli.errors import MachineError

NAMES = "small", "medium", "large"
WAYS = "hw4", "torch"
TURNS, STEPS, FIRST = 32, 8, 8  # turns of each; steps of a turn; steps before the first one, in which all is compiled
ALLOWED = 0.2  # between the last losses: bfloat16 is rounded in another order


def measure(name: str) -> dict[str, Any]:
    """The row of a size. Raises MachineError where the losses differ."""
    import torch
    import train

    size, seconds, last = train.SIZES[name], {way: list[float]() for way in WAYS}, dict[str, float]()
    losses = {way: train.Training(way, "cuda", size, same_bits=False).losses() for way in WAYS}

    def take(way: str, steps: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for loss in islice(losses[way], steps):
            last[way] = loss
        last[way] = float(last[way])  # which is waited for
        return (time.perf_counter() - begin) / steps

    for way in WAYS:
        take(way, FIRST)
    for turn in range(TURNS):
        for way in WAYS if turn % 2 else WAYS[::-1]:
            seconds[way].append(take(way, STEPS))
    if abs(last["hw4"] - last["torch"]) > ALLOWED:
        raise MachineError(f"the losses of the {name} model differ: {last}")
    rates = {way: size.tokens / statistics.median(found) for way, found in seconds.items()}
    say(f"{name}: {', '.join(f'{way} {rate:,.0f} tokens/s' for way, rate in rates.items())}, losses {last}")
    sizes = {key: getattr(size, key) for key in ("layers", "heads", "width", "context", "batch")}
    return {"model": name, "sizes": sizes, "status": "ok", "tokens_per_s": rates, "losses": last, "seconds": seconds}


def main() -> None:
    """All sizes."""
    sys.path.append(str(ROOT / "docs"))
    how = f"medians of {TURNS} turns of {STEPS} steps each"
    record(__doc__ or "", "tokens", lambda: [measure(name) for name in NAMES], how)


if __name__ == "__main__":
    end_with(main)
