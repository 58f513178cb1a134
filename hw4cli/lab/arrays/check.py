"""The kernels of arrays checked on the CPU, as `hw4 check --run` checks those of files: 16-bit attention and gradients.

Each kernel has a few workloads that take its ways: rows and keys of other numbers, tails, shared heads, the mask with
an offset; and data that show mistakes, those whose scores all lie far below 0 among them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli.arrays.emulated import run_half, tensor_map
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.far import MULTIPROCESSORS, far_findings
from hw4cli.emulator.library import FORWARDS, Library, Schedule
from hw4cli.emulator.report import Finding
from hw4cli.lab.arrays.inputs import from_words, to_words
from hw4cli.plans import backward, gradients, half
from hw4cli.plans.backwardcut import Cut
from hw4cli.plans.half import Tiling
from hw4cli.plans.kernels16 import ENTRIES16, arguments16, plan16
from hw4cli.plans.launch import Matrix
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients, exact_heads
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload
from hw4cli.resources import kernel_path

NORMAL, BELOW, UNEVEN, GROWING = "normal", "scores far below 0", "rows of other scales", "scores that grow"
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """A workload for a kernel on a compute capability, and the data it runs on."""

    kernel: str
    cc: int
    work: Workload
    data: str = NORMAL
    tiling: Any = None  # in place of the one that the plan takes
    sms: int = 0  # so many multiprocessors, if not as many as usual
    seed: int = 1
    schedule: Schedule = FORWARDS

    def __str__(self) -> str:
        work = self.work
        mask = f", causal with offset {work.offset}" if work.causal else ""
        sizes = f"heads {work.heads} and {work.kv_heads}, rows {work.Nq}, keys {work.Nk}, d {work.d}"
        return f"{self.kernel} on {work.dtype}, {sizes}{mask}, {self.data}"


def _causal(dtype: str, heads: int, kv_heads: int, Nq: int, Nk: int, d: int, offset: int) -> Workload:
    return Workload(dtype, 1, heads, kv_heads, Nq, Nk, d, True, offset)


def _full(dtype: str, heads: int, kv_heads: int, Nq: int, Nk: int, d: int) -> Workload:
    return Workload(dtype, 1, heads, kv_heads, Nq, Nk, d)


ON_CAPABILITY = (
    ("backward", 80),
    ("backward_mma", 80),
    ("backward_wgmma", 90),
    ("backward_once", 90),
    ("backward_atomic", 90),
)
FORWARD = (
    Trial("half", 90, _causal(FLOAT16, 2, 1, 130, 250, 64, 120)),
    Trial("half", 90, _full(BFLOAT16, 2, 2, 257, 256, 128), UNEVEN),
    Trial("half", 90, _causal(FLOAT16, 2, 1, 70, 330, 64, 65), BELOW),
    Trial("half", 90, _full(FLOAT16, 1, 1, 70, 900, 64), GROWING),  # more tiles than there are buffers
    Trial("half", 90, _full(BFLOAT16, 2, 1, 130, 250, 128), tiling=Tiling(3, 80, 2, ahead=False, turns=False)),
    Trial("half", 90, _causal(BFLOAT16, 3, 3, 260, 150, 64, 30), sms=2),  # more tiles than multiprocessors
    Trial("half_short", 90, _causal(BFLOAT16, 4, 2, 97, 128, 64, 31)),
    Trial("half_short", 90, _full(FLOAT16, 9, 3, 100, 90, 32), BELOW),
    Trial("half_mma", 80, _causal(FLOAT16, 2, 1, 140, 200, 64, 60)),
    Trial("half_mma", 80, _full(BFLOAT16, 2, 2, 128, 256, 128), BELOW),
    Trial("half_mma", 80, _causal(BFLOAT16, 4, 2, 65, 130, 40, 65), UNEVEN),
    Trial("half_mma", 80, _causal(FLOAT16, 2, 1, 140, 300, 64, 160), GROWING),
    Trial("half_mma", 80, _causal(FLOAT16, 2, 1, 200, 100, 64, -90)),  # rows that see no key
    Trial("half_split", 80, _full(FLOAT16, 8, 2, 1, 3000, 64)),
    Trial("half_split", 80, _causal(BFLOAT16, 4, 1, 11, 700, 128, 689), UNEVEN),
    Trial("half_split", 80, _full(FLOAT16, 8, 2, 2, 1111, 64), BELOW),
    Trial("half_split", 80, _full(FLOAT16, 8, 2, 2, 1111, 64), GROWING),
    Trial("half_cores", 61, _causal(FLOAT16, 4, 2, 70, 100, 64, 30)),
    Trial("half_cores", 61, _full(BFLOAT16, 2, 2, 64, 128, 128), BELOW),
    Trial("half_cores", 61, _full(FLOAT16, 2, 2, 64, 200, 64), GROWING),
)
BACKWARD = (
    Trial("backward", 80, _causal(FLOAT32, 2, 1, 130, 100, 32, -40)),
    Trial("backward", 80, _full(FLOAT32, 2, 2, 128, 64, 64), BELOW),
    Trial("backward", 80, Workload(FLOAT32, 2, 2, 1, 40, 70, 16)),
    Trial("backward", 80, _causal(BFLOAT16, 4, 2, 70, 150, 128, 80), UNEVEN),
    Trial("backward_mma", 80, _causal(FLOAT16, 2, 1, 150, 140, 64, 17)),
    Trial("backward_mma", 80, _full(FLOAT32, 2, 2, 128, 128, 64), BELOW),
    Trial("backward_mma", 80, _causal(BFLOAT16, 4, 2, 70, 150, 128, 80), UNEVEN),
    Trial("backward_mma", 80, _causal(FLOAT32, 2, 1, 70, 135, 128, 65), UNEVEN),
    Trial("backward_wgmma", 90, _causal(FLOAT16, 2, 1, 200, 150, 128, -50)),
    Trial("backward_wgmma", 90, _full(BFLOAT16, 2, 2, 256, 300, 64), BELOW),
    Trial("backward_once", 90, _causal(FLOAT16, 2, 1, 200, 150, 128, -50)),
    Trial("backward_once", 90, _full(BFLOAT16, 2, 2, 256, 319, 64), BELOW),
    Trial("backward_once", 90, _full(FLOAT16, 1, 1, 60, 319, 128), sms=1),  # a tile's next turn is another thread's
    Trial("backward_once", 90, _causal(BFLOAT16, 1, 1, 300, 420, 64, 0), tiling=Cut(1, rounded=True)),
    Trial("backward_atomic", 90, _causal(BFLOAT16, 4, 2, 140, 260, 64, 130)),
)
# More than 2^31 rows of all heads: three blocks of each launch run, for their indices (far.py).
HEADS = 2**32 // 70
FAR = (
    Trial("half", 90, _full(FLOAT16, HEADS, HEADS, 70, 90, 64)),
    Trial("half_short", 90, _full(BFLOAT16, HEADS, HEADS, 70, 90, 32)),
    Trial("half_mma", 80, _full(FLOAT16, HEADS, HEADS, 70, 90, 64)),
    Trial("half_split", 80, _full(FLOAT16, 2**32 // 3, 2**32 // 3, 3, 90, 64)),
    Trial("half_cores", 61, _full(FLOAT16, HEADS, HEADS, 70, 90, 64)),
    *(Trial(name, cc, _full(FLOAT16, HEADS, HEADS, 70, 90, 64)) for name, cc in ON_CAPABILITY),
)
# Of O, for V within about 4: roundings of O and P; of the LSE, where the rounded P are summed: their unit; of gradients
# as a part of the largest: rounding of the results, and of O.
OF_O = {FLOAT16: 2e-3, BFLOAT16: 1.6e-2}
OF_LSE = {FLOAT16: 5e-4, BFLOAT16: 4e-3}
OF_GRADIENTS = {FLOAT32: 5e-6, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}
FAR_BELOW = -300.0  # what the scores have in addition, in BELOW


def check_arrays(
    kernel: str, source: Path | None = None, data: Iterable[str] = (NORMAL, BELOW, UNEVEN, GROWING)
) -> list[str]:
    """What is wrong with a kernel of 16-bit attention or of gradients, in sentences; `source` is a file in place of its
    own. Raises InputError if it does not compile."""
    wanted = set(data)
    trials = [trial for trial in (*FORWARD, *BACKWARD) if trial.kernel == kernel and trial.data in wanted]
    trials += [trial for trial in FAR if trial.kernel == kernel and NORMAL in wanted]
    found = {sentence: None for trial in trials for sentence in check_trial(trial, source)}
    return [*found]


def check_trial(trial: Trial, source: Path | None = None) -> Iterator[str]:
    """What is wrong with one run."""
    if trial in FAR:
        yield from (f"{trial}: {finding}" for finding in _far(trial, source))
        return
    check = _forward if trial.kernel in ENTRIES16 else _backward
    for sentence in check(trial, source):
        yield f"{trial}: {sentence}"


def operands(trial: Trial, count: int) -> list[NDArray[Any]]:
    """Q, K, V and, of four, dO as words of the workload's type, arrays (batch, heads, rows, d).

    BELOW: the first column of Q and K makes each score less by 360, of later keys by up to 60 less. UNEVEN: rows of Q
    and of K grow from 1/8 to 2.
    GROWING: each key has larger scores than those before, from a twentieth to five times the usual."""
    work, draw = trial.work, np.random.default_rng(trial.seed)
    rows = [(work.heads, work.Nq), (work.kv_heads, work.Nk), (work.kv_heads, work.Nk), (work.heads, work.Nq)]
    arrays = [draw.standard_normal((work.batch, *sizes, work.d)) for sizes in rows[:count]]
    if trial.data == BELOW:
        far = (-FAR_BELOW / work.scale) ** 0.5
        arrays[0][..., 0], arrays[1][..., 0] = far, -far * np.linspace(1.2, 1, work.Nk)
    if trial.data == UNEVEN:
        for part in (0, 1):
            arrays[part] *= np.geomspace(1 / 8, 2, rows[part][1])[:, None]
    if trial.data == GROWING:
        arrays[0] = np.abs(4 * arrays[0])
        arrays[1] = np.abs(arrays[1]) * np.linspace(0.05, 5, work.Nk)[:, None] / work.d**0.5
    return [to_words(x.astype(np.float32), work.dtype) for x in arrays]


def _far(trial: Trial, source: Path | None) -> tuple[Finding, ...]:
    """What is wrong with the indices of a trial whose arrays are larger than all memory."""
    work, props = trial.work, replace(DEVICES[trial.cc], sms=MULTIPROCESSORS)
    forward, element = trial.kernel in ENTRIES16, 4 if work.dtype == FLOAT32 else 2
    rows = dict.fromkeys(("Q", "O", "dO", "dQ"), (work.heads, work.Nq))
    rows |= dict.fromkeys(("K", "V", "dK", "dV"), (work.kv_heads, work.Nk))
    plan: Any = plan16(work, props, trial.kernel) if forward else gradients.plan(work, props, trial.kernel)
    sizes = {name: element * work.batch * heads * count * work.d for name, (heads, count) in rows.items()}
    sizes |= {"LSE": 4 * work.batch * work.heads * work.Nq, "scratch": plan.scratch}
    inputs = {name: sizes[name] for name in (("Q", "K", "V") if forward else ("Q", "K", "V", "O", "dO", "LSE"))}
    made = {name: sizes[name] for name in (("O", "LSE") if forward else ("dQ", "dK", "dV"))}

    def params(at: Mapping[str, int]) -> bytes:
        def matrix(name: str) -> Matrix:
            heads, count = rows[name]
            return Matrix(at[name], heads * count * work.d, count * work.d, work.d)

        if forward:
            q, k, v, o = map(matrix, "QKVO")
            return arguments16(work, plan, half.Arrays(q, k, v, o, at["LSE"], at["scratch"]), tensor_map)
        ours = tuple(map(matrix, ("Q", "K", "V", "O", "dO", "dQ", "dK", "dV")))
        return gradients.arguments(plan, work, backward.Arrays(ours, at["LSE"], at["scratch"]), tensor_map)

    library = Library(shared_object(source or kernel_path(plan.source), plan.defines, trial.cc, 32, RACE))
    # Not where work is cut into parts, of which each block takes the next one until all are done.
    launches = [step for number, step in enumerate(plan.launches) if not (plan.cut and number == plan.main)]
    return far_findings(library, launches, inputs, made | {"scratch": sizes["scratch"]}, params)


def _forward(trial: Trial, source: Path | None) -> Iterator[str]:
    work = trial.work
    words = operands(trial, 3)
    name = ENTRIES16[trial.kernel].launched_by or trial.kernel
    given_q, given_k, given_v = (x.view(np.uint16) for x in words)
    got = run_half(
        work,
        given_q,
        given_k,
        given_v,
        kernel=name,
        cc=trial.cc,
        build=RACE,
        schedule=trial.schedule,
        source=source,
        sms=trial.sms,
        tiling=trial.tiling,
    )
    yield from map(str, got.findings)
    if not got.finished:
        return
    q, k, v = (from_words(x, work.dtype) for x in words)
    exact, lse = exact_heads(q, k, v, causal=work.causal, offset=work.offset, scale=work.scale)
    error = np.abs(from_words(got.o.view(np.int16), work.dtype) - exact)
    yield from _wrong("O", error, OF_O[work.dtype] * max(1, np.abs(v).max() / 4))
    seen = np.isfinite(lse)
    with np.errstate(invalid="ignore"):
        off = np.where(seen, np.abs(got.lse - lse) - 1e-6 * np.abs(lse), 0)
    off[~seen & ~np.isneginf(got.lse)] = np.inf
    yield from _wrong("the LSE", off, OF_LSE[work.dtype])


def _backward(trial: Trial, source: Path | None) -> Iterator[str]:
    work = trial.work
    words = operands(trial, 4)
    q, k, v, do = (from_words(x, work.dtype) for x in words)
    o, lse = exact_heads(q, k, v, causal=work.causal, offset=work.offset, scale=work.scale)
    kind = np.float32 if work.dtype == FLOAT32 else np.uint16
    given_q, given_k, given_v, given_do, given_o = (
        x.view(kind) for x in (*words, to_words(o.astype(np.float32), work.dtype))
    )
    how: dict[str, Any] = {"kernel": trial.kernel, "build": RACE, "cc": trial.cc, "source": source, "sms": trial.sms}
    how |= {"schedule": trial.schedule, "tile": trial.tiling}
    got = run_backward(work, given_do, given_q, given_k, given_v, given_o, lse.astype(np.float32), **how)
    yield from map(str, got.findings)
    if not got.finished:
        return
    expected = exact_gradients(do, q, k, v, causal=work.causal, offset=work.offset)
    # Scores of hundreds are rounded by 2^-16 in float32, and so are the weights; large numbers cancel in column 0.
    slack, from_column = (60, 1) if trial.data == BELOW else (1, 0)
    for name, one, right in zip(("dQ", "dK", "dV"), got.gradients, expected, strict=True):
        error = np.abs(from_words(one.view(words[0].dtype), work.dtype) - right)[..., from_column:]
        yield from _wrong(name, error, slack * OF_GRADIENTS[work.dtype] * max(float(np.abs(right).max()), 1e-3))


def _wrong(name: str, error: Numbers, allowed: float) -> Iterator[str]:
    wrong = ~(error <= allowed)
    if wrong.any():
        place = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1))), error.shape)
        yield (
            f"wrong answer: {int(wrong.sum())} of {error.size} elements of {name} are off by more than {allowed:.1e}: "
            f"by {error[place]:.2g} at {tuple(map(int, place))}"
        )
