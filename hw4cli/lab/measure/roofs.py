"""The rates that a GPU reaches: measured ones, kept for each GPU, before those of its data sheet."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.lab.measure.gpus import TENSOR, UNITS, GpuModel, model_named
from hw4cli.system.files import write_text
from hw4cli.system.reading import read_json
from hw4cli.text.records import record_text

LEAST, MOST = 1e-9, 1e12  # that can be a rate, in any unit
MEASURED, DATA_SHEET = "measured", "data sheet"


def unit_of(name: str) -> str:
    """The unit of a rate: that of a resource, or TFLOP/s of one of the tensor cores' paths ("wgmma fp16"), of integers
    TOP/s."""
    return "TOP/s" if name.endswith("int8") else f"{UNITS.get(name, UNITS[TENSOR])}/s"


def folder() -> Path:
    """Where roofs are kept: hw4/roofs in XDG_CACHE_HOME, or in ~/.cache."""
    home = Path(os.environ.get("HOME", "/nonexistent"))
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "hw4" / "roofs"


def path_of(gpu: str) -> Path:
    """The file of a GPU's roofs."""
    return folder() / f"{re.sub(r'[^A-Za-z0-9]+', '-', gpu).strip('-')}.json"


def keep(record: Mapping[str, Any]) -> Path:
    """Write a record to its GPU's file, and return that. Raises OSError and MachineError if it cannot be written."""
    path = path_of(record["machine"]["gpu"])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, record_text(record))
    return path


def kept(gpu: str) -> dict[str, Any] | None:
    """The record that was kept of a GPU; None if there is none, or if it is damaged. For the name of a model, as in
    H100, the newest of GPUs that are called so, as in NVIDIA H100 80GB HBM3, unless there is one of that very name."""
    for path in (path_of(gpu), *_newest_first()):
        with suppress(OSError, ValueError, InputError):
            record = checked(read_json(path), "it")
            if path == path_of(gpu) or _is_called(record["machine"]["gpu"], gpu):
                return record
    return None


def _newest_first() -> list[Path]:
    with suppress(OSError):
        return sorted(folder().glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    return []


def _is_called(gpu: str, asked: str) -> bool:
    """Whether a whole GPU has the model that is asked for, by its name or compute capability. InputError for a model
    that is not known."""
    model, words = model_named(asked), asked.casefold()
    whole_name = model.name.casefold() in words and model.name.casefold() != words  # which is that of one GPU alone
    return not whole_name and " MIG " not in gpu and model_named(gpu) is model


def read(path: Path) -> dict[str, Any]:
    """The record of a file. Raises InputError if it cannot be read, or is none of roofs."""
    try:
        return checked(read_json(path), str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is not a JSON file") from None


def checked(record: Any, where: str) -> dict[str, Any]:
    """A record of roofs, read from JSON. Raises InputError if it is none."""
    rates = record.get("rates") if isinstance(record, dict) and record.get("kind") == "roofs" else None
    machine = record.get("machine") if isinstance(record, dict) else None
    named = isinstance(machine, dict) and isinstance(machine.get("gpu"), str)
    if (
        not named
        or not isinstance(rates, dict)
        or not rates
        or not all(type(rate) in (int, float) and LEAST < rate < MOST for rate in rates.values())
    ):
        raise InputError(f"{where} is not a record of roofs: make one with `hw4 bench roofs -o FILE.json`")
    return dict(record)


def rates_of(model: GpuModel, gpu: str) -> tuple[dict[str, float], str]:
    """The rates of a GPU by the names of UNITS, and where they are from: measured ones where there are any."""
    record = kept(gpu)
    if record is None:
        return model.rates, DATA_SHEET
    measured = {name: float(rate) for name, rate in record["rates"].items() if name in UNITS}
    return {**model.rates, **measured}, MEASURED
