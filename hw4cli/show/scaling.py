"""How one file's time, or one sequence's, shrinks with more GPUs, from a record of benchmarks/measure/scaling.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.problem import suite
from hw4cli.problem.workload import Workload, most_gpus
from hw4cli.show.picture import Mark, Panel, Picture, Series, short_gpu
from hw4cli.stream.nodes.model import Prediction, Rates, predicted
from hw4cli.system.reading import read_json
from hw4cli.text.words import printable

STRONG, WEAK, SEQUENCE = "strong", "weak", "sequence"
IDEAL = "as many GPUs"  # dashed, as what others measured is: nobody measured it
PREDICTED_FOR = (1, 2, 4, 8)  # numbers of GPUs for which a prediction is drawn
MOST_GPUS, MOST_ELEMENTS, LEAST_RATE, MOST_RATE = 1 << 20, 1 << 40, 1.0, 1e30  # beyond which a record is damaged
LONG = 1.0  # seconds on the fewest GPUs: a shorter file is computed by one GPU, and nothing is predicted


@dataclass(frozen=True)
class Step:
    """A workload on a number of GPUs: the time, how many times the fewest GPUs' rate that is, and the time that the
    machine's rates predict, in seconds (None for arrays)."""

    what: str
    name: str
    gpus: int
    seconds: float
    speedup: float
    predicted: float | None
    row: dict[str, Any]  # as the record has it

    @property
    def kernel(self) -> str:
        """What computed a file."""
        return str(self.row.get("kernel", ""))

    @property
    def efficiency(self) -> float:
        """The speed-up for each GPU."""
        return self.speedup / self.gpus


@dataclass(frozen=True)
class Scaling:
    """A record: the GPU, where it was measured, the machine's rates where a kernel computes, and its steps."""

    gpu: str
    facts: str
    rates: Callable[[str], Rates]
    steps: tuple[Step, ...]

    def of(self, what: str) -> dict[str, list[Step]]:
        """The steps of each workload of a kind, by its name, from few GPUs to many."""
        steps = sorted((step for step in self.steps if step.what == what), key=lambda step: step.gpus)
        return {name: [step for step in steps if step.name == name] for name in dict.fromkeys(s.name for s in steps)}


def load_scaling(path: Path) -> Scaling:
    """A record that benchmarks/measure/scaling.py wrote. InputError if it is none, or damaged."""
    try:
        raw = read_json(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is not a record of several GPUs: it is not JSON") from None
    if not isinstance(raw, dict) or raw.get("kind") != "scaling":
        raise InputError(f"{path} is not a record of several GPUs: make one with python -m benchmarks.measure.scaling")
    try:
        return _checked(raw, path)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, InputError):
        raise InputError(f"{path} is a damaged record of several GPUs") from None


def _checked(raw: dict[str, Any], path: Path) -> Scaling:
    machine, rates = raw["machine"], rates_in(raw)
    gpu = printable(machine["gpu"] or "unknown GPU")
    facts = f"{gpu}, driver {machine['driver']}, commit {raw.get('commit') or 'unknown'}, {raw['date']}, {path.name}"
    first: dict[tuple[str, str], tuple[int, float]] = {}
    for row in raw["rows"]:
        key, here = (row["what"], _name(row)), (int(row["gpus"]), _seconds(row))
        if not (0 < here[0] < MOST_GPUS and 0 < here[1] < inf):
            raise ValueError("GPUs or times that cannot be")
        first[key] = min(here, first.get(key, here))
    steps = (_step(row, first[row["what"], _name(row)], rates) for row in raw["rows"])
    return Scaling(gpu, printable(facts), rates, tuple(steps))


def rates_in(raw: dict[str, Any]) -> Callable[[str], Rates]:
    """A record's rates of the machine where a kernel computes, given its name."""
    kernels = raw["rates"].get("kernels", {})
    found = {key: value for key, value in raw["rates"].items() if key not in ("by", "kernels")}
    known = [*found.items(), *kernels.items()]
    least = {"opening": 0.0, "starting": 0.0}  # seconds, of which there may be none
    if not all(v is None or (type(v) in (int, float) and least.get(k, LEAST_RATE) <= v < MOST_RATE) for k, v in known):
        raise ValueError("rates that cannot be")
    rates = Rates(**found)
    return lambda kernel: replace(rates, flops=float(kernels.get(kernel, rates.flops)))


