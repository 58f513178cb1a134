"""Small kernels of tests/emulator, run on the CPU: bits in, bits out."""

from functools import cache
from pathlib import Path

import numpy as np

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library, Outcome, Schedule
from hw4cli.plans.plan import Launch, Plan, Scratch

HERE = Path(__file__).resolve().parents[1] / "emulator"
MACROS = {"D": 4, "BR": 4, "BC": 4, "THREADS": 32}


@cache
def library(name, build=PLAIN, cc=90):
    return Library(shared_object(HERE / f"{name}.cu", MACROS, cc, 32, build))


def as_words(x, words):
    """An array's bytes as float32 numbers, with zeros behind them."""
    flat = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.float32)
    return np.pad(flat, (0, words - flat.size))


def run(
    name, symbol, q, k, v, which=0, threads=32, shared=32768, build=PLAIN, order="forward", blocks=1
) -> tuple[np.ndarray, Outcome]:
    """O's bytes, and the outcome."""
    words = -(-max(np.ascontiguousarray(x).nbytes for x in (q, k, v)) // 16) * 4
    inputs = np.stack([as_words(x, words) for x in (q, k, v)]).reshape(1, 3, words // 4, 4)
    plan = Plan(name, MACROS, (Launch(symbol, blocks, threads, shared),), layout=Scratch(16), splits=which)
    outcome = library(name, build).run(plan, inputs, schedule=Schedule(order), watched=build != PLAIN)
    return np.frombuffer(outcome.o.tobytes(), np.uint8), outcome
