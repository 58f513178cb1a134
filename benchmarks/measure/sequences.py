"""Packed sequences of several lengths beside FlashAttention 2 and 4, cuDNN and FlexAttention.

    python -m benchmarks.measure.sequences --output benchmarks/sequences/h200.json

Lengths are drawn log-normally from a seed: of documents and requests (32 heads on 8 of K and V, d = 128), and of
sentences (12 heads, d = 64). Each answer, the peers' too, is first held beside float64's, of the shortest, the longest
and one more sequence; a peer that is not installed, is wrong or compiles for too long is left out, with the reason.
Times are of whole calls one behind the other, by CUDA events; all take turns, and medians count.
"""

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measure.peers import PEERS, Call, Way, beside
from benchmarks.measure.scripts import end_with, new_file, say, write_record
from benchmarks.measure.turns import Prepare, Rows, Versions, in_turns

# How many sequences, the median and the spread of their lengths, the least and the most; heads, heads of K and V, d.
MIXES = {
    "documents": ((16, 3000, 0.9, 1000, 16384), (32, 8, 128)),
    "requests": ((24, 900, 0.9, 200, 4096), (32, 8, 128)),
    "sentences": ((32, 200, 0.9, 32, 512), (12, 12, 64)),
    "short sentences": ((128, 40, 0.9, 8, 128), (12, 12, 64)),
}
SEED, ROUNDS, CALLS, WARM_UP = 1, 9, 10, 3
LONG, FEW = 2.0, 3  # milliseconds of a call, and how many calls of what takes longer are one behind the other
ALLOWED = 0.03  # of O and of gradients, bf16 numbers around 1, beside the largest


def lengths_of(count: int, median: int, spread: float, least: int, most: int) -> list[int]:
    """So many lengths, the same ones each time."""
    draw, found = random.Random(SEED), list[int]()
    while len(found) < count:
        length = int(draw.lognormvariate(math.log(median), spread))
        if least <= length <= most:
            found.append(length)
    return found