def _step(row: dict[str, Any], first: tuple[int, float], rates: Callable[[str], Rates]) -> Step:
    what, gpus, seconds = row["what"], int(row["gpus"]), _seconds(row)
    fewest, slowest = first
    work = gpus if what == WEAK else fewest  # in shares of what one GPU does in the time of the fewest
    known = rates(str(row.get("kernel", "")))
    by_model = None if what == SEQUENCE else prediction_of(_shape(row), known, gpus).seconds
    return Step(what, _name(row), gpus, seconds, work * slowest / seconds, by_model, row)


def prediction_of(shape: Workload, rates: Rates, gpus: int) -> Prediction:
    """What the model says, of as many GPUs as `hw4` takes for a file of this shape."""
    return predicted(shape, rates, min(gpus, most_gpus("all", shape)))


def _shape(row: dict[str, Any]) -> Workload:
    B, N, d = map(int, row["shape"])
    shape = Workload.one_head(B, N, d)
    shape.check("shape")
    if shape.elements > MOST_ELEMENTS:
        raise ValueError("a shape of which nobody measured a file")
    return shape


def _seconds(row: dict[str, Any]) -> float:
    return float(row["median" if row["what"] == SEQUENCE else "stream"])


def _name(row: dict[str, Any]) -> str:
    if row["what"] == SEQUENCE:
        return f"{row['direction']}{'-causal' if row['causal'] else ''}"
    sizes = "x".join(str(int(size)) for size in row["shape"])
    return printable(row["name"]) if row["what"] == WEAK or row["name"] in suite.cases() else sizes


def scaling(records: Sequence[Scaling]) -> Picture:
    """Times as fast as one GPU, over the number of GPUs: for each record, a curve for each file, beside what the
    machine's rates predict; and one for each pass over a sequence of arrays in shards."""
    panels = []
    for record in records:
        files, passes = record.of(STRONG), record.of(SEQUENCE)
        if max((len(steps) for steps in (*files.values(), *passes.values())), default=0) < 2:
            raise InputError("a record of one number of GPUs shows no scaling: make one with --gpus 1,2")
        predictions = {
            f"{name} predicted": _predicted(steps, record.rates(steps[0].kernel)) for name, steps in files.items()
        }
        panels += _panels(f"{short_gpu(record.gpu)}, one file", files, {k: v for k, v in predictions.items() if v})
        panels += _panels(f"{short_gpu(record.gpu)}, one sequence in shards", passes, {})
    note = "from the first GPU's opening to the last byte of a file in memory; of a sequence, from call to results"
    return Picture("More GPUs", tuple(panels), (note,), tuple(record.facts for record in records))


def _panels(title: str, workloads: dict[str, list[Step]], predictions: dict[str, tuple[Mark, ...]]) -> list[Panel]:
    """A panel of speed-ups; none if nothing was measured."""
    if not workloads:
        return []
    series = [Series(name, tuple(_mark(s.gpus, s.speedup) for s in steps)) for name, steps in workloads.items()]
    series += [Series(name, marks) for name, marks in predictions.items()]
    counts = sorted({int(float(mark.at)) for one in series for mark in one.marks})
    ideal = Series(IDEAL, tuple(_mark(count, count) for count in counts))
    return [Panel("lines", title, (*series, ideal), "speed-up, ×", "GPUs", True)]


def _predicted(steps: Sequence[Step], rates: Rates) -> tuple[Mark, ...]:
    """The predicted speed-up of a file that takes long."""
    if steps[0].seconds < LONG:
        return ()
    times = {count: prediction_of(_shape(steps[0].row), rates, count).seconds for count in PREDICTED_FOR}
    return tuple(_mark(count, times[PREDICTED_FOR[0]] / seconds) for count, seconds in times.items())


def _mark(gpus: int, speedup: float) -> Mark:
    return Mark(float(gpus), speedup, speedup, speedup)
