"""How one file's time shrinks with more GPUs, from a record of benchmarks/scaling.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.problem import suite
from hw4cli.show.picture import Mark, Panel, Picture, Series, short_gpu
from hw4cli.system.reading import read_json
from hw4cli.text.words import printable

IDEAL = "as many GPUs"  # dashed, as what others measured is: nobody measured it


@dataclass(frozen=True)
class Scaling:
    """A record: the GPU, where it was measured, and for each file its (number of GPUs, times as fast as one)."""

    gpu: str
    facts: str
    files: dict[str, tuple[tuple[int, float], ...]]


def load_scaling(path: Path) -> Scaling:
    """A record that benchmarks/scaling.py wrote. InputError if it is none, or damaged."""
    try:
        raw = read_json(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is not a record of benchmarks/scaling.py: it is not JSON") from None
    if not isinstance(raw, dict) or raw.get("kind") != "scaling":
        raise InputError(f"{path} is not a record of several GPUs: make one with benchmarks/scaling.py")
    try:
        return _checked(raw, path)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        raise InputError(f"{path} is a damaged record of benchmarks/scaling.py") from None


def _checked(raw: dict[str, Any], path: Path) -> Scaling:
    files = {}
    for name, found in raw["strong"].items():
        times = sorted((int(row["gpus"]), float(row["stream"])) for row in found["rows"])
        (fewest, first), *_ = times
        B, N, d = map(int, found["shape"])
        title = name if name in suite.cases() else f"{B}x{N}x{d}"
        if not all(gpus > 0 and seconds > 0 for gpus, seconds in times):
            raise ValueError("times that cannot be")
        files[title] = tuple((gpus, fewest * first / seconds) for gpus, seconds in times)
    gpu = printable(raw["machine"]["gpu"] or "unknown GPU")
    facts = printable(f"{gpu}, driver {raw['machine']['driver']}, commit {raw.get('commit') or 'unknown'}, {path.name}")
    return Scaling(gpu, facts, files)


def scaling(records: Sequence[Scaling]) -> Picture:
    """Times as fast as one GPU, over the number of GPUs: a panel for each record, a curve for each file."""
    panels = []
    for record in records:
        counts = sorted({gpus for rows in record.files.values() for gpus, _ in rows})
        if len(counts) < 2:
            raise InputError("a record of one number of GPUs shows no scaling: run benchmarks/scaling.py --gpus 1,2")
        series = [Series(name, tuple(Mark(float(n), x, x, x) for n, x in rows)) for name, rows in record.files.items()]
        ideal = Series(IDEAL, tuple(Mark(float(n), float(n), float(n), float(n)) for n in counts))
        panels.append(Panel("lines", short_gpu(record.gpu), (*series, ideal), "speed-up, ×", "GPUs", True))
    note = "from the first GPU's opening to the last byte of a file in memory, beside one GPU"
    return Picture("One file on more GPUs", tuple(panels), (note,), tuple(record.facts for record in records))