class Mix:
    """Tensors of a mix, and our functions."""

    def __init__(self, lengths: list[int], heads: tuple[int, int, int], causal: bool) -> None:
        import torch

        self.torch, self.lengths, self.causal = torch, lengths, causal
        self.starts = [0, *itertools.accumulate(lengths)]
        (count, kv_count, d), total = heads, self.starts[-1]
        torch.manual_seed(SEED)

        def rows(n: int) -> Any:
            return torch.randn(total, n, d, device="cuda", dtype=torch.bfloat16)

        self.q, self.k, self.v, self.do = rows(count), rows(kv_count), rows(kv_count), rows(count)
        pairs = sum(n * n for n in lengths) / (2 if causal else 1)
        self.flops = 4 * count * d * pairs

    def ours(self) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """A call, and one of its gradients."""
        from hw4cli import attention, attention_backward

        asked: dict[str, Any] = {"cu_seqlens_q": self.starts, "cu_seqlens_k": self.starts, "causal": self.causal}
        asked["layout"] = "BNHD"
        o, lse = attention(self.q, self.k, self.v, return_lse=True, **asked)
        return (
            lambda: attention(self.q, self.k, self.v, **asked),
            lambda: attention_backward(self.do, self.q, self.k, self.v, o, lse, **asked),
        )

    def call(self) -> Call:
        """What the peers are asked for."""
        return Call(self.q, self.k, self.v, self.do, self.causal, starts=tuple(self.starts))

    def check(self, o: Any, gradients: Any) -> None:
        """Raise RuntimeError unless O and dQ of three sequences are near float64's."""
        torch = self.torch
        order = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
        for n in {order[0], order[len(order) // 2], order[-1]}:
            some, group = slice(self.starts[n], self.starts[n + 1]), self.q.shape[1] // self.k.shape[1]
            for head in (0, self.q.shape[1] - 1):
                q, do = (x[some, head].double().requires_grad_() for x in (self.q, self.do))
                k, v = (x[some, head // group].double() for x in (self.k, self.v))
                s = q @ k.T / math.sqrt(q.shape[1])
                if self.causal:
                    s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), -torch.inf)
                right = s.softmax(1) @ v
                (dq,) = torch.autograd.grad(right, q, do)
                for what, got, exact in (("O", o, right), ("dQ", gradients[0], dq)):
                    error = (got[some, head].double() - exact).abs().max().item()
                    if not error <= ALLOWED * max(1.0, exact.abs().max().item()):
                        raise RuntimeError(f"{what} of sequence {n} is off by {error:.2g}")


def milliseconds(torch: Any, ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median time of a call of each, in turns."""

    def a_call(way: Callable[[], Any], calls: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            way()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / calls

    calls = {name: FEW if a_call(way, WARM_UP) > LONG else CALLS for name, way in ways.items()}
    rounds = [{name: a_call(way, calls[name]) for name, way in ways.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(one[name] for one in rounds) for name in ways}


def shown(times: dict[str, float], absent: dict[str, str]) -> str:
    """Times and what is missing, in a line."""
    return ", ".join(
        [*(f"{one} {ms:.3f} ms" for one, ms in times.items()), *(f"no {one}: {why}" for one, why in absent.items())]
    )


def rows_of(
    torch: Any, ways: dict[str, tuple[Way, Way]], flops: float, facts: dict[str, Any], absent: dict[str, str], case: str
) -> Callable[[], Rows]:
    """What times a case, and says how long it took: its rows, forward and backward, with these facts of it. `ways`: a
    call and one of its gradients by each; `flops`: of the forward pass."""

    def rows() -> Rows:
        found = []
        for place, (direction, products) in enumerate((("forward", 1.0), ("backward", 2.5))):
            times = milliseconds(torch, {name: made[place] for name, made in ways.items()})
            measured = {"ms": times, "tflops": products * flops / times["hw4"] / 1e9}
            found.append({**facts, "pass": direction, "status": "ok", **measured, "absent": absent})
            say(f"{case}, {direction}: {shown(times, absent)}")
        return found

    return rows


def prepare(case: tuple[str, bool]) -> Callable[[], Rows]:
    """What times a mix, with or without a mask: its rows, forward and backward."""
    name, causal = case
    drawn, heads = MIXES[name]
    mix = Mix(lengths_of(*drawn), heads, causal)
    ours = mix.ours()
    mix.check(ours[0](), ours[1]())
    peers, absent = beside(mix.call(), mix.check, PEERS)
    facts = {
        **{"mix": name, "sequences": len(mix.lengths), "tokens": mix.starts[-1]},
        **{"shortest": min(mix.lengths), "longest": max(mix.lengths)},
        **{"heads": heads[0], "kv_heads": heads[1], "d": heads[2], "dtype": "bfloat16", "causal": causal},
    }
    return rows_of(mix.torch, {"hw4": ours, **peers}, mix.flops, facts, absent, f"{name}, causal={causal}")


HOW = f"{CALLS} calls one behind the other ({FEW} of more than {LONG:g} ms), medians of {ROUNDS} rounds in turns"


def record(about: str, kind: str, measure: Callable[[], Rows | tuple[Rows, Versions]], how: str = HOW) -> None:
    """Measure, and write the record of whole calls in turns to the file of the command line; `about`: the program's own
    words. Versions of packages beside the rows count among the machine's."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--output", type=new_file, required=True)
    options = parser.parse_args()
    from hw4cli.device.gpu import Gpu
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.record import heading
    from hw4cli.system.machine import machine

    timer = GpuTimer(Gpu())
    before = timer.clocks()
    found = measure()
    rows, versions = found if isinstance(found, tuple) else (found, {})
    clocks = {"before": before, "after": timer.clocks()}
    own = {"machine": machine(timer.machine(), True) | versions, "clocks": clocks, "method": {kind: how}}
    write_record(options.output, {**heading(kind), **own, "rows": rows})


def record_in_turns(about: str, kind: str, prepare: Prepare, cases: Sequence[Any]) -> None:
    """The record of these cases, a process for each."""
    record(about, kind, lambda: in_turns(prepare, cases))


def main() -> None:
    """All mixes."""
    record_in_turns(__doc__ or "", "sequences", prepare, [(name, causal) for name in MIXES for causal in (True, False)])


if __name__ == "__main__":
    end_with(main)
