"""Attention of one sequence in shards on several GPUs, and its gradients: times, and errors beside float64 (torch).

Causal, the shards are in a zigzag, so that all GPUs compute equally much.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure.scripts import say
from hw4cli.arrays.shards.order import from_zigzag, zigzag_shards

SIZES = (1, 16, 1 << 18, 128)  # batch, heads, rows, d
ONCE = 1.5  # seconds: what takes longer is computed once
WARM = 16  # the part of the rows that is computed at first: compiles, opens rings
SAMPLES = 6  # rows, or keys, of the first head that are compared with float64
Tensors = list[Any]


def sequences(journal: Any, counts: list[int], runs: int, shrink: int = 1) -> None:
    """Measure what the journal lacks: forward and backward, causal or not, on each number of GPUs, the most at first.
    What fewer GPUs would take too long for, by the time of more, is left out."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast may put GPUs that others share out of service
    import torch

    sizes = (*SIZES[:2], SIZES[2] // shrink, SIZES[3])
    torch.manual_seed(1)
    whole = [torch.randn(sizes, device="cuda:0", dtype=torch.bfloat16) for _ in range(4)]  # q, k, v, do
    say(f"sequence in shards, {sizes} bfloat16")
    for direction, causal in (("forward", False), ("forward", True), ("backward", False), ("backward", True)):
        journal.attempt(_pass, journal, whole, sizes, direction, causal, counts, runs)


def _pass(journal: Any, whole: Tensors, sizes: Any, direction: str, causal: bool, counts: list[int], runs: int) -> None:
    """One pass on each number of GPUs."""
    seconds, more = 0.0, counts[-1]
    for count in reversed(counts):
        row = {"what": "sequence", "direction": direction, "causal": causal, "gpus": count}
        expected = seconds * more / count
        once = runs if expected < ONCE else 1
        if journal.lacks(**row) and journal.allows((once + 1) * expected, row):
            times, error = _measured(whole, direction, causal, count, once)
            seconds, more = _note(journal, {**row, "shape": sizes}, times, error), count


def _measured(whole: Tensors, direction: str, causal: bool, count: int, runs: int) -> tuple[list[float], float]:
    """Times of a pass, and its error beside float64."""
    few = shards([x[:, :, : x.shape[2] // WARM] for x in whole], count, causal)
    given = shards(whole, count, causal)
    _backward([*few, *_forward(few, causal)], causal) if direction == "backward" else _forward(few, causal)
    times, answers = timed(lambda: _forward(given, causal), runs if direction == "forward" else 1)
    o, lse = (joined(x, causal) for x in answers)
    if direction == "forward":
        return times, forward_error(whole, o, causal)
    times, found = timed(lambda: _backward([*given, *answers], causal), runs)
    return times, backward_error(whole, o, lse, [joined(x, causal) for x in found], causal)


def _forward(given: list[Tensors], causal: bool) -> list[Tensors]:
    """The shards of O and of LSE."""
    from hw4cli import attention_of_shards

    found = attention_of_shards(*given[:3], causal=causal, zigzag=causal, return_lse=True)
    return [list(x) for x in zip(*found, strict=True)]


def _backward(given: list[Tensors], causal: bool) -> list[Tensors]:
    """The shards of dQ, dK and dV."""
    from hw4cli import attention_backward_of_shards

    q, k, v, do, o, lse = given
    found = attention_backward_of_shards(do, q, k, v, o, lse, causal=causal, zigzag=causal)
    return [list(x) for x in zip(*found, strict=True)]


def _note(journal: Any, row: dict[str, Any], seconds: list[float], error: float) -> float:
    """Write a row; the median time."""
    median = statistics.median(seconds)
    _, heads, rows, d = row["shape"]
    flops = 4 * heads * rows * rows * d * (2.5 if row["direction"] == "backward" else 1) / (2 if row["causal"] else 1)
    mask = ", causal" if row["causal"] else ""
    say(
        f"  {row['gpus']} GPUs, {row['direction']}{mask}: {median:.4f} s, {flops / median / 1e12:.0f} TFLOP/s, "
        f"relative error {error:.1e}"
    )
    journal.add(**row, name="sequence", seconds=seconds, median=median, relative_error=error)
    return median


def shards(arrays: Tensors, count: int, causal: bool) -> list[Tensors]:
    """Equal parts of the rows of each array, one on each GPU."""
    parts = ((zigzag_shards(x, count) if causal else x.chunk(count, dim=2)) for x in arrays)
    return [[part.to(f"cuda:{n}").contiguous() for n, part in enumerate(one)] for one in parts]


def joined(parts: Tensors, causal: bool) -> Any:
    """The whole array, on the first GPU."""
    import torch

    here = [part.to("cuda:0") for part in parts]
    return from_zigzag(here) if causal else torch.cat(here, dim=2)


def timed(compute: Callable[[], list[Tensors]], runs: int) -> tuple[list[float], list[Tensors]]:
    """Seconds of each run, until all GPUs are through, and what the last one found."""
    import torch

    seconds = list[float]()
    for _ in range(runs):
        synchronize(torch)
        began = time.perf_counter()
        found = compute()
        synchronize(torch)
        seconds.append(time.perf_counter() - began)
    return seconds, found


def synchronize(torch: Any) -> None:
    """Wait for all GPUs."""
    for number in range(torch.cuda.device_count()):
        torch.cuda.synchronize(number)


def some_of(rows: int) -> Any:
    """The rows, or keys, that are compared."""
    import torch

    return torch.linspace(0, rows - 1, SAMPLES).long().to("cuda:0")


def weights(q: Any, k: Any, causal: bool) -> tuple[Any, Any]:
    """The softmax of some rows of the first head, in float64, and which rows these are."""
    import torch

    rows = k.shape[2]
    some = some_of(rows)
    s = q[0, 0][some].double() @ k[0, 0].double().T / q.shape[3] ** 0.5
    if causal:
        s[torch.arange(rows, device="cuda:0") > some[:, None]] = -torch.inf
    return torch.softmax(s, 1), some


def forward_error(whole: Tensors, o: Any, causal: bool) -> float:
    """The largest error of O beside float64, over the largest element, of some rows."""
    q, k, v, _ = whole
    p, some = weights(q, k, causal)
    right = p @ v[0, 0].double()
    return float((right - o[0, 0][some]).abs().max() / right.abs().max())


def backward_error(whole: Tensors, o: Any, lse: Any, gradients: Tensors, causal: bool) -> float:
    """The largest error of dQ of some rows, and of dK and dV of some keys, beside float64, each over the largest
    element. O and the sums of rows are those of the forward pass, which was compared before."""
    import torch

    q, k, v, do = (x[0, 0].double() for x in whole)
    dq, dk, dv = (x[0, 0] for x in gradients)
    scale, delta = q.shape[1] ** -0.5, (do * o[0, 0].double()).sum(1)
    p, some = weights(whole[0], whole[1], causal)
    right_q = (p * (do[some] @ v.T - delta[some, None])) @ k * scale
    s = q @ k[some].T * scale  # of all rows and some keys
    p = torch.exp(s - lse[0, 0].double()[:, None])
    if causal:
        p[torch.arange(len(q), device="cuda:0")[:, None] < some] = 0
    right_v = p.T @ do
    right_k = (p * (do @ v[some].T - delta[:, None])).T @ q * scale
    pairs = ((right_q, dq), (right_k, dk), (right_v, dv))
    return max(float((right - got[some]).abs().max() / right.abs().max()) for right, got in pairs)
