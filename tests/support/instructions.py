"""Random operands of tensor-core instructions, and what the CPU makes of them: tests/emulator/instructions.cu."""

from pathlib import Path

import numpy as np

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.plan import Launch, Plan, Scratch

SOURCE = Path(__file__).resolve().parents[1] / "emulator" / "instructions.cu"
SHARED = 8192
# Blocks, threads, whether for warp groups, and `splits`.
PROBES = {
    "one_mma": (64, 32, False, 0),
    "one_load": (1, 32, False, 0),
    "one_wgmma": (8, 128, True, 0),
    "one_wgmma, rows": (8, 128, True, 1),
}


def macros(by_group):
    return {"D": 4, "BR": 4, "BC": 4, "THREADS": 32, "WARPGROUPS": int(by_group)}


def plan_of(name):
    blocks, threads, by_group, which = PROBES[name]
    launch = Launch(name.partition(",")[0], blocks, threads, SHARED)
    return Plan("instructions", macros(by_group), (launch,), layout=Scratch(16), splits=which)


def operands(seed):
    """Q, K and V (1, 3, N, 4): halves of many sizes in Q and K, floats in V.

    From seed 4 on V is so small that subnormal halves matter, from seed 8 on half the halves are zeros, too.
    """
    rng = np.random.default_rng(seed)
    words = 64 * 128 * 4
    least, smallest = (-12, -8) if seed < 4 else (-24, -40)
    halves = (rng.uniform(-1, 1, (2, 2 * words)) * 2.0 ** rng.integers(least, 5, (2, 2 * words))).astype(np.float16)
    if seed >= 4:
        halves[:, ::3] *= np.float16(2.0**-14)
    if seed >= 8:
        halves *= rng.integers(0, 2, halves.shape).astype(np.float16)
    c = (rng.uniform(-1, 1, words) * 2.0 ** rng.integers(smallest, smallest + 16, words)).astype(np.float32)
    return np.concatenate([*halves.view(np.float32), c]).reshape(1, 3, words // 4, 4)


def on_the_cpu(name, block, cc, compiled_for=90):
    """O, whose tensor cores add as those of a compute capability."""
    library = Library(shared_object(SOURCE, macros(PROBES[name][2]), compiled_for, 32, PLAIN))
    library.add_as(cc)
    return library.run(plan_of(name), block, watched=False).o
