"""What `hw4 tune` found, a file for each GPU: for a workload, kernels from fast to slow and their tiles.

A finding counts for its GPU, driver, compiler and version of hw4 alone: with another one, it is as if nothing had been
tuned. Where nothing was, what was found on a GPU of the same name for the records in benchmarks/tuned counts.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.device.tuning.measured import TUNED
from hw4cli.plans.plan import Tile
from hw4cli.problem.workload import Workload
from hw4cli.system.files import locked, write_text
from hw4cli.system.reading import read_json
from hw4cli.text.dates import today

SCHEMA = 1
FILES, ARRAYS = "workloads", "arrays"  # of a GPU's file: workloads of files, and of arrays


@dataclass(frozen=True)
class Machine:
    """What a finding depends on: the GPU's name, the driver's version of CUDA, and the compiler."""

    gpu: str
    driver: int
    compiler: str

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"gpu": self.gpu, "driver": self.driver, "compiler": self.compiler}


def machine_of(gpu: Gpu) -> Machine:
    """What findings on an opened GPU depend on."""
    return Machine(gpu.name, gpu.code.driver, gpu.code.compiler_id)


@dataclass(frozen=True)
class Finding:
    """Of a workload: kernels from fast to slow; the tile of a kernel, where one is surely faster than its own; the
    date; and where it was found."""

    kernels: tuple[str, ...]
    tiles: Mapping[str, Tile] = field(default_factory=dict)
    date: str = ""
    where: str = "this GPU"

    @property
    def why(self) -> str:
        """How the order of the kernels is known."""
        return f"tuned on {self.where} for this workload on {self.date}"


def workload(shape: Workload) -> str:
    """The name of a workload: N, d, the mask, and rows of all batches as a power of two.

    >>> workload(Workload.one_head(4, 16384, 64))
    'N=16384 d=64 rows=2^16'
    """
    rows = (shape.B * shape.N).bit_length() - 1
    return f"N={shape.N} d={shape.d} rows=2^{rows}{' causal' if shape.causal else ''}"


def path_of(gpu: str) -> Path:
    """The file of a GPU's findings: in hw4/tuned of XDG_CACHE_HOME, or of ~/.cache."""
    home = Path(os.environ.get("HOME", "/nonexistent"))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "hw4" / "tuned"
    return folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', gpu).strip('-')}.json"


def found(machine: Machine, shape: Workload) -> Finding | None:
    """What was found for a workload here, or else on another GPU of this name; None if nothing was."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        entry = _entries(machine)[workload(shape)]
        if not isinstance(entry["kernels"], list) or not all(map(_is_tile, entry["tiles"].values())):
            raise ValueError
        return Finding(tuple(map(str, entry["kernels"])), entry["tiles"], str(entry["date"]))
    if known := TUNED.get(machine.gpu, {}).get(workload(shape)):
        return Finding(*known, where=f"an {machine.gpu}")
    return None


def keep(machine: Machine, shape: Workload, finding: Finding) -> Path:
    """Add a finding to its GPU's file, and return that. Raises OSError and MachineError if it cannot be written."""
    entry = {
        "kernels": [*finding.kernels],
        "tiles": {name: dict(tile) for name, tile in finding.tiles.items()},
        "date": finding.date or today(),
    }
    return _write(machine, FILES, workload(shape), entry)


def arrays(work: Workload) -> str:
    """The name of a workload of arrays of one length: element type, rows, keys, d, V's columns where these are others,
    the mask, what becomes of scores, and heads of all batches as a power of two.

    >>> arrays(Workload("float16", 4, 32, 8, 8192, 8192, 128, True))
    'float16 Nq=8192 Nk=8192 d=128 heads=2^7 group=4 causal 0'
    """
    heads = (work.batch * work.heads).bit_length() - 1
    mask = f" causal {work.offset}" if work.causal else ""
    mask += f" window {work.window}" if work.window else ""
    if work.score:
        mask += f" score {work.score.change!r} {work.score.keep!r}"
    group, width = work.heads // work.kv_heads, f"d={work.d}{f' dv={work.dv}' if work.dv else ''}"
    return f"{work.dtype} Nq={work.Nq} Nk={work.Nk} {width} heads=2^{heads} group={group}{mask}"


class Tilings:
    """The tilings of kernels of arrays that were found on a GPU, by its file as it is now."""

    def __init__(self, machine: Machine) -> None:
        self._entries = _entries(machine, ARRAYS)

    def of(self, work: Workload, kernel: str, own: Any) -> Any:
        """The tiling of a kernel that was found for a workload, of the same form as its `own`; None if none was, or
        what is kept is no such tiling, or sequences are of several lengths."""
        if not self._entries or work.sequences:
            return None
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            entry = self._entries[arrays(work)]
            kept, like = entry["tiling"], own._asdict()
            alike = [type(kept[name]) is type(like[name]) and 0 <= kept[name] < 2**31 for name in like]
            if entry["kernel"] == kernel and kept.keys() == like.keys() and all(alike):
                return type(own)(**kept)
        return None


def keep_tiling(machine: Machine, work: Workload, kernel: str, tiling: Any) -> Path:
    """Keep a tiling of a kernel of arrays, and return the file. Raises as `keep` does."""
    entry = {"kernel": kernel, "tiling": tiling._asdict(), "date": today()}
    return _write(machine, ARRAYS, arrays(work), entry)


def _write(machine: Machine, kind: str, name: str, entry: Mapping[str, Any]) -> Path:
    """Add an entry to a GPU's file, beside those that count, and return that."""
    path = path_of(machine.gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        kept = {one: _entries(machine, one) for one in (FILES, ARRAYS)}
        kept[kind] = {**kept[kind], name: dict(entry)}
        write_text(path, json.dumps({**_head(machine), **kept}, indent=1) + "\n")
    return path


def _head(machine: Machine) -> dict[str, Any]:
    """What a file must begin with, to count."""
    version = import_module("hw4cli").__version__  # which names what imports this module
    return {"schema": SCHEMA, "hw4": version, "machine": machine.record()}


def _is_tile(tile: Any) -> bool:
    whole = all(type(size) is int and 0 < size < 2**31 for size in tile.values())
    return whole and {"BR", "BC"} <= {*tile}


def _entries(machine: Machine, kind: str = FILES) -> dict[str, Any]:
    """The workloads of a GPU's file, of files or of arrays; none if it is missing, damaged, or of another machine or
    version of hw4."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        document = read_json(path_of(machine.gpu))
        if _head(machine).items() <= document.items():
            return dict(document[kind]) if isinstance(document.get(kind), dict) else {}
    return {}
