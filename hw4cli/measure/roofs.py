"""The rates that a GPU reaches: measured ones, kept for each GPU, before those of its data sheet."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.measure.gpus import TENSOR, UNITS, GpuModel
from hw4cli.system.files import write_text
from hw4cli.system.reading import read_json

SCHEMA = 1
LEAST, MOST = 1e-9, 1e12  # that can be a rate, in any unit
MEASURED, DATA_SHEET = "measured", "data sheet"


def unit_of(name: str) -> str:
    """The unit of a rate: that of a resource, or TFLOP/s of one of the tensor cores' paths ("wgmma fp16")."""
    return f"{UNITS.get(name, UNITS[TENSOR])}/s"


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
    write_text(path, json.dumps(record, indent=1) + "\n")
    return path


def kept(gpu: str) -> dict[str, Any] | None:
    """The record that was kept of a GPU; None if there is none, or if it is damaged."""
    with suppress(OSError, ValueError, InputError):
        return checked(read_json(path_of(gpu)), "it")
    return None


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
        raise InputError(f"{where} is not a record of roofs: make one with `hw4 roofs --output`")
    return dict(record)


def rates_of(model: GpuModel, gpu: str) -> tuple[dict[str, float], str]:
    """The rates of a GPU by the names of UNITS, and where they are from: measured ones where there are any."""
    record = kept(gpu)
    if record is None:
        return model.rates, DATA_SHEET
    measured = {name: float(rate) for name, rate in record["rates"].items() if name in UNITS}
    return {**model.rates, **measured}, MEASURED
